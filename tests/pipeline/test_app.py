"""The page: in Streamlit's own test harness, and in headless Chromium where there is one."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from streamlit.testing.v1 import AppTest

from pipeline import attention
from pipeline.app import plain
from pipeline.finder import Finder
from pipeline.indexing import update_gallery
from pipeline.pictures import PictureFolder
from tests.pipeline.test_gallery import draw
from tests.pipeline.tiny import ROOT, Tiny

EVIL = "<img src=x onerror=document.title='caught'>.png"
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")


@pytest.fixture(scope="module")
def gallery(tiny: Tiny, tmp_path_factory) -> Path:
    """Pictures with names of all kinds, and captions that are markup."""
    folder = tmp_path_factory.mktemp("app")
    both = ["--vse.rows={both: [en/human + de/human]}", "--vse.only=[both]", "--vse.epochs=1"]
    assert tiny.main("vse", *both) == 0
    assert tiny.main("export", "--output", str(folder / "model"), *both) == 0
    for number in range(6):
        draw(folder / "own" / f"{number}.png", number)
    shutil.copyfile(folder / "own" / "1.png", folder / "own" / EVIL.replace("/", ""))
    captions = {"en": ["a red bat", "**bold** <script>document.title='caught'</script> $x$"]}
    update_gallery(folder / "gallery", Finder.load(folder / "model"), PictureFolder(folder / "own"), captions)
    return folder / "gallery"


@pytest.fixture(scope="module")
def used_english(tiny: Tiny) -> Path:
    """A gallery of a model that reads English alone, with translators of both directions."""
    assert tiny.main("index") == 0
    return tiny.workspace.root / "tiny" / "gallery"


@pytest.fixture
def page(gallery: Path, monkeypatch) -> AppTest:
    monkeypatch.setattr(sys, "argv", ["app", str(gallery)])
    return AppTest.from_file(str(ROOT / "pipeline" / "app.py"), default_timeout=60).run()


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
    page = AppTest.from_file(str(ROOT / "pipeline" / "app.py"), default_timeout=60).run()
    assert not page.exception
    assert "no gallery here" in page.error[0].value


def test_what_is_shown_is_no_markup() -> None:
    shown = plain("**a** <b> [x](y) $1$ `c` \x1b[31m :smile:")
    assert re.sub(r"\\(.)", "", shown) == "a b xy 1 c 31m smile"


@pytest.fixture(scope="module")
def served(gallery: Path) -> Iterator[str]:
    """The page as `make app` starts it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    makefile = (ROOT / "Makefile").read_text()
    options = re.search(r"streamlit run pipeline/app.py (.*?) --server.address", makefile)
    assert options is not None
    rest = re.findall(r"--server\.(?:maxUploadSize|fileWatcherType|headless)=\S+", makefile)
    command = [sys.executable, "-m", "streamlit", "run", "pipeline/app.py", *options[1].split(), *rest]
    command += ["--server.address=127.0.0.1", f"--server.port={port}", "--", str(gallery)]
    environment = os.environ | {"OMP_WAIT_POLICY": "PASSIVE"}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, start_new_session=True
    ) as process:
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
        os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[object]:
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("no chromium and chromedriver here (Debian: chromium chromium-driver)")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in ("headless=new", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-sync",
                 "disable-background-networking", "disable-component-update", "window-size=1200,1000",
                 f"user-data-dir={tmp_path / 'profile'}"):  # fmt: skip
        options.add_argument(f"--{flag}")
    driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    driver.implicitly_wait(60)
    yield driver
    driver.quit()


def appears(browser, text: str) -> None:
    """Wait until the page shows a text."""
    end = time.monotonic() + 60
    while text not in browser.find_element("tag name", "body").text:
        assert time.monotonic() < end, browser.find_element("tag name", "body").text
        time.sleep(0.2)


def test_in_a_browser(served: str, browser, gallery: Path, tmp_path: Path) -> None:
    """Typing, dropping a picture, one that is broken, and markup that stays text."""
    browser.get(served)
    box = browser.find_element("css selector", "input[type=text]")
    box.send_keys("a red bat\n")
    appears(browser, "a red bat (en)")
    appears(browser, EVIL)
    assert len(browser.find_elements("css selector", "[data-testid=stImage] img")) == 7
    upload = browser.find_element("css selector", "input[type=file]")
    upload.send_keys(str(gallery.parent / "own" / "2.png"))
    appears(browser, "Pictures like it")
    appears(browser, "<script>document.title='caught'</script>")
    for switch in browser.find_elements("css selector", "[data-testid=stCheckbox] label"):
        switch.click()
    appears(browser, "without the picture, de:")
    appears(browser, "with the picture, de:")
    appears(browser, "translated: ")
    (tmp_path / "broken.png").write_text("no picture")
    browser.find_element("css selector", "input[type=file]").send_keys(str(tmp_path / "broken.png"))
    appears(browser, "broken.png: not a readable picture")
    assert browser.title == "Bildwort"


def test_the_server_gives_no_file(served: str, gallery: Path) -> None:
    from urllib.error import HTTPError
    from urllib.request import urlopen

    secret = Image.open(gallery.parent / "own" / "1.png").tobytes()
    for path in ("/../own/1.png", "/%2e%2e/own/1.png", f"/{gallery.parent}/own/1.png", "/media/../own/1.png",
                 f"/static/..%2f..%2f{gallery.parent}/own/1.png", "/app/static/../gallery.json"):  # fmt: skip
        try:
            with urlopen(served + path, timeout=20) as answer:
                content = answer.read()
        except HTTPError:
            continue
        assert b"PNG" not in content[:10]
        assert secret[:50] not in content
        assert b"made_of" not in content


def test_a_language_that_only_translators_read_is_searched_by_translation(used_english: Path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", ["app", str(used_english)])
    page = AppTest.from_file(str(ROOT / "pipeline" / "app.py"), default_timeout=60).run()
    assert page.selectbox[0].options == ["told apart", "de", "en"]
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
