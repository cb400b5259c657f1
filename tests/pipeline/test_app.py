"""The page: in Streamlit's own test harness, and in headless Chromium where there is one."""

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from pipeline.drawing import attention
from pipeline.search.app import plain
from pipeline.search.exported_model import ExportedModel
from pipeline.search.exported_translators import ExportedTranslators
from pipeline.search.indexing import update_gallery
from pipeline.search.picture_sources import PictureFolder
from pipeline.search.screenshots import appears, browser, drop, served, switch_on, type_words
from tests.pipeline.drawn import draw
from tests.pipeline.tiny import ROOT, Tiny

EVIL = "<img src=x onerror=document.title='caught'>.png"


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
    captions = {"en": ["a red bat", "**bold** <script>document.title='caught'</script> $x$"]}
    update_gallery(folder / "gallery", ExportedModel.load(folder / "model"), PictureFolder(folder / "own"), captions)
    return folder / "gallery"


@pytest.fixture(scope="module")
def used_english(tiny: Tiny) -> Path:
    """A gallery of a model that reads English alone, with translators of both directions."""
    assert tiny.main("index") == 0
    return tiny.workspace.root / "tiny" / "gallery"


@pytest.fixture
def page(gallery: Path, monkeypatch) -> AppTest:
    monkeypatch.setattr(sys, "argv", ["app", str(gallery)])
    return AppTest.from_file(str(ROOT / "pipeline" / "search" / "app.py"), default_timeout=60).run()


def texts(page: AppTest) -> list[str]:
    return [one.value for one in page.text]


def test_words_find_pictures(page: AppTest) -> None:
    assert not page.exception
    assert texts(page) == []
    page.text_input[0].set_value("a red bat").run()
    assert not page.exception
    assert len(texts(page)) == 7
    assert any(EVIL in text for text in texts(page))
    page.number_input[0].set_value(3).run()
    assert len(texts(page)) == 3
    page.selectbox[0].select("en").run()
    assert page.subheader[0].value == "a red bat \\(en\\)"


def test_translate_search_stands_beside_multilingual_search(page: AppTest) -> None:
    """In both languages of the model, each with its own pictures."""
    page.text_input[0].set_value("ein roter Ball")
    page.selectbox[0].select("de").run()
    alone = texts(page)
    page.toggle[1].set_value(True).run()
    assert not page.exception
    assert [one.value.split(" ")[-1] for one in page.subheader] == ["\\(de\\)", "\\(en\\)"]
    assert page.subheader[1].value.startswith("translated\\: ")
    assert len(texts(page)) == 2 * len(alone)
    assert texts(page)[: len(alone)] == alone


def test_regions_are_framed(page: AppTest, monkeypatch) -> None:
    framed = []

    def watched(picture, boxes, shares, real=attention.frame):
        before = picture.copy()
        real(picture, boxes, shares)
        framed.append(picture.tobytes() != before.tobytes())

    monkeypatch.setattr(attention, "frame", watched)
    page.text_input[0].set_value("a red bat").run()
    assert framed == []
    page.toggle[0].set_value(True).run()
    assert not page.exception
    assert len(framed) == 7
    assert any(framed)


@pytest.mark.parametrize("query", ["🐕", "كلب", "<b>", "a " * 400])
def test_odd_queries_are_answered(page: AppTest, query: str) -> None:
    page.text_input[0].set_value(query).run()
    assert not page.exception
    assert len(texts(page)) == 7


def test_no_gallery_is_one_line(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", ["app", str(tmp_path / "gone")])
    page = AppTest.from_file(str(ROOT / "pipeline" / "search" / "app.py"), default_timeout=60).run()
    assert not page.exception
    assert "no gallery here" in page.error[0].value


def test_what_is_shown_is_no_markup() -> None:
    shown = plain("**a** <b> [x](y) $1$ `c` \x1b[31m :smile:")
    assert re.sub(r"\\(.)", "", shown) == "a b xy 1 c 31m smile"


@pytest.fixture(scope="module")
def address(gallery: Path) -> Iterator[str]:
    """Of the page as `make app` starts it."""
    with served(gallery) as found:
        yield found


@pytest.mark.skipif(not (shutil.which("chromium") and shutil.which("chromedriver")), reason="no chromium, no driver")
def test_in_a_browser(address: str, gallery: Path, tmp_path: Path) -> None:
    """Typing, dropping a picture, one that is broken, and markup that stays text."""
    with browser() as driver:
        driver.get(address)
        type_words(driver, "a red bat")
        appears(driver, "a red bat (en)")
        appears(driver, EVIL)
        assert len(driver.find_elements("css selector", "[data-testid=stImage] img")) == 7
        drop(driver, gallery.parent / "own" / "2.png")
        appears(driver, "Pictures like it")
        appears(driver, "<script>document.title='caught'</script>")
        switch_on(driver)
        appears(driver, "without the picture, de:")
        appears(driver, "with the picture, de:")
        appears(driver, "translated: ")
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
    monkeypatch.setattr(sys, "argv", ["app", str(used_english)])
    page = AppTest.from_file(str(ROOT / "pipeline" / "search" / "app.py"), default_timeout=60).run()
    assert page.selectbox[0].options == ["detected", "de", "en"]
    page.text_input[0].set_value("ein roter Ball")
    page.selectbox[0].select("de").run()
    assert "language 'de'" in page.error[0].value.replace("\\", "")
    page.toggle[1].set_value(True).run()
    assert not page.exception
    assert not page.error
    (only,) = page.subheader
    assert only.value.startswith("translated\\: ")
    assert only.value.endswith(" \\(en\\)")
    assert texts(page)


def test_nothing_is_found_in_an_empty_gallery(gallery: Path, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "none").mkdir()
    update_gallery(
        tmp_path / "gallery", ExportedModel.load(gallery.parent / "model"), PictureFolder(tmp_path / "none"), {}
    )
    monkeypatch.setattr(sys, "argv", ["app", str(tmp_path / "gallery")])
    page = AppTest.from_file(str(ROOT / "pipeline" / "search" / "app.py"), default_timeout=60).run()
    page.text_input[0].set_value("a red bat")
    page.toggle[0].set_value(True).run()
    assert not page.exception
    assert page.info[0].value == "Nothing was found."


def test_without_a_translator_that_leads_there_the_page_says_so(used_english: Path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", ["app", str(used_english)])
    monkeypatch.setattr(ExportedTranslators, "targets", lambda self, system, language: [])
    page = AppTest.from_file(str(ROOT / "pipeline" / "search" / "app.py"), default_timeout=60).run()
    page.text_input[0].set_value("ein roter Ball")
    page.selectbox[0].select("de")
    page.toggle[1].set_value(True).run()
    assert not page.exception
    assert "No translator of this model leads from de into en" in page.info[0].value.replace("\\", "")
