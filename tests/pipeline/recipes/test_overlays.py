"""Settings of trainings beside those of a recipe: what goes with a model, and what of it is checked."""

from pathlib import Path

import pytest

from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.graph import Graph
from pipeline.recipes.loading import lender, load_recipe
from pipeline.recipes.overlays import beside_settings, overlaid
from pipeline.recipes.retrieval_settings import VseSettings
from pipeline.recipes.translator_settings import MmtSettings
from pipeline.recipes.yaml_files import GOES_WITH
from tests.modules.dual_networks import save


def test_the_default_named_once_more_drops_nothing(tmp_path: Path) -> None:
    for name, default, own in GOES_WITH:
        settings = [kind() for kind in (VseSettings, MmtSettings) if hasattr(kind(), own)]
        assert [getattr(each, name) for each in settings] == [default]
    (tmp_path / "mine.yaml").write_text("base: scenes\nvse: {start: [{epochs: 2}]}\n")
    read = [load_recipe(str(tmp_path / "mine.yaml"), more).vse for more in ([], ["--vse.model=san"])]
    assert [(vse.model, vse.start) for vse in read] == [("san", [{"epochs": 2}])] * 2
    assert load_recipe(str(tmp_path / "mine.yaml"), ["--vse.model=dan"]).vse.start == []


def test_a_rate_stays_with_another_network_and_goes_without_one(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("base: scenes\nvse: {pretrained: one, pretrained_rate: 0.1}\n")
    read = [load_recipe(str(tmp_path / "mine.yaml"), [f"--vse.pretrained={name}"]).vse for name in ("two", "null")]
    assert [(vse.pretrained, vse.pretrained_rate) for vse in read] == [("two", 0.1), (None, 0.0)]


def test_what_a_training_starts_with_is_not_interpolated_itself() -> None:
    vse = load_recipe("scenes", ["--vse.start=[{epochs: 2}]", "--vse.interpolate=[0, 0.5, 1]"]).vse
    assert vse.interpolate == [0, 0.5, 1]
    assert overlaid(vse, vse.start[0]).interpolate == beside_settings(vse, vse.reranker).interpolate == []


@pytest.mark.parametrize("model", ["mule", "mlmme"])
@pytest.mark.parametrize("where", ["vse", "vse.row_settings.human-de"])
def test_a_loss_between_captions_is_refused_for_rows_too(model: str, where: str) -> None:
    rows = "--vse.rows.human-de=[en/human + de/human]"
    with pytest.raises(RecipeError, match=f"caption_loss is 1, but {model} has a loss between captions of its own"):
        load_recipe("scenes", [f"--vse.model={model}", rows, f"--{where}.caption_loss=1"])


def test_a_network_that_is_tested_as_it_is_needs_no_captions(tmp_path: Path) -> None:
    network = f"--vse.pretrained={save('siglip', tmp_path / 'siglip')}"
    recipe = load_recipe("scenes-dual-encoder", [network, "--vse.epochs=0", "--vse.only=[none, mt-f, human-de]"])
    for row in Graph(recipe, Workspace(tmp_path)).rows:
        assert set(row.job.inputs) <= {"corpus", "images"}
        assert row.job.settings["groups"] == []


def test_a_lender_is_found_beside_the_recipe_as_its_base_is(tmp_path: Path) -> None:
    (tmp_path / "lends.yaml").write_text("base: scenes\n")
    (tmp_path / "mine.yaml").write_text("base: lends.yaml\naugment: {translators: lends.yaml}\n")
    recipe = load_recipe(str(tmp_path / "mine.yaml"))
    assert lender(recipe, recipe.augment.translators).file == str(tmp_path / "lends.yaml")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("vse: {row_settings: {none: {start: [{foo: 5}]}}}", r"unknown key vse.row_settings.none.start\[0\].foo"),
        ("vse: {row_settings: {none: {start: [{options: 5}]}}}", r"start\[0\].options is 5; expected keys"),
        ("vse: {row_settings: {none: {start: [{epochs: 5.5}]}}}", r"start\[0\].epochs is 5.5; expected a whole number"),
        ("vse: {word_vectors: {en: null}}", r"vse.word_vectors.en is empty; expected a value"),
        ("vse: {row_settings: {none: {word_vectors: {en: null}}}}", "row_settings.none.word_vectors.en is empty"),
        ("mmt: {repeat: {europarl: null}}", "mmt.repeat.europarl is empty"),
        ("mmt: {rerank: {systems: {a: null}}}", "mmt.rerank.systems.a is empty"),
        ("sts: {sets: {a: null}}", "sts.sets.a is empty"),
        ("vse: {reranker: {trainer: {devices: 1}}}", "unknown key vse.reranker.trainer"),
        ("sts: {sets: {2014: a.txt}}", "sts.sets.2014 is 'a.txt'"),
        ("tables: {1: {title: T, systems: {a: {rows: [none]}}, compare: true}}", "tables.1.compare: True; expected"),
        ("vse: {model: scan-t2i-lse, options: {lambda_lse: 0}}", "lambda_lse is 0; expected a number above 0"),
    ],
)
def test_slips_within_overlays_are_one_line(tmp_path: Path, lines: str, message: str) -> None:
    (tmp_path / "mine.yaml").write_text(f"base: scenes\n{lines}\n")
    with pytest.raises(RecipeError, match=message):
        load_recipe(str(tmp_path / "mine.yaml"))


def test_a_row_s_name_may_be_a_number(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("base: scenes\nvse: {rows: {1: [en/human]}}\n")
    assert "1" in load_recipe(str(tmp_path / "mine.yaml")).vse.rows


@pytest.mark.parametrize(("recipe", "arguments", "words"), [
    ("multi30k-flickr8k-few", ["--mmt.finetune.steps=100"], "changes nothing, as the translators are those of"),
    ("multi30k-flickr8k-few", ["--augment.captions=multi30k", "--augment.searches={}"], "(augment.captions); give it"),
    ("scenes", ["--vse.reranker.model=null", "--vse.reranker={}", "--vse.reranker=null", "--vse.first_k=9"],
     "vse.first_k is 9, but nothing is reranked; set vse.first"),
    ("scenes", ["--regions.model=./vit", "--regions.size=64"], "regions.size is 64, which the built-in extractor"),
    ("scenes", ["--augment.searches.wide={diversity: 0.7}"], "diversity is 0.7, between groups, but groups is 1"),
    ("scenes", ["--vse.row_settings.mt-f={model: student, teacher: {row: xx}}"],
     "vse.row_settings.mt-f.teacher.row is 'xx'; expected one of vse.rows"),
    ("scenes", ["--vse.forgetting=recipe:xtd10"], "vse.forgetting tests what trained dual encoders"),
    ("scenes", ["--augment.captioner={row: none, model: gxn, seeds: [1, 2]}"], "captioner.seeds are [1, 2], but"),
])  # fmt: skip
def test_settings_that_change_nothing_are_refused(recipe: str, arguments: list[str], words: str) -> None:
    with pytest.raises(RecipeError) as caught:
        load_recipe(recipe, arguments)
    assert words in str(caught.value)


def test_what_a_borrower_reads_of_its_own_translators_is_allowed() -> None:
    systems = load_recipe("multi30k-flickr8k-few", ["--mmt.systems=[mt, mmt]", "--mmt.trainer.devices=2"]).mmt.systems
    assert systems == ["mt", "mmt"]


def test_a_borrower_of_captions_translates_queries_and_files_by_its_own_beam() -> None:
    arguments = ["--augment.captions=multi30k", "--augment.beam_size=2", "--augment.length_penalty=1.5"]
    augment = load_recipe("multi30k-flickr8k-few", arguments).augment
    assert (augment.beam_size, augment.length_penalty) == (2, 1.5)


@pytest.mark.parametrize("arguments", [
    ["--vse.distance=euclidean"],  # the reranker, of sets, has it from the same section
    ["--vse.model=mule", "--vse.loss=null", "--vse.negatives=5"],
    ["--vse.negatives=5", "--vse.row_settings.mt-f={loss: hardest-k}"],
    ["--vse.distance=euclidean", "--vse.model=scan-t2i-avg", "--vse.first=san"],
])  # fmt: skip
def test_what_one_training_reads_the_others_may_have(arguments: list[str]) -> None:
    load_recipe("scenes", arguments)


@pytest.mark.parametrize(("arguments", "says"), [
    (["--vse.negatives=5", "--vse.reranker.negatives=6"], "line: vse.negatives is 5, which the loss `hardest-k` alone"),
    (["--vse.loss=hardest-k", "--vse.row_settings.mt-f={negatives: 6, loss: sum}"],
     "line: vse.row_settings.mt-f: vse.negatives is 6"),
    (["--vse.model=scan-t2i-avg", "--vse.distance=euclidean"], "vse.distance is euclidean, which a model of single"),
])  # fmt: skip
def test_what_no_training_reads_is_refused(arguments: list[str], says: str) -> None:
    with pytest.raises(RecipeError, match=says):
        load_recipe("scenes", arguments)


@pytest.mark.parametrize("model", ["gxn", "oe", "pivot-asym"])
def test_single_vectors_of_any_score_may_be_encoded_in_chunks(model: str) -> None:
    chunked = [f"--vse.model={model}", "--vse.cached_chunk=4"]
    assert load_recipe("scenes", chunked).vse.cached_chunk == 4
    if model == "gxn":
        with pytest.raises(RecipeError, match=r"cached_chunk is 4, but gxn with options\.generate generates"):
            load_recipe("scenes", [*chunked, "--vse.options.generate=[i2t]"])


def test_a_row_may_be_chosen_that_forgets_nothing(tmp_path: Path) -> None:
    network = f"--vse.pretrained={save('siglip', tmp_path / 'siglip')}"
    rows = ["--vse.row_settings.none={epochs: 0}", "--vse.only=[none]"]
    assert load_recipe("scenes-dual-encoder", [network, "--vse.forgetting=recipe:xtd10", *rows]).vse.only == ["none"]
