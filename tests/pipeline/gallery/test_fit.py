"""How well queries and pictures fit a gallery: measured when it is indexed, said when something does not fit."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from streamlit.testing.v1 import AppTest

from data.text.reading import Words, reading_of
from data.text.text_inputs import WordVocabulary
from data.text.tokenisation import WORDS
from modules.search.fit import Fit, nearest_others, sampled
from modules.search.index import VectorIndex
from modules.search.shards import ShardedIndex
from pipeline.errors import RecipeError
from pipeline.export.exported_model import ExportedModel
from pipeline.gallery.fit import FITS, Fits
from pipeline.gallery.gallery import Gallery
from pipeline.gallery.indexing import update_gallery
from pipeline.gallery.picture_sources import PictureFolder
from tests.pipeline.tiny import ROOT, Tiny

HIGH = {"queries": {"en": [[9.0] * 100] * 8}, "pictures": [9.0] * 99}
NOTHING = "nothing fits well: 100 % of random queries reach a higher score"
UNLIKE = "unlike the pictures of this gallery: 100 % of them are nearer to another of them than this one is"


def fits_of(gallery: Path) -> Path:
    return gallery / "generations" / json.loads((gallery / "gallery.json").read_text())["generation"] / FITS


@pytest.fixture
def gallery(exported: ExportedModel, own: Path, tmp_path: Path) -> Path:
    update_gallery(tmp_path / "gallery", exported, PictureFolder(own), {"en": ["a red bat", "a blue ball"]})
    return tmp_path / "gallery"


def test_a_share_is_of_random_queries_of_as_many_words() -> None:
    fits = Fits({"en": [[0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8]]}, [0.1, 0.2])

    def higher(words: Words, score: float, language: str = "en") -> float | None:
        fit = fits.of_query(reading_of("", words, [language], language, guessed=False), score)
        return None if fit is None else fit.higher

    assert [higher(Words(1, []), score) for score in (0.0, 0.2, 0.25, 0.4)] == [1.0, 0.5, 0.5, 0.0]
    assert higher(Words(2, ["x"]), 0.55) == higher(Words(9, []), 0.55) == 0.75
    assert higher(Words(2, ["x", "y"]), 0.55) is None  # no word is known
    assert higher(Words(1, []), 0.2, "de") is None
    assert fits.of_picture(0.15) == Fit(0.5, picture=True)
    assert Fits({}, []).of_picture(0.1) is None


def test_random_queries_are_of_words_in_the_script_of_their_language() -> None:
    vocabulary = WordVocabulary(["<pad>", "<unk>", "red", "kırmızı", "赤", "い", "أحمر", "2"])
    assert {language: vocabulary.words_in_script(language) for language in ("ja", "ar", "tr")} == {
        "ja": ["赤", "い", "2"], "ar": ["أحمر", "2"], "tr": ["red", "kırmızı", "2"]
    }  # fmt: skip
    japanese = ["赤い", "走る", "コーヒー", "人々", "ー", "消しゴム"]  # of two or three scripts
    vocabulary = WordVocabulary(["<pad>", "<unk>", "red", *japanese], by=WORDS)
    assert {language: vocabulary.words_in_script(language) for language in ("ja", "en", "th")} == {
        "ja": japanese, "en": ["red"], "th": []
    }  # fmt: skip


def test_only_what_does_not_fit_is_said() -> None:
    assert Fit(0.97).note == "nothing fits well: 97 % of random queries reach a higher score"
    assert "99 % of them" in Fit(0.999, picture=True).note
    assert Fit(0.97, picture=True).note == Fit(0.8).note == ""
    assert Fit(0.99, picture=True).note == UNLIKE.replace("100", "99")


def test_the_scores_are_those_of_a_plain_search(used: Tiny, exported: ExportedModel) -> None:
    """Best scores of random queries, by the slow way; and a picture is not its own neighbour."""
    place = used.workspace.root / "tiny" / "gallery"
    gallery = Gallery.open(place, exported)
    fits = Fits.load(fits_of(place).parent)
    assert [len(scores) for scores in fits.queries["en"]] == [100] * 8
    assert all(scores == sorted(scores) for scores in fits.queries["en"])
    hits = gallery.search("a small red bat", 5)
    assert hits.fit is not None
    assert hits.fit.higher == pytest.approx(np.mean(np.array(fits.queries["en"][3]) > hits[0].score), abs=0.011)
    vectors = torch.nn.functional.normalize(torch.randn(60, 8, generator=torch.Generator().manual_seed(1)), dim=1)
    scores = vectors @ vectors.T
    nearest = (scores - 9 * torch.eye(60)).max(1).values.sort().values
    index = ShardedIndex([VectorIndex(vectors, gpu=-1)])
    np.testing.assert_allclose(nearest_others(index, sampled(60), vectors), nearest, atol=1e-5)


def test_an_index_of_the_same_pictures_has_the_same_scores(gallery: Path, exported: ExportedModel, own: Path) -> None:
    first = fits_of(gallery).read_bytes()
    update_gallery(gallery, exported, PictureFolder(own))
    assert fits_of(gallery).read_bytes() == first
    assert json.loads(first)["pictures"] == []  # six tell nothing
    assert Gallery.open(gallery, exported).describe(next(own.glob("*.png"))).fit is None


def test_galleries_without_these_scores_are_read_and_damaged_ones_are_one_line(
    gallery: Path, exported: ExportedModel
) -> None:
    path = fits_of(gallery)
    path.write_text('{"queries": [], "pictures": []}')
    with pytest.raises(RecipeError, match=r"not readable .*; run `bildwort index --gallery \S+` with the recipe"):
        Gallery.open(gallery, exported)
    path.unlink()
    hits = Gallery.open(gallery, exported).search("a red bat")
    assert (len(hits), hits.fit, hits.notes) == (6, None, [])


def test_the_indexed_model_decides_whatever_reranks(gallery: Path, exported: ExportedModel) -> None:
    opened = Gallery.open(gallery, exported)
    assert opened.search("a bat", reranker=exported).fit == opened.search("a bat", 1, first=0).fit is not None


def test_the_shell_says_what_does_not_fit(used: Tiny, gallery: Path, own: Path, capsys) -> None:
    fits_of(gallery).write_text(json.dumps(HIGH))
    place = ("--gallery", str(gallery))
    capsys.readouterr()
    assert used.main("search", "a red bat", *place) == 0
    assert capsys.readouterr().err.splitlines() == [NOTHING]
    assert used.main("search", "a red bat", "--json", *place) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["higher"], found["notes"]) == (1.0, [NOTHING])
    assert used.main("search", "qwertz", "--json", *place) == 0
    assert json.loads(capsys.readouterr().out)["higher"] is None
    shutil.copyfile(own / "1.png", own.parent / "other.png")
    assert used.main("describe", str(own.parent / "other.png"), *place) == 0
    assert capsys.readouterr().err.splitlines() == [UNLIKE]
    assert used.main("describe", str(own.parent / "other.png"), "--json", *place) == 0
    assert json.loads(capsys.readouterr().out)["notes"] == [UNLIKE]
    assert used.main("describe", "1.png", *place) == 0  # it is in the gallery
    assert capsys.readouterr().err == ""


def test_the_page_says_what_does_not_fit(gallery: Path, own: Path, monkeypatch) -> None:
    fits_of(gallery).write_text(json.dumps(HIGH))
    monkeypatch.setattr("sys.argv", ["app", str(gallery)])
    page = AppTest.from_file(str(ROOT / "pipeline" / "app" / "page.py"), default_timeout=60).run()
    page.text_input(key="q").set_value("a red bat").run()
    assert not page.exception
    assert [one.value.replace("\\", "") for one in page.warning] == [NOTHING]
    page.text_input(key="q").set_value("").run()
    page.file_uploader[0].set_value(("other.png", (own / "1.png").read_bytes(), "image/png")).run()
    assert not page.exception
    assert UNLIKE in [one.value.replace("\\", "") for one in page.warning]
