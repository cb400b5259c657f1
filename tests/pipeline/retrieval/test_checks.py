"""Numbers and names that a training would stumble over hours later are refused before it begins."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import data.text.segmentation
from data.batches.slots import parse_group
from data.captions.checks import read_in_validation
from data.captions.table import Caption, table_of
from data.errors import DataError
from modules.errors import ModelError
from modules.pretrained import adapters
from modules.retrieval_models import build_model
from pipeline.commands.recipes import _extras_of
from pipeline.engine.machine import process_rank
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.graph import Graph
from pipeline.recipes.loading import load_recipe
from pipeline.recipes.retrieval_settings import VseSettings
from pipeline.retrieval import vse
from pipeline.retrieval.preconditions import (
    advise_on_languages,
    advise_on_regions,
    advise_on_selection,
    require_pairs,
    require_segmenters,
)
from pipeline.retrieval.vse import require_parts


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("--mmt.beam_size=0", "mmt.beam_size is 0; expected 1 or more"),
        ("--augment.beam_size=0", "augment.beam_size is 0"),
        ("--augment.length_penalty=-1", "augment.length_penalty is -1"),
        ("--mmt.batch_tokens=0", "mmt.batch_tokens is 0"),
        ("--augment.batch_tokens=0", "augment.batch_tokens is 0"),
        ("--mmt.dropout=1.0", "mmt.dropout is 1.0; expected from 0 to below 1"),
        ("--mmt.label_smoothing=2", "mmt.label_smoothing is 2"),
        ("--mmt.pretrain.learning_rate=-1", "mmt.pretrain.learning_rate is -1"),
        ("--mmt.finetune.learning_rate=0", "mmt.finetune.learning_rate is 0"),
        ("--mmt.finetune.warmup=-1", "mmt.finetune.warmup is -1"),
        ("--mmt.directions=[en-de-fr]", "'en-de-fr'; expected two languages"),
        ("--mmt.directions=[ende]", "'ende'; expected two languages"),
        ("--mmt.directions=[en-en]", "'en-en'; expected two languages"),
        ("--vse.select=[]", "vse.select is empty"),
        ("--vse.test=[]", "vse.test is empty"),
        ("--vse.rows={none: []}", "vse.rows.none is empty"),
        ("--vse.rows={'en:de': [en/human]}", "'en:de', whose : no file name has"),
        ("--vse.rows={'../up': [en/human]}", "'../up', whose / no file name has"),
        ("--vse.seeds=[1,1]", "vse.seeds has an entry twice: 1, 1"),
        ("--vse.only=[none,none]", "vse.only has an entry twice"),
        ("--vse.seeds=[-1]", "vse.seeds.0 is -1"),
        ("--vse.clip=-1", "vse.clip is -1"),
        ("--vse.learning_rate=-1", "vse.learning_rate is -1"),
        ("--vse.decay=0", "vse.decay is 0"),
        ("--vse.learning_rate=1e9", "vse.learning_rate is 1000000000.0; expected more than 0 and at most 1"),
        ("--mmt.pretrain.learning_rate=2", "mmt.pretrain.learning_rate is 2.0"),
        ("--vse.dropout=1.5", "vse.dropout is 1.5"),
        ("--vse.dim=0", "vse.dim is 0"),
        ("--vse.word_dim=0", "vse.word_dim is 0"),
        ("--vse.steps=0", "vse.steps is 0"),
        ("--vse.type_weights={en/human: -1}", "vse.type_weights.en/human is -1"),
        ("--vse.type_weights={en/human: 0}", "one of them above 0"),
        ("--vse.caption_loss=-1", "vse.caption_loss is -1"),
        ("--vse.weight_decay=-1", "vse.weight_decay is -1"),
        ("--report.resamples=0", "report.resamples is 0"),
        ("--trainer.threads=0", "the command line: trainer.threads is 0"),
        ("--trainer.devices=two", "the command line: trainer.devices is 'two'"),
        ("--mmt.trainer.threads=0", "the command line: mmt.trainer.threads is 0"),
        ("--vse.trainer.workers=-1", "vse.trainer.workers is -1"),
        ("--mmt.trainer.precision=16-mixed", "mmt.trainer.precision is '16-mixed'; expected"),
    ],
)
def test_what_no_translator_can_be_trained_by_is_one_line(argument: str, words: str) -> None:
    with pytest.raises(RecipeError) as error:
        load_recipe("scenes", ["--augment.paths=[]", "--vse.rows={none: [en/human]}", "--vse.only=[none]", argument])
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_languages_that_begin_alike_are_two() -> None:
    assert load_recipe("scenes", ["--mmt.directions=[en-eng]", "--augment.paths=[]"]).mmt.directions == ["en-eng"]


@pytest.mark.parametrize(
    ("reranker", "words"),
    [
        ("{row: null}", "vse.reranker.row is None"),
        ("{row: mmt, model: scan-t2i-avg}", "vse.reranker.row is 'mmt'"),
        ("{row: mmt-f, model: scan}", "no such retrieval model"),
        ("{row: mmt-f, model: scan-t2i-avg, epoch: 3}", "did you mean vse.reranker.epochs"),
        ("{row: mmt-f, model: scan-t2i-avg, epochs: many}", "epochs"),
        (
            "{row: mmt-f, model: scan-t2i-avg, epochs: 2}",
            "vse.reranker: vse.warmup_epochs 3 is more than vse.epochs 2; set warmup_epochs to 2 or less",
        ),
        ("{row: mmt-f, model: scan-t2i-avg, loss: hard}", "vse.loss is 'hard'"),
    ],
)
def test_a_reranker_that_cannot_be_trained_is_one_line(reranker: str, words: str) -> None:
    with pytest.raises((RecipeError, ModelError)) as error:
        load_recipe("scenes", [f"--vse.reranker={reranker}", "--vse.warmup_epochs=3"])
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("{heads: 0}", "heads is 0; expected 1 or more"),
        ("{heads: three}", "vse.options.heads is 'three'; expected a whole number"),
        ("{heads: true}", "vse.options.heads is True; expected a whole number"),
        ("{heads: 1.5}", "vse.options.heads is 1.5; expected a whole number"),
        ("{diversity: much}", "vse.options.diversity is 'much'; expected a number"),
        ("{heads: 6, match: set}", "heads is 6; with match: set expected at most 5"),
        ("{match: sets}", "vse.options.match is 'sets'; expected concatenated or set"),
        ("{diversity_reading: near}", "expected apart, printed or distance"),
        ("{head: 3}", "did you mean vse.options.heads?"),
    ],
)
def test_options_that_no_model_can_be_built_with_are_one_line(options: str, words: str) -> None:
    with pytest.raises(RecipeError) as error:
        load_recipe("scenes", ["--vse.model=diverse-attention", f"--vse.options={options}"])
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("given", "missing"), [("{row: en}", "model"), ("{model: scan-t2i-avg}", "row")])
def test_a_reranker_has_a_row_and_a_model(given: str, missing: str) -> None:
    with pytest.raises(RecipeError, match=f"vse.reranker.{missing} is missing"):
        load_recipe("multi30k", [f"--vse.reranker={given}"])


def test_a_reranker_can_be_left_out(workspace: Workspace) -> None:
    assert Graph(load_recipe("scenes"), workspace).reranker is not None
    for without in ("--vse.reranker.model=null", "--vse.only=[none]", "--vse.model=scan-t2i-avg"):
        assert Graph(load_recipe("scenes", [without]), workspace).reranker is None


def test_a_set_of_heads_is_no_first_model(workspace: Workspace) -> None:
    first = ["--vse.model=scan-t2i-avg", "--vse.first=diverse-attention"]
    load_recipe("scenes", first)
    with pytest.raises(RecipeError, match="'diverse-attention', whose score is of sets; expected an inner product"):
        load_recipe("scenes", [*first, "--vse.options={match: set}"])
    reranked = ["--vse.model=diverse-attention", "--vse.reranker={row: none, model: scan-t2i-avg}"]
    assert Graph(load_recipe("scenes", reranked), workspace).reranker is not None
    assert Graph(load_recipe("scenes", [*reranked, "--vse.options={match: set}"]), workspace).reranker is None


def test_a_loss_between_captions_needs_two_languages_of_an_image_at_once(tmp_path: Path) -> None:
    workspace, weight = Workspace(tmp_path), "--vse.caption_loss=0.6"
    Graph(
        load_recipe("scenes", ["--vse.rows={both: [en/human + de/human]}", "--vse.only=[both]", weight]), workspace
    ).rows
    for row, known in (("[en/human]", "en"), ("[en/human, de/human]", "de, en"), ("[2*en/human]", "en")):
        recipe = load_recipe("scenes", [f"--vse.rows={{one: {row}}}", "--vse.only=[one]", weight])
        with pytest.raises(RecipeError) as error:
            Graph(recipe, workspace).rows
        assert str(error.value).startswith("vse.caption_loss is 0.6, but no group of vse.rows.one has captions of two ")
        assert f"(it reads {known}); join slots" in str(error.value)
        assert "\n" not in str(error.value)


def test_sentences_without_pictures_are_no_captions_that_a_loss_between_captions_compares() -> None:
    settings = VseSettings(model="student", teacher={"row": "none"}, caption_loss=0.6)
    sentences, captions = (parse_group(text) for text in ("de/text:task1 + fr/text:task1", "en/human + de/human"))
    require_pairs(settings, "taught", [sentences, captions])
    with pytest.raises(RecipeError, match=r"no group of vse\.rows\.taught has captions of two languages"):
        require_pairs(settings, "taught", [sentences, parse_group("en/human")])


def test_a_missing_segmenter_is_told_before_anything_is_prepared(monkeypatch) -> None:
    monkeypatch.setattr(data.text.segmentation, "find_spec", lambda name: None)
    with pytest.raises(DataError, match=r"vse\.segment is words, but fugashi, .* 'ja', is not installed: run"):
        require_segmenters(load_recipe("coco-3").vse)
    require_segmenters(load_recipe("coco-3", ["--vse.segment=characters"]).vse)
    require_segmenters(load_recipe("scenes", ["--vse.segment=words"]).vse)  # which needs none
    with pytest.raises(RecipeError, match=r"vse\.segment is words, but vse\.pretrained reads the words"):
        load_recipe("scenes", ["--vse.segment=words", "--vse.pretrained=some/model"])


@pytest.mark.parametrize(("name", "regions", "warned"), [
    ("diverse-attention", 1, True), ("diverse-attention", 36, False), ("san", 1, False),
])  # fmt: skip
def test_several_heads_on_one_region_are_warned_about(name: str, regions: int, warned: bool, capsys) -> None:
    model = build_model(name, region_dim=2, vocabulary_size=4, languages=["en"], dim=4, word_dim=4)
    advise_on_regions(model, SimpleNamespace(folder="store", regions=np.zeros((5, regions, 2))))
    said = capsys.readouterr().out
    assert said.startswith("  warning: store has one region an image, so all 3 heads") == warned
    assert said.count("\n") == warned


def test_all_rows_rank_the_same_validation_pictures() -> None:
    images = {"en": ["1", "2"], "de": ["2"]}
    rows = [Caption(f"{image}.jpg", f"{image}#{language}", language, "a dog", "val")
            for language, some in images.items() for image in some]  # fmt: skip
    for more, read in ((("3", "test", "human"), ["en"]), (("3", "val", "mt:en-de"), ["en"]),
                       (("3", "val", "human"), ["en", "de"])):  # fmt: skip
        image, split, source = more
        table = table_of([*rows, Caption(f"{image}.jpg", f"{image}#de", "de", "ein Hund", split, source)])
        assert read_in_validation(table, ["en"], ["en", "de"]) == read


FILTERED = [
    "--augment.paths=[mt:en-de, mt:en-de@look]", "--mmt.systems=[mt]", "--vse.only=[none]",
    "--augment.filters.look.by=image", "--augment.filters.look.keep=0.5",
]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        (["--vse.row_settings={none: {options: {levels: 3}}}"], "vse.row_settings.none"),
        (["--vse.row_settings={mt-f: {model: student, teacher: {row: none, options: {levels: 3}}}}"],
         "vse.row_settings.mt-f.teacher"),
        (["--vse.start=[{options: {levels: 3}}]"], "vse.start[0]"),
        (["--vse.reranker={row: none, model: scan-t2i-avg, options: {levels: 3}}"], "vse.reranker"),
        (["--mmt.rerank.retrieval={row: none, options: {levels: 3}}"], "mmt.rerank.retrieval"),
        ([*FILTERED, "--augment.filters.look.retrieval={row: none, options: {levels: 3}}"],
         "augment.filters.look.retrieval"),
        (["--augment.captioner={row: none, model: gxn, options: {generate: [i2t], levels: 3}}"], "augment.captioner"),
    ],
)  # fmt: skip
def test_an_option_that_a_training_does_not_take_is_told_with_its_place(arguments: list[str], place: str) -> None:
    with pytest.raises(RecipeError) as error:
        load_recipe("scenes", ["--vse.only=[none, mt-f]", *arguments])
    assert f"{place}: unknown key vse.options.levels" in str(error.value)


ADAPTED = "model: dual-encoder, pretrained: some/network, options: {text: lora}"


@pytest.mark.parametrize(
    "row", [f"{{{ADAPTED}}}", f"{{model: student, teacher: {{row: none, {ADAPTED}}}}}"], ids=["a row", "a teacher"]
)
def test_a_package_that_any_training_lacks_is_told_before_anything_is_prepared(row: str, monkeypatch) -> None:
    monkeypatch.setattr(vse, "encoder_arguments", lambda settings: {})
    monkeypatch.setattr(adapters, "find_spec", lambda name: None)
    recipe = load_recipe("scenes", ["--vse.only=[mt-f]", f"--vse.row_settings={{mt-f: {row}}}"])
    with pytest.raises(ModelError, match=r"^lora needs the package peft"):
        require_parts(recipe)
    assert _extras_of(recipe, None) == ["lora"]
    require_parts(load_recipe("scenes", [f"--vse.row_settings={{mt-f: {row}}}", "--vse.only=[none]"]))  # another row


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("[en/human, 'fr/mt:en-de']", "vse.rows.one has 'fr/mt:en-de', but 'mt:en-de' writes captions in 'de'; write "
         "de/mt:en-de"),
        ("[en/human, 'de/mt:en-de-en']", "has 'de/mt:en-de-en', but 'mt:en-de-en' writes captions in 'en'"),
    ],
)  # fmt: skip
def test_captions_in_another_language_than_their_path_s_are_told_at_once(row: str, words: str, tmp_path: Path) -> None:
    recipe = load_recipe("scenes", [f"--vse.rows={{one: {row}}}", "--vse.only=[one]", "--vse.reranker.model=null",
                                    "--augment.paths=[mt:en-de, mt:en-de-en]"])  # fmt: skip
    with pytest.raises(RecipeError) as error:
        Graph(recipe, Workspace(tmp_path)).rows
    assert words in str(error.value)


def test_a_rank_without_a_number_of_ranks_is_none(monkeypatch) -> None:
    for name in ("LOCAL_RANK", "WORLD_SIZE", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RANK", "1")
    assert process_rank() == 0
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert process_rank() == 1


def test_an_empty_name_of_the_artifacts_is_none(monkeypatch) -> None:
    monkeypatch.setenv("BILDWORT_ARTIFACTS", "")
    assert Workspace().root == Path("artifacts")


@pytest.mark.parametrize("setting", ["pretrained", "image_encoder"])
@pytest.mark.parametrize("name", ["/nowhere/bert", "./bert", "nets/of/mine/bert"])
def test_a_network_whose_folder_is_missing_is_told_as_such(setting: str, name: str) -> None:
    recipe = load_recipe("scenes", [f"--vse.{setting}={name}"], networks=False)
    with pytest.raises(RecipeError, match=f"^vse.{setting}: no folder {name}; expected one with a network of"):
        require_parts(recipe)


def test_captions_in_a_language_that_nothing_reads_are_told(capsys) -> None:
    captions = table_of([
        Caption("1", f"1#{number}", language, "un chien", "train") for number, language in enumerate(["en", "fr", "fr"])
    ])  # fmt: skip
    advise_on_languages(load_recipe("scenes").vse, captions)
    told = " ".join(capsys.readouterr().out.split())
    assert told == "2 captions in 'fr' are not read: no row of vse.rows has fr/human, and vse.test lacks 'fr'"
    advise_on_languages(load_recipe("scenes").vse, captions, ["mt:en-de", "mt:fr-en"])  # translated
    advise_on_languages(load_recipe("scenes", ["--vse.rows.both=[en/human, fr/human]"]).vse, captions)
    assert capsys.readouterr().out == ""


def test_a_row_whose_epoch_is_chosen_by_another_language_is_told(capsys) -> None:
    captions = table_of(Caption(split, f"{split}-{language}", language, "x", split)
                        for split, language in [("val", "de"), ("val", "en"), ("train", "fr")])  # fmt: skip
    settings = load_recipe("scenes", ["--vse.select=[de]"]).vse
    for learned, better in (
        ({"en"}, "write `taught: {select: [en]}` in vse.row_settings"), ({"fr"}, "no captions of these for validation")
    ):  # fmt: skip
        advise_on_selection(settings, "taught", learned, captions)
        told = " ".join(capsys.readouterr().out.split())
        assert told.startswith(f"vse.rows.taught learns {min(learned)}, but its epoch is chosen by de (vse.select): ")
        assert better in told
    advise_on_selection(settings, "both", {"de", "en"}, captions)
    advise_on_selection(replace(settings, epochs=0), "untrained", {"en"}, captions)
    assert capsys.readouterr().out == ""
