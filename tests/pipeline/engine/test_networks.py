"""Which network a translator is: what cannot be made is told before anything runs, and keys know what matters."""

from pathlib import Path

import pytest

from pipeline.engine.job import topological_order
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.graph import Graph
from pipeline.recipes.loading import load_recipe

TRANSFORMER = "--mmt.network=transformer"


def keys(folder: Path, *arguments: str) -> dict[str, str]:
    jobs = Graph(load_recipe("scenes", [TRANSFORMER, *arguments]), Workspace(folder)).translators
    return {name: job.key for name, job in jobs.items() if name.endswith("en-de")}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--mmt.network=lstm"], "bilstm"),
        (["--mmt.network=bilstm", "--mmt.network_options.look=gate"], "mmt.network_options.look"),  # it has none
        ([TRANSFORMER, "--mmt.network_options.loook=gate"], "did you mean mmt.network_options.look?"),
        (
            [TRANSFORMER, "--mmt.network_options.look=sideways"],
            "mmt.network_options.look is 'sideways'; expected gate or tokens",
        ),
        ([TRANSFORMER, "--mmt.network_options.heads=0"], "heads 0; expected 1 or more"),
        ([TRANSFORMER, "--mmt.network_options.layers=0"], "layers is 0"),
        ([TRANSFORMER, "--mmt.network_options.heads=four"], "options.heads is 'four'; expected a whole number"),
        ([TRANSFORMER, "--mmt.network_options.heads=7"], "not divisible by twice the heads"),
        (["--mmt.repeat.scenes=0"], "mmt.repeat.scenes is 0; expected 1 or more"),
        (["--mmt.finetune.r_drop=5", "--mmt.dropout=0"], "mmt.finetune.r_drop compares two readings with dropout, but"),
        (["--mmt.network=transformer", "--mmt.network_options={look: tokens, gate_bias: -3}"], "without a gate; leave"),
        (["--mmt.repeat.scenes=2", "--mmt.pretrain.steps=0"], "mmt.repeat is of pre-training, but mmt.pretrain.st"),
        (["--mmt.pretrain_captions=true", "--mmt.pretrain.steps=0"], "mmt.pretrain_captions is of pre-training, but"),
        (["--mmt.pretrained.opus={model: ./opus, longest: 9}"], "longest is 9, which kind: translator does not read"),
    ],
)
def test_what_no_translator_can_be_made_of_is_one_line(arguments: list[str], words: str) -> None:
    with pytest.raises(RecipeError) as caught:
        load_recipe("scenes", arguments)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_how_regions_enter_is_nothing_to_a_translator_of_text(tmp_path: Path) -> None:
    gate, tokens = (
        keys(tmp_path, "--mmt.network_options.look=gate"),
        keys(tmp_path, "--mmt.network_options.look=tokens"),
    )
    assert gate == keys(tmp_path)  # the default
    assert {name for name in gate if gate[name] != tokens[name]} == {"mmt-en-de"}


def test_another_network_has_none_of_the_recipes_options() -> None:
    assert load_recipe("scenes").mmt.network_options == {"layers": 2, "look": "gate"}
    assert load_recipe("scenes", ["--mmt.network=bilstm"]).mmt.network_options == {}
    again = load_recipe("scenes", ["--mmt.network_options.layers=3", "--mmt.network=transformer"])
    assert again.mmt.network_options == {"layers": 3, "look": "gate"}


def test_another_network_and_repeated_pairs_change_keys(tmp_path: Path) -> None:
    plain = keys(tmp_path)
    for argument in ("--mmt.network_options.layers=3", "--mmt.network=bilstm", "--mmt.repeat.scenes=2"):
        other = keys(tmp_path, argument)
        assert all(other[name] != plain[name] for name in plain), argument  # MT and MMT start from NMT


def test_a_chain_holds_each_job_once_after_what_it_needs(tmp_path: Path) -> None:
    recipe = load_recipe("scenes", ["--vse.only=[none]", "--vse.fuse=[san,dan]"])
    (row,) = Graph(recipe, Workspace(tmp_path)).rows[:1]
    names = [job.name for job in topological_order([row.job, row.job], "vse")]
    assert names == ["vse-san-none-1", "vse-dan-none-1", "fusion-san-dan-none-1"]


def test_models_of_several_seeds_are_fused_and_those_without_take_the_row_s(tmp_path: Path) -> None:
    recipe = load_recipe("scenes", ["--vse.only=[none]", "--vse.fuse=[san@1,san@5,dan]", "--vse.seeds=[1,2]"])
    rows = Graph(recipe, Workspace(tmp_path)).rows
    assert [[job.name for job in row.trained] for row in rows] == [
        ["vse-san-none-1", "vse-san-none-5", "vse-dan-none-1"], ["vse-san-none-1", "vse-san-none-5", "vse-dan-none-2"],
    ]  # fmt: skip
    alone = Graph(load_recipe("scenes", ["--vse.only=[none]", "--vse.seeds=[5]"]), Workspace(tmp_path)).rows[0].job
    assert rows[0].trained[1].key == alone.key  # a model that is trained already is not trained again
    assert [row.system for row in rows] == ["san@1 + san@5 + dan"] * 2
    assert rows[0].job.name == "fusion-san@1-san@5-dan-none-1"
