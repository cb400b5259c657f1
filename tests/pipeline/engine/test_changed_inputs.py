"""Files that change while they are read, that are moved or renamed, or that may not be read."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from data.errors import DataError
from pipeline.corpus import prepare
from pipeline.engine.artifacts import read_json, read_manifest, read_rows
from pipeline.engine.job import Job
from pipeline.engine.machine_errors import line_of, of_machine
from pipeline.engine.perform import perform
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.gallery.generation import read_pointer
from pipeline.recipes.loading import load_recipe
from pipeline.recipes.settings import Recipe
from tests.pipeline.conftest import draw
from tests.pipeline.tiny import ran


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Pictures in two folders, each with a text beside it."""
    for number in range(12):
        picture = tmp_path / "mine" / ("sea" if number % 2 else "hills") / f"{number}.png"
        picture.parent.mkdir(parents=True, exist_ok=True)
        draw(picture, number)
        picture.with_suffix(".txt").write_text(f"picture number {number}\n")
    return tmp_path / "mine"


def recipe_of(folder: Path) -> Recipe:
    settings = [f"--corpus.root={folder}", "--corpus.name=folder", "--corpus.captions=.", "--corpus.pictures=."]
    more = ["--corpus.languages=[en]", "--vse.rows={none: [en/human]}", "--vse.only=[none]", "--vse.test=[en]"]
    rest = ["--mmt.systems=[]", "--mmt.directions=[]", "--augment.paths=[]", "--vse.select=[en]"]
    return load_recipe("own", [*settings, *more, *rest, "--regions.regions=4", "--regions.size=32"])


def key_of(folder: Path, artifacts: Path) -> str:
    return prepare.corpus_job(recipe_of(folder), Workspace(artifacts)).key


@pytest.mark.parametrize("changed", ["hills/0.txt", "sea/1.png"])
def test_files_that_change_while_they_are_read_leave_nothing(
    folder: Path, changed: str, tmp_path: Path, monkeypatch
) -> None:
    path, reads = folder / changed, prepare.read_corpus
    before = path.read_bytes()

    def change(*arguments):
        """Somebody edits it, just before it is read."""
        path.write_bytes(b"a red bat\n" if path.suffix == ".txt" else (folder / "hills" / "2.png").read_bytes())
        return reads(*arguments)

    workspace = Workspace(tmp_path / "artifacts")
    with monkeypatch.context() as patched:
        patched.setattr(prepare, "read_corpus", change)
        job = prepare.corpus_job(recipe_of(folder), workspace)
        with pytest.raises(RecipeError, match="files of the corpus changed while they were read; run the same command"):
            ran(workspace, job)
    assert not workspace.done(job)
    path.write_bytes(before)
    texts = (ran(workspace, prepare.corpus_job(recipe_of(folder), workspace)) / "captions.parquet").read_bytes()
    anew = Workspace(tmp_path / "anew")
    assert (ran(anew, prepare.corpus_job(recipe_of(folder), anew)) / "captions.parquet").read_bytes() == texts


@pytest.mark.parametrize("change", [lambda path: path.write_text("other words"), Path.unlink])
def test_a_job_does_not_begin_with_other_files_than_those_of_its_key(tmp_path: Path, change) -> None:
    path, workspace = tmp_path / "words.vec", Workspace(tmp_path / "artifacts")
    path.write_text("words")
    read = {"word_vectors": {"en": workspace.fingerprint([path])}}
    jobs = [Job(name, "vse", 1, settings, {}, lambda folder, inputs: {}) for name, settings in (("a", read), ("b", {}))]
    change(path)
    with pytest.raises(RecipeError, match=r"words\.vec"):
        perform(jobs[0], workspace)
    assert not workspace.done(jobs[0])
    assert not workspace.partial(jobs[0]).exists()
    assert perform(jobs[1], workspace)  # it reads no file
    path.write_text("words")
    assert perform(jobs[0], workspace)


def test_pictures_of_a_folder_that_is_moved_are_found_again(folder: Path, tmp_path: Path) -> None:
    artifacts = tmp_path / "artifacts"
    corpus = ran(Workspace(artifacts), prepare.corpus_job(recipe_of(folder), Workspace(artifacts)))
    first = prepare.pictures_of(corpus)
    moved = folder.rename(tmp_path / "moved")
    prepare.corpus_job(recipe_of(moved), Workspace(artifacts, read_only=True))
    assert prepare.pictures_of(corpus) == first
    prepare.corpus_job(recipe_of(moved), Workspace(artifacts))
    then = prepare.pictures_of(corpus)
    assert then == {name: moved / path.relative_to(folder) for name, path in first.items()}
    assert len(then) == 12
    assert all(path.is_file() for path in then.values())
    noted = corpus / "root.txt"
    noted.write_bytes(b"\xff")
    with pytest.raises(DataError, match=r"root\.txt:1: not UTF-8"):
        prepare.pictures_of(corpus)
    noted.unlink()
    noted.symlink_to(noted)
    with pytest.raises(DataError, match=r"root\.txt: no such file"):
        prepare.pictures_of(corpus)


def test_pictures_that_are_made_here_move_with_the_artifacts(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("BILDWORT_DATA", str(tmp_path / "data"))
    workspace = Workspace(tmp_path / "artifacts")
    recipe = load_recipe(
        "scenes",
        [f"--corpus.{part}=4" for part in ("validation", "test", "twins")]
        + ["--corpus.train=12", "--corpus.retrieval=8", "--corpus.text_pairs=40"]
        + ["--regions.regions=3", "--regions.size=64"],
    )
    assert recipe.corpus.root is not None
    corpus = ran(workspace, prepare.corpus_job(recipe, workspace))
    prepare.corpus_job(recipe, workspace)
    moved = corpus.rename(tmp_path / "moved")
    assert all(path.is_relative_to(moved) and path.is_file() for path in prepare.pictures_of(moved).values())


def test_a_picture_in_another_folder_is_another_corpus(folder: Path, tmp_path: Path) -> None:
    """Its name is another one, by which its split is drawn."""
    before = key_of(folder, tmp_path / "artifacts")
    moved = folder.rename(tmp_path / "moved")
    assert key_of(moved, tmp_path / "artifacts") == before
    (moved / "sea").rename(moved / "coast")
    assert key_of(moved, tmp_path / "artifacts") != before


def test_pictures_beside_regions_of_one_s_own_decide_splits_and_captions(folder: Path, tmp_path: Path) -> None:
    """Copies of a picture are in one split, and a caption needs its picture."""
    for name in ("regions.npy", "boxes.npy", "ids.txt"):
        (folder / name).touch()
    recipe, keys = recipe_of(folder), list[str]()
    options = replace(recipe.corpus.options, regions=".")
    recipe = replace(recipe, corpus=replace(recipe.corpus, options=options))
    for change in (lambda: None, lambda: shutil.copyfile(folder / "sea/1.png", folder / "hills/0.png"),
                   (folder / "hills/2.png").unlink):  # fmt: skip
        change()
        keys.append(prepare.corpus_job(recipe, Workspace(tmp_path / "artifacts")).key)
    assert len(set(keys)) == 3


def test_known_digests_are_not_written_again(folder: Path, tmp_path: Path) -> None:
    known = tmp_path / "artifacts" / "fingerprints.json"
    keys = [key_of(folder, tmp_path / "artifacts") for _ in range(2)]
    Workspace(tmp_path / "artifacts").fingerprint([folder / "hills/0.txt"])
    before = known.stat().st_ino
    assert {*keys, key_of(folder, tmp_path / "artifacts")} == {keys[0]}
    assert known.stat().st_ino == before


@pytest.mark.parametrize("number", [13, 5, 24])  # EACCES, EIO, EMFILE
def test_what_may_not_be_read_is_not_damaged(number: int, tmp_path: Path, monkeypatch) -> None:
    """Nobody is told to delete the work of hours for a right that is missing."""
    path = tmp_path / "manifest.json"
    path.write_text("{}")

    def refuse(self: Path, *_: object, **__: object) -> str:
        raise OSError(number, os.strerror(number), str(self))

    monkeypatch.setattr(Path, "read_text", refuse)
    for read in (lambda: read_manifest(tmp_path), lambda: read_json(path), lambda: read_pointer(tmp_path)):
        with pytest.raises(OSError, match=os.strerror(number)) as error:
            read()
        line = line_of(error.value)
        assert line is not None
        assert "delete" not in line


def test_a_table_that_may_not_be_read_is_not_damaged(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("pyarrow.parquet.read_table", lambda *_, **__: (_ for _ in ()).throw(PermissionError("no")))
    with pytest.raises(PermissionError, match="Permission denied"):
        read_rows(tmp_path / "a.parquet")


def test_a_file_that_is_missing_or_wrong_is_damaged(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"manifest\.json: not there; another run may be replacing it"):
        read_manifest(tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(RecipeError, match="not a readable manifest"):
        read_manifest(tmp_path)
    assert of_machine(ValueError("Permission denied"), tmp_path) is None
