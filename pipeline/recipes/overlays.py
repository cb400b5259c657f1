"""Settings laid over `vse`: trainings beside those of the rows, as settings, and the systems of tables.

Trainings beside those of the rows are of `vse.start`, `vse.reranker`, `augment.captioner` and `mmt.rerank.retrieval`.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pipeline.errors import RecipeError
from pipeline.recipes.retrieval_settings import RANKED_BY, EvaluationSettings, TrainingSettings, VseSettings, slots_in
from pipeline.recipes.settings import AugmentSettings, Recipe, System, Table
from pipeline.recipes.systems import CAPTION, parse_path
from pipeline.recipes.translator_settings import CaptionerSettings
from pipeline.recipes.typed import check_values, located, names_of, refuse_unknown, typed
from pipeline.recipes.yaml_files import laid_over, mapping_of

MEASURES, DEPTH = ("bleu1", "bleu2", "bleu3", "bleu4", "cider"), 5
"""What is measured of retrieved captions: those at ranks 1 … 5."""
_OF_ROWS = ("rows", "only", "seeds", "unseen", "first_k")
ALONE: dict[str, Any] = {
    name: getattr(EvaluationSettings(), name) for name in names_of(EvaluationSettings) if name not in _OF_ROWS
} | {"retrieved_captions": False}
"""Settings of a model that is trained for another job, without evaluations of its own."""
_OF_REGIONS: dict[str, Any] = {"image_encoder": None, "image_encoder_rate": 0.0, "image_encoder_size": 224}
OF_A_START = {
    "options", "epochs", "steps", "batch_size", "learning_rate", "decay_epoch", "decay", "decay_every", "warmup_epochs",
    "loss", "margin", "image_encoder_rate", "average",
}  # fmt: skip
"""Settings of an entry of `vse.start`: not what decides how words and images are read, as a later training goes on with
the same parts."""
OF_A_ROW = names_of(TrainingSettings) - {"trainer", "test"}
"""Settings of `vse.row_settings`, and of a teacher."""
OVERLAID = names_of(TrainingSettings) - {
    "trainer", "pretrained", "pretrained_vectors", "pretrained_layer", "select", "test", "image_encoder",
    "image_encoder_size",
}  # fmt: skip
"""Settings of trainings that a section lays over `vse`: they read the same words and images."""


def teacher_settings(settings: VseSettings, teacher: Mapping[str, Any]) -> VseSettings:
    """The settings of the training of `vse.teacher`, given those of the recipe.

    Its epoch is chosen in its own language, and its weights are those that it ends with, unless it says otherwise.
    """
    language = teacher.get("language", "en")
    of_row = settings.row_settings.get(teacher["row"], {})
    own = {key: value for key, value in teacher.items() if key not in ("row", "language")}
    chosen = {"select": [language] if language in settings.test else settings.select, "interpolate": []}
    named = {key: value for key, value in chosen.items() if key not in of_row}
    return settings.of_row(teacher["row"]).changed(named | own)


def untrained(settings: VseSettings) -> VseSettings:
    """The settings of a model that is tested as it is: those of a training have their defaults, so that its key has."""
    default = VseSettings()
    kept = {"model", "options", "epochs", "pretrained", "test", "select", "trainer"}
    return replace(settings, **{name: getattr(default, name) for name in names_of(TrainingSettings) - kept})


def overlaid(settings: VseSettings, change: Mapping[str, Any]) -> VseSettings:
    """The settings of a training that comes before one with `settings`: `change` is an entry of `vse.start`."""
    options = settings.options | change.get("options", {})
    return replace(settings, **{"interpolate": [], **change, "options": options, "start": []})


def beside_settings(settings: VseSettings, overlay: Mapping[str, Any]) -> VseSettings:
    """The settings of the training of `vse.reranker`, `augment.captioner`, a filter or `mmt.rerank.retrieval`.

    It differs from its row; another model has options, starts and a text model of its own.
    """
    own = {"seeds": settings.seeds[:1], **ALONE, **overlay, "only": [overlay["row"]]}
    of_row = settings.of_row(own.pop("row"))
    if own.get("model", of_row.model) != of_row.model:
        of_row = of_row.changed({"model": own["model"], "cached_chunk": 0})
    return replace(of_row, **own)


def rerank_settings(settings: VseSettings, retrieval: Mapping[str, Any]) -> VseSettings:
    """The settings of the training of `mmt.rerank.retrieval`, which reads regions."""
    return beside_settings(settings, {**retrieval, **_OF_REGIONS})


def trainings_of(settings: VseSettings, key: str) -> dict[str, VseSettings]:
    """The trainings of a section `vse`: of its rows, of their teachers, and of what they start with.

    Returns:
        where in the recipe the settings of a training stand → these, with its rows in `only`.
    """
    trainings: dict[str, VseSettings] = {}
    for row in settings.only or settings.rows:
        own, of_row = settings.row_settings.get(row, {}), settings.of_row(row)
        place = f"{key}.row_settings.{row}" if own else key
        rows = trainings[place].only if place in trainings else []
        trainings[place] = replace(of_row, only=[*rows, row])
        if of_row.teacher:
            taught = teacher_settings(settings, of_row.teacher)
            trainings[f"{place if 'teacher' in own else key}.teacher"] = replace(taught, only=[of_row.teacher["row"]])
    starts = {
        f"{place}.start[{number}]": overlaid(training, start)
        for place, training in trainings.items() for number, start in enumerate(training.start)
    }  # fmt: skip
    return trainings | starts


def trainings_beside(recipe: Recipe) -> dict[str, VseSettings]:
    """The sections of a recipe that train a model beside those of its rows → their settings, each a section `vse`."""
    vse, augment, retrieval = recipe.vse, recipe.augment, recipe.mmt.rerank.retrieval
    beside = {} if vse.reranker.get("model") is None else {"vse.reranker": beside_settings(vse, vse.reranker)}
    if augment.captioner and captioner_network(augment) is None:
        beside["augment.captioner"] = beside_settings(vse, augment.captioner)
    for name, kept in augment.filters.items():
        if kept.retrieval:
            beside[f"augment.filters.{name}.retrieval"] = beside_settings(vse, kept.retrieval)
    return beside | ({"mmt.rerank.retrieval": rerank_settings(vse, retrieval)} if retrieval else {})


def captioner_network(augment: AugmentSettings) -> CaptionerSettings | None:
    """The vision-language model of `augment.captioner`; None where that is a retrieval model, or nothing.

    Raises:
        RecipeError: a key is unknown, missing, or has a value of another kind.
    """
    if "kind" not in augment.captioner:
        return None
    for key in ("model", "prompt"):
        if not str(augment.captioner.get(key) or "").strip():
            raise RecipeError(f"augment.captioner.{key} is missing; expected the {key} of a vision-language model")
    settings = typed(CaptionerSettings, augment.captioner, "augment.captioner")
    check_values(settings, "augment.captioner")
    return settings


def check_overlays(recipe: Recipe) -> None:
    """Refuse trainings beside those of the rows whose settings make no sense; those of `vse.start` get their types."""
    reranker, captioner, retrieval = recipe.vse.reranker, recipe.augment.captioner, recipe.mmt.rerank.retrieval
    if reranker and reranker.get("model", "") is not None:
        for key in ("row", "model"):
            if key not in reranker:
                raise RecipeError(f"vse.reranker.{key} is missing; expected a row of vse.rows, and a model")
        if recipe.vse.rows.get(str(reranker["row"])) == []:
            raise RecipeError(f"vse.reranker.row is {reranker['row']!r}, which trains on no captions; name another row")
        _own(recipe, reranker, OVERLAID | {"first_k", "retrieved_captions"}, "vse.reranker")
    check_trainings(recipe, recipe.vse, "vse")
    if retrieval:
        _own(recipe, retrieval, OVERLAID | {"seeds"}, "mmt.rerank.retrieval")
    known = OVERLAID | {"seeds"}
    if captioner and captioner_network(recipe.augment) is None:
        _own(recipe, captioner, known, key := "augment.captioner")
        written = "captions that it is to write itself"
        _require_unread(recipe, captioner, key, lambda path: parse_path(path)[0] == CAPTION, written)
    for name, kept in recipe.augment.filters.items():
        if kept.retrieval:
            _own(recipe, kept.retrieval, known, key := f"augment.filters.{name}.retrieval")
            of_filters = "captions that a filter kept"
            _require_unread(
                recipe, kept.retrieval, key, lambda path: parse_path(path)[2] in recipe.augment.filters, of_filters
            )
    for key, settings in trainings_beside(recipe).items():
        with located(key):
            recipe.require_vse(settings)


def _require_unread(
    recipe: Recipe, overlay: Mapping[str, Any], key: str, unread: Callable[[str], bool], what: str
) -> None:
    """Refuse a training on a row that trains on paths which it may not read."""
    sources = {slot.source for slot in slots_in(recipe.vse.rows[overlay["row"]])}
    if read := sorted(filter(unread, sources)):
        raise RecipeError(
            f"{key}.row is {overlay['row']!r}, which trains on {read[0]!r}, {what}; name a row without them"
        )


def _own(recipe: Recipe, overlay: Mapping[str, Any], known: set[str], key: str) -> dict[str, Any]:
    """The settings of an overlay, typed; without its row, which is refused if it is none of `vse.rows`."""
    refuse_unknown(overlay, known | {"row"}, f"{key}.")
    row = overlay.get("row")
    if not isinstance(row, str) or row not in recipe.vse.rows:
        raise RecipeError(f"{key}.row is {row!r}; expected one of vse.rows: {', '.join(recipe.vse.rows)}")
    if isinstance(seeds := overlay.get("seeds"), list) and len(seeds) > 1:
        raise RecipeError(f"{key}.seeds are {seeds}, but one model is trained; expected one seed")
    return _typed({name: value for name, value in overlay.items() if name not in ("row", "language")}, key)


def _typed(own: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Settings of a training from plain values, but for the options of its model, which have no types yet."""
    settings = typed(VseSettings, own, key)
    return {name: own[name] if name == "options" else getattr(settings, name) for name in own}


def check_trainings(recipe: Recipe, settings: VseSettings, key: str) -> None:
    """Refuse settings of rows, a teacher or starts that make no sense; the others get the types of settings."""
    _check_starts(recipe, settings, key)
    for row, own in settings.row_settings.items():
        place = f"{key}.row_settings.{row}"
        if row not in settings.rows:
            raise RecipeError(f"{place}: expected one of vse.rows: {', '.join(settings.rows)}")
        refuse_unknown(own, OF_A_ROW, f"{place}.")
        if settings.ranked_by and "model" in own:
            raise RecipeError(f"{place}.model: vse.{settings.ranked_by[0]} names the models; leave it out")
        settings.row_settings[row] = _typed(own, place)
        of_row = settings.of_row(row)
        with located(place):
            recipe.require_vse(of_row)
        _check_starts(recipe, of_row, place)
    for row, groups in settings.rows.items():
        if not groups and settings.of_row(row).epochs:
            raise RecipeError(
                f"{key}.rows.{row} is empty; expected caption groups like en/human, or epochs: 0 in "
                f"{key}.row_settings.{row}"
            )
        own_teacher = "teacher" in settings.row_settings.get(row, {})
        place = f"{key}.row_settings.{row}.teacher" if own_teacher else f"{key}.teacher"
        _check_teacher(recipe, settings, settings.of_row(row), place)


def _check_teacher(recipe: Recipe, settings: VseSettings, of_row: VseSettings, key: str) -> None:
    """Refuse a teacher that is none, or has one itself; its settings get their types."""
    if not (teacher := of_row.teacher):
        return
    teacher.update(_own(recipe, teacher, OF_A_ROW | {"language"}, key))
    if not isinstance(language := teacher.get("language", "en"), str):
        raise RecipeError(f"{key}.language is {language!r}; expected a code like en")
    changed = teacher_settings(settings, teacher)
    if changed.teacher:
        raise RecipeError(f"{key}.row is {teacher['row']!r}, which has a teacher itself; write the teacher for the "
                          "rows that learn from it alone, in vse.row_settings")  # fmt: skip
    known = {slot.language for slot in slots_in(settings.rows[teacher["row"]])} | {*settings.test}
    if language not in known:
        raise RecipeError(f"{key}.language is {language!r}, but the teacher reads {', '.join(sorted(known))}; name one "
                          "of these")  # fmt: skip
    with located(key):
        recipe.require_vse(changed)


def _check_starts(recipe: Recipe, settings: VseSettings, key: str) -> None:
    """Refuse a training of `start` whose settings make no sense; the others get the types of settings."""
    for number, own in enumerate(settings.start):
        place = f"{key}.start[{number}]"
        refuse_unknown(own, OF_A_START, f"{place}.")
        settings.start[number] = _typed(own, place)
        with located(place):
            recipe.require_vse(overlaid(settings, settings.start[number]))


def read_table(recipe: Recipe, raw: Any, vse: Mapping[str, Any], key: str) -> Table:
    """A table whose systems' settings are laid over the recipe's own, each checked like a recipe.

    Args:
        vse: plain values below those of its systems.

    Raises:
        RecipeError: a system cannot be trained, does not give the figures of the table, or published ones do not fit.
    """
    refuse_unknown(raw, names_of(Table), f"{key}.")
    systems = {}
    for name, values in mapping_of(raw, "systems", f"{key}.").items():
        inner = f"{key}.systems.{name}"
        refuse_unknown(values, names_of(System), f"{inner}.")
        laid = laid_over(vse, mapping_of(values, "vse", f"{inner}."), sections=False)
        every = list(laid.get("rows") or VseSettings().rows)
        rows = values.get("rows") or every
        if not isinstance(rows, list) or not {*map(str, rows)} <= {*every}:
            raise RecipeError(f"{inner}.rows is {rows!r}; expected a list of some of vse.rows: {', '.join(every)}")
        settings = typed(VseSettings, laid | {"only": rows}, f"{inner}.vse")
        with located(inner):
            recipe.require_vse(settings)
        check_trainings(recipe, settings, f"{inner}.vse")
        _check_system(raw, settings, key)
        published = mapping_of(values, "published", f"{inner}.")
        for row, figures in published.items():
            if row not in rows:
                raise RecipeError(f"{inner}.published.{row}: expected one of its rows, {', '.join(rows)}")
            _check_published(raw, figures, f"{inner}.published.{row}")
        systems[str(name)] = System(rows, settings, published)
    for name, figures in mapping_of(raw, "published", f"{key}.").items():
        _check_published(raw, figures, f"{key}.published.{name}")
    if not isinstance(pairs := raw.get("compare") or [], list):
        raise RecipeError(f"{key}.compare: {pairs!r}; expected pairs of systems, [[A, B]]")
    for pair in pairs:
        known = isinstance(pair, list) and all(str(name) in systems for name in pair)
        if not known or len(pair) != 2 or pair[0] == pair[1]:
            raise RecipeError(f"{key}.compare: {pair!r}; expected two systems of the table: {', '.join(systems)}")
    return replace(typed(Table, {name: raw[name] for name in raw if name != "systems"}, key), systems=systems)


def _check_system(table: Mapping[str, Any], vse: VseSettings, key: str) -> None:
    """Refuse a system whose settings do not give the figures of its table, by a RecipeError."""
    without = f"without vse.{', vse.'.join(RANKED_BY)}"
    if table.get("folds") and (vse.folds == 1 or vse.ranked_by):
        raise RecipeError(f"{key}.folds needs vse.folds of 2 or more, {without}")
    if table.get("captions") and (not vse.retrieved_captions or vse.ranked_by):
        raise RecipeError(f"{key}.captions needs vse.retrieved_captions, {without}")
    if (language := table.get("language", "en")) not in vse.test:
        raise RecipeError(f"{key}.language is {language!r}, which vse.test lacks")


def _check_published(table: Mapping[str, Any], figures: Any, key: str) -> None:
    """Refuse published figures that are not numbers, or not as many as the table shows, by a RecipeError."""
    listed = isinstance(figures, list) and all(
        value is None or (isinstance(value, int | float) and math.isfinite(value)) for value in figures
    )
    if table.get("captions"):
        ranks = [len(MEASURES) * rank for rank in range(1, DEPTH + 1)]
        if not listed or len(figures) not in ranks:
            raise RecipeError(
                f"{key}: expected BLEU-1 to 4 and CIDEr-D × 100 of the captions at rank 1, or at ranks 1 to 2, 3, 4 or "
                "5; null where one was not published"
            )
    elif not listed or len(figures) not in (1, 6, 8):
        raise RecipeError(
            f"{key}: expected R@1, 5, 10 both ways, with or without the median rank behind each three, or the mean of "
            "the six alone; null where one was not published"
        )
