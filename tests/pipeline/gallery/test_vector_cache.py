"""What a gallery keeps of pictures: where it is found, and found again after an update."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from pipeline.errors import RecipeError
from pipeline.export.exported_model import ExportedModel
from pipeline.gallery.gallery import Gallery
from pipeline.gallery.hits import GalleryError
from pipeline.gallery.indexing import update_gallery
from pipeline.gallery.picture_sources import PictureFolder
from pipeline.gallery.vector_cache import VectorCache


def test_parts_give_rows_in_the_order_asked_for(tmp_path: Path) -> None:
    parts = VectorCache(tmp_path)
    parts.add(["a", "b"], {"x": np.array([[1], [2]])})
    parts.add(["c"], {"x": np.array([[3]])})
    again = VectorCache(tmp_path)
    assert again.take(["c", "a", "b", "a"], "x")[:, 0].tolist() == [3, 1, 2, 1]
    again.keep({"c"})
    assert "a" not in VectorCache(tmp_path)
    assert "c" in VectorCache(tmp_path)


def test_numbers_that_numpy_does_not_have_are_one_line(tmp_path: Path, monkeypatch) -> None:
    VectorCache(tmp_path).add(["a"], {"x": np.array([[1.0]])})
    kept = VectorCache(tmp_path)

    def unknown(file: Path, form: str) -> None:
        raise TypeError("data type 'bfloat16' not understood")

    monkeypatch.setattr(VectorCache, "_listed", lambda self: self._place)
    monkeypatch.setattr("pipeline.gallery.vector_cache.safe_open", unknown)
    with pytest.raises(GalleryError, match=r"\.safetensors: not readable"):
        kept.take(["a"], "x")


def test_what_is_kept_of_pictures_is_listed_once_and_again_after_an_update(
    exported: ExportedModel, own: Path, tmp_path: Path, monkeypatch
) -> None:
    update_gallery(tmp_path / "gallery", exported, PictureFolder(own), {})
    gallery, listed, list_them = Gallery.open(tmp_path / "gallery", exported), [], VectorCache._listed
    monkeypatch.setattr(VectorCache, "_listed", lambda *own: listed.append(own) or list_them(*own))
    before = [gallery.search(query, 4, reranker=exported) for query in ("a bat", "a ball")]
    assert len(listed) == 1
    (file,) = listed[0][0].folder.glob("*.safetensors")
    file.rename(file.with_stem("elsewhere"))  # as an update would leave it
    assert [list(found) for found in before] == [
        list(gallery.search(query, 4, reranker=exported)) for query in ("a bat", "a ball")
    ]
    assert len(listed) == 2
    file.with_stem("elsewhere").unlink()
    with pytest.raises(RecipeError, match="the gallery was updated since it was opened"):
        gallery.search("a bat", 4, reranker=exported)


def test_a_part_that_may_not_be_read_is_not_made_again(tmp_path: Path, monkeypatch) -> None:
    """Safetensors says that there is no such file; vectors of another user would be replaced."""
    VectorCache(tmp_path).add(["a"], {"x": np.array([[1]])})

    def denied(file: Path, *arguments) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(file))

    def missing(file: Path, form: str) -> None:
        raise FileNotFoundError(f"No such file or directory: {file}")

    monkeypatch.setattr("pipeline.gallery.vector_cache.safe_open", missing)
    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(PermissionError):
        VectorCache(tmp_path)
