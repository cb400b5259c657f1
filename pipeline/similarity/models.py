"""Stage sts: a job for each trained retrieval model, and for each floor, that predicts the similarity of sentences."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from data.slots import parse_group
from modules.metrics.sentence_similarity import pair_similarity
from pipeline.engine.job import Job
from pipeline.engine.workspace import Workspace
from pipeline.graph import Graph
from pipeline.recipes.retrieval_settings import VseSettings
from pipeline.recipes.settings import Recipe
from pipeline.retrieval.rows import Row
from pipeline.similarity.floors import FLOORS, floor_job
from pipeline.similarity.sets import digests, headline, read_sets, training_text, write_sets
from pipeline.training.model_files import load_model

VERSION = 1


@dataclass(frozen=True)
class StsRow:
    """One trained model, or one floor, of the tables.

    Attributes:
        system: the model, the system of a table, or the floor.
        source: what it was trained on: a row of `vse.rows`; of a floor, types of captions.
        seed: of its training.
        job: what tests it; None: it was not trained on the language of the pairs.
        optional: shown only if it was tested: of the recipe's tables.
        lacks: how to get what a floor needs, where it is not installed.
    """

    system: str
    source: str
    seed: int
    job: Job | None
    optional: bool = False
    lacks: str = ""


def sts_rows(graph: Graph) -> list[StsRow]:
    """All trained models of a recipe, its rows, then those of its tables, then the floors; seed by seed.

    Raises:
        RecipeError: a row can not be trained.
    """
    recipe, workspace = graph.recipe, graph.workspace
    known, rows = set[tuple[str, str]](), []
    types: dict[tuple[str, ...], Job] = {}  # captions of the language → a job that is trained on them
    sets = digests(recipe, workspace)
    for settings, row, trained, title in models_of(graph):
        if (trained.name, trained.key) in known:
            continue
        known.add((trained.name, trained.key))
        model = str(trained.settings["model"])
        system = title if title and len(row.trained) == 1 else f"{model} ({title})" if title else model
        own = tuple(kind for kind in _types(trained) if kind.startswith(f"{recipe.sts.language}/"))
        if own and not title:
            types.setdefault(own, trained)
        job = _model_job(recipe, sets, trained, settings.pretrained) if own else None
        rows.append(StsRow(system, row.name, row.seed, job, bool(title)))
    for floor in FLOORS:
        for own, trained in types.items():
            inputs = {name: job for name, job in trained.inputs.items() if name == "corpus" or _source(own, name)}
            job = floor_job(floor, recipe, sets, own, inputs)
            rows.append(StsRow(floor.title, ", ".join(own), 0, job, lacks=floor.lacks()))
    return rows


def models_of(graph: Graph) -> Iterator[tuple[VseSettings, Row, Job, str]]:
    """Settings, row and job of each trained model, and the system of a table that it is of, if it is; some twice."""
    recipe = graph.recipe
    lines = [(recipe.vse, row, "") for row in graph.rows]
    if graph.reranker is not None:
        lines.append((replace(recipe.vse, pretrained=None), graph.reranker, ""))
    for name, cells in graph.tables.items():
        systems = recipe.tables[name].systems
        lines += [(systems[title].vse, row, title) for title, _, row in cells]
    for settings, row, title in lines:
        for trained in row.trained:
            yield settings, row, trained, title


def can_run(row: StsRow, workspace: Workspace) -> bool:
    """Is all there that its job reads, or has it been done?"""
    if row.job is None:
        return False
    done = workspace.done(row.job)
    return done or (not row.lacks and all(workspace.done(other) for other in row.job.inputs.values()))


def _types(trained: Job) -> list[str]:
    """Types of the captions that a model was trained on, `en/human`."""
    groups: Sequence[str] = trained.settings["groups"]
    return list(dict.fromkeys(slot.type for text in groups for slot in parse_group(text)))


def _source(types: Sequence[str], name: str) -> bool:
    """Does a job with captions by this source have some of these types?"""
    return any(kind.partition("/")[2] == name for kind in types)


def _model_job(recipe: Recipe, sets: dict[str, str | None], trained: Job, pretrained: str | None) -> Job:
    """Encode both sentences of each pair with a trained model, and predict their similarity."""
    language = recipe.sts.language

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Leave the predictions for each set."""
        model, text = load_model(inputs["model"], pretrained)
        pairs, predictions = read_sets(recipe), {}
        for name, one in pairs.items():
            first, second = ([text.encode(words, language) for words in side] for side in (one.first, one.second))
            predictions[name] = pair_similarity(model, first, second, language)
        types = _types(trained)
        captions = [inputs[name] for name in trained.inputs if name == "corpus" or _source(types, name)]
        return write_sets(folder, pairs, predictions, training_text(captions, types), language)

    inputs = {**trained.inputs, "model": trained}
    name = trained.name.replace("vse-", "sts-", 1)
    return Job(name, "sts", VERSION, {"language": language, "sets": sets}, inputs, run, headline=headline)
