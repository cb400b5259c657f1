"""Jobs of pretrained networks: translators, each tested like a trained one, and captioners."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from data.captions.table import listed_captions, training_images
from data.pictures.regions import RegionStore
from data.text.languages import language_name
from data.translators.answer_tokens import AnswerTokens
from modules.translators.beam import BeamSettings
from modules.translators.image_text import ImageTextTranslator
from pipeline.corpus.prepare import pictures_digest
from pipeline.engine.files import require_network
from pipeline.engine.job import Job
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.recipes.settings import Recipe
from pipeline.recipes.systems import parse_path
from pipeline.recipes.trainer_settings import job_settings
from pipeline.recipes.translator_settings import CaptionerSettings
from pipeline.translation.augment import captions_headline, leave_written
from pipeline.translation.evaluation import evaluate_translator, settings_of_test, translation_headline
from pipeline.translation.parallel_text import parallel_text_of
from pipeline.translation.translating import TranslationMemory, identity_of_pretrained, translate_all
from pipeline.translation.translator_files import PRETRAINED, load_pretrained

VERSION = 1
CAPTIONER = "augment.captioner"
_READ = (".json", ".jinja", ".txt", ".model", ".spm", ".safetensors")
_PICTURES = 64  # opened at a time


def pretrained_job(recipe: Recipe, workspace: Workspace, system: str, direction: str, corpus: Job) -> Job:
    """Test a translator of `mmt.pretrained` on the corpus's pairs of a direction, if there are any.

    Its key is of the files of a folder, or of the name and the revision on the hub. It leaves `network.json`, with the
    commit that was loaded, by which later jobs load it.

    Raises:
        RecipeError: a folder is not there, or holds no model.
    """
    settings, about = recipe.mmt, recipe.mmt.pretrained[system]
    source, target = direction.split("-")
    model = about.model.replace("{source}", source).replace("{target}", target)
    name, digest = place_of(model, f"mmt.pretrained.{system}.model", "translator", workspace)
    codes = {language: about.codes[language] for language in direction.split("-") if language in about.codes}
    network: dict[str, Any] = {"name": name, "direction": direction, "codes": codes, "revision": about.revision}
    plain = settings_of_test(settings) | {"trainer": job_settings(settings)["trainer"]}
    if about.sees:
        names = {"{source}": language_name(source), "{target}": language_name(target)}
        network |= {"prompt": filled(about.prompt or "", names), "longest": about.longest}
        plain["pictures"] = pictures_digest(recipe, workspace)
    plain[PRETRAINED] = network | {"name": digest or name}
    title = f"{system}-{direction}"

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Load it, then translate validation, test and twins."""
        commit = load_pretrained(network)[0].commit
        written = {PRETRAINED: network | {"revision": commit}}
        (folder / "network.json").write_text(json.dumps(written, indent=1), encoding="utf-8")
        pairs = parallel_text_of(inputs, direction, settings)
        memory = TranslationMemory(folder, identity_of_pretrained(plain[PRETRAINED], folder))
        return {"model": name, "commit": commit, **evaluate_translator(recipe, folder, pairs, title, memory)}

    def headline(figures: Mapping[str, Any]) -> str:
        """Its figures, or why there are none, as text."""
        return translation_headline(figures) or f"not tested: the corpus has no {direction} pairs"

    return Job(title, "mmt", VERSION, plain, {"corpus": corpus}, run, True, asdict(settings.trainer), headline)


def captioner_job(
    recipe: Recipe, workspace: Workspace, corpus: Job, captioner: CaptionerSettings, path: str
) -> Job:  # fmt: skip
    """Let a vision-language model write a caption of each training image; it leaves `captions.parquet`.

    It is of stage `augment`. A caption is a translation of nothing, with the picture.

    Args:
        captioner: the network, and what it is asked.
        path: `caption:de`.

    Raises:
        RecipeError: a folder is not there, or holds no model.
    """
    settings, (language,) = recipe.augment, parse_path(path)[1]
    name, digest = place_of(captioner.model, f"{CAPTIONER}.model", "vision-language model", workspace)
    prompt = filled(captioner.prompt, {"{language}": language_name(language)})
    search = BeamSettings(settings.beam_size, settings.length_penalty)

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Write, and leave the captions."""
        network = ImageTextTranslator(name, prompt, captioner.longest, captioner.revision, CAPTIONER)
        human = listed_captions(inputs["corpus"] / "captions.parquet")
        tokens = AnswerTokens(network.processor.tokenizer, language)
        images, store = training_images(human), RegionStore(inputs["corpus"] / "regions", check_values=False)
        nothing = tokens.encode_all([""] * len(images), language)
        found = translate_all(
            network, tokens, nothing, images, store, language, search, _PICTURES, settings.trainer,
            kept=folder / "checkpoints" / (network.commit or ""),  # what another commit wrote is not taken over
        )  # fmt: skip
        written = {image: best.text for image, (best, *_) in zip(images, found, strict=True)}
        otherwise = f"change its prompt ({CAPTIONER}.prompt)"
        figures = leave_written(folder, path, written, human, inputs["corpus"], otherwise)
        return {"model": name, "commit": network.commit, **figures}

    plain: dict[str, Any] = {
        "path": path, "search": asdict(search), "network": digest or name, "revision": captioner.revision,
        "prompt": prompt, "longest": captioner.longest, "pictures": pictures_digest(recipe, workspace),
        "trainer": job_settings(settings)["trainer"],
    }  # fmt: skip
    job = f"synthetic-{path.replace(':', '-')}"
    return Job(
        job, "augment", VERSION, plain, {"corpus": corpus}, run, True, asdict(settings.trainer), captions_headline
    )


def filled(prompt: str, values: Mapping[str, str]) -> str:
    """A prompt with names in the place of `{language}` …; other braces stay."""
    for mark, value in values.items():
        prompt = prompt.replace(mark, value)
    return prompt


def place_of(model: str, key: str, what: str, workspace: Workspace) -> tuple[str, str | None]:
    """Where a network lies, and a digest of its files if that is a folder.

    Args:
        model: a folder, or a name on the hub.
        key: of the recipe, for messages.
        what: is expected there, for messages.

    Raises:
        RecipeError: the folder is not there, or holds no network.
    """
    folder = Path(model)
    if not folder.is_dir():
        require_network(model, key, what)
        return model, None
    if not (folder / "config.json").is_file():
        raise RecipeError(f"{key}: {model} holds no config.json; expected a folder with a {what} of transformers")
    files = sorted(path for path in folder.iterdir() if path.suffix in _READ)
    return str(folder.absolute()), workspace.fingerprint(files)
