"""`evaluate`: an exported model is measured on other data, from the shell."""

import json
from collections.abc import Sequence
from pathlib import Path

from modules.metrics.retrieval import RECALLS
from pipeline.engine.console import info_aside
from pipeline.engine.machine import cores
from pipeline.engine.workspace import Workspace
from pipeline.evaluation.benchmark import NDCG, benchmark_task, languages_of_task, measure_task
from pipeline.evaluation.measure import Measured, known_languages, measure
from pipeline.evaluation.sets import EvaluationSet, set_of_folder, set_of_recipe
from pipeline.export.exported_model import ExportedModel
from pipeline.export.seen import TRAIN, VAL
from pipeline.recipes.settings import Recipe, ReportSettings
from pipeline.reporting.results import MEDIANS, ONE_SEED, shown_interval
from pipeline.visualization.text_table import TextTable

MTEB = "mteb:"
"""What `--on` begins with where it names a task."""
NOT_KNOWN = "not known"
_RECALLS = ("R@1", "5", "10")
_SEEN = ("seen: names", "pictures", "sentences")


def evaluate(model: Path, on: str, recipe: Recipe | None, workspace: Workspace, split: str | None,
             as_json: bool) -> None:  # fmt: skip
    """Print figures of an exported model on other data, each beside what the model has seen of that data.

    Args:
        model: its folder, or its name on the hub.
        on: a folder of pictures and captions, `recipe:NAME`, or `mteb:TASK`.
        recipe: the one that `on` names.
        workspace: the artifacts of that recipe.
        split: of the data; None: test, all captions of a folder, the splits that a task is scored on.
        as_json: JSON lines, one a language, instead of a table.

    Raises:
        DataError: the data do not fit.
        RecipeError: there is no such model or data, or they do not fit each other.
    """
    exported = ExportedModel.from_pretrained(model)
    if on.startswith(MTEB):
        label, results = _on_task(exported, on, split)
    else:
        chosen = set_of_folder(Path(on), split) if recipe is None else set_of_recipe(recipe, workspace, split)
        label, results = chosen.label, _on_set(exported, chosen, recipe)
    if as_json:
        about = {"model": exported.name, "fingerprint": exported.fingerprint, "on": on}
        for result in results:
            print(json.dumps(about | result.as_dict(), ensure_ascii=False))
    else:
        (_task_table if on.startswith(MTEB) else _set_table)(f"{exported.name} on {label}", results).show()
    _say_chosen_on(results)


def _on_set(exported: ExportedModel, on: EvaluationSet, recipe: Recipe | None) -> list[Measured]:
    languages = {caption.language for caption in on.captions}
    known = known_languages(exported, languages, f"{on.label}, {on.split}")
    _say_left(exported, sorted(languages.difference(known)))
    settings = ReportSettings() if recipe is None else recipe.report
    return measure(exported, on, settings.resamples, cores())


def _on_task(exported: ExportedModel, on: str, split: str | None) -> tuple[str, list[Measured]]:
    task = benchmark_task(on.removeprefix(MTEB))
    languages, left = languages_of_task(exported, task)
    _say_left(exported, left)
    return on, measure_task(exported, task, languages, split)


def _set_table(title: str, results: Sequence[Measured]) -> TextTable:
    """Two lines a language, one for each direction; rsum stands in the first."""
    rows = []
    for result in results:
        value, low, high = result.figures["rsum"]
        seen, totals = _seen(result)
        rows.append([result.language, "t→i", *_shown(result, "t2i"), f"{value:.1f}", shown_interval(low, high), *seen])
        rows.append(["", "i→t", *_shown(result, "i2t"), "", "", *totals])
    heads = ["language", "", *_RECALLS, "median", "rsum", "95 %", *_SEEN]
    return TextTable(f"{title}, {results[0].split}; 95 %, {ONE_SEED}", heads, rows)


def _task_table(title: str, results: Sequence[Measured]) -> TextTable:
    """A line a language and split; a task has one direction."""
    way = "t2i" if "t2i_r1" in results[0].figures else "i2t"
    rows = []
    for result in results:
        seen = [" ".join(pair).strip() for pair in zip(*_seen(result), strict=True)]
        rows.append([result.language, result.split, *_shown(result, way), f"{result.figures[NDCG][0]:.1f}", *seen])
    return TextTable(f"{title}, {way[0]}→{way[2]}", ["language", "split", *_RECALLS, "nDCG@10", *_SEEN], rows)


def _shown(result: Measured, way: str) -> list[str]:
    """R@K of a direction, and its median rank if there is one."""
    names = [name for name in (*RECALLS, *MEDIANS) if name.startswith(way) and name in result.figures]
    return [f"{result.figures[name][0]:.1f}" for name in names]


def _seen(result: Measured) -> tuple[list[str], list[str]]:
    """How many names, pictures and sentences the training has seen of the data, and of how many."""
    if result.seen is None:
        return [NOT_KNOWN] * len(_SEEN), [""] * len(_SEEN)
    pairs = list(zip(result.seen[TRAIN], (result.images, result.images, result.captions), strict=True))
    counts = ["–" if count is None else f"{count:,}" for count, _ in pairs]
    return counts, ["" if count is None else f"of {total:,}" for count, total in pairs]


def _say_left(exported: ExportedModel, languages: Sequence[str]) -> None:
    if languages:
        info_aside(f"{', '.join(languages)}; the model was trained on {', '.join(exported.languages)}", "left out:")


def _say_chosen_on(results: Sequence[Measured]) -> None:
    """Say what of the data the model's epoch was chosen on."""
    for result in results:
        own = result.seen[VAL] if result.seen else None
        images = 0 if own is None else max(own.names or 0, own.pictures or 0)
        if images:
            info_aside(
                f"{result.language}: {images:,} of {result.images:,} images are validation images of the model, by "
                "which its epoch was chosen"
            )
