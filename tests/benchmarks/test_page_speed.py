"""How long the page takes to answer, once warm: the whole of it beside the search alone."""

import statistics
import sys
import time
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from pipeline.gallery.gallery import Gallery
from tests.pipeline.tiny import ROOT, Tiny

QUERIES = [f"{size} {colour} {thing}" for size in ("small", "large") for colour in ("red", "blue", "green")
           for thing in ("bat", "ball", "box")]  # fmt: skip
MOST = 0.2  # seconds, on two quiet cores


@pytest.mark.benchmark
def test_the_page_answers_in_time(tmp_path: Path, monkeypatch, capsys) -> None:
    made = Tiny(tmp_path)
    more = ["--corpus.train=3000", "--vse.only=[human]", "--vse.rows={human: [en/human]}", "--vse.epochs=1",
            "--augment.paths=[]"]  # fmt: skip
    for stage in ("prepare", "vse", "index"):
        assert made.main(stage, *more) == 0
    place = made.workspace.root / "tiny" / "gallery"
    gallery = Gallery.open(place)
    monkeypatch.setattr(sys, "argv", ["app", str(place)])
    page = AppTest.from_file(str(ROOT / "pipeline" / "app" / "page.py"), default_timeout=60).run()
    times: dict[str, list[float]] = {"page": [], "search": []}
    for query in QUERIES:
        started = time.perf_counter()
        page.text_input[0].set_value(query).run()
        times["page"].append(time.perf_counter() - started)
        assert len(page.text) == 12
        started = time.perf_counter()
        gallery.search(query, 12)
        times["search"].append(time.perf_counter() - started)
    whole, search = (statistics.median(times[name][2:]) for name in ("page", "search"))
    with capsys.disabled():
        print(f"\n{len(gallery):,} pictures, 12 shown: the page {1000 * whole:.0f} ms, of it the search "
              f"{1000 * search:.1f} ms (medians of {len(QUERIES) - 2})")  # fmt: skip
    assert whole < MOST
