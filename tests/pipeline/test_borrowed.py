"""What is borrowed from other recipes must not have read about images that are held out here."""

from dataclasses import replace
from pathlib import Path

import pytest

from data.captions.table import Caption, Pair, write_captions, write_pairs
from data.errors import DataError
from data.pictures.folder import name_of
from pipeline.engine.job import Job
from pipeline.engine.workspace import Workspace
from pipeline.graph import Graph
from pipeline.recipes.loading import load_recipe
from pipeline.stages import STAGES
from pipeline.translation.leakage import lenders_of, refuse_seen_images


def test_borrowed_translators_must_not_have_read_about_held_out_images(tmp_path, capsys) -> None:
    pairs = [
        Pair("1", "one.jpg", "train", "task1", {"en": "a", "de": "b"}),
        Pair("2", "two.jpg", "translation", "task1", {"en": "a", "de": "b"}),
        Pair("3", "three.jpg", "test", "task1", {"en": "a", "de": "b"}),
        Pair("4", None, "train", "tatoeba", {"en": "a", "de": "b"}),
    ]

    def corpus(name: str, pairs: list[Pair], **captions: str) -> Path:
        (folder := tmp_path / name).mkdir()
        write_pairs(pairs, folder / "pairs.parquet")
        rows = [Caption(f"{image}.jpg", image, "en", "a", split) for image, split in captions.items()]
        write_captions(rows, folder / "captions.parquet")
        return folder

    lender = corpus("lender", pairs, one="train")
    own = corpus("own", pairs[:1], one="train", three="test")
    refuse_seen_images({"corpus": own, "lender": lender})
    assert "no image of the borrowed translators" not in capsys.readouterr().out
    refuse_seen_images({"corpus": corpus("strange", [], five="train", six="val"), "lender": lender})
    assert "no image of the borrowed translators" in capsys.readouterr().out
    captions = corpus("captions", [], one="train", two="val")
    scored = corpus("scored", [replace(pairs[1], split="val")], one="train")  # no caption: it has no regions
    for held_out in (captions, scored):
        refuse_seen_images({"corpus": held_out})  # its own translators: checked when prepared
        for lenders in ({"lender": lender}, {"lender": own, "lender2": lender}):
            with pytest.raises(DataError, match=r"1 val or test images of this corpus, first 'two\.jpg'"):
                refuse_seen_images({"corpus": held_out, **lenders})
    both = {"corpus": corpus("asked", [], three="val"), "lender": corpus("captioned", [], three="train")}
    refuse_seen_images(both)
    with pytest.raises(DataError, match=r"the writer learned from sentences about 1 val .* first 'three\.jpg'"):
        refuse_seen_images(both, "the writer", ("pairs", "captions"))


@pytest.mark.parametrize(
    ("lent", "own"),
    [("1000092795.jpg", "1000092795"), ("1000092795", "1000092795_693b08cb0e.jpg"),
     ("COCO_val2014_000000391895", "391895"), ("images/dog.png", "dog.jpg")],
)  # fmt: skip
def test_an_image_is_the_same_under_another_corpus_s_name(lent: str, own: str) -> None:
    assert name_of(lent) == name_of(own)


def test_pictures_of_one_day_are_not_one_image() -> None:
    assert len({name_of(name) for name in ("20210101_120000.jpg", "20210101_120001.jpg", "a_1.jpg", "a_2.jpg")}) == 4


def test_a_translator_s_lenders_are_all_that_it_and_its_back_translator_read() -> None:
    def job(name: str, **inputs: Job) -> Job:
        return Job(name, "mmt", 1, {"inputs": sorted(inputs)}, inputs, lambda *_: {})

    here, there, far = (Job("corpus", "prepare", 1, {"name": name}, {}, lambda *_: {}) for name in "abc")
    back = job("back-en-de", corpus=there, translator=job("mt-de-en", corpus=far))
    translator = job("mt-en-de", corpus=there, start=job("nmt-en-de", corpus=there, back=back))
    assert lenders_of([translator], here) == {"lender": there, "lender2": far}
    assert lenders_of([translator], there) == {"lender": far}
    assert lenders_of([job("mt-en-de", corpus=here)], here) == {}


@pytest.mark.parametrize("source", ["mt:en-de", "text:mt:en-de"])
def test_a_training_on_borrowed_captions_reads_what_their_writer_learned_from(tmp_path: Path, source: str) -> None:
    def trained(lender: str) -> Job:
        """A training on the captions of a recipe."""
        (tmp_path / "lender.yaml").write_text(lender)
        arguments = ["--augment.captions=./lender.yaml", f"--vse.rows={{none: [en/human], mine: [de/{source}]}}",
                     "--vse.only=[mine]", "--vse.reranker.model=null"]  # fmt: skip
        if source.startswith("text"):
            student = "{model: student, teacher: {row: none}, select: [de]}"
            arguments.append(f"--vse.row_settings={{mine: {student}}}")
        recipe = load_recipe(str(tmp_path / "mine.yaml"), arguments)
        return Graph(recipe, Workspace(tmp_path)).rows[0].job

    (tmp_path / "mine.yaml").write_text("base: scenes\n")
    job = trained("base: scenes\ncorpus: {images: 999}\n")
    assert job.inputs["lender"].name == "corpus"
    assert job.inputs["lender"].key != job.inputs["corpus"].key
    assert "lender" not in trained("base: scenes\n").inputs


def test_the_corpus_of_borrowed_captions_is_prepared_before_them(tmp_path: Path) -> None:
    """A vision-language model that writes them needs no translators, whose stage would prepare it."""
    (tmp_path / "config.json").write_text("{}")
    captioner = f"{{kind: image-text-to-text, model: {tmp_path}, prompt: 'a picture in {{language}}'}}"
    lender = f"base: scenes\ncorpus: {{images: 999}}\naugment: {{captioner: {captioner}, paths: [caption:de]}}\n"
    (tmp_path / "lender.yaml").write_text(lender + "mmt: {systems: [], directions: []}\nvse: {only: [none]}\n")
    (tmp_path / "mine.yaml").write_text("base: scenes\naugment: {captions: ./lender.yaml}\nvse: {only: [none]}\n")
    graph = Graph(load_recipe(str(tmp_path / "mine.yaml"), networks=False), Workspace(tmp_path))
    corpus, written = STAGES["augment"].jobs(graph)
    assert (corpus.name, written.name) == ("corpus", "synthetic-caption-de")
    assert written.inputs["corpus"] is corpus
    assert corpus.key != graph.corpus.key
