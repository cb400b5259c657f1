"""Stage rerank: translators whose n-best lists are re-ranked by features, with weights tuned on validation.

`nbest-…` makes the n-best lists of validation and test with all features; `mt+NAME-…` tunes the weights of some and is
a translator; `ablation-…` compares sets of features. The features of a retrieval model need stage `vse`, so these jobs
come after it.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from data.batches.parallel_text import ParallelText
from data.translators.nbest import Candidate, nbest_lines, read_nbest
from modules.translators.mira import MiraSettings
from modules.translators.nbest import Lists, compare, figures_of, tuned
from pipeline.engine.artifacts import read_rows
from pipeline.engine.job import Job
from pipeline.errors import RecipeError
from pipeline.recipes.retrieval_settings import slots_in
from pipeline.recipes.settings import Recipe
from pipeline.recipes.systems import CHANNEL, members_of, opposite
from pipeline.recipes.translator_settings import CONTROL, OF_RETRIEVAL
from pipeline.translation.evaluation import (
    evaluate_translator,
    settings_of_test,
    translate_rows,
    translation_headline,
)
from pipeline.translation.incongruent_images import another
from pipeline.translation.nbest import as_lists
from pipeline.translation.parallel_text import parallel_text_of
from pipeline.translation.translating import Translated
from pipeline.translation.translator_files import (
    LOGP,
    RERANKING,
    RETRIEVAL,
    Reranking,
    load_members,
    load_reranker,
    save_several,
)

VERSION = 1
_ABLATION = 2
LOG_P, ORACLE = "log p", "oracle"
CHOICES = {
    "+ length": [LOGP, "length"],
    "+ image": [LOGP, "image"],
    "+ another image": [LOGP, CONTROL],
    "+ source": [LOGP, "source"],
    "+ channel": [LOGP, CHANNEL],
    "all": [LOGP, "length", "image", "source", CHANNEL],
}
"""Rows of the comparison of features: name → features whose weights are tuned (`image` is s(target, image) …)."""


def channel_of(jobs: Mapping[str, Job], direction: str) -> Job | None:
    """The text-only translator of the opposite direction: the recipe's own or the borrowed one, if there is one."""
    if (own := jobs.get(f"mt-{opposite(direction)}")) is not None:
        return own
    return jobs[f"back-{direction}"].inputs["translator"] if f"back-{direction}" in jobs else None


def reranked_jobs(recipe: Recipe, jobs: Mapping[str, Job], model: Callable[[], Job]) -> dict[str, Job]:
    """The systems of tuned re-rankers among `mmt.systems`, `mt+NAME-en-de` …

    Args:
        jobs: its other translators.
        model: gives the job that trains `mmt.rerank.retrieval`.
    """
    return {
        f"{system}-{direction}": _tuned_job(
            recipe, system, direction, lists_job(recipe, system, direction, jobs, model)
        )
        for system, direction in recipe.mmt.translators
        if members_of(system)[1] not in (None, CHANNEL)
    }


def read_beside(translator: Job) -> dict[str, Job]:
    """What the test of a translator reads beside it: the corpus, and the token numbers of its text if it has some."""
    return {name: translator.inputs[name] for name in ("corpus", "text") if name in translator.inputs}


def lists_job(
    recipe: Recipe, system: str, direction: str, jobs: Mapping[str, Job], model: Callable[[], Job]
) -> Job:  # fmt: skip
    """The n-best lists of validation and test by a system's translators, with all features that the recipe has.

    Leaves `val.lists` and `test.lists` in Moses' format, and `val.parquet`, `test.parquet` with the sentences.

    Raises:
        RecipeError: the retrieval model is not trained on the language of the translations.
    """
    settings, (members, _) = recipe.mmt, members_of(system)
    trained = {member: jobs[f"{member}-{direction}"] for member in members}
    names, inputs = [LOGP, "length"], read_beside(next(iter(trained.values()))) | trained
    if (channel := channel_of(jobs, direction)) is not None:
        names.append(CHANNEL)
        inputs[CHANNEL] = channel
    if settings.rerank.retrieval:
        inputs[RETRIEVAL] = model()
        names += _similarities(inputs[RETRIEVAL], direction)
    size = settings.rerank.list_size
    plain = {key: value for key, value in settings_of_test(settings).items() if key != "beam_size"}
    plain |= {"features": names, "list_size": size}

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Translate validation and test, and leave all candidates."""
        direct, bpe = load_members([inputs[member] for member in members])
        about = Reranking(direction, {name: float(name == LOGP) for name in names}, size)
        reranker = load_reranker(direct, bpe, about, inputs.get(CHANNEL, folder), inputs.get(RETRIEVAL, folder))
        pairs = parallel_text_of(inputs, direction, settings)
        figures: dict[str, Any] = {}
        for split in ("val", "test"):
            rows = pairs.rows(split, captions=True)
            if not rows:
                raise RecipeError(f"mmt.rerank: no {direction} pair for {split}; see the data report of the corpus")
            images = [row["seen_id"] for row in rows]
            other_images = _others(images) if CONTROL in names else ()
            nbest = translate_rows(
                (reranker, bpe), pairs, rows, images, settings, size, n_best=size, other_ids=other_images,
                kept=folder / "checkpoints" / split,
            )  # fmt: skip
            _write_lists(folder, split, pairs, rows, nbest)
            figures |= {f"{split}_sentences": len(rows), f"{split}_without_picture": images.count(None)}
        return figures

    return Job(
        f"nbest-{'+'.join(members)}-{direction}", "rerank", VERSION, plain, inputs, run, True,
        asdict(settings.trainer), _lists_headline,
    )  # fmt: skip


def _lists_headline(figures: Mapping[str, Any]) -> str:
    """How many lists there are, and how many sentences have no picture for the features, as text."""
    blind = figures["val_without_picture"] + figures["test_without_picture"]
    shown = f", {blind:,} sentences without a picture" if blind else ""
    return f"{figures['val_sentences']:,} and {figures['test_sentences']:,} lists{shown}"


def _write_lists(
    folder: Path, split: str, pairs: ParallelText, rows: Sequence[Mapping[str, Any]], nbest: Sequence[list[Translated]]
) -> None:
    """Leave the candidates of a split in Moses' format, and its sentences."""
    lists = [[Candidate(translation.text, translation.features) for translation in some] for some in nbest]
    lines = nbest_lines(lists, [[translation.score for translation in some] for some in nbest])
    (folder / f"{split}.lists").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    table = [
        {"pair_id": row["pair_id"], "image_id": row["image_id"] or row["pair_id"],
         "source": row[pairs.source], "reference": row[pairs.target]} for row in rows
    ]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(table), folder / f"{split}.parquet")


def read_lists(folder: Path, split: str, target: str) -> tuple[Lists, list[str]]:
    """The n-best lists of a split that `lists_job` left, and the image of each sentence.

    Raises:
        DataError: the lists are damaged.
        RecipeError: the sentences are.
    """
    table = read_rows(folder / f"{split}.parquet", ["reference", "image_id"]).to_pydict()
    lists = read_nbest(folder / f"{split}.lists", len(table["reference"]))
    return as_lists(lists, table["reference"], target), table["image_id"]


def ablation_job(recipe: Recipe, lists: Job) -> Job:
    """Compare sets of features on test: weights tuned on validation, gains over the lists' own order.

    Leaves `ablation.json` with the weights of each seed. Figures are `<row> | <measure>` with `low`, `high` and `p` of
    the gain, and `+ image | BLEU | own` of its gain over another image.
    """
    settings, target = recipe.mmt.rerank, lists.name.rpartition("-")[2]
    known = lists.settings["features"]
    rows = {name: features for name, features in CHOICES.items() if {*features} <= {*known}}
    rows["all"] = [name for name in CHOICES["all"] if name in known]
    plain = {"rows": rows, "seeds": settings.seeds, "passes": settings.passes, "resamples": recipe.report.resamples}

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Tune, choose, score and compare."""
        (development, _), (test, images) = (read_lists(inputs["lists"], split, target) for split in ("val", "test"))
        systems: dict[str, Sequence[Sequence[str]]] = {LOG_P: [test.taken([0] * len(test.texts))]}
        about = {}
        for name, features in rows.items():
            tuning = tuned(development.only(features), settings.seeds, MiraSettings(passes=settings.passes))
            systems[name] = test.only(features).chosen(tuning.by_seed)
            about[name] = {"features": features, "weights": tuning.by_seed.tolist(), "val_bleu": tuning.bleu.tolist()}
        systems[ORACLE] = [test.oracle()]
        (folder / "ablation.json").write_text(json.dumps(about, indent=1), encoding="utf-8")
        score = partial(
            compare, references=test.references, images=images, characters=test.characters,
            resamples=recipe.report.resamples,
        )  # fmt: skip
        figures = figures_of(score(systems))
        own, other = "+ image", "+ another image"
        if own in systems and other in systems:
            figures |= figures_of(score({other: systems[other], own: systems[own]})[1::2], " | own")
        return figures | {"test_sentences": len(images)}

    return Job(
        lists.name.replace("nbest-", "ablation-", 1), "rerank", _ABLATION, plain, {"lists": lists}, run,
        headline=lambda figures: f"BLEU {figures[f'{LOG_P} | BLEU']:.1f}, all features {figures['all | BLEU']:.1f}",
    )  # fmt: skip


def _tuned_job(recipe: Recipe, system: str, direction: str, lists: Job) -> Job:
    """A system's translators, re-ranked by features whose weights are tuned on validation."""
    settings, (members, name) = recipe.mmt, members_of(system)
    rerank, target = settings.rerank, direction.partition("-")[2]
    features: list[str] = list(rerank.systems[str(name)])
    if lacking := [feature for feature in features if feature not in lists.settings["features"]]:
        raise RecipeError(
            f"mmt.rerank.systems.{name} has {lacking[0]!r}, but for {direction} there is "
            f"{_lacks(lacking[0], direction)}"
        )
    name_of_job = f"{system}-{direction}"
    parts = [CHANNEL] * (CHANNEL in features) + [RETRIEVAL] * bool({*features} & {*OF_RETRIEVAL})
    plain = settings_of_test(settings) | {"features": features, "seeds": rerank.seeds, "passes": rerank.passes}
    inputs = read_beside(lists) | {key: lists.inputs[key] for key in (*members, *parts)} | {"lists": lists}

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Tune, combine the parts, then translate validation, test and twins."""
        development, _ = read_lists(inputs["lists"], "val", target)
        weights = tuned(development.only(features), rerank.seeds, MiraSettings(passes=rerank.passes))
        about = asdict(Reranking(direction, weights.best, rerank.list_size, settings.length_penalty))
        save_several(folder, inputs, members, parts, {RERANKING: about})
        tuning = {"weights": weights.by_seed.tolist(), "val_bleu": weights.bleu.tolist(), "features": features}
        (folder / "tuning.json").write_text(json.dumps(tuning, indent=1), encoding="utf-8")
        return evaluate_translator(recipe, folder, parallel_text_of(inputs, direction, settings), name_of_job)

    return Job(
        name_of_job, "rerank", VERSION, plain, inputs, run, True, asdict(settings.trainer),
        translation_headline,
    )  # fmt: skip


def _lacks(feature: str, direction: str) -> str:
    """Why there is no such feature, and what to do."""
    if feature == CHANNEL:
        return f"no mt of {opposite(direction)}; name it in mmt.directions and mmt.systems"
    return "no retrieval model that reads the languages; set mmt.rerank.retrieval.row to a row that is trained on them"


def _similarities(model: Job, direction: str) -> list[str]:
    """The features that a retrieval model has for a direction, by the languages of its training captions."""
    languages = {slot.language for slot in slots_in(model.settings["groups"])}
    source, target = direction.split("-")
    if target not in languages:
        return []
    return ["image", CONTROL, *(["source"] if source in languages else [])]


def _others(images: Sequence[str | None]) -> list[str | None]:
    """Another picture for each sentence that has one."""
    pictures = iter(another([image for image in images if image is not None]))
    return [None if image is None else next(pictures) for image in images]
