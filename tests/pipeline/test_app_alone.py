"""The page where less is given than usual: parts of it that run by themselves, a foreign folder, odd addresses."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from pipeline.export.exported_model import ExportedModel
from pipeline.gallery.gallery import Gallery
from pipeline.gallery.indexing import update_gallery
from pipeline.gallery.picture_sources import PictureFolder
from tests.pipeline.test_app import opened
from tests.pipeline.tiny import Tiny

pytestmark = pytest.mark.whole


@pytest.fixture
def moved(exported: ExportedModel, own: Path, tmp_path: Path) -> Gallery:
    """A gallery whose vectors have been deleted since it was opened."""
    update_gallery(tmp_path / "gallery", exported, PictureFolder(own), {"en": ["a red bat"]})
    gallery = Gallery.open(tmp_path / "gallery", exported)
    shutil.rmtree(tmp_path / "gallery" / "parts")
    return gallery


def captions(gallery):
    from pipeline.app import page_results

    page_results._captions(gallery, 1, gallery.draw_pictures(1, 1)[0], None)


def dialog(gallery):
    from pipeline.app.page_translation import translation_dialog
    from pipeline.gallery.examples import Sentence

    translation_dialog(gallery, Sentence("a red bat", "en"), gallery.draw_pictures(1, 1)[0])


@pytest.mark.parametrize("part", [captions, dialog])
def test_a_part_of_the_page_that_runs_alone_shows_an_error_in_one_line(part, moved: Gallery) -> None:
    page = AppTest.from_function(part, args=(moved,), default_timeout=60).run()
    name = moved.draw_pictures(1, 1)[0].name
    page.session_state[f"captions--1-{name}"] = True
    page.run()
    assert not page.exception
    (error,) = page.error
    assert "the gallery was updated since it was opened, or is damaged" in error.value.replace("\\", "")


def test_settings_of_the_page_are_the_same_from_any_folder(tmp_path: Path) -> None:
    """Also where Streamlit's own settings of that folder say otherwise."""
    settings = {"browser.gatherUsageStats": False, "client.toolbarMode": "minimal", "server.headless": True,
                "server.fileWatcherType": "none", "server.maxUploadSize": 20, "theme.light.primaryColor": "#0a62c4",
                "server.port": 7, "server.address": "127.0.0.1"}  # fmt: skip
    (tmp_path / ".streamlit").mkdir()
    (tmp_path / ".streamlit" / "config.toml").write_text("[server]\nmaxUploadSize = 1000\n")
    code = f"""
import json, pathlib
from streamlit import config
from streamlit.web import bootstrap
from pipeline.app.command import open_page
bootstrap.run = lambda *given: print(json.dumps({{name: config.get_option(name) for name in {[*settings]}}}))
open_page(None, None, pathlib.Path("gallery"), "127.0.0.1", 7, [])
"""
    told = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(told.stdout) == settings


@pytest.mark.parametrize(("given", "kept"), [("en", "English"), ("de", "German"), ("German", "German"), ("xx", None)])
def test_a_language_in_the_address_may_be_its_code(used: Tiny, monkeypatch, given: str, kept: str | None) -> None:
    page = opened(used.workspace.root / "tiny" / "gallery", monkeypatch, language=given)
    assert page.selectbox[0].options == ["detect", "German", "English"]
    assert page.selectbox[0].value == {"English": "en", "German": "de"}.get(kept or "", "detect")
    page.run()
    assert page.selectbox[0].value == {"English": "en", "German": "de"}.get(kept or "", "detect")
