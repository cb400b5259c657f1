"""Stage sts: a job for each trained retrieval model, and for each baseline, that predicts how similar sentences are."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from data.evaluation.sts import SentencePairs
from data.vectors.word_vectors import INSTALL, installed
from modules.metrics.sentence_similarity import Scores, pair_similarity
from pipeline.engine.job import Job
from pipeline.engine.workspace import Workspace
from pipeline.graph import Graph
from pipeline.recipes.retrieval_settings import VseSettings, slots_in
from pipeline.recipes.settings import Recipe
from pipeline.retrieval.rows import Row
from pipeline.similarity.baselines import BASELINES, FASTTEXT
from pipeline.similarity.sets import digests_of_sets, sts_job
from pipeline.training.model_files import load_model


@dataclass(frozen=True)
class StsRow:
    """One trained model, or one baseline, of the tables.

    Attributes:
        system: the model, the system of a table, or the baseline.
        source: what it was trained on: a row of `vse.rows`; of a baseline, types of captions.
        job: what tests it; None: it was not trained on the language of the pairs.
        optional: shown only if it was tested: of the recipe's tables.
        lacks: how to get what a baseline needs, where it is not installed.
    """

    system: str
    source: str
    seed: int
    job: Job | None
    optional: bool = False
    lacks: str = ""


def sts_rows(graph: Graph) -> list[StsRow]:
    """All trained models of a recipe, its rows, then those of its tables, then the baselines; seed by seed.

    Raises:
        RecipeError: a row can not be trained.
    """
    recipe, workspace = graph.recipe, graph.workspace
    done, rows = set[tuple[str, str]](), []
    types: dict[tuple[str, ...], Job] = {}  # captions of the language → a job that is trained on them
    sets = digests_of_sets(recipe, workspace)
    for vse, row, trained, title in models_of(graph):
        if (trained.name, trained.key) in done:
            continue
        done.add((trained.name, trained.key))
        model = str(trained.settings["model"])
        system = title if title and len(row.trained) == 1 else f"{model} ({title})" if title else model
        own = tuple(kind for kind in _types(trained) if kind.startswith(f"{recipe.sts.language}/"))
        if own and not title:
            types.setdefault(own, trained)
        untrained = (
            not trained.settings["epochs"] and recipe.sts.language in vse.test
        )  # nobody knows what it has learned
        tested = bool(own) or untrained
        job = _model_job(recipe, sets, trained, vse.pretrained) if tested else None
        rows.append(StsRow(system, row.name, row.seed, job, bool(title)))
    for title, predict in BASELINES.items():
        lacks = INSTALL if title == FASTTEXT and not installed() else ""
        for own, trained in types.items():
            known = {"corpus", *(kind.partition("/")[2] for kind in own)}
            inputs = {name: job for name, job in trained.inputs.items() if name in known}
            settings = {"sets": sets, "types": list(own)}
            job = sts_job(f"sts-{title.lower()}", recipe, settings, inputs, own, predict)
            rows.append(StsRow(title, ", ".join(own), 0, job, lacks=lacks))
    return rows


def models_of(graph: Graph) -> Iterator[tuple[VseSettings, Row, Job, str]]:
    """Settings, row and job of each trained model, and the system of a table that it is of, if it is; some twice."""
    recipe = graph.recipe
    lines = [(recipe.vse.of_row(row.name), row, "") for row in graph.rows]
    if graph.reranker is not None:
        lines.append((replace(recipe.vse, pretrained=None), graph.reranker, ""))
    for name, rows in graph.tables.items():
        systems = recipe.tables[name].systems
        lines += [(systems[row.system].vse.of_row(row.name), row, row.system) for row in rows]
    for settings, row, title in lines:
        for trained in row.trained:
            yield settings, row, trained, title


def can_run(row: StsRow, workspace: Workspace) -> bool:
    """Is all there that its job reads, or has it been done?"""
    if row.job is None:
        return False
    done = workspace.done(row.job)
    return done or (not row.lacks and all(workspace.done(needed) for needed in row.job.inputs.values()))


def _types(trained: Job) -> list[str]:
    """Types of the captions that a model was trained on, `en/human`."""
    return list(dict.fromkeys(slot.type for slot in slots_in(trained.settings["groups"])))


def _model_job(recipe: Recipe, sets: dict[str, str | None], trained: Job, pretrained: str | None) -> Job:
    """Encode both sentences of each pair with a trained model, and predict their similarity."""

    def predict(
        inputs: Mapping[str, Path], pairs: Mapping[str, SentencePairs], _: Any, language: str
    ) -> dict[str, Scores]:
        """The model's own similarity."""
        model, text = load_model(inputs["model"], pretrained)
        predictions = {}
        for name, of_set in pairs.items():
            first, second = ([text.encode(words, language) for words in side] for side in (of_set.first, of_set.second))
            predictions[name] = pair_similarity(model, first, second, language)
        return predictions

    name = trained.name.replace("vse-", "sts-", 1)
    return sts_job(name, recipe, {"sets": sets}, {**trained.inputs, "model": trained}, _types(trained), predict)
