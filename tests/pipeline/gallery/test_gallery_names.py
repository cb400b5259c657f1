"""How a picture of a gallery may be named."""

import shutil
from pathlib import Path

import pyarrow as pa

from pipeline.cli import main
from pipeline.export.exported_model import ExportedModel
from pipeline.gallery.gallery import Gallery
from pipeline.gallery.indexing import update_gallery
from pipeline.gallery.picture_sources import PictureFolder
from tests.pipeline.tiny import at


def gallery(*names: str) -> Gallery:
    """One that has these pictures, and nothing else."""
    made = Gallery.__new__(Gallery)
    made._rows = pa.table({"name": list(names)})
    return made


def test_an_ending_is_no_folder() -> None:
    assert gallery("holiday.old/1.jpg", "b.png").place_of("holiday") is None
    assert gallery("b.png", "holiday.jpg", "holiday.old/1.jpg").place_of("holiday") == 1


def test_a_name_of_several_pictures_is_that_of_none() -> None:
    several = gallery("a/1.jpg", "b/1.jpg", "2.jpg", "2.png")
    assert several.place_of("1.jpg") is None
    assert several.shared_name("1.jpg") == ["a/1.jpg", "b/1.jpg"]
    assert several.shared_name("2") == ["2.jpg", "2.png"]
    assert several.shared_name("2.jpg") == several.shared_name("3.jpg") == []


def test_a_file_is_not_taken_for_a_picture_that_is_called_so(
    exported: ExportedModel, own: Path, tmp_path: Path, capsys
) -> None:
    (own / "sub").mkdir()
    (own / "5.png").rename(own / "sub" / "5.png")
    captions = {"0.png": {"en": ["a bat"]}, "sub/5.png": {"en": ["a hat"]}}
    update_gallery(tmp_path / "gallery", exported, PictureFolder(own), {"en": ["a bat", "a hat"]}, captions)
    for name in ("0.png", "5.png"):
        shutil.copy(own / "1.png", tmp_path / name)
    for folder, name, said in (
        (tmp_path, "0.png", "in the gallery:"), (tmp_path, "5.png", "in the gallery:"),
        (own, "0.png", "en, captions:"), (own, "5.png", "en, captions:"), (tmp_path, "sub/5", "en, captions:"),
    ):  # fmt: skip
        capsys.readouterr()
        with at(folder):
            assert main(["describe", name, "--gallery", str(tmp_path / "gallery")]) == 0
        assert said in capsys.readouterr().out
