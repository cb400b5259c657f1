"""Where `bildwort init` writes, and that what it has written is nobody's own pictures and captions."""

import os
import shlex
from pathlib import Path

import pytest

from pipeline.cli import main
from pipeline.recipes.loading import load_recipe
from tests.pipeline.init.own_pictures import COUNT, draw_pictures, refused, run, write_tsv
from tests.pipeline.tiny import at

OPTIONS = "--backbone", "built-in", "--translator", "none"


def own_pictures(folder: Path) -> Path:
    write_tsv(folder / "captions.tsv", draw_pictures(folder, COUNT))
    return folder


def with_metadata(folder: Path) -> Path:
    rows = [f"{name},{text}" for name, text in draw_pictures(folder, COUNT).items()]
    (folder / "metadata.csv").write_text("\n".join(["file_name,caption", *rows]))
    return folder


def commands(told: str) -> list[list[str]]:
    """The next commands, word by word as a shell reads them, without the program."""
    lines = told.partition("next:\n")[2].splitlines()
    return [words[1:] for line in lines if (words := shlex.split(line, comments=True))]


def state(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", ["my dog's pictures", "own"])
def test_the_recipe_lies_beside_the_folder_and_the_next_command_works_as_printed(
    name: str, tmp_path: Path, capsys
) -> None:
    """From whatever folder `init` is called."""
    pictures = own_pictures(tmp_path / "disk" / name)
    before = state(pictures)
    stem = {"own": "own-pictures"}.get(name, "my-dog-s-pictures")
    recipe = tmp_path / "disk" / f"{stem}.yaml"
    for work, source in (
        (tmp_path / "work", str(pictures)),
        (tmp_path / "disk", name),
        (tmp_path / "work", f"../disk/{name}"),
    ):
        capsys.readouterr()
        assert run(work, "init", source, *OPTIONS) == 0
        first, *others = commands(capsys.readouterr().out)
        assert [words[0] for words in others] == ["index", "search"]
        assert run(work, *first, "--dry-run") == 0
        assert recipe.is_file()
        assert load_recipe(str(recipe)).corpus.root == str(pictures)
        assert sorted(path.name for path in (tmp_path / "work").glob("*") if path.name != "artifacts") == []
        recipe.unlink()
    assert state(pictures) == before


def test_a_folder_of_ones_choice(tmp_path: Path, capsys) -> None:
    pictures, chosen = with_metadata(tmp_path / "holiday"), tmp_path / "work" / "of mine"
    for output in ("of mine", "of mine/other.yaml"):
        assert run(tmp_path / "work", "init", str(pictures), "--output", output, *OPTIONS) == 0
        told = capsys.readouterr().out
        (first, *_) = commands(told)
        assert run(tmp_path / "work", *first, "--dry-run") == 0
    assert "written   of mine/other.yaml, of mine/other-data" in told
    assert {path.name for path in chosen.iterdir()} == {"holiday.yaml", "holiday-data", "other.yaml", "other-data"}
    assert {path.name for path in tmp_path.iterdir()} == {"holiday", "work"}
    assert "expected a folder, or a recipe that ends in .yaml" in refused(
        tmp_path / "more", capsys, str(pictures), "--output", "own.txt"
    )


def test_the_folder_that_one_is_in_has_a_name(tmp_path: Path, monkeypatch) -> None:
    own_pictures(tmp_path / "holiday" / "inner")
    monkeypatch.setenv("BILDWORT_ARTIFACTS", str(tmp_path / "results"))
    monkeypatch.chdir(tmp_path / "holiday" / "inner")
    for source in (".", ".."):
        assert main(["init", source, *OPTIONS]) == 0
    assert (tmp_path / "holiday" / "inner.yaml").is_file()
    assert (tmp_path / "holiday.yaml").is_file()


@pytest.mark.parametrize("write", [own_pictures, with_metadata])
def test_a_folder_that_cannot_be_written(write, tmp_path: Path, capsys) -> None:
    pictures = write(tmp_path / "cd" / "holiday")
    for folder in (pictures, pictures.parent):
        folder.chmod(0o555)
    before, work = state(tmp_path / "cd"), tmp_path / "work"
    try:
        if os.geteuid():  # root may write anywhere
            line = refused(work, capsys, str(pictures), *OPTIONS)
            assert "init: --output" in line
            assert "cannot be written (Permission denied); choose another folder" in line
        assert run(work, "init", str(pictures), "--output", ".", *OPTIONS) == 0
        assert run(work, "prepare", "./holiday.yaml") == 0
        assert state(tmp_path / "cd") == before
    finally:
        for folder in (pictures, pictures.parent):
            folder.chmod(0o755)


def test_what_init_has_written_is_not_taken_for_ones_own(tmp_path: Path, capsys) -> None:
    """Neither inside the folder of pictures, nor in one that is looked at later."""
    pictures = with_metadata(tmp_path / "all" / "holiday")
    with at(tmp_path):
        for more in ((), ("--force",)):
            assert main(["init", str(pictures), "--output", str(pictures), *OPTIONS, *more]) == 0
        assert (pictures / "holiday-data" / "captions.tsv").is_file()
        (pictures / "metadata.csv").unlink()
        capsys.readouterr()
        assert main(["init", str(pictures), "--output", "work", *OPTIONS]) == 1
        assert "pictures, but no captions" in capsys.readouterr().err  # those of the data set are gone
        own_pictures(pictures)
        (pictures / "holiday-data" / "pictures").mkdir()
        (pictures / "0.png").rename(pictures / "holiday-data" / "pictures" / "0.png")
        assert main(["init", str(pictures), "--output", "work", *OPTIONS]) == 1
        assert "captions.tsv:1: no picture '0.png'" in capsys.readouterr().err
        (pictures / "holiday-data" / "pictures" / "0.png").rename(pictures / "0.png")
        assert main(["init", str(pictures), "--output", "work", *OPTIONS]) == 0
        assert load_recipe("./work/holiday.yaml").corpus.options.captions == "captions.tsv"


def test_pictures_that_cannot_be_read_are_told(tmp_path: Path, capsys) -> None:
    folder = own_pictures(tmp_path / "mine")
    for number in range(4):  # those that a network is tried on first
        (folder / f"{number}.png").write_bytes(b"" if number % 2 else b"no picture")
    assert run(tmp_path, "init", "mine", *OPTIONS) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "4 pictures cannot be read: 0.png, 1.png, 2.png, …; replace them, or leave them out with their" in told


def test_captions_that_a_person_names_may_be_a_link_out_of_the_folder(tmp_path: Path, capsys) -> None:
    pictures = own_pictures(tmp_path / "mine")
    (pictures / "captions.tsv").rename(tmp_path / "kept.tsv")
    (pictures / "captions.tsv").symlink_to(tmp_path / "kept.tsv")
    assert refused(tmp_path, capsys, "mine", *OPTIONS)
    assert run(tmp_path, "init", "mine", "--captions", "mine/captions.tsv", *OPTIONS) == 0
    assert load_recipe(str(tmp_path / "mine.yaml")).corpus.options.captions == str(tmp_path / "kept.tsv")
    assert run(tmp_path, "doctor", "./mine.yaml") == 0
