"""Stage augment: human captions of training images become synthetic ones, along each path of translators."""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from datasets import Dataset as Table

from data.captions.table import (
    HUMAN,
    Caption,
    choose,
    listed_captions,
    read_captions,
    refuse_held_out,
    write_captions,
)
from data.pictures.regions import RegionStore
from data.text.text_inputs import tokens_of, words_of_all
from data.text.tokenisation import spaced
from modules.metrics.synthetic import lexical_diversity
from pipeline.corpus.prepare import pictures_of
from pipeline.engine.console import debug
from pipeline.engine.job import Job
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.recipes.networks import decoding_of
from pipeline.recipes.settings import Recipe
from pipeline.recipes.systems import parse_path
from pipeline.recipes.trainer_settings import job_settings
from pipeline.recipes.translator_settings import DecodingSettings
from pipeline.translation.leakage import lenders_of, refuse_seen_images
from pipeline.translation.translating import Translated, TranslationMemory, translate_all, translator_identity
from pipeline.translation.translator_files import load_translator
from pipeline.visualization.dashboards import Example, examples_html

VERSION = 1
_EXAMPLES = 20
_NOT_OF_A_PATH = ("paths", "batch_tokens", "translators", "captions", "searches", "filters", "captioner")


def say_captions(workspace: Workspace, jobs: Iterable[Job]) -> None:
    """With `--verbose`, what finished jobs have written."""
    for job in jobs:
        folder, figures = workspace.folder(job), workspace.manifest(job)["metrics"]
        debug(
            f"  {job.name}: {figures['captions']:,} captions; unique tokens {figures['unique_source']:,} → "
            f"{figures['unique_with_synthetic']:,}; examples: {folder / 'examples.html'}"
        )


def reads_pictures(translator: Job) -> bool:
    """Is a translator, or a part of one, a vision-language model?"""
    parts = [job for job in translator.inputs.values() if job.stage == "mmt"]
    return "pictures" in translator.settings or any(map(reads_pictures, parts))


def _to_mend(recipe: Recipe, path: str) -> str:
    """What to do about a translator whose translations are empty."""
    system = parse_path(path)[0]
    if recipe.mmt.is_pretrained(system):
        return f"take another translator (mmt.pretrained.{system}.model)"
    return "train longer (mmt.finetune.steps)"


def synthesis_job(
    recipe: Recipe, path: str, corpus: Job, translator: Job, before: Job | None, read: Mapping[str, Any]
) -> Job:
    """The job of a path's last hop; `read` is of the corpus and in its key."""
    settings = recipe.augment
    plain = {key: value for key, value in job_settings(settings).items() if key not in _NOT_OF_A_PATH}
    _, (origin, *_), name = parse_path(path)
    language, target = parse_path(path)[1][-2:]
    wanted = DecodingSettings(beam_size=settings.beam_size, length_penalty=settings.length_penalty)
    if name is not None:
        wanted = settings.searches[name]
        plain = {key: plain[key] for key in plain if key not in ("beam_size", "length_penalty")}
        plain |= {"search": asdict(wanted), "seed": recipe.seed}
    # the best of a plain path; else as many as a search keeps, since equal ones may be among them
    most = 1 if name is None else wanted.captions if wanted.method == "sample" else wanted.beam_size

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Translate, and leave captions and examples."""
        refuse_seen_images(inputs)
        human = listed_captions(inputs["corpus"] / "captions.parquet")
        if "before" in inputs:
            source = listed_captions(inputs["before"] / "captions.parquet")
        else:
            source = [caption for caption in human if caption.language == language and caption.split == "train"]
        refuse_held_out(source, human)
        if not source:
            raise RecipeError(f"augment {path}: no training caption in {language!r}; see the data report of the corpus")
        network, bpe = load_translator(inputs["translator"])
        store = RegionStore(inputs["corpus"] / "regions", check_values=False)
        if network.regions is not None and network.regions.in_features != store.dim:
            raise RecipeError(
                f"augment {path}: {translator.name} reads regions of {network.regions.in_features} numbers, this "
                f"corpus has {store.dim}; use translators trained on the same features (augment.translators)"
            )
        memory = TranslationMemory(folder, translator_identity(inputs["translator"]))
        candidates = translate_all(
            network, bpe, bpe.encode_all([caption.text for caption in source], language),
            [caption.image_id for caption in source], store, target, decoding_of(wanted, recipe.seed),
            settings.batch_tokens, settings.trainer, most, kept=folder / "checkpoints", memory=memory,
        )  # fmt: skip
        synthetic = [
            Caption(caption.image_id, f"{parent}|{path}{number}", target, new.text, "train", path, parent, new.score)
            for caption, translations in zip(source, candidates, strict=True)
            for parent in [caption.parent or caption.caption_id]
            for number, new in _numbered(translations, wanted.captions)
        ]
        if not synthetic:
            raise RecipeError(f"augment {path}: every translation is empty; {_to_mend(recipe, path)}")
        originals = {caption.caption_id: caption for caption in human}
        _write_examples(folder, path, synthetic, originals, pictures_of(inputs["corpus"]), (origin, target))
        empty = sum(not any(new.text.strip() for new in translations) for translations in candidates)
        return leave_captions(folder, synthetic, inputs["corpus"], origin, empty) | {"recalled": memory.recalled}

    inputs = {"corpus": corpus, "translator": translator} | lenders_of([translator], corpus)
    inputs |= {"before": before} if before is not None else {}
    name = f"synthetic-{path.replace(':', '-')}"
    return Job(
        name, "augment", VERSION, plain | {"path": path, **read}, inputs, run, True, asdict(settings.trainer), _headline
    )


def _headline(figures: Mapping[str, Any]) -> str:
    known = figures.get("recalled")
    return f"{figures['captions']:,} captions" + (f", {known:,} translated by an earlier job" if known else "")


def _numbered(translations: Sequence[Translated], count: int) -> Iterator[tuple[str, Translated]]:
    """The best translations that differ and are not empty, and what their ids end in: nothing, #2, #3 …"""
    differing: dict[str, Translated] = {}
    for new in translations:
        if new.text.strip():
            differing.setdefault(new.text, new)
    for number, new in enumerate(list(differing.values())[:count], 1):
        yield f"#{number}" if number > 1 else "", new


def leave_captions(
    folder: Path, synthetic: Sequence[Caption], corpus: Path, origin: str, empty: int
) -> dict[str, Any]:  # fmt: skip
    """Write the synthetic captions of a job; its figures, among them how many captions are empty and left out."""
    write_captions(synthetic, folder / "captions.parquet")
    new, human = (read_captions(place / "captions.parquet", tokens=True) for place in (folder, corpus))
    training = choose(human, "train", [f"{language}/{HUMAN}" for language in {*human["language"][:]}])
    return diversity(training, new, origin) | {"empty": empty}


def leave_written(
    folder: Path, path: str, written: Mapping[str, str], human: Sequence[Caption], corpus: Path, otherwise: str
) -> dict[str, Any]:
    """Leave the captions of pictures that a job wrote; empty ones are counted and left out.

    Args:
        path: `caption:de`.
        written: image id → caption.
        otherwise: what to do where every caption is empty.

    Raises:
        RecipeError: every caption is empty, or one is of an image that is not in split train.
    """
    (language,) = parse_path(path)[1]
    synthetic = [
        Caption(image, f"{image}|{path}", language, text, "train", path)
        for image, text in written.items() if text.strip()
    ]  # fmt: skip
    refuse_held_out(synthetic, human)
    if not synthetic:
        raise RecipeError(f"{path}: every caption is empty; {otherwise}")
    return leave_captions(folder, synthetic, corpus, language, len(written) - len(synthetic))


def captions_headline(figures: Mapping[str, Any]) -> str:
    """How many captions of pictures, and how many are empty, as text."""
    empty = f"; {figures['empty']:,} empty ones are left out" if figures["empty"] else ""
    return f"{figures['captions']:,} captions{empty}"


def diversity(human: Table, synthetic: Table, origin: str) -> dict[str, Any]:
    """`lexical_diversity` of synthetic captions, by Moses tokens, and their mean number of words."""
    known, new = (_sentences(captions) for captions in (human, synthetic))
    surface = zip(synthetic["text"][:], synthetic["language"][:], strict=True)
    words = sum(len(spaced(text, language).split()) for text, language in surface)
    scores = lexical_diversity(known, new, synthetic["image_id"][:], synthetic["parent"][:], origin)
    return scores | {"mean_words": round(words / len(new), 2)}


def _sentences(captions: Table) -> dict[str, tuple[str, str]]:
    """The language and the words of each caption, by its id."""
    languages = captions["language"][:]
    sentences = zip(languages, words_of_all(tokens_of(captions), languages), strict=True)
    return dict(zip(captions["caption_id"][:], sentences, strict=True))


def _write_examples(
    folder: Path, path: str, synthetic: Sequence[Caption], originals: dict[str, Caption],
    pictures: Mapping[str, Path], languages: tuple[str, str],
) -> None:  # fmt: skip
    """Leave some pairs of captions, with their pictures, as `examples.html`."""
    rows = [
        Example(new.image_id, pictures.get(new.image_id), originals[new.parent or ""].text, new.text, new.score)
        for new in random.Random(0).sample(list(synthetic), min(_EXAMPLES, len(synthetic)))
    ]
    examples_html(folder / "examples.html", path, rows, languages)
