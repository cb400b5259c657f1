"""`make screenshots`: the README's pictures of the page, taken in headless Chromium, of the scenes alone.

Photographs of other corpora may not be published. Needs Chromium and its driver (Debian: `chromium chromium-driver`),
and `make demo` before.
"""

import io
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from PIL import Image

from data.captions.table import HUMAN, read_captions
from data.processes import cores
from data.translators.casing import Casing
from pipeline.corpus.prepare import about_corpus, pictures_of
from pipeline.engine.console import info
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.gallery.gallery import gallery_of
from pipeline.gallery.index_command import index
from pipeline.graph import Graph
from pipeline.recipes.loading import load_recipe
from pipeline.translation.evaluation import read_translations
from pipeline.visualization.pictures import BLACK, GREEN, GREY, Line, picture_sheet

ROOT = Path(__file__).parents[1]
SHOTS = ROOT / ".screenshots"
_PATIENCE = 120  # seconds until a page must show what is waited for


def screenshots() -> None:
    """Index the scenes, serve the page, and take a picture of each of its states.

    Raises:
        RecipeError: there is no Chromium, or the demo has not been run.
    """
    _require_browser()
    recipe, workspace = load_recipe("scenes", []), Workspace()
    index(recipe, workspace, None, None, None, cores())
    graph = Graph(recipe, workspace)
    corpus = workspace.folder(graph.corpus)
    twin = _twin_that_needs_its_picture(graph, corpus)
    english = _text_of(corpus, lambda row: row["caption_id"] == twin["caption_id"])
    german = _text_of(corpus, lambda row: (row["split"], row["language"], row["source"]) == ("test", "de", HUMAN))
    SHOTS.mkdir(exist_ok=True)
    translated_twins(graph, twin).save(SHOTS / "bat.png", optimize=True)
    with served(gallery_of(recipe, workspace)) as address:
        with browser() as driver:
            _wide(driver, address, german, english, pictures_of(corpus)[twin["image_id"]])
        with browser(dark=True) as driver:
            _open(driver, address)
            _demonstrate(driver)
            shoot(driver, "dark")
        with browser(width=420, height=900) as driver:
            _open(driver, address)
            shoot(driver, "narrow")


def _wide(driver: Any, address: str, german: str, english: str, picture: Path) -> None:
    """Pictures of the light page in a wide window: each state of it."""
    _open(driver, address)
    shoot(driver, "start")
    _demonstrate(driver)
    shoot(driver, "demonstration")
    press(driver, "input[type=text]", f"{german}\n")
    appears(driver, "translated by MT")
    shoot(driver, "words")
    switch_on(driver, "Why?")
    appears(driver, "Why? A word")
    shoot(driver, "why")
    _open(driver, address)
    press(driver, "input[type=text]", f"{english}\n")
    appears(driver, "translated by MT")
    drop(driver, picture)
    appears(driver, "Similar pictures")
    shoot(driver, "picture")


def _open(driver: Any, address: str) -> None:
    driver.get(address)
    appears(driver, "Some of the pictures")


def _demonstrate(driver: Any) -> None:
    click(driver, "Show the translations")
    appears(driver, "With the picture (MMT, German)")


def _twin_that_needs_its_picture(graph: Graph, corpus: Path) -> dict[str, str]:
    """A row of the twins of the corpus with the word “bat”, which MT translates wrongly."""
    text_only = read_translations(graph.workspace.folder(graph.translators["mt-en-de"]), "twins")
    translated = {row["image_id"]: row["hypothesis"] for row in text_only}
    return next(
        one for one in about_corpus(corpus)["twins"]
        if one["word"] == "bat" and one["expected"].lower() not in translated[one["image_id"]]
    )  # fmt: skip


def _text_of(corpus: Path, wanted: Callable[[Mapping[str, Any]], bool]) -> str:
    """The first caption of a corpus of which something holds."""
    captions = read_captions(corpus / "captions.parquet").to_list()
    return next(str(row["text"]) for row in captions if wanted(row))


def translated_twins(graph: Graph, twin: Mapping[str, str]) -> Image.Image:
    """Two pictures of one sentence, below each other, with its translations without the picture (MT) and with it (MMT).

    Args:
        graph: of a recipe whose translators have been trained.
        twin: a row of the twins of the corpus.
    """
    jobs, workspace = graph.translators, graph.workspace
    corpus = workspace.folder(graph.corpus)
    pictures, casing = pictures_of(corpus), Casing.of_corpus(corpus / "captions.parquet", "de")
    found = {
        system: {row["image_id"]: row for row in read_translations(workspace.folder(jobs[f"{system}-en-de"]), "twins")}
        for system in ("mt", "mmt")
    }
    rows: list[tuple[list[Path], list[Line]]] = []
    for image_id in (twin["image_id"], twin["twin_id"]):
        source = found["mt"][image_id]["source"]
        text, multimodal = (casing.apply(found[name][image_id]["hypothesis"], source) for name in ("mt", "mmt"))
        rows.append(([pictures[image_id]], [
            (source, GREY), ("", GREY), (f"MT, text only:  {text}", BLACK),
            (f"MMT, with the picture:  {multimodal}", GREEN),
        ]))  # fmt: skip
    return picture_sheet(rows)


@contextmanager
def served(gallery: Path) -> Iterator[str]:
    """The page of a gallery as `make app` serves it, on a free port; its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "pipeline", "app", str(gallery.absolute()), f"--port={port}"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    try:
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            if process.poll() is not None:
                raise RecipeError(f"{gallery}: it ended with {process.returncode}; run `make app` to see why")
            time.sleep(0.1)
        else:
            raise RecipeError(f"{gallery}: no page after {_PATIENCE} s; run `make app` to see why")
        yield f"http://127.0.0.1:{port}"
    finally:
        with suppress(psutil.NoSuchProcess):
            for one in psutil.Process(process.pid).children(recursive=True):
                one.kill()
        process.kill()
        process.wait()


@contextmanager
def browser(width: int = 1280, height: int = 860, dark: bool = False) -> Iterator[Any]:
    """Headless Chromium, with a page of this size in pixels.

    Args:
        width: of the page.
        height: of what is seen of it.
        dark: ask pages for their dark theme.

    Raises:
        RecipeError: there is none.
    """
    chromium, driver = _require_browser()
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    with tempfile.TemporaryDirectory() as profile:
        for flag in ("headless=new", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-sync",
                     "disable-background-networking", "disable-component-update",
                     f"user-data-dir={profile}"):  # fmt: skip
            options.add_argument(f"--{flag}")
        window = webdriver.Chrome(options, webdriver.ChromeService(driver))
        window.implicitly_wait(_PATIENCE)
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        window.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        window.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        try:
            yield window
        finally:
            window.quit()


def _require_browser() -> tuple[str, str]:
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        raise RecipeError("screenshots: no chromium and chromedriver here (Debian: chromium chromium-driver)")
    return chromium, driver


def press(driver: Any, where: str, keys: str) -> None:
    """Press keys in an element, by its CSS selector; what it holds already is replaced."""
    element = driver.find_element("css selector", where)
    if element.get_attribute("value"):
        element.send_keys("\ue009a")  # Control-A
    element.send_keys(keys)


def drop(driver: Any, picture: Path) -> None:
    """Put a picture onto the page."""
    driver.find_element("css selector", "input[type=file]").send_keys(str(picture.absolute()))


def switch_on(driver: Any, label: str) -> None:
    """Turn on a switch of the page."""
    driver.find_element("xpath", f"//label[.//p[text()={label!r}]]").click()


def click(driver: Any, label: str) -> None:
    """Click a button of the page."""
    driver.find_element("xpath", f"//button[.//p[text()={label!r}]]").click()


def appears(driver: Any, text: str) -> None:
    """Wait until the page shows a text.

    Raises:
        TimeoutError: it does not.
    """
    end = time.monotonic() + _PATIENCE
    while text not in driver.find_element("tag name", "body").text:
        if time.monotonic() > end:
            raise TimeoutError(f"no {text!r} on the page: {driver.find_element('tag name', 'body').text}")
        time.sleep(0.2)


def shoot(driver: Any, name: str) -> None:
    """Take a picture of the page once it is still, with the pointer away from what reacts to it."""
    driver.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": 0, "y": 0})
    while driver.execute_script(
        "return document.querySelector('[data-stale=true], [data-testid=stSpinner]') !== null"
        " || [...document.images].some(one => !one.complete)"
    ):
        time.sleep(0.2)
    time.sleep(1)  # fades
    path = SHOTS / f"page-{name}.png"
    with Image.open(io.BytesIO(driver.get_screenshot_as_png())) as seen:
        seen.convert("RGB").quantize(256, Image.Quantize.FASTOCTREE).save(path, optimize=True)
    info(str(path.relative_to(ROOT)))


if __name__ == "__main__":
    try:
        screenshots()
    except RecipeError as error:
        sys.exit(f"error: {error}")
