"""Files that commands write where a person says: what is there, or is read, is kept; all is known beforehand."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.cli import main
from tests.pipeline.init.own_pictures import draw_pictures, write_tsv

COMMANDS: dict[str, tuple[str, list[str]]] = {
    "translate": ("--output", ["translate", "--with", "mt:en-de", "--input", "{input}"]),
    "rerank-translations": ("--output", ["rerank-translations", "--tune", "{input}", "--references", "{input}"]),
    "search": ("--sheet", ["search", "--queries", "{input}"]),
    "imagine": ("--output", ["imagine", "a dog"]),
    "init": ("--output", ["init", "{pictures}", "--captions", "{input}", "--translator", "none"]),
}
"""Command → the option that names its output, and the rest of it; none of them gets as far as its work here."""


def _existing(path: Path, given: Path) -> Path:
    path.write_text("of value")
    return path


def _input(path: Path, given: Path) -> Path:
    return given


def _link(path: Path, given: Path) -> Path:
    path.symlink_to(given)
    return path


def _hard_link(path: Path, given: Path) -> Path:
    os.link(given, path)
    return path


def _folder(path: Path, given: Path) -> Path:
    path.mkdir()
    return path


def _long(path: Path, given: Path) -> Path:
    return path.with_name(f"{'x' * 245}{path.suffix}")


PLACES: dict[str, tuple[Callable[[Path, Path], Path], str, bool]] = {
    "existing": (_existing, "exists; choose another file, or replace it with --force", False),
    "input": (_input, "is read too", True), "link": (_link, "is read too", True),
    "hard link": (_hard_link, "is read too", True), "folder": (_folder, "is a folder; expected a file", True),
    "no folder": (lambda path, given: given / path.name, "is no folder; choose another one", True),
    "proc": (lambda path, given: Path(f"/proc/{path.name}"), "cannot be written", True),
    "device": (lambda path, given: Path("/dev/null"), "is not a file", True),
    "long": (_long, "File name too long", True),
}  # fmt: skip
"""Kind of place → how it is made, what is said of it, and whether it is said in spite of --force."""


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("command", COMMANDS)
def test_what_cannot_be_written_is_told_before_the_work(command: str, place: str, tmp_path: Path, capsys) -> None:
    option, words = COMMANDS[command]
    given = tmp_path / ("captions.tsv" if command != "init" else "captions.yaml")
    if place == "device" and command == "init":
        pytest.skip("a recipe's name ends in .yaml")
    if place == "folder" and command == "init":
        pytest.skip("a recipe is written into a folder")
    write_tsv(given, draw_pictures(tmp_path / "pictures", 12))
    before = given.read_bytes()
    make, said, always = PLACES[place]
    output = make(tmp_path / "out.yaml", given)
    if command == "imagine" and place in ("input", "link", "hard link"):  # it reads no file
        said, always = "exists", False
    line = [word.format(input=given, pictures=tmp_path / "pictures") for word in words]
    for force in ([], ["--force"]) if always else ([],):
        assert main([*line, option, str(output), *force]) == 1
        (told,) = capsys.readouterr().err.strip().splitlines()
        assert said in told, told
    assert given.read_bytes() == before
    assert place != "existing" or output.read_text() == "of value"
    assert not list(tmp_path.rglob("*.tmp"))


def test_nothing_is_left_where_a_file_cannot_be_written(tmp_path: Path, capsys) -> None:
    (tmp_path / "lines.txt").write_text("a\n")
    words = ["embed", "--captions", str(tmp_path / "lines.txt"), "--output"]
    for output, said in {
        "/proc/x.npy": "cannot be written", str(tmp_path / "lines.txt" / "x.npy"): "is no folder",
        str(tmp_path / "x.txt"): "expected a name that ends in", f"{tmp_path}/{'x' * 250}.npy": "File name too long",
    }.items():  # fmt: skip
        assert main([*words, output]) == 1
        assert said in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["lines.txt"]
