"""A folder of somebody's pictures: what is a picture is found, what is not is told, and no link leads out."""

import os
from pathlib import Path

import pytest

from data.errors import DataError
from data.pictures.folder import pictures_in
from data.text.languages import language_of


def make(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_pictures_are_found_by_name_in_all_folders(tmp_path: Path) -> None:
    for name in ("b.PNG", "\u202f5 PM \u3000.png", "a/c.jpeg", "a.jpg", ".hidden.jpg", ".cache/d.jpg", "ä ö/🐕.webp"):
        make(tmp_path / name)
    found, left = pictures_in(tmp_path)
    assert list(found) == ["a.jpg", "a/c.jpeg", "b.PNG", "ä ö/🐕.webp", "\u202f5 PM \u3000.png"]
    assert found["a/c.jpeg"] == tmp_path / "a" / "c.jpeg"
    assert left == {}


def test_what_is_left_out_is_told(tmp_path: Path) -> None:
    outside = make(tmp_path / "outside" / "secret.jpg")
    folder = tmp_path / "pictures"
    make(folder / "notes.txt")
    make(folder / "two\nlines.jpg")
    inside = make(folder / "own.jpg")
    (folder / "link.jpg").symlink_to(outside)
    (folder / "same.jpg").symlink_to(inside)
    (folder / "away").symlink_to(outside.parent)
    (folder / "nowhere.jpg").symlink_to(folder / "gone.jpg")
    (folder / "loop.jpg").symlink_to("loop.jpg")
    make(folder / "turned\u202egnp.jpg")
    os.mkfifo(folder / "pipe.jpg")
    (Path(os.fsdecode(os.fsencode(folder) + b"/\xff.jpg"))).write_text("x")
    found, left = pictures_in(folder)
    assert list(found) == ["own.jpg", "same.jpg"]
    assert left == {
        "notes.txt": "not a picture by its name", "two\nlines.jpg": "its name has control characters",
        "link.jpg": "a link out of the folder", "away": "a link to a folder",
        "nowhere.jpg": "cannot be read (No such file or directory)", "pipe.jpg": "not a file",
        "loop.jpg": "a link to itself", "turned\u202egnp.jpg": "its name has control characters",
        "\\udcff.jpg": "its name is not UTF-8",
    }  # fmt: skip


def test_names_are_composed(tmp_path: Path) -> None:
    apart = make(tmp_path / "Mu\u0308ller" / "a\u0308.jpg")  # as macOS writes them
    whole = make(tmp_path / "\u00f6.jpg")
    make(tmp_path / "o\u0308.jpg", "another")
    found, left = pictures_in(tmp_path)
    assert found == {"M\u00fcller/\u00e4.jpg": apart, "\u00f6.jpg": tmp_path / "o\u0308.jpg"}
    assert list(left) == ["\u00f6.jpg (twice)"]
    assert whole.is_file()


def test_no_folder_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such folder; expected one with pictures"):
        pictures_in(tmp_path / "gone")


@pytest.mark.parametrize(
    ("text", "language"),
    [("zwei Hunde spielen im Schnee", "de"), ("two dogs play in the snow", "en"), ("un chien court", "fr"),
     ("dva psi běží", "cs"), ("🐕🐕", "cs"), ("", "cs")],
)  # fmt: skip
def test_languages_are_told_apart(text: str, language: str) -> None:
    assert language_of(text, ["cs", "de", "en", "fr"]) == language


def test_only_the_languages_of_the_model_are_told() -> None:
    assert language_of("zwei Hunde", ["en", "fr"]) in ("en", "fr")
    assert language_of("zwei Hunde", ["en"]) == "en"
    assert language_of("two dogs", ["tlh", "qya"]) == "tlh"  # the identifier knows neither
