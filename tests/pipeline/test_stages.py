"""The stages in tiny on the scenes: from nothing to ranks, again, killed, and told what lacks."""

import contextlib
import json
import math
import os
import shutil
import signal
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from data.batches.translation import TranslationData
from data.captions.table import Caption, refuse_held_out, table_of
from data.corpora.scenes.grammar import LANGUAGES
from data.errors import DataError
from data.pictures.regions import RegionStore
from data.text.tokenisation import tokenize
from pipeline.graph import Graph
from pipeline.retrieval.ranks import read_ranks
from pipeline.translation.augment import _numbered, diversity
from pipeline.translation.evaluation import read_translations
from pipeline.translation.parallel_text import parallel_text_of
from pipeline.translation.translating import Translated
from tests.pipeline.tiny import Tiny

# What the stages leave


def test_every_stage_leaves_its_jobs_and_notes_their_keys(tiny: Tiny) -> None:
    found = {path.name for path in (tiny.workspace.root / "jobs").iterdir()}
    assert {name for name in found if not name.startswith("draw-")} == {  # `draw` is no stage
        "corpus", "text", *(f"{system}-{way}" for system in ("nmt", "mt", "mmt") for way in ("en-de", "de-en")),
        "incongruent-mmt-en-de", "incongruent-mmt-de-en",
        "synthetic-mt-en-de", "synthetic-mmt-en-de", "synthetic-mmt-en-de-en", "vse-san-human-1", "vse-san-mmt-fb-1",
    }  # fmt: skip
    for stage, count in (("prepare", 1), ("mmt", 9), ("augment", 3), ("vse", 2)):
        noted = json.loads((tiny.workspace.root / "tiny" / f"{stage}.json").read_text())
        assert len(noted) == count
        assert all((Path(entry["folder"]) / "manifest.json").is_file() for entry in noted.values())
    owner = (tiny.workspace.root / "tiny" / "recipe.txt").read_text()
    assert str((tiny.workspace.root / owner).resolve()) == tiny.recipe().file
    assert (tiny.folder / "lightning_logs" / "tiny" / "mmt-en-de").is_dir()
    assert (tiny.folder / "lightning_logs" / "tiny" / "vse-san-human-1").is_dir()


def test_prepare_leaves_tables_regions_and_a_report(tiny: Tiny) -> None:
    corpus = tiny.job("corpus")
    splits = [row["split"] for row in tiny.captions("corpus")]
    assert splits.count("train") == 12 * len(LANGUAGES)  # images, each with a caption a language
    assert RegionStore(corpus / "regions").regions.shape[:2] == (24 + 4 + 4 + 4, 3)
    assert "train" in (corpus / "report.md").read_text()


def test_translators_leave_weights_translations_and_figures(tiny: Tiny) -> None:
    for way in ("en-de", "de-en"):
        rows = read_translations(tiny.job(f"mmt-{way}"), "test")
        assert len(rows) == 4
        assert set(rows[0]) == {"pair_id", "image_id", "source", "reference", "hypothesis", "tokens", "score"}
        assert all(math.isfinite(row["score"]) and row["score"] <= 0 for row in rows)
    figures = tiny.metrics("mmt-en-de")
    assert figures["steps"] == 8
    assert 0 <= figures["test_bleu"] <= 100
    assert {"ambiguous", "swapped_ambiguous", "other_words"} <= set(figures)
    assert figures["parameters"] > tiny.metrics("mt-en-de")["parameters"]


def test_mt_never_looks_so_the_twins_picture_changes_nothing(tiny: Tiny) -> None:
    figures = tiny.metrics("mt-en-de")
    assert figures["ambiguous"] == figures["swapped_ambiguous"]
    assert figures["other_words"] == figures["swapped_other_words"]


def test_mt_and_mmt_start_from_nmt_and_see_the_same_pairs_in_the_same_batches(tiny: Tiny) -> None:
    recipe = tiny.recipe()
    jobs = Graph(recipe, tiny.workspace).translators
    assert jobs["mt-en-de"].inputs["start"] == jobs["mmt-en-de"].inputs["start"] == jobs["nmt-en-de"]
    assert jobs["mt-en-de"].settings["phase"] == jobs["mmt-en-de"].settings["phase"]
    figures = [tiny.metrics(name) for name in ("mt-en-de", "mmt-en-de")]
    assert figures[0]["train_pairs"] == figures[1]["train_pairs"] == 24
    assert figures[0]["steps"] == figures[1]["steps"]
    batches = []
    store = RegionStore(tiny.job("corpus") / "regions")
    for regions in (None, store):
        pairs = parallel_text_of({name: tiny.job(name) for name in ("corpus", "text")}, "en-de", recipe.mmt)
        data = TranslationData(
            pairs.select("train", True), pairs.select("val", True), regions, 40, 8, recipe.seed
        )  # fmt: skip
        batches.append([batch["index"].tolist() for batch in data.train_dataloader()])
    assert batches[0] == batches[1]
    assert len(batches[0]) == 8


def test_weights_of_mt_and_mmt_differ_from_their_start(tiny: Tiny) -> None:
    start, *tuned = (load_file(tiny.job(f"{system}-en-de") / "weights.safetensors") for system in ("nmt", "mt", "mmt"))
    for weights in tuned:
        assert set(start) <= set(weights)
        assert any(not torch.equal(start[name], weights[name]) for name in start)


def test_only_training_captions_are_translated_and_each_remembers_where_it_came_from(tiny: Tiny) -> None:
    human = {row["caption_id"]: row for row in tiny.captions("corpus")}
    english = {name for name, row in human.items() if row["split"] == "train" and row["language"] == "en"}
    for path, language in (("mt:en-de", "de"), ("mmt:en-de", "de"), ("mmt:en-de-en", "en")):
        rows = tiny.captions(f"synthetic-{path.replace(':', '-')}")
        assert rows
        assert len({row["caption_id"] for row in rows} | set(human)) == len(rows) + len(human)
        for row in rows:
            assert (row["source"], row["language"], row["split"]) == (path, language, "train")
            assert row["parent"] in english  # also after two hops: the human caption, not the German one
            assert row["image_id"] == human[row["parent"]]["image_id"]
            assert math.isfinite(row["score"])
            assert row["score"] <= 0
            assert row["text"].strip()
        figures = tiny.metrics(f"synthetic-{path.replace(':', '-')}")
        assert figures["captions"] == len(rows) == len(english) - figures["empty"]


def test_the_second_hop_reads_what_the_first_one_wrote(tiny: Tiny) -> None:
    manifest = json.loads((tiny.job("synthetic-mmt-en-de-en") / "manifest.json").read_text())
    assert manifest["inputs"]["before"]["job"] == "synthetic-mmt-en-de"
    assert manifest["inputs"]["translator"]["job"] == "mmt-de-en"


def test_a_caption_of_a_held_out_image_is_refused(tiny: Tiny) -> None:
    human = [Caption(**row) for row in tiny.captions("corpus")]
    held_out = next(one for one in human if one.split == "val")
    disguised = Caption(held_out.image_id, "x", "en", "A dog.", "train")
    with pytest.raises(DataError, match=r"'x'.*'val'.*only captions of training images"):
        refuse_held_out([disguised], human)
    refuse_held_out([one for one in human if one.split == "train"], human)


def test_diversity_counts_words_of_each_language_apart() -> None:
    human = [Caption("i", "a", "en", "A hand in a hand.", "train")]
    synthetic = [
        Caption("i", "b", "de", "Eine Hand in der Hand.", "train", "mt:en-de", "a", -1.0),
        Caption("i", "c", "en", "a hand in a hand .", "train", "mt:en-de-en", "a", -1.0),
    ]
    found = diversity(table_of(human), table_of(synthetic), "en")
    assert len(tokenize(human[0].text, "en").split()) == 6
    assert found["unique_source"] == 4  # a hand in .
    assert found["unique_synthetic"] == 5 + 4  # eine hand in der . and the English ones
    assert found["unique_with_synthetic"] == 9
    assert found["unique_by_language"] == {"en": 4, "de": 5}
    assert found["copies_of_parent"] == found["copies_of_human"] == 1
    assert found["distinct_1"] == pytest.approx(100 * 6 / 12)  # eine hand in der . a
    assert 0 < found["pairwise_bleu"] < 100  # two captions of one image that share some words


def test_captions_of_one_source_are_numbered_and_differ(tiny: Tiny) -> None:
    found = [Translated(text, text, -1.0) for text in ("a", "b", "a", "", "b", "c")]
    assert [(end, one.text) for end, one in _numbered(found, 2)] == [("", "a"), ("#2", "b")]
    assert [one.text for _, one in _numbered(found, 9)] == ["a", "b", "c"]
    assert list(_numbered(found[3:4], 2)) == []


def test_looking_compares_own_regions_with_anothers_and_with_none(tiny: Tiny) -> None:
    figures = tiny.metrics("incongruent-mmt-en-de")
    rows = pq.read_table(tiny.job("incongruent-mmt-en-de") / "incongruent.parquet").to_pylist()
    assert figures["incongruent_sentences"] == len(rows) == 4
    assert all(row["own_image"] != row["other_image"] is not None and row["zeros_image"] is None for row in rows)
    for other in ("other", "zeros"):
        gain = figures[f"own-{other}_loglik"]
        assert gain == pytest.approx(figures["own_loglik"] - figures[f"{other}_loglik"])
        assert figures[f"own-{other}_loglik_low"] <= gain <= figures[f"own-{other}_loglik_high"]
        assert gain != 0  # regions enter the network
    translated = read_translations(tiny.job("mmt-en-de"), "test")
    assert [row["own_tokens"] for row in rows] == [row["tokens"] for row in translated]
    page = (tiny.job("incongruent-mmt-en-de") / "attention.html").read_text()
    assert page.count("<section>") == 4
    assert page.count("data:image/jpeg") > 4


def test_retrieval_leaves_ranks_that_give_the_figures(tiny: Tiny) -> None:
    for name in ("vse-san-human-1", "vse-san-mmt-fb-1"):
        test = tiny.metrics(name)["test"]
        assert set(test) == {"en", "de"}
        for language, scores in test.items():
            ranks = read_ranks(tiny.job(name), language)
            assert len(ranks.text_to_image) == len(ranks.image_to_text) == 4
            first = (ranks.text_to_image <= ranks.text_to_image.min()).float().mean()
            assert ranks.text_to_image.min() in (0, 1)
            assert all(math.isfinite(value) for value in scores.values())
            if ranks.text_to_image.min() == 1:
                assert scores["t2i_r1"] == pytest.approx(100 * float(first))
    human, both = (tiny.metrics(f"vse-san-{row}-1")["steps_an_epoch"] for row in ("human", "mmt-fb"))
    assert both > human


# Again, and killed half-way


def test_a_second_run_does_nothing_and_changes_nothing(tiny: Tiny, capsys) -> None:
    before = {path: path.stat().st_mtime_ns for path in (tiny.workspace.root / "jobs").rglob("*") if path.is_file()}
    for stage in ("prepare", "mmt", "augment", "vse"):
        assert tiny.main(stage, "-v") == 0
    printed = capsys.readouterr().out
    assert "starts" not in printed
    assert printed.count("is up to date") == 1 + 9 + 3 + 2
    after = {path: path.stat().st_mtime_ns for path in (tiny.workspace.root / "jobs").rglob("*") if path.is_file()}
    assert before == after


@pytest.mark.parametrize(
    ("stage", "name", "arguments"),
    [("mmt", "mmt-de-en", []), ("vse", "vse-san-mmt-fb-1", [])],
)
@pytest.mark.slow  # `test_killed` kills such a run at many moments
def test_killed_and_run_again_ends_with_the_same_weights_and_figures(
    tiny: Tiny, tmp_path: Path, capsys, stage: str, name: str, arguments: list[str]
) -> None:
    other = tiny.without(tmp_path, name)
    process = other.start(stage, *arguments)
    folder = other.workspace.root / "jobs" / name
    deadline = time.monotonic() + 120
    try:
        while not list(folder.glob("*.partial/checkpoints/last.ckpt")):
            assert time.monotonic() < deadline
            assert process.poll() is None, process.stdout.read()
            time.sleep(0.002)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not list(folder.glob("*/manifest.json"))  # it was stopped half-way, or this test says nothing
    assert not list(folder.glob("*/weights.safetensors"))
    capsys.readouterr()
    assert other.main(stage, *arguments, "-v") == 0
    assert f"{name} {tiny.job(name).name} continues" in capsys.readouterr().out
    assert (other.job(name) / "weights.safetensors").read_bytes() == (
        tiny.job(name) / "weights.safetensors"
    ).read_bytes()
    assert other.metrics(name) == tiny.metrics(name)
    assert json.loads((other.job(name) / "manifest.json").read_text())["resumed"] is True


@pytest.mark.whole
def test_start_values_do_not_depend_on_what_ran_before_in_the_process(tiny: Tiny, tmp_path: Path) -> None:
    other = tiny.without(tmp_path, "*mt-en-de")
    torch.rand(7)
    assert other.main("mmt") == 0
    for name in ("nmt-en-de", "mmt-en-de"):
        assert (other.job(name) / "weights.safetensors").read_bytes() == (
            tiny.job(name) / "weights.safetensors"
        ).read_bytes()


# What is told in one line


def told(tiny: Tiny, capsys, *arguments: str) -> str:
    """The one line that a failing command prints."""
    capsys.readouterr()
    assert tiny.main(*arguments) == 1
    printed = capsys.readouterr()
    lines = (printed.out + printed.err).splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("error: ")
    return lines[0]


def test_an_unknown_recipe_or_key_is_told(fresh: Tiny, capsys) -> None:
    assert "did you mean 'scenes'?" in told(fresh, capsys, "vse", "--recipe=scene")
    assert "did you mean vse.model?" in told(fresh, capsys, "vse", "--vse.modl=san")
    assert not fresh.workspace.root.exists()


def test_brackets_in_an_error_are_printed_as_they_are(fresh: Tiny, capsys) -> None:
    assert "[/en]" in told(fresh, capsys, "vse", "--recipe=[/en]")
    assert "['scenes']" in told(fresh, capsys, "vse", "--corpus.name=['scenes']")


def test_a_missing_upstream_artifact_names_the_make_line(fresh: Tiny, tiny: Tiny, capsys, tmp_path: Path) -> None:
    assert fresh.main("prepare") == 0
    assert "`bildwort mmt`" in told(fresh, capsys, "augment")
    assert "`bildwort augment`" in told(fresh, capsys, "vse")
    (tmp_path / "later").mkdir()
    later = tiny.without(tmp_path / "later", "synthetic-mmt-en-de-en")
    line = told(later, capsys, "vse", "--vse.epochs=5")
    assert "synthetic-mmt-en-de-en: not done yet" in line
    assert "`bildwort augment`" in line
    shutil.rmtree(later.workspace.root / "jobs" / "mmt-en-de")
    assert "`bildwort mmt`" in told(later, capsys, "augment", "--augment.beam_size=3")


def test_a_row_of_a_language_that_nobody_wrote_is_told_before_the_first_is_trained(tiny: Tiny, capsys) -> None:
    before = {path for path in (tiny.workspace.root / "jobs").glob("vse-*/*") if path.is_dir()}
    rows = '--vse.rows={"human":["en/human"],"dutch":["nl/human"]}'
    line = told(tiny, capsys, "vse", rows, "--vse.only=[human,dutch]", "--vse.test=[en]", "--vse.epochs=5")
    assert "vse.rows.dutch names 'nl', but the corpus has no human caption of it for train; it has cs, de, en" in line
    line = told(tiny, capsys, "vse", "--vse.rows.group=[en/human + nl/human]", "--vse.only=[group]", "--vse.test=[en]")
    assert "vse.rows.group names 'nl', but the corpus has no human caption of it for train" in line
    line = told(tiny, capsys, "vse", "--vse.only=[human]", "--vse.test=[en,nl]", "--vse.epochs=5")
    assert "vse.test names 'nl'" in line
    assert {path for path in (tiny.workspace.root / "jobs").glob("vse-*/*") if path.is_dir()} == before


@pytest.mark.parametrize(
    ("argument", "word"), [("--vse.epochs=3", "BILDWORT_DATA"), ("--corpus.root=/nowhere", "/nowhere")]
)
def test_a_missing_data_root_is_told(fresh: Tiny, capsys, argument: str, word: str) -> None:
    capsys.readouterr()
    assert fresh.main("prepare", "--recipe=multi30k-flickr8k", argument) == 1
    lines = capsys.readouterr().err.splitlines()
    assert [word in line for line in lines if line.startswith("error: ")] == [True]
    assert "Traceback" not in "".join(lines)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there_is_told(tiny: Tiny, capsys, tmp_path: Path) -> None:
    other = tiny.without(tmp_path, "vse-san-human-1")
    capsys.readouterr()
    assert other.main("vse", "--trainer.accelerator=gpu", "--vse.only=[human]") == 1
    lines = capsys.readouterr().err.splitlines()
    assert sum(line.startswith("error: ") for line in lines) == 1
    assert "--trainer.accelerator=cpu" in lines[-1]


def test_settings_of_the_corpus_that_contradict_are_told(fresh: Tiny, capsys) -> None:
    capsys.readouterr()
    assert fresh.main("prepare", "--corpus.retrieval=99") == 1
    assert "error: scenes: retrieval 99 is more than train 24" in capsys.readouterr().err


def test_keyboard_interrupt_says_how_to_go_on(fresh: Tiny, capsys, monkeypatch) -> None:
    def interrupted(recipe, workspace):
        raise KeyboardInterrupt

    monkeypatch.setattr("pipeline.graph.corpus_job", interrupted)
    assert fresh.main("prepare") == 130
    assert "the same command continues from where it was stopped" in capsys.readouterr().err
    assert fresh.main("prepare", "--force") == 130
    assert "runs finished jobs again, and continues the one that was stopped" in capsys.readouterr().err


def test_the_rows_of_a_recipe_come_seed_by_seed(tiny: Tiny) -> None:
    rows = Graph(tiny.recipe("--vse.seeds=[1,2]"), tiny.workspace).rows
    assert [(row.name, row.seed) for row in rows] == [("human", 1), ("mmt-fb", 1), ("human", 2), ("mmt-fb", 2)]
    assert len({row.job.key for row in rows}) == 4
    assert tiny.workspace.done(rows[0].job)
    assert not tiny.workspace.done(rows[2].job)
