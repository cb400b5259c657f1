"""`make screenshots`: the README's pictures of the page, taken in headless Chromium, of the scenes alone.

Photographs of other corpora may not be published. Needs Chromium and its driver (Debian: `chromium chromium-driver`),
and `make demo` before.
"""

import io
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from PIL import Image

from data.captions import HUMAN, read_captions
from pipeline.corpus.prepare import corpus_job, pictures_of, twins_of
from pipeline.drawing.pictures import BLACK, GREEN, GREY, Line, picture_sheet
from pipeline.errors import RecipeError
from pipeline.jobs.console import say
from pipeline.jobs.workspace import Workspace
from pipeline.recipes.loading import load_recipe
from pipeline.recipes.settings import Recipe
from pipeline.search.gallery import gallery_of
from pipeline.search.index_command import index
from pipeline.translation.mmt import read_translations, translators_of

ROOT = Path(__file__).parents[2]
SHOTS = ROOT / ".screenshots"
_PATIENCE = 120  # seconds until a page must show what is waited for


def screenshots() -> None:
    """Index the scenes, serve the page, and take its pictures: a search by words, and an ambiguous word translated.

    Raises:
        RecipeError: there is no Chromium, or the demo has not been run.
    """
    _require_browser()
    recipe, workspace = load_recipe("scenes", []), Workspace()
    index(recipe, workspace, None, None, None, os.cpu_count() or 1)
    corpus = workspace.folder(corpus_job(recipe, workspace))
    captions = read_captions(corpus / "captions.parquet").to_list()
    german = next(row for row in captions if (row["split"], row["language"], row["source"]) == ("test", "de", HUMAN))
    text_only = read_translations(workspace.folder(translators_of(recipe, workspace)["mt-en-de"]), "twins")
    translated = {row["image_id"]: row["hypothesis"] for row in text_only}
    twin = next(  # whose picture MT would need
        one for one in twins_of(corpus)
        if one["word"] == "bat" and one["expected"].lower() not in translated[one["image_id"]]
    )  # fmt: skip
    english = next(row["text"] for row in captions if row["caption_id"] == twin["caption_id"])
    SHOTS.mkdir(exist_ok=True)
    translated_twins(recipe, workspace, twin).save(SHOTS / "bat.png", optimize=True)
    with served(gallery_of(recipe, workspace)) as address, browser(1280, 1000) as driver:
        driver.get(address)
        type_words(driver, german["text"])
        appears(driver, "(de)")
        switch_on(driver)
        appears(driver, "translated: ")
        shoot(driver, "words")
        driver.get(address)
        type_words(driver, english)
        appears(driver, "(en)")
        switch_on(driver)
        appears(driver, "translated: ")
        drop(driver, pictures_of(corpus)[twin["image_id"]])
        appears(driver, "with the picture, de:")
        shoot(driver, "picture", "with the picture, de:")


def translated_twins(recipe: Recipe, workspace: Workspace, twin: Mapping[str, str]) -> Image.Image:
    """Two pictures of one sentence, below each other, with its translations without the picture (MT) and with it (MMT).

    Args:
        recipe: whose translators, which have been trained.
        workspace: its artifacts.
        twin: a row of `twins_of` the corpus.
    """
    jobs = translators_of(recipe, workspace)
    pictures = pictures_of(workspace.folder(corpus_job(recipe, workspace)))
    found = {
        system: {row["image_id"]: row for row in read_translations(workspace.folder(jobs[f"{system}-en-de"]), "twins")}
        for system in ("mt", "mmt")
    }
    rows: list[tuple[Path | None, list[Line]]] = []
    for image_id in (twin["image_id"], twin["twin_id"]):
        text, multimodal = found["mt"][image_id], found["mmt"][image_id]
        rows.append((pictures[image_id], [
            (text["source"], GREY), ("", GREY), (f"MT, text only:  {text['hypothesis']}", BLACK),
            (f"MMT, with the picture:  {multimodal['hypothesis']}", GREEN),
        ]))  # fmt: skip
    return picture_sheet(rows)


@contextmanager
def served(gallery: Path) -> Iterator[str]:
    """The page of a gallery as `make app` serves it, on a free port; its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", "pipeline/search/app.py", "--server.address=127.0.0.1",
               f"--server.port={port}", "--", str(gallery.absolute())]  # fmt: skip
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            if process.poll() is not None:
                raise RecipeError(f"{gallery}: streamlit ended with {process.returncode}; run `make app` to see why")
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def browser(width: int = 1200, height: int = 1000) -> Iterator[Any]:
    """Headless Chromium.

    Raises:
        RecipeError: there is none.
    """
    chromium, driver = _require_browser()
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    with tempfile.TemporaryDirectory() as profile:
        for flag in ("headless=new", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-sync",
                     "disable-background-networking", "disable-component-update", f"window-size={width},{height}",
                     f"user-data-dir={profile}"):  # fmt: skip
            options.add_argument(f"--{flag}")
        window = webdriver.Chrome(options, webdriver.ChromeService(driver))
        window.implicitly_wait(_PATIENCE)
        try:
            yield window
        finally:
            window.quit()


def _require_browser() -> tuple[str, str]:
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        raise RecipeError("screenshots: no chromium and chromedriver here (Debian: chromium chromium-driver)")
    return chromium, driver


def type_words(driver: Any, words: str) -> None:
    """Into the page's box."""
    driver.find_element("css selector", "input[type=text]").send_keys(f"{words}\n")


def drop(driver: Any, picture: Path) -> None:
    """A picture onto the page."""
    driver.find_element("css selector", "input[type=file]").send_keys(str(picture.absolute()))


def switch_on(driver: Any) -> None:
    """All that the page can show beside the pictures."""
    for switch in driver.find_elements("css selector", "[data-testid=stCheckbox] label"):
        switch.click()


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


def shoot(driver: Any, name: str, bottom: str | None = None) -> None:
    """Take a picture of the page once it is still; with a text that it shows at the bottom."""
    while driver.execute_script("return document.querySelector('[data-stale=true]') !== null"):
        time.sleep(0.2)
    if bottom is not None:
        shown = driver.find_element("xpath", f"//*[contains(text(), {bottom!r})]")
        driver.execute_script("arguments[0].scrollIntoView({block: 'end'})", shown)
    time.sleep(1)  # fades
    path = SHOTS / f"page-{name}.png"
    with Image.open(io.BytesIO(driver.get_screenshot_as_png())) as seen:
        seen.convert("RGB").quantize(256).save(path, optimize=True)
    say(str(path.relative_to(ROOT)))


if __name__ == "__main__":
    try:
        screenshots()
    except RecipeError as error:
        sys.exit(f"error: {error}")
