"""Why a picture was found: words and regions that are left out, against the plain reading."""

import numpy as np
import pytest
from PIL import Image

from pipeline.app.page_results import coloured_words
from pipeline.app.page_text import BLUE, RED, coloured, marked
from pipeline.errors import RecipeError
from pipeline.export.exported_model import ExportedModel
from pipeline.gallery.examples import _places
from pipeline.gallery.explanation import Word, explain
from pipeline.gallery.gallery import Gallery
from tests.pipeline.tiny import Tiny

QUERY = "a small red bat"


@pytest.fixture(scope="module")
def regions(used: Tiny, exported: ExportedModel) -> np.ndarray:
    gallery = Gallery.open(used.workspace.root / "tiny" / "gallery", exported)
    return gallery.regions_of(gallery.search(QUERY, 3))[0]


def score(exported: ExportedModel, text: str, regions: np.ndarray) -> float:
    return float(
        exported.encode_regions(regions[None]).single()[0] @ exported.encode_captions([text], "en").single()[0]
    )


def test_a_word_s_effect_and_region_are_what_leaving_out_shows(exported: ExportedModel, regions: np.ndarray) -> None:
    """One sentence and one picture at a time; a region that is left out is not there at all."""
    words = QUERY.split()
    for picture, found in zip(regions, explain(exported, QUERY, "en", regions), strict=True):
        assert [word.text for word in found] == words
        for place, word in enumerate(found):
            rest = " ".join(words[:place] + words[place + 1 :])
            effect = score(exported, QUERY, picture) - score(exported, rest, picture)
            assert word.effect == pytest.approx(effect, abs=1e-5)
            without = [np.delete(picture, one, axis=0) for one in range(len(picture))]
            lost = [effect - (score(exported, QUERY, one) - score(exported, rest, one)) for one in without]
            if word.region is None:
                assert effect < 1e-5 or max(lost) < 1e-5
            else:
                assert effect > 0
                assert lost[word.region] == pytest.approx(max(lost), abs=1e-5)
    assert any(word.region is not None for found in explain(exported, QUERY, "en", regions) for word in found)


def test_one_word_one_region_and_no_words_are_explained_too(exported: ExportedModel, regions: np.ndarray) -> None:
    ((only,),) = explain(exported, "bat", "en", regions[:1])
    assert only.text == "bat"
    ((word,),) = explain(exported, "bat", "en", regions[:1, :1])
    assert word.region is None
    assert explain(exported, "🐕 ", "en", regions[:2])[1][0].text == "🐕"
    with pytest.raises(RecipeError, match="language 'de'"):
        explain(exported, "ein Ball", "de", regions)


def test_words_have_the_colour_of_their_region_s_frame() -> None:
    """Words that add little have none; neighbours of one region are together; at most four regions are framed."""
    picture = Image.new("RGB", (100, 100))
    boxes = np.array([[0.1, 0.1, 0.3, 0.3], [0.5, 0.5, 0.9, 0.9], [0.6, 0.0, 0.9, 0.2]])
    words = [
        Word("a", 0.01, 2),
        Word("red", 0.5, 1),
        Word("*bat*", 0.4, 1),
        Word("and", -0.1, None),
        Word("box", 0.2, 0),
    ]
    text = coloured_words(picture, words, boxes)
    assert text == f"a {coloured('1 red *bat*', RED)} and {coloured('2 box', BLUE)}"
    shown = {picture.getpixel((50, 60)), picture.getpixel((10, 20)), picture.getpixel((60, 10))}
    assert shown == {(0xC9, 0x25, 0x2D), (0x0A, 0x62, 0xC4), (0, 0, 0)}
    many = [Word(str(one), 1.0 + one, one) for one in range(6)]
    assert coloured_words(None, many, np.zeros((6, 4))).count(":color[") == 4
    assert coloured_words(None, [Word("x", -1.0, None)], boxes) == "x"


def test_words_that_differ_are_marked() -> None:
    assert marked("ein großer schläger", "eine große fledermaus", RED, "de") == coloured("ein großer schläger", RED)
    assert marked("oben ein <b>", "oben ein hut", RED, "de") == f"oben ein {coloured('<b>', RED)}"
    assert marked("oben ein hut", "oben ein hut", RED, "de") == "oben ein hut"
    assert marked("白い犬が走る。", "黒い犬が走る。", RED, "ja") == f"{coloured('白', RED)}い犬が走る。"
    assert (_places("白い犬が", "黒い犬が", "ja"), _places("白い犬が", "黒い犬と", "ja")) == (1, 2)
