"""The page: in Streamlit's own test harness, and in headless Chromium where there is one."""

import http.client
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from data.text.reading import Words
from pipeline.app import page_results
from pipeline.app.page_text import BROWN, COLOURS, GREEN, coloured, plain
from pipeline.export.exported_model import ExportedModel
from pipeline.export.exported_translators import ExportedTranslators, Translation, translator_reading
from pipeline.gallery import examples
from pipeline.gallery.examples import Ambiguous, Sentence
from pipeline.gallery.gallery import Gallery
from pipeline.gallery.indexing import update_gallery
from pipeline.gallery.picture_sources import PictureFiles, PictureFolder
from tests.pipeline.drawn import draw
from tests.pipeline.tiny import ROOT, Tiny
from tests.screenshots import appears, browser, drop, press, served, switch_on

pytestmark = pytest.mark.whole

EVIL = "<img src=x onerror=document.title='caught'>.png"
MARKUP = "**bold** <script>document.title='caught'</script> $x$"


@pytest.fixture(scope="module")
def gallery(tiny: Tiny, tmp_path_factory) -> Path:
    """Pictures with names of all kinds, and captions that are markup."""
    folder = tmp_path_factory.mktemp("app")
    both = ["--vse.rows={both: [en/human + de/human]}", "--vse.only=[both]", "--vse.epochs=1"]
    own = tiny.without(folder / "tiny", "nothing")
    assert own.main("vse", *both) == own.main("export", "--output", str(folder / "model"), *both) == 0
    for number in range(6):
        draw(folder / "own" / f"{number}.png", number)
    shutil.copyfile(folder / "own" / "1.png", folder / "own" / EVIL.replace("/", ""))
    captions = {"en": ["a red bat", MARKUP]}
    update_gallery(folder / "gallery", ExportedModel.load(folder / "model"), PictureFolder(folder / "own"), captions)
    return folder / "gallery"


@pytest.fixture(scope="module")
def used_english(tiny: Tiny) -> Path:
    """A gallery of a model that reads English alone, with translators of both directions."""
    assert tiny.main("index") == 0
    return tiny.workspace.root / "tiny" / "gallery"


def opened(gallery: Path, monkeypatch, **parameters: str) -> AppTest:
    """The page, at an address with these parameters."""
    monkeypatch.setattr(sys, "argv", ["app", str(gallery)])
    page = AppTest.from_file(str(ROOT / "pipeline" / "app" / "page.py"), default_timeout=60)
    for name, value in parameters.items():
        page.query_params[name] = value
    assert not page.run().exception
    return page


@pytest.fixture
def page(gallery: Path, monkeypatch) -> AppTest:
    return opened(gallery, monkeypatch)


def search(page: AppTest, query: str, language: str | None = None, both: bool = False) -> AppTest:
    page.text_input(key="q").set_value(query)
    toggle(page, "Both languages").set_value(both)
    if language is not None:
        page.selectbox[0].select(language)
    page.run()
    assert not page.exception
    return page


def toggle(page: AppTest, label: str):
    return next(one for one in page.toggle if one.label == label)


def shown(page: AppTest) -> list[str]:
    """All Markdown on the page, without the signs that keep it from being markup."""
    return [one.value.replace("\\", "") for one in page.markdown]


def plainly(text: str) -> str:
    return text.replace("\\", "")


def open_captions(page: AppTest) -> None:
    """Open all further captions of results in English; the harness has no click on them."""
    for line in found(page):
        rank, _, name = line.split("  ·  ")
        page.session_state[f"captions-en-{rank.strip('*')}-{plainly(name)}"] = True
    page.run()


def found(page: AppTest) -> list[str]:
    """The lines below the pictures: rank, score, name."""
    return [text for text in shown(page) if re.match(r"\*\*\d+\*\*  ·", text)]


def test_the_first_screen_says_what_this_is_and_has_examples(page: AppTest) -> None:
    assert "Search 7 pictures with words in English or German, or with another picture." in shown(page)
    assert [one.label for one in page.button if one.key and one.key.startswith("example")] == [
        "a red bat  :gray-badge[English]",
        f"{plain(MARKUP)}  :gray-badge[English]",
    ]
    assert len(page.get("image")) == 7
    assert found(page) == []
    assert all(one.label for one in [*page.button, *page.toggle, *page.text_input, *page.selectbox, *page.number_input])


def test_a_click_on_an_example_searches_and_the_start_page_comes_back(page: AppTest) -> None:
    page.selectbox[0].select("de").run()
    page.button(key="example-0").click().run()  # in its own language, whatever is chosen
    assert not page.exception
    assert (page.text_input(key="q").value, page.header[0].value) == ("a red bat", "English")
    assert len(found(page)) == 2 * 7
    next(one for one in page.button if one.label == "Start page").click().run()
    assert page.text_input(key="q").value == ""
    assert found(page) == []
    assert page.button(key="example-0")


def test_words_find_pictures_with_similar_captions_on_demand(page: AppTest) -> None:
    search(page, "a red bat")
    assert len(found(page)) == 7
    assert any(EVIL in text for text in found(page))
    assert [one.label for one in page.expander] == [
        f"Picture {rank}: similar captions in the gallery" for rank in range(1, 8)
    ]
    assert not any(one.caption for one in page.expander)
    open_captions(page)
    assert {plainly(one.caption[0].value) for one in page.expander} <= {"a red bat", plainly(plain(MARKUP))}
    assert page.header[0].value == "English"
    page.number_input[0].set_value(3).run()
    assert len(found(page)) == 3


def test_both_languages_stand_side_by_side(page: AppTest) -> None:
    """In both languages of the model, each with its own pictures."""
    alone = found(search(page, "ein roter Ball", "de"))
    search(page, "ein roter Ball", "de", both=True)
    assert [one.value for one in page.header] == ["German", "English, translated by MT"]
    assert len(found(page)) == 2 * len(alone)
    assert found(page)[: len(alone)] == alone


def test_why_frames_regions_and_colours_their_words(page: AppTest, monkeypatch) -> None:
    search(page, "a red bat")
    assert not any(":color[" in text for text in shown(page))
    framed = []
    monkeypatch.setattr(page_results, "outline", lambda picture, box, colour, *rest: framed.append(colour))
    toggle(page, "Why?").set_value(True).run()
    assert not page.exception
    coloured = [text for text in shown(page) if ":color[" in text]
    assert 0 < len(coloured) <= 7
    assert set(framed) == {colour for colour in COLOURS if any(colour in text for text in coloured)}
    assert any(one.value.startswith("Why?") for one in page.caption)


def test_a_picture_that_was_found_is_translated_with(page: AppTest) -> None:
    search(page, "a red bat")
    page.button(key="en-2").click().run()
    assert not page.exception
    captions = [one.value.replace("\\", "").removesuffix(", the same") for one in page.caption]
    assert {"Without the picture (MT, German)", "With the picture (MMT, German)"} <= set(captions)
    assert page.text_input[-1].label == "Sentence to translate (English)"


def test_the_demonstration_is_one_click_away(page: AppTest, gallery: Path, monkeypatch) -> None:
    """A sentence and two pictures; the translation that the picture changes comes first."""
    pictures = Gallery.open(gallery).draw_pictures(2, 1)
    example = Ambiguous(Sentence("a red bat", "en"), "de", (pictures[0], pictures[1]))
    monkeypatch.setattr(examples, "ambiguous_example", lambda gallery: example)

    def translated(self, texts, system, source, target, regions=None):
        reading = translator_reading("a red bat", Words(3, []), "en")
        different = "ein Schläger" if system == "mt" else "eine Fledermaus"
        return [Translation(text, reading) for text in ("ein Schläger", different)]

    monkeypatch.setattr(ExportedTranslators, "translate_all", translated)
    next(one for one in page.button if one.label == "Show the translations").click().run()
    assert not page.exception
    green, brown = coloured("eine Fledermaus", GREEN), coloured("ein Schläger", BROWN)
    texts = [one.value for one in page.markdown if "Schläger" in one.value or "Fledermaus" in one.value]
    assert texts == [brown, green, "ein Schläger", "ein Schläger"]
    page.text_input[-1].set_value(" ").run()
    assert not page.exception
    search(page, "a red bat")
    assert page.header[0].value == "English"
    page.text_input(key="q").set_value("").run()
    assert page.button(key="example-0")


def test_the_address_holds_the_search(gallery: Path, monkeypatch) -> None:
    page = opened(gallery, monkeypatch, q="a red bat", top="3", both="false", language="en")
    assert page.text_input(key="q").value == "a red bat"
    assert len(found(page)) == 3


@pytest.mark.parametrize("wrong", [{"top": "many"}, {"top": "0"}, {"language": "xx"}, {"why": "perhaps"}], ids=str)
def test_an_address_with_what_is_no_setting_is_answered(gallery: Path, monkeypatch, wrong: dict[str, str]) -> None:
    page = opened(gallery, monkeypatch, q="a red bat", both="false", **wrong)
    assert len(found(page)) == 7


@pytest.mark.parametrize("query", ["🐕", "كلب", "<b>", "a " * 400])
def test_odd_queries_are_answered(page: AppTest, query: str) -> None:
    toggle(page, "Why?").set_value(True)
    assert len(found(search(page, query))) == 7


def test_unknown_words_are_named_above_the_pictures(used_english: Path, gallery: Path, monkeypatch) -> None:
    page = search(opened(used_english, monkeypatch), "qwertz uiop")
    assert [plainly(one.value) for one in page.warning] == [
        "2 of 2 words unknown: qwertz, uiop; this model reads English",
        "none of the words is known, so the pictures are arbitrary",
    ]
    assert page.header[0].value == "Unknown language"
    assert found(page)
    search(page, "ein kleiner Fuchs am Strand")
    assert page.header[0].value == "German"
    assert "; this looks like German; this model reads English" in plainly(page.warning[0].value)
    assert not any("unknown" in one.value for one in search(page, "a red bat").warning)
    search(opened(gallery, monkeypatch), "red qwertz", "en")
    assert page.header[0].value == "English"


def test_what_no_translator_knows_is_said_instead_of_a_translation(page: AppTest) -> None:
    search(page, "qwertz uiop", "en", both=True)
    assert [one.value for one in page.header] == ["English", "German, translated by MT"]
    said = [plainly(one.value) for one in page.warning]
    assert said[0] == "2 of 2 words unknown: qwertz, uiop; this model reads German and English"
    assert said[-2:] == ["2 of 2 words unknown: qwertz, uiop; this translator reads English", "it is not translated"]
    assert len(found(page)) == 7  # of the query alone
    page.button(key="en-2").click().run()
    assert not page.exception
    assert "this translator reads English" in page.warning[-1].value
    assert not any("the picture" in one.value for one in page.caption)


def test_no_gallery_is_one_line(tmp_path: Path, monkeypatch) -> None:
    assert "no gallery here" in opened(tmp_path / "gone", monkeypatch).error[0].value


def test_what_is_shown_is_no_markup() -> None:
    shown = plain("**a** <b> [x](y) $1$ `c` \x1b[31m :smile:")
    assert re.sub(r"\\(.)", "", shown) == "a b xy 1 c 31m smile"


@pytest.fixture(scope="module")
def address(gallery: Path) -> Iterator[str]:
    """Of the page as `make app` starts it."""
    with served(gallery) as found:
        yield found


@pytest.mark.parametrize(("name", "status"), [("localhost", 101), ("127.0.0.1", 101), ("evil.example", 403)])
def test_a_page_of_another_name_is_not_served(address: str, name: str, status: int) -> None:
    """A foreign page whose own name leads to this machine would else search, and read pictures."""
    port = int(address.rpartition(":")[2])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    host = f"{name}:{port}"
    connection.request("GET", "/_stcore/stream", headers={
        "Host": host, "Origin": f"http://{host}", "Connection": "Upgrade", "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "c29tZSAxNiBsZXR0ZXJzIQ==",
    })  # fmt: skip
    assert connection.getresponse().status == status
    connection.close()


@pytest.mark.slow
@pytest.mark.skipif(not (shutil.which("chromium") and shutil.which("chromedriver")), reason="no chromium, no driver")
def test_in_a_browser(address: str, gallery: Path, tmp_path: Path) -> None:
    """Keys alone search; dropping a picture, one that is broken, and markup that stays text."""
    with browser() as driver:
        driver.get(address)
        appears(driver, "Some of the pictures")
        appears(driver, "<script>document.title='caught'</script>")
        press(driver, "[class*=st-key-example-0] button", "\n")
        appears(driver, "translated by MT")
        press(driver, "input[type=text]", "a small bat\n")
        appears(driver, "“a small bat”")
        appears(driver, EVIL)
        assert len(driver.find_elements("css selector", "[data-testid=stImage] img")) == 14
        press(driver, "input[type=text]", "a large bat\n")
        appears(driver, "“a large bat”")
        driver.back()
        appears(driver, "“a small bat”")
        drop(driver, gallery.parent / "own" / "2.png")
        appears(driver, "Similar pictures")
        appears(driver, "Without the picture (MT, German)")
        appears(driver, "With the picture (MMT, German)")
        switch_on(driver, "Why?")
        appears(driver, "Why? A word")
        (tmp_path / "broken.png").write_text("no picture")
        drop(driver, tmp_path / "broken.png")
        appears(driver, "broken.png: not a readable picture")
        assert driver.title == "Bildwort"


def test_the_server_gives_no_file(address: str, gallery: Path) -> None:
    from urllib.error import HTTPError
    from urllib.request import urlopen

    secret = (gallery.parent / "own" / "1.png").read_bytes()
    for path in ("/../own/1.png", "/%2e%2e/own/1.png", f"/{gallery.parent}/own/1.png", "/media/../own/1.png",
                 f"/static/..%2f..%2f{gallery.parent}/own/1.png", "/app/static/../gallery.json"):  # fmt: skip
        try:
            with urlopen(address + path, timeout=20) as answer:
                content = answer.read()
        except HTTPError:
            continue
        assert b"PNG" not in content[:10]
        assert secret not in content
        assert b"made_of" not in content


def test_a_language_that_only_translators_read_is_searched_by_translation(used_english: Path, monkeypatch) -> None:
    page = opened(used_english, monkeypatch)
    assert page.selectbox[0].options == ["detect", "German", "English"]
    search(page, "ein roter Ball", "de")
    assert "no translator from German into English" in page.info[0].value.replace("\\", "")
    search(page, "ein roter Ball", "de", both=True)
    assert not page.error
    assert [one.value for one in page.header] == ["English, translated by MT"]
    assert found(page)


def test_nothing_is_found_in_an_empty_gallery(gallery: Path, tmp_path: Path, monkeypatch) -> None:
    update_gallery(tmp_path / "gallery", ExportedModel.load(gallery.parent / "model"), PictureFiles({}), {})
    page = opened(tmp_path / "gallery", monkeypatch)
    assert not any(one.key and one.key.startswith("example") for one in page.button)
    toggle(page, "Why?").set_value(True)
    assert search(page, "a red bat").info[0].value == "Nothing was found."


def test_without_translators_there_is_no_demonstration(gallery: Path, monkeypatch) -> None:
    monkeypatch.setattr(ExportedTranslators, "targets", lambda self, system, language: [])
    page = opened(gallery, monkeypatch)
    assert "Show the translations" not in [one.label for one in page.button]
    assert len(found(search(page, "a red bat", both=True))) == 7
    assert not [one for one in page.button if one.label.startswith("Translate with picture")]
