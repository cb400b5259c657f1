"""The page where less is given than usual: parts of it that run by themselves, a foreign folder, odd addresses."""

import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image
from streamlit.testing.v1 import AppTest

from pipeline.app.command import open_page
from pipeline.app.page_start import _facts
from pipeline.app.page_text import BROWN, isolated, plain, runs, scaled
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.export.exported_model import ExportedModel
from pipeline.gallery.gallery import Gallery
from pipeline.gallery.indexing import update_gallery
from pipeline.gallery.picture_sources import PictureFolder
from pipeline.recipes.loading import load_recipe
from tests.pipeline.app.test_app import opened, search
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
    (tmp_path / "gallery").mkdir()
    (tmp_path / "gallery" / "gallery.json").touch()
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


def test_a_picture_that_cannot_be_read_leaves_the_results_of_words(used: Tiny, monkeypatch) -> None:
    page = search(opened(used.workspace.root / "tiny" / "gallery", monkeypatch), "a red bat")
    page.file_uploader[0].set_value(("text.png", b"no picture", "image/png")).run()
    assert ([one.value for one in page.header], len(page.error)) == (["English"], 1)


def test_too_long_a_query_is_cut_and_said_so(used: Tiny, monkeypatch) -> None:
    page = opened(used.workspace.root / "tiny" / "gallery", monkeypatch, both="false")
    page.text_input(key="q").set_value("a red bat " * 300).run()
    assert not page.exception
    assert page.info[0].value == "Only the first 1,000 letters are searched for."
    assert any(one.value.endswith("…”") for one in page.markdown)


def test_a_sentence_is_translated_as_far_as_it_is_searched_for(used: Tiny, own: Path, monkeypatch) -> None:
    sentence = " ".join(["a red bat and"] * 30)
    page = search(opened(used.workspace.root / "tiny" / "gallery", monkeypatch, both="false"), sentence)
    picture = next(own.glob("*.png"))
    page.file_uploader[0].set_value((picture.name, picture.read_bytes(), "image/png")).run()
    assert not page.exception
    (field,) = [one for one in page.text_input if one.label.startswith("Sentence to translate")]
    assert len(sentence) <= field.proto.max_chars


def test_a_query_that_is_typed_is_a_step_of_the_history(used: Tiny, monkeypatch) -> None:
    page = opened(used.workspace.root / "tiny" / "gallery", monkeypatch, top="3")
    page.text_input(key="q").set_value("a red bat").run()
    assert page.query_params["q"] in ("a red bat", ["a red bat"])  # as releases of Streamlit give it
    page.query_params["q"] = "ein Ball"  # *Back*
    page.query_params["language"] = "de"
    page.run()
    assert (page.text_input(key="q").value, page.selectbox[0].value) == ("ein Ball", "de")
    assert len([one for one in page.markdown if one.value.startswith("**1**")]) >= 1
    del page.query_params["q"], page.query_params["language"]
    page.run()
    assert (page.text_input(key="q").value, page.selectbox[0].value) == ("", "detect")
    assert not page.exception


def test_no_page_without_a_gallery(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="no gallery here; run `"):
        open_page(load_recipe("scenes"), Workspace(tmp_path), None, "127.0.0.1", 0, [])


def test_an_address_that_cannot_be_used_is_one_line(used: Tiny) -> None:
    gallery = used.workspace.root / "tiny" / "gallery"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(RecipeError, match=rf"app: 127.0.0.1, port {port}: .*; choose another address or port"):
            open_page(used.recipe(), used.workspace, gallery, "127.0.0.1", port, [])


@pytest.mark.parametrize("size", [(5000, 3), (3, 5000), (1, 1), (64, 32)])
def test_a_thin_picture_keeps_two_sides(size: tuple[int, int]) -> None:
    """However small Streamlit shows it."""
    picture = scaled(Image.new("RGB", size))
    assert picture is not None
    assert max(picture.size) == 320
    assert min(picture.size) * 116 // 320 >= 1


def test_letters_from_right_to_left_have_a_direction_of_their_own() -> None:
    assert isolated(plain("a dog.")) == "a dog\\."
    assert isolated("\u05db\u05dc\u05d1 1.") == "\u2068\u05db\u05dc\u05d1 1.\u2069"
    assert runs(["\u05db\u05dc\u05d1", "red"], [None, BROWN]).endswith("}\u2069")  # the words together


def test_the_language_of_a_word_that_one_translator_knows(exported: ExportedModel) -> None:
    """Letters alone take `red` for German."""
    words = {way[:2]: exported.translators.load("mt", way)[1].source_words for way in ("en-de", "de-en")}
    only = {language: sorted(own - words[other]) for language, other in (("en", "de"), ("de", "en"))
            for own in [words[language]]}  # fmt: skip
    for language, known in only.items():
        told = [word for word in known if exported.translators.knowing(word, ["de", "en"]) == [language]]
        assert len(told) > len(known) / 2 > 2
        assert {exported.language_of(word, ["de", "en"]) for word in told} == {language}
    assert exported.translators.knowing("qwertz uiop", ["de", "en"]) == ["de", "en"]
    assert exported.translators.knowing("red", ["en", "fr"]) == ["en", "fr"]  # nothing is known of French


def test_the_page_does_not_call_a_share_all_that_is_not() -> None:
    exported = SimpleNamespace(name="san", reranker=None, first_right={"de": 99.5})
    assert _facts(SimpleNamespace(exported=exported))[-1].endswith(": German 99.5 %")
