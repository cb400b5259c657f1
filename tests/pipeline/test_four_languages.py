"""Four languages in one gallery: Multi30K is read, MULE is trained, and each language is detected and searched."""

import json
import sys
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from data.text.languages import language_of
from pipeline.cli import main
from tests.data.official import OWN, write_data
from tests.pipeline.tiny import ROOT, at

pytestmark = pytest.mark.whole

QUERIES = {
    "en": "The dog is in the park with a ball",
    "de": "Der Hund ist mit einem Ball in dem Park",
    "fr": "Le chien est dans le parc avec une balle",
    "cs": "Pes je v parku na trávě s míčem",
}
NAMES = {"en": "English", "de": "German", "fr": "French", "cs": "Czech"}
SMALL = [
    "--trainer.accelerator=cpu", "--trainer.threads=1", "--trainer.progress=false", "--vse.model=mule", "--vse.dim=8",
    "--vse.word_dim=10", "--vse.min_count=1", "--vse.batch_size=4", "--vse.epochs=1", "--vse.seeds=[1]",
    "--vse.only=[all]", "--vse.options.pretrain_epochs=1", "--vse.warmup_epochs=0", "--augment.paths=[]",
]  # fmt: skip
PICTURES = {image for images in OWN.values() for image in images}


@pytest.fixture(scope="module")
def gallery(tmp_path_factory) -> Path:
    """Of a model of four languages, with the corpus's pictures and captions."""
    folder = tmp_path_factory.mktemp("four")
    write_data(folder / "data")
    arguments = ["--recipe", "multi30k-flickr8k-4", *SMALL, f"--corpus.root={folder / 'data'}"]
    with at(folder):
        for stage in ("prepare", "vse", "index"):
            assert main([stage, *arguments]) == 0, stage
    return folder / "artifacts" / "multi30k-flickr8k-4" / "gallery"


def test_from_the_shell(gallery: Path, tmp_path: Path, capsys) -> None:
    queries = tmp_path / "queries.txt"
    queries.write_text("\n".join(QUERIES.values()) + "\n", encoding="utf-8")
    capsys.readouterr()
    with at(tmp_path):
        assert main(["search", "--gallery", str(gallery), "--queries", str(queries), "--json", "--top", "3"]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {answer["query"]: answer["language"] for answer in answers} == {text: one for one, text in QUERIES.items()}
    for answer in answers:
        assert len({hit["name"] for hit in answer["hits"]} & PICTURES) == 3
    with at(tmp_path):
        assert main(["describe", "t1.jpg", "--gallery", str(gallery), "--json", "--top", "1"]) == 0
    described = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {one["language"] for one in described} == set(QUERIES)


def test_the_same_words_in_another_language_are_searched_otherwise(gallery: Path, tmp_path: Path, capsys) -> None:
    scores = []
    for language in QUERIES:
        capsys.readouterr()
        with at(tmp_path):
            assert main(["search", QUERIES["fr"], "--gallery", str(gallery), "--json", "--language", language]) == 0
        answer = json.loads(capsys.readouterr().out)
        assert answer["language"] == language
        scores.append(sorted(hit["score"] for hit in answer["hits"]))
    assert len({tuple(found) for found in scores}) == len(QUERIES)


@pytest.mark.parametrize("language", QUERIES)
def test_on_the_page(gallery: Path, monkeypatch, language: str) -> None:
    monkeypatch.setattr(sys, "argv", ["app", str(gallery)])
    page = AppTest.from_file(str(ROOT / "pipeline" / "app" / "page.py"), default_timeout=60).run()
    assert not page.exception
    assert page.selectbox[0].options == ["detect", *(NAMES[one] for one in sorted(NAMES))]
    page.text_input(key="q").set_value(QUERIES[language]).run()
    assert not page.exception
    assert [one.value for one in page.header] == [NAMES[language]]
    assert sum(one.value.startswith("**1**") for one in page.markdown) == 1


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("two dogs", "en"), ("zwei Hunde", "de"), ("deux chiens", "fr"), ("dva psi", "cs"),
        ("A man in a red shirt", "en"), ("Ein Mann in einem roten Hemd", "de"), ("Un homme en chemise rouge", "fr"),
        ("Muž v červené košili", "cs"), ("un ballon rouge", "fr"), ("červený míč", "cs"),
    ],
)  # fmt: skip
def test_short_queries_are_told_apart(text: str, language: str) -> None:
    assert language_of(text, sorted(QUERIES)) == language
