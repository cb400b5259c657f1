"""Jobs of pretrained translators: each is tested like a trained one, and leaves where it lies and which it was."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pipeline.engine.job import Job
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.recipes.settings import Recipe
from pipeline.recipes.trainer_settings import job_settings
from pipeline.translation.evaluation import evaluate_and_show, settings_of_test, translation_headline
from pipeline.translation.parallel_text import parallel_text_of
from pipeline.translation.translator_files import PRETRAINED, load_pretrained

VERSION = 1
_READ = (".json", ".txt", ".model", ".spm", ".safetensors")


def pretrained_job(recipe: Recipe, workspace: Workspace, system: str, direction: str, corpus: Job) -> Job:
    """Test a translator of `mmt.pretrained` on the corpus's pairs of a direction, if there are any.

    Its key is of the files of a folder, or of the name and the revision on the hub. It leaves `network.json`, with the
    commit that was loaded, by which later jobs load it.

    Raises:
        RecipeError: a folder is not there, or holds no model.
    """
    settings, about = recipe.mmt, recipe.mmt.pretrained[system]
    name, digest = _place(about.model, direction, f"mmt.pretrained.{system}.model", workspace)
    codes = {language: about.codes[language] for language in direction.split("-") if language in about.codes}
    network = {"name": name, "direction": direction, "codes": codes, "revision": about.revision}
    plain = settings_of_test(settings) | {"trainer": job_settings(settings)["trainer"]}
    plain[PRETRAINED] = network | {"name": digest or name}
    title = f"{system}-{direction}"

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Load it, then translate validation, test and twins."""
        commit = load_pretrained(network)[0].commit
        written = {PRETRAINED: network | {"revision": commit}}
        (folder / "network.json").write_text(json.dumps(written, indent=1), encoding="utf-8")
        pairs = parallel_text_of(inputs, direction, settings)
        return {"model": name, "commit": commit, **evaluate_and_show(recipe, folder, pairs, title)}

    def headline(figures: Mapping[str, Any]) -> str:
        """Its figures, or why there are none, as text."""
        return translation_headline(figures) or f"not tested: the corpus has no {direction} pairs"

    return Job(title, "mmt", VERSION, plain, {"corpus": corpus}, run, True, asdict(settings.trainer), headline)


def _place(model: str, direction: str, key: str, workspace: Workspace) -> tuple[str, str | None]:
    """Where a translator lies, and a digest of its files if that is a folder; RecipeError if it holds none."""
    source, target = direction.split("-")
    name = model.replace("{source}", source).replace("{target}", target)
    folder = Path(name).expanduser()
    if not folder.is_dir():
        if name.startswith(("/", "./", "../", "~")):
            raise RecipeError(f"{key}: no folder {name}; expected one with a translator of transformers")
        return name, None
    if not (folder / "config.json").is_file():
        raise RecipeError(f"{key}: {name} holds no config.json; expected a folder with a translator of transformers")
    files = sorted(path for path in folder.iterdir() if path.suffix in _READ)
    return str(folder.absolute()), workspace.fingerprint(files)
