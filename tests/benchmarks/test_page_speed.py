"""How long the page takes to answer, once warm: in a browser, its server's part, and the search alone.

Of a small gallery that is made here, or of BILDWORT_GALLERY, whose queries are translated where it has translators.
"""

import os
import shutil
import statistics
import sys
import time
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from pipeline.gallery.gallery import Gallery
from tests.pipeline.tiny import ROOT, Tiny
from tests.screenshots import appears, browser, press, served

QUERIES = [f"{size} {colour} {thing}" for size in ("small", "large") for colour in ("red", "blue", "green")
           for thing in ("bat", "ball", "box")]  # fmt: skip
MOST = 0.2  # seconds, on two quiet cores
MOST_IN_BROWSER = 1.0
SHOWN = """return document.body.innerText.includes(arguments[0])
    && document.querySelector('[data-stale=true], [data-testid=stSpinner]') === null
    && [...document.images].every(one => one.complete)"""
"""Does the page say this, and is it still?"""
PATIENCE = 30.0  # seconds for one answer


@pytest.mark.benchmark
def test_the_page_answers_in_time(tmp_path: Path, monkeypatch, capsys) -> None:
    place = Path(os.environ.get("BILDWORT_GALLERY") or made_gallery(tmp_path))
    gallery = Gallery.open(place)
    columns = 1 + bool(gallery.exported.translator_names)
    monkeypatch.setattr(sys, "argv", ["app", str(place)])
    page = AppTest.from_file(str(ROOT / "pipeline" / "app" / "page.py"), default_timeout=60).run()
    times: dict[str, list[float]] = {"page": [], "search": []}
    for query in QUERIES:
        started = time.perf_counter()
        page.text_input[0].set_value(query).run()
        times["page"].append(time.perf_counter() - started)
        assert len(page.get("image")) == 12 * columns
        started = time.perf_counter()
        gallery.search(query, 12)
        times["search"].append(time.perf_counter() - started)
    whole, search = (statistics.median(times[name][2:]) for name in ("page", "search"))
    browsed = in_browser(place)
    with capsys.disabled():
        print(f"\n{len(gallery):,} pictures, {12 * columns} shown: the page {1000 * whole:.0f} ms, of it the search "
              f"{1000 * search:.1f} ms (medians of {len(QUERIES) - 2})" +
              ("" if browsed is None else f"; in Chromium {1000 * browsed:.0f} ms"))  # fmt: skip
    assert whole < MOST * columns**2
    assert browsed is None or browsed < MOST_IN_BROWSER


def made_gallery(folder: Path) -> Path:
    """Of rendered pictures, without translators."""
    made = Tiny(folder)
    more = ["--corpus.train=3000", "--vse.only=[human]", "--vse.rows={human: [en/human]}", "--vse.epochs=1",
            "--augment.paths=[]"]  # fmt: skip
    for stage in ("prepare", "vse", "index"):
        assert made.main(stage, *more) == 0
    return made.workspace.root / "tiny" / "gallery"


def in_browser(place: Path) -> float | None:
    """Seconds from the Enter key until all pictures of an answer are shown, the median; None without Chromium."""
    if shutil.which("chromium") is None or shutil.which("chromedriver") is None:
        return None
    times = []
    with served(place) as address, browser() as driver:
        driver.get(address)
        appears(driver, "Some of the pictures")
        for query in QUERIES:
            press(driver, "input[type=text]", query)
            started = time.perf_counter()
            press(driver, "input[type=text]", "\n")
            while not driver.execute_script(SHOWN, f"“{query}”"):
                assert time.perf_counter() - started < PATIENCE, query
                time.sleep(0.01)
            times.append(time.perf_counter() - started)
    return statistics.median(times[2:])
