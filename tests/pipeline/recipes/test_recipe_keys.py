"""Which settings change the key of a job, and which do not."""

from pathlib import Path

import pytest

from pipeline.engine.workspace import Workspace
from pipeline.graph import Graph
from pipeline.recipes.loading import load_recipe
from pipeline.recipes.settings import Recipe
from tests.modules.dual_networks import save


@pytest.fixture(autouse=True)
def _no_data_root(monkeypatch):
    monkeypatch.delenv("BILDWORT_DATA", raising=False)


def keys(recipe: Recipe, folder: Path) -> list[str]:
    """The keys of all translators and retrieval models, in order."""
    workspace = Workspace(folder / "artifacts")
    return [job.key for job in Graph(recipe, workspace).translators.values()] + [
        row.job.key for row in Graph(recipe, workspace).rows
    ]


@pytest.mark.parametrize(
    "argument",
    [
        "devices=4",
        "workers=2",
        "progress=false",
        "threads=1",
        "accelerator=cpu",
        "num_nodes=2",
        "strategy=ddp",
        "loggers=[csv]",
    ],
)
def test_where_and_how_fast_it_runs_leaves_all_keys_alone(tmp_path: Path, argument: str) -> None:
    assert keys(load_recipe("scenes", [f"--trainer.{argument}"]), tmp_path) == keys(load_recipe("scenes"), tmp_path)


def test_choosing_rows_and_batches_of_synthesis_leaves_keys_alone(tmp_path: Path) -> None:
    plain = keys(load_recipe("scenes"), tmp_path)
    assert keys(load_recipe("scenes", ["--vse.only=[none]"]), tmp_path)[-1] in plain
    assert keys(load_recipe("scenes", ["--augment.batch_tokens=99"]), tmp_path) == plain


def only_none(*arguments: str) -> Recipe:
    """Scenes with one row that trains on human captions alone, so that translators cannot change its key."""
    return load_recipe("scenes", ["--vse.rows.none=[en/human]", "--vse.only=[none]", "--vse.seeds=[1]", *arguments])


@pytest.mark.parametrize(
    ("argument", "translators", "retrieval"),
    [
        ("--trainer.precision=bf16-mixed", True, True),
        ("--mmt.trainer.precision=bf16-mixed", True, False),
        ("--vse.trainer.precision=bf16-mixed", False, True),
        ("--seed=99", True, False),
        ("--vse.seeds=[99]", False, True),
        ("--mmt.finetune.learning_rate=0.5", True, False),
        ("--vse.learning_rate=0.5", False, True),
        ("--vse.margin=0.3", False, True),
        ("--vse.rows.none=[de/human]", False, True),
        ("--corpus.train=99", True, True),
        ("--regions.regions=3", True, True),
    ],
)
def test_what_changes_a_result_changes_its_key(tmp_path: Path, argument: str, translators, retrieval) -> None:
    before, after = keys(only_none(), tmp_path), keys(only_none(argument), tmp_path)
    assert len(before) == len(after) == 8  # text, three translators in two directions, one retrieval model
    assert (before[3] != after[3]) is translators  # mmt-en-de
    assert (before[-1] != after[-1]) is retrieval


def test_a_setting_of_one_phase_leaves_the_phase_before_it_alone(tmp_path: Path) -> None:
    def jobs(*arguments: str) -> dict[str, str]:
        found = Graph(load_recipe("scenes", arguments), Workspace(tmp_path)).translators
        return {name: job.key for name, job in found.items()}

    plain, tuned = jobs(), jobs("--mmt.finetune.learning_rate=0.5")
    changed = {name for name in plain if plain[name] != tuned[name]}
    assert changed == {"mt-en-de", "mmt-en-de", "mt-de-en", "mmt-de-en"}
    pretrained = jobs("--mmt.pretrain.learning_rate=0.5")
    assert all(pretrained[name] != plain[name] for name in plain if name != "bpe-de-en")
    assert pretrained["bpe-de-en"] == plain["bpe-de-en"]


@pytest.mark.parametrize("argument", ["warmup_epochs=0", "learning_rate=0.01", "batch_size=6", "loss=infonce"])
def test_how_others_are_trained_leaves_the_key_of_a_row_that_is_not_alone(tmp_path: Path, argument: str) -> None:
    network = save("clip", tmp_path / "clip")
    given = ["--vse.model=dual-encoder", f"--vse.pretrained={network}", "--vse.reranker.model=null"]
    given += ["--vse.only=[zero]", "--vse.rows.zero=[]", "--vse.row_settings={zero: {epochs: 0}}"]
    (row,), (other,) = (
        Graph(load_recipe("scenes", arguments), Workspace(tmp_path)).rows
        for arguments in ([*given, "--vse.warmup_epochs=1"], [*given, f"--vse.{argument}"])
    )
    assert row.job.key == other.job.key
