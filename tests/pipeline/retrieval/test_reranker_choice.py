"""Which models are exported, and which rerankers search takes: those that are better on validation than the model
whose results they order."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.export.export import chosen_row
from pipeline.graph import Graph
from pipeline.recipes.loading import load_recipe
from pipeline.reporting.opening import as_reranked
from pipeline.retrieval.reranking import is_better, trained_reranker
from tests.pipeline.reporting.finished import finish, scores


def job(name: str, model: str = "scan-t2i-avg", **options: list[str]) -> SimpleNamespace:
    return SimpleNamespace(name=name, key=name, settings={"model": model, "options": options})


def made(second: dict[str, float], first: dict[str, float], done: bool = True, trained: Any = None) -> tuple:
    """A reranker's row and its workspace; rsum on validation of the reranker and of the first model by language."""
    val = {"second": second, "first": first}
    workspace = SimpleNamespace(
        done=lambda job: done or job.name == "second",
        manifest=lambda job: {"metrics": {"val": {name: {"rsum": rsum} for name, rsum in val[job.name].items()}}},
    )
    return SimpleNamespace(job=job("rerank"), trained=(trained or job("second"), job("first", "san"))), workspace


@pytest.mark.parametrize(
    ("second", "first", "better"),
    [
        ({"en": 110.0}, {"en": 100.0}, True),
        ({"en": 90.0}, {"en": 100.0}, False),
        ({"en": 100.0}, {"en": 100.0}, False),  # it would cost time for nothing
        ({"en": 130.0, "de": 95.0}, {"en": 100.0, "de": 100.0}, True),
        ({"en": 104.0, "de": 95.0}, {"en": 100.0, "de": 100.0}, False),
        ({"en": 104.0}, {"en": 100.0, "de": 500.0}, True),  # in what both know
        ({"en": 1.0}, {"de": 500.0}, True),
    ],
)
def test_it_is_taken_if_it_is_better_on_validation(second: dict, first: dict, better: bool) -> None:
    row, workspace = made(second, first)
    exported = SimpleNamespace(job=row.trained[1])
    assert is_better(row, workspace, exported) is better
    assert trained_reranker(row, workspace, exported) is (row if better else None)
    said = as_reranked(SimpleNamespace(
        reranker=row, workspace=workspace, best_row=exported, recipe=SimpleNamespace(vse=SimpleNamespace(test=["en"]))
    ), {("scan on the first 100 of san", "human"): [row]}, [])  # fmt: skip
    assert said == ([] if better else [
        "Search does not rerank: scan on the first 100 of san is not better on validation."])  # fmt: skip


def test_one_that_writes_captions_or_draws_is_exported_for_that() -> None:
    for what in ("i2t", "t2i"):
        row, workspace = made({"en": 1.0}, {"en": 100.0}, trained=job("second", "gxn", generate=[what]))
        assert trained_reranker(row, workspace, SimpleNamespace(job=row.trained[1])) is row
    row, workspace = made({"en": 1.0}, {"en": 100.0}, trained=job("second", "gxn", generate=[]))
    assert trained_reranker(row, workspace, SimpleNamespace(job=row.trained[1])) is None


def test_it_is_compared_with_the_exported_model_which_may_be_of_another_row() -> None:
    row, workspace = made({"en": 110.0}, {"en": 100.0})
    better = SimpleNamespace(job=job("better", "san"))
    of_others = workspace.manifest
    workspace.manifest = lambda one: (
        {"metrics": {"val": {"en": {"rsum": 120.0}}}} if one is better.job else of_others(one)
    )
    assert trained_reranker(row, workspace, SimpleNamespace(job=row.trained[1])) is row
    assert trained_reranker(row, workspace, better) is None


def test_without_the_first_model_nothing_is_known() -> None:
    row, workspace = made({"en": 1.0}, {"en": 100.0}, done=False)
    assert is_better(row, workspace, SimpleNamespace(job=row.trained[1]))
    assert is_better(row, workspace, None)
    assert trained_reranker(row, workspace, None) is None  # its test has not been run
    assert trained_reranker(None, workspace, None) is None


def test_a_model_that_is_tested_in_folds_can_be_exported(tmp_path: Path) -> None:
    folds, workspace = ["--vse.only=[none]", "--vse.folds=3"], Workspace(tmp_path)
    (row,) = Graph(load_recipe("scenes", folds[:1]), workspace).rows
    with pytest.raises(RecipeError, match="has not been trained"):
        chosen_row(Graph(load_recipe("scenes", folds), workspace))
    finish(workspace, row.job, {"val": {"en": scores(40.0)}})
    chosen = chosen_row(Graph(load_recipe("scenes", folds), workspace))
    assert (chosen.job.key, chosen.trained) == (row.job.key, (row.job,))
    with pytest.raises(RecipeError, match="fuse, rerank or translate"):
        chosen_row(Graph(load_recipe("scenes", [*folds[:1], "--vse.fuse=[san,dan]"]), workspace))


def test_a_training_with_other_settings_is_named_only_where_there_is_one(tmp_path: Path) -> None:
    workspace, said = Workspace(tmp_path), "one with other settings or data is there"
    with pytest.raises(RecipeError) as error:
        chosen_row(Graph(load_recipe("scenes", ["--vse.only=[none]"]), workspace))
    assert said not in str(error.value)
    (row,) = Graph(load_recipe("scenes", ["--vse.only=[none]", "--vse.epochs=9"]), workspace).rows
    finish(workspace, row.job, {"val": {"en": scores(40.0)}})
    with pytest.raises(RecipeError, match=said):
        chosen_row(Graph(load_recipe("scenes", ["--vse.only=[none]"]), workspace))
