"""The captions of a gallery's pictures, told apart from similar ones of other pictures; a folder without pictures."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data.captions.table import read_captions
from pipeline.errors import RecipeError
from pipeline.export.exported_model import ExportedModel
from pipeline.gallery.gallery import Gallery
from pipeline.gallery.indexing import update_gallery
from pipeline.gallery.picture_sources import PictureFolder
from tests.pipeline.app.test_app import found, open_captions, opened, plainly, search
from tests.pipeline.drawn import names
from tests.pipeline.tiny import Tiny


def test_a_picture_of_the_gallery_has_its_own_captions_and_similar_ones_of_others(used: Tiny, capsys) -> None:
    gallery = Gallery.open(used.workspace.root / "tiny" / "gallery")
    table = read_captions(used.job("corpus") / "captions.parquet").to_list()
    human = [row for row in table if row["source"] == "human" and row["language"] == "en"]
    for hit in gallery.draw_pictures(5, 1):
        known, new = gallery.describe_known(hit.name, 3), gallery.describe(hit.path, 1000)
        own = [row["text"] for row in human if row["image_id"] == hit.name]
        assert known.own == {"en": list(dict.fromkeys(own))}
        assert new.own is None
        others = [caption for caption in new["en"] if caption.name not in own]
        assert names(known["en"]) == names(others)[:3]
        assert [one.score for one in known["en"]] == pytest.approx([one.score for one in others[:3]], abs=1e-5)
    capsys.readouterr()
    assert used.main("describe", hit.name, "--top", "2") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[: len(own) + 1] == [f"{hit.name} en, captions:", *(f"      {text}" for text in own)]
    assert lines[len(own) + 1] == f"{hit.name} en, similar captions of other pictures:"
    assert len(lines) == len(own) + 4
    assert used.main("describe", str(hit.path), "--top", "2") == 0
    assert capsys.readouterr().out.splitlines()[0] == f"{hit.path} en, similar captions in the gallery:"
    assert used.main("describe", hit.name, "--json") == 0
    assert json.loads(capsys.readouterr().out)["captions"] == own


def test_a_gallery_that_is_moved_without_the_regions_of_its_corpus_says_so(used: Tiny, tmp_path: Path) -> None:
    moved = shutil.copytree(used.workspace.root / "tiny" / "gallery", tmp_path / "moved")
    for path in moved.glob("generations/*/pictures.parquet"):
        rows = pq.read_table(path)
        gone = pa.array([str(tmp_path / "gone")] * len(rows))
        pq.write_table(rows.set_column(rows.schema.get_field_index("store"), "store", gone), path)
    gallery = Gallery.open(moved)
    (hit,) = gallery.draw_pictures(1, 1)
    with pytest.raises(
        RecipeError, match=r"moved: its pictures are regions in .*gone, which is not there; use the gal"
    ):
        gallery.describe_known(hit.name)


def test_captions_stay_with_their_pictures(used: Tiny, exported: ExportedModel, own: Path, tmp_path: Path) -> None:
    """Also when the pictures are renamed, and not with another picture of the same name."""
    place, captions = tmp_path / "gallery", {"en": ["a red bat", "a ball"]}
    mine = {"1.png": {"en": ["a red bat"]}, "2.png": {"en": ["a ball"]}}
    update_gallery(place, exported, PictureFolder(own), captions, mine)
    assert Gallery.open(place).describe_known("1.png").own == {"en": ["a red bat"]}
    (own / "1.png").rename(own / "renamed.png")
    (own / "3.png").rename(own / "1.png")
    update_gallery(place, exported, PictureFolder(own))
    gallery = Gallery.open(place)
    assert gallery.describe_known("renamed.png").own == {"en": ["a red bat"]}
    assert names(gallery.describe_known("renamed.png")["en"]) == ["a ball"]
    assert gallery.describe_known("1.png").own == {}
    assert gallery.describe_known("1.png").title == "similar captions in the gallery"
    (place / "generations" / "2" / "own-captions.parquet").unlink()  # an old gallery has none
    assert Gallery.open(place).describe_known("2.png").own == {}


def test_pictures_of_a_folder_have_the_captions_of_the_same_file(
    used: Tiny, own: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """The corpus has captions of names; a folder's picture of such a name may be another one."""
    pictures = used.job("corpus") / "pictures"
    name = sorted(path.name for path in pictures.iterdir())[0]
    (own / "0.png").rename(own / name)
    for folder, known in ((pictures, True), (own, False)):
        place = tmp_path / f"gallery-{known}"
        assert used.main("index", "--pictures", str(folder), "--gallery", str(place)) == 0
        assert f"next: `bildwort app {place}` (search page)" in capsys.readouterr().out
        assert bool(Gallery.open(place).describe_known(name).own) is known


def test_a_folder_indexed_by_another_model_has_no_captions_of_a_recipe(used: Tiny, own: Path, tmp_path: Path) -> None:
    """The model and the folder are both given: the recipe's corpus, which happens to be there, is not of them."""
    assert used.main("export", "--output", str(tmp_path / "model")) == 0
    words = ["--pictures", str(own), "--model", str(tmp_path / "model"), "--gallery", str(tmp_path / "gallery")]
    assert used.main("index", *words) == 0
    gallery = Gallery.open(tmp_path / "gallery")
    assert len(gallery) > 0
    assert gallery.languages == []


def test_a_folder_of_the_corpus_keeps_and_corrects_captions_with_a_model_too(
    used: Tiny, own: Path, exported: ExportedModel, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    pictures, place, model = used.job("corpus") / "pictures", tmp_path / "gallery", tmp_path / "model"
    assert used.main("export", "--output", str(model)) == 0
    assert used.main("index", "--gallery", str(place)) == 0  # by regions of the corpus
    before = [Gallery.open(place).describe_known(f"{path.stem}").own for path in sorted(pictures.iterdir())[:5]]
    assert all(before)
    update_gallery(place, exported, PictureFolder(pictures))  # by files; nobody says whose captions there are
    names_of = [path.name for path in sorted(pictures.iterdir())[:5]]
    assert [Gallery.open(place).describe_known(name).own for name in names_of] == before
    mine = {names_of[0]: {"en": ["wrong"]}}
    update_gallery(place, exported, PictureFolder(pictures), {"en": ["wrong"]}, mine)
    words = ["--pictures", str(pictures), "--model", str(model), "--gallery", str(place)]
    assert used.main("index", *words) == 0
    assert [Gallery.open(place).describe_known(name).own for name in names_of] == before
    linked = tmp_path / "linked"
    linked.symlink_to(pictures)  # the same files by another path
    assert used.main("index", "--gallery", str(place)) == 0
    update_gallery(place, exported, PictureFolder(linked))
    assert [Gallery.open(place).describe_known(name).own for name in names_of] == before
    capsys.readouterr()
    assert used.main("index", "--pictures", str(own), "--model", str(model), "--gallery", str(place)) == 0
    assert "the gallery had captions of" in capsys.readouterr().out


def test_on_the_page_own_captions_come_first_and_similar_ones_on_demand(used: Tiny, monkeypatch) -> None:
    place = used.workspace.root / "tiny" / "gallery"
    page, gallery = search(opened(place, monkeypatch), "a red bat"), Gallery.open(place)
    names = [text.rpartition("  ·  ")[2] for text in found(page)]
    assert len(page.expander) == len(names) == 12
    assert {one.label.rstrip(" 0123456789") for one in page.expander} == {"More captions of picture"}
    own = [gallery.own_captions(name)["en"] for name in names]
    captions = [plainly(one.value) for one in page.caption]
    with monkeypatch.context() as patch:
        patch.setattr(Gallery, "describe_known", None)
        search(page, "a bat")  # asks for no similar captions
    search(page, "a red bat")
    open_captions(page)
    for expander, (first, *others) in zip(page.expander, own, strict=True):
        assert f"caption: {first}" in captions
        *shown, similar = [plainly(one.value) for one in expander.caption]
        assert shown == [f"caption: {text}" for text in others]
        text = similar.removeprefix("similar caption of another picture: ")
        assert text != similar
        assert text not in [first, *others]


def test_an_index_of_a_folder_without_pictures_keeps_the_gallery(used: Tiny, own: Path, tmp_path: Path, capsys) -> None:
    (tmp_path / "empty").mkdir()
    index = ("index", "--gallery", str(tmp_path / "gallery"), "--pictures")
    assert used.main(*index, str(own)) == 0
    assert used.main(*index, str(tmp_path / "empty")) == 1
    assert "empty: no pictures in it; expected files like" in " ".join(capsys.readouterr().err.split())
    assert len(Gallery.open(tmp_path / "gallery").search("a bat")) == 6
