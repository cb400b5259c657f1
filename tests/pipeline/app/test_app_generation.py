"""The page with a model that writes captions and draws pictures."""

import sys
from pathlib import Path

import pytest
from PIL import Image
from streamlit.testing.v1 import AppTest

from pipeline.app import page_picture, page_results
from pipeline.app.page_results import DRAWN
from pipeline.export.exported_model import ExportedModel
from pipeline.export.generation import captions_of_regions, picture_of
from pipeline.gallery.indexing import update_gallery
from pipeline.gallery.picture_sources import PictureFolder
from tests.pipeline.app.test_app import opened, search, shown
from tests.pipeline.drawn import draw
from tests.pipeline.tiny import GXN_OPTIONS, Tiny

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def same_main(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the main module back: Streamlit replaces it, and processes that are spawned later would run its script."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])


@pytest.fixture(scope="module")
def model(tiny: Tiny, tmp_path_factory) -> ExportedModel:
    """An indexed model, whose reranker writes and draws."""
    made = tiny.without(tmp_path_factory.mktemp("reranks"), "nothing")
    reranker = f"{{row: both, model: gxn, options: {GXN_OPTIONS}, epochs: 1, warmup_epochs: 0}}"
    both = ["--vse.rows={both: [en/human + de/human]}", "--vse.only=[both]", "--vse.epochs=1",
            "--augment.paths=[]", f"--vse.reranker={reranker}"]  # fmt: skip
    assert made.main("vse", *both) == made.main("export", "--output", str(made.folder / "model"), *both) == 0
    return ExportedModel.load(made.folder / "model")


@pytest.fixture(scope="module")
def gallery(model: ExportedModel, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("generates")
    for number in range(3):
        draw(folder / "own" / f"{number}.png", number)
    captions = {"en": ["a red bat"], "de": ["ein roter Ball"]}
    update_gallery(folder / "gallery", model, PictureFolder(folder / "own"), captions)
    return folder / "gallery"


def test_a_query_shows_what_the_model_draws(gallery: Path, model: ExportedModel, monkeypatch) -> None:
    drawn: list[tuple[Image.Image, str]] = []
    show = page_results.st.image
    monkeypatch.setattr(page_results.st, "image", lambda picture, caption=None, **more: (
        drawn.append((picture, caption)), show(picture, caption, **more)))  # fmt: skip
    search(opened(gallery, monkeypatch), "a red bat", "en")
    (picture,) = [one for one, caption in drawn if caption == DRAWN]
    assert picture.tobytes() == picture_of(model, "a red bat", "en").tobytes()


def uploads(folder: str, picture: str) -> None:
    """A page on which a picture was uploaded."""
    from pathlib import Path

    from pipeline.app.page_picture import uploaded
    from pipeline.app.page_results import SearchRequest, Sentence
    from pipeline.gallery.gallery import Gallery

    content = Path(picture).read_bytes()
    uploaded(Gallery.open(folder), content, "mine.png", SearchRequest(Sentence("", "en"), 2, False, False))


@pytest.mark.parametrize("empty", [False, True])
def test_an_uploaded_picture_has_the_models_own_caption_in_each_language(
    gallery: Path, model: ExportedModel, monkeypatch, empty: bool
) -> None:
    if empty:
        monkeypatch.setattr(page_picture, "captions_of_regions", lambda *_: [""])
    picture = gallery.parent / "own" / "1.png"
    page = AppTest.from_function(uploads, default_timeout=60, args=(str(gallery), str(picture))).run()
    assert not page.exception
    texts = shown(page)
    for language, name in (("en", "English"), ("de", "German")):
        place = texts.index(f"**The model's own caption, {name}**")
        expected = "" if empty else captions_of_regions(model, model.regions_of(picture)[0][None], language)[0]
        assert texts[place + 1] == (expected or "*an empty caption*")


def test_a_model_that_cannot_shows_neither(used, monkeypatch) -> None:
    gallery = used.workspace.root / "tiny" / "gallery"
    monkeypatch.setattr(page_results, "picture_of", lambda *_: 1 / 0)
    search(opened(gallery, monkeypatch), "a red bat", "en")
    picture = next((used.job("corpus") / "pictures").iterdir())
    page = AppTest.from_function(uploads, default_timeout=60, args=(str(gallery), str(picture))).run()
    assert not page.exception
    assert not any("own caption" in text for text in shown(page))
