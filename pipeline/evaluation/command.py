"""`evaluate`: an exported model, or a network of `transformers` as it is, is measured on other data."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from data.evaluation.seen import TRAIN, VAL
from data.processes import cores
from modules.metrics.intervals import Difference
from modules.metrics.retrieval import MEDIANS, RECALLS
from pipeline.analyses.sets import set_of_folder, set_of_recipe
from pipeline.engine.console import info_aside
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.evaluation.benchmark import NDCG, all_languages, benchmark_task, languages_of_task, measure_task
from pipeline.evaluation.measure import Measured, compare, measure, shared_languages
from pipeline.evaluation.network_model import HUB, network_model
from pipeline.export.exported_model import ExportedModel
from pipeline.recipes.settings import Recipe, ReportSettings
from pipeline.visualization.text_table import ONE_SEED, TextTable, shown_difference, shown_interval

MTEB = "mteb:"
"""What `--on` begins with where it names a task."""
NOT_KNOWN = "not known"
_RECALLS = ("R@1", "5", "10")
_DIFFERENCES = {"mean_recall": "mean recall", "t2i_r1": "t→i R@1", "i2t_r1": "i→t R@1"}
_SEEN = ("seen: names", "pictures", "sentences")


def evaluate(model: str, on: str, recipe: Recipe | None, workspace: Workspace, split: str | None, as_json: bool,
             against: str | None = None) -> None:  # fmt: skip
    """Print figures of a model on other data, each beside what the model has seen of that data.

    The arguments are those of the command.

    Raises:
        DataError: the data do not fit.
        RecipeError: there is no such model or data, or they do not fit each other.
    """
    if on.startswith(MTEB):
        if against is not None:
            raise RecipeError(f"--against {against} with --on {on}: mteb keeps no ranks by which two models could be "
                              "paired; measure each by itself, or on a folder or recipe:NAME")  # fmt: skip
        _on_task(model, on, split, as_json)
        return
    chosen = set_of_folder(Path(on), split) if recipe is None else set_of_recipe(recipe, workspace, split)
    models = [_opened(name, chosen.languages) for name in (model, against) if name is not None]
    known = shared_languages(models, chosen)
    _say_left(models, sorted({*chosen.languages}.difference(known)))
    resamples = (ReportSettings() if recipe is None else recipe.report).resamples
    results = [measure(exported, chosen, resamples, cores(), known) for exported in models]
    compared = compare(results[0], results[1], resamples) if against is not None else {}
    if as_json:
        for exported, measured in zip(models, results, strict=True):
            _print_json(exported, on, measured)
        about = {"against": models[-1].name, "against_fingerprint": models[-1].fingerprint}
        for language, differences in compared.items():
            rounded = {name: {part: round(value, 4) for part, value in found._asdict().items()}
                       for name, found in differences.items()}  # fmt: skip
            _print_line(models[0], on, about | {"language": language, "differences": rounded})
    else:
        names = _names_of(models)
        _set_table(f"{' and '.join(names)} on {chosen.label}", names, results).show()
        if compared:
            _difference_table(f"{' − '.join(names)} on {chosen.label}, {chosen.split}", compared).show()
    for exported, measured in zip(models, results, strict=True):
        _say_chosen_on(measured, exported.name if against is not None else "the model")


def _on_task(model: str, on: str, split: str | None, as_json: bool) -> None:
    task = benchmark_task(on.removeprefix(MTEB))
    exported = _opened(model, all_languages(task))
    languages, left = languages_of_task(exported, task)
    _say_left([exported], left)
    results = measure_task(exported, task, languages, split)
    if as_json:
        _print_json(exported, on, results)
    else:
        _task_table(f"{exported.name} on {on}", results).show()
    _say_chosen_on(results, "the model")


def _opened(name: str, languages: Sequence[str]) -> ExportedModel:
    """A model by its name; a network of `transformers` as one that reads some languages."""
    if name.startswith(HUB):
        return network_model(name.removeprefix(HUB), languages)
    return ExportedModel.from_pretrained(name)


def _names_of(models: Sequence[ExportedModel]) -> list[str]:
    """What tables call models: two of the same name by their folders."""
    names = [exported.name for exported in models]
    if len({*names}) == len(names):
        return names
    here, folders = Path.cwd(), [exported.folder for exported in models]
    return [str(folder.relative_to(here) if folder.is_relative_to(here) else folder) for folder in folders]


def _print_json(exported: ExportedModel, on: str, results: Sequence[Measured]) -> None:
    for result in results:
        _print_line(exported, on, result.as_dict())


def _print_line(exported: ExportedModel, on: str, figures: Mapping[str, Any]) -> None:
    about = {"model": exported.name, "fingerprint": exported.fingerprint, "on": on}
    print(json.dumps({**about, **figures}, ensure_ascii=False))


def _set_table(title: str, names: Sequence[str], results: Sequence[Sequence[Measured]]) -> TextTable:
    """Two lines a language and model, one for each direction; rsum stands in the first."""
    rows, several = [], len(names) > 1
    for measured in zip(*results, strict=True):
        for place, (name, result) in enumerate(zip(names, measured, strict=True)):
            value, low, high = result.figures["rsum"]
            seen, totals = _seen(result)
            language, model, blank = "" if place else result.language, [name] * several, [""] * several
            sums = [f"{value:.1f}", shown_interval(low, high)]
            rows.append([language, *model, "t→i", *_shown(result, "t2i"), *sums, *seen])
            rows.append(["", *blank, "i→t", *_shown(result, "i2t"), "", "", *totals])
    heads = ["language", *["model"] * several, "", *_RECALLS, "median", "rsum", "95 %", *_SEEN]
    first = results[0][0]
    among = f"ranked among {first.gallery:,} pictures"
    return TextTable(f"{title}, {first.split}, {among}; recalls in percent; 95 %, {ONE_SEED}", heads, rows)


def _difference_table(title: str, compared: Mapping[str, Mapping[str, Difference]]) -> TextTable:
    """A line a language: how mean recall and R@1 both ways differ."""
    rows = [
        [language, *(cell for name in _DIFFERENCES for cell in shown_difference(differences[name])[:2])]
        for language, differences in compared.items()
    ]
    heads = ["language", *(head for name in _DIFFERENCES.values() for head in (name, "95 %"))]
    return TextTable(f"Paired differences over the same images, in points: {title}; 95 %, {ONE_SEED}", heads, rows)


def _task_table(title: str, results: Sequence[Measured]) -> TextTable:
    """A line a language and split; a task has one direction."""
    way = "t2i" if "t2i_r1" in results[0].figures else "i2t"
    rows = []
    for result in results:
        seen = [" ".join(pair).strip() for pair in zip(*_seen(result), strict=True)]
        rows.append([result.language, result.split, *_shown(result, way), f"{result.figures[NDCG][0]:.1f}", *seen])
    heads = ["language", "split", *_RECALLS, "nDCG@10", *_SEEN]
    return TextTable(f"{title}, {way[0]}→{way[2]}, in percent", heads, rows)


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
    if result.seen[TRAIN].sentences is None:
        counts[-1] = NOT_KNOWN
    return counts, ["" if count is None else f"of {total:,}" for count, total in pairs]


def _say_left(models: Sequence[ExportedModel], languages: Sequence[str]) -> None:
    if not languages:
        return
    first, *second = (", ".join(exported.languages) for exported in models)
    why = f"the first model reads {first}; the second {second[0]}" if second else f"the model was trained on {first}"
    info_aside(f"{', '.join(languages)}; {why}", "left out:")


def _say_chosen_on(results: Sequence[Measured], name: str) -> None:
    """Say what of the data the model's epoch was chosen on."""
    for result in results:
        own = result.seen[VAL] if result.seen else None
        images = 0 if own is None else max(own.names or 0, own.pictures or 0)
        if images:
            info_aside(
                f"{result.language}: {images:,} of {result.images:,} images are validation images of {name}, by "
                "which its epoch was chosen"
            )
