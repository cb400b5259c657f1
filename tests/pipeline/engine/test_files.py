"""Files: fingerprints of what is read; what is written is whole, and on the disk before it has its name."""

import hashlib
import json
import os
import shutil
from functools import partial
from pathlib import Path

import pytest

from pipeline.engine import files
from pipeline.engine.files import fingerprint
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.gallery.gallery import gallery_of
from pipeline.graph import Graph
from pipeline.recipes.loading import CONFIGS, load_recipe
from tests.pipeline.engine.test_jobs import make
from tests.pipeline.tiny import ran


def test_a_fingerprint_is_of_content_and_name(tmp_path: Path) -> None:
    one, two = tmp_path / "one.txt", tmp_path / "two.txt"
    one.write_text("text")
    two.write_text("text")
    first = fingerprint([one], tmp_path / "a.json")
    assert first == fingerprint([one], tmp_path / "b.json")
    assert first != fingerprint([two], tmp_path / "a.json")
    assert first != fingerprint([one, two], tmp_path / "a.json")
    one.write_text("test")
    assert first != fingerprint([one], tmp_path / "c.json")
    one.write_text("other text")
    assert first != fingerprint([one], tmp_path / "a.json")


def test_a_fingerprint_does_not_read_unchanged_files_again(tmp_path: Path, monkeypatch) -> None:
    path, cache = tmp_path / "large.npy", tmp_path / "cache" / "fingerprints.json"
    path.write_text("text")
    first = fingerprint([path], cache)

    def refuse(*arguments):
        raise AssertionError("read again")

    monkeypatch.setattr(files.hashlib, "file_digest", refuse)
    assert fingerprint([path], cache) == first
    path.write_text("longer text")
    with pytest.raises(AssertionError, match="read again"):
        fingerprint([path], cache)


def test_what_killed_writers_left_of_a_file_is_deleted(tmp_path: Path) -> None:
    path, others = tmp_path / "report.md", ["report.md.1.tmp", "report.md.old.tmp", "report.html.2.tmp"]
    for name in ["report.md.3.tmp", "report.md.4.tmp", *others[1:]]:
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (0, 0))
    (tmp_path / others[0]).touch()  # another process may be writing it
    for _ in range(2):  # the second time it has the content
        files.write_atomically(path, "whole")
        assert sorted(one.name for one in tmp_path.iterdir()) == sorted(["report.md", *others])
        (tmp_path / "report.md.5.tmp").touch()
        os.utime(tmp_path / "report.md.5.tmp", (0, 0))


def test_of_a_link_to_a_folder_only_the_link_is_deleted(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "weights").touch()
    for target in ("disk", "nowhere"):
        (tmp_path / "model.before").symlink_to(tmp_path / target)
        files.delete_folder(tmp_path / "model.before")
        assert [path.name for path in tmp_path.rglob("*")] == ["disk", "weights"]


def test_digests_of_files_that_a_fingerprint_has_read_are_known(tmp_path: Path, monkeypatch) -> None:
    known, new, cache = tmp_path / "known.png", tmp_path / "new.png", tmp_path / "fingerprints.json"
    known.write_text("one")
    fingerprint([known], cache)
    new.write_text("two")
    before, read, digest_of = cache.read_bytes(), [], files.digest_of
    monkeypatch.setattr(files, "digest_of", lambda path: (read.append(path), digest_of(path))[1])
    found = files.digests([known, new, tmp_path / "gone.png"], cache)
    assert found == {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in (known, new)}
    assert read == [new]
    assert cache.read_bytes() == before
    assert files.digests([known, new]) == found


def test_a_fingerprint_survives_a_damaged_or_unwritable_cache(tmp_path: Path) -> None:
    path = tmp_path / "large.npy"
    path.write_text("text")
    (tmp_path / "cache.json").write_text("{")
    assert fingerprint([path], tmp_path / "cache.json") == fingerprint([path], path / "cache.json")


def test_a_fingerprint_of_a_missing_file_says_where_to_look(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"gone\.txt: no such file; .*BILDWORT_DATA"):
        fingerprint([tmp_path / "gone.txt"], tmp_path / "cache.json")


def test_notes_say_which_keys_a_recipe_uses(workspace: Workspace) -> None:
    job = make()
    workspace.note("scenes", "mmt", {"work": job})
    noted = json.loads((workspace.root / "scenes" / "mmt.json").read_text())
    assert noted == {"work": {"key": job.key, "folder": str(workspace.folder(job))}}


def test_recipes_of_one_name_do_not_share_a_folder(workspace: Workspace, tmp_path: Path) -> None:
    """Their models, galleries and reports would replace one another."""
    first, second = tmp_path / "a" / "photos.yaml", tmp_path / "b" / "photos.yaml"
    for path in (first, second):
        path.parent.mkdir()
        path.write_text("base: scenes\n")
    one, two = (load_recipe(path) for path in (first, second))
    assert gallery_of(two, workspace) == workspace.root / "photos" / "gallery"  # nobody has it yet
    workspace.claim(one.name, one.file)
    for attempt in (lambda: gallery_of(two, workspace), lambda: workspace.claim(two.name, two.file)):
        with pytest.raises(RecipeError, match=rf"photos: belongs to {first}; rename the file {second}, or set BILD"):
            attempt()
    assert gallery_of(load_recipe(first, ["--vse.epochs=30"]), workspace) == gallery_of(one, workspace)
    assert load_recipe("scenes").file == load_recipe(CONFIGS / "scenes.yaml").file == ""
    first.rename(tmp_path / "photos.yaml")  # it was moved
    workspace.claim(two.name, two.file)
    assert gallery_of(two, workspace).parent.name == "photos"


def test_json_is_written_whole_or_not_at_all(workspace: Workspace, monkeypatch) -> None:
    workspace.note("scenes", "mmt", {"work": make()})
    path = workspace.root / "scenes" / "mmt.json"
    before = path.read_text()

    def breaks(descriptor: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("pipeline.engine.files.os.fsync", breaks)
    with pytest.raises(OSError, match="disk full"):
        workspace.note("scenes", "mmt", {"other": make("other")})
    assert path.read_text() == before
    assert [one.name for one in path.parent.iterdir()] == ["mmt.json"]


def test_an_artifact_is_on_the_disk_before_it_has_its_name(workspace: Workspace, monkeypatch) -> None:
    settled: dict[str, bool] = {}

    def run(folder: Path, inputs: dict[str, Path]) -> dict:
        (folder / "pictures").mkdir()
        for name in ("weights", "pictures/1.png"):
            (folder / name).touch()
        return {}

    job = make(run=run)
    final, fsync = workspace.folder(job), os.fsync

    def note(descriptor: int) -> None:
        fsync(descriptor)
        settled[str(Path(f"/proc/self/fd/{descriptor}").readlink())] = final.exists()

    monkeypatch.setattr(os, "fsync", note)
    ran(workspace, job)
    inside = {"", "/weights", "/pictures", "/pictures/1.png", "/manifest.json"}
    assert {f"{final}.partial{name}" for name in inside} <= {path for path, named in settled.items() if not named}
    assert settled[str(final.parent)]


def test_a_pretrained_folder_stands_in_keys_by_its_contents(tmp_path):
    def key(folder):
        recipe = load_recipe("scenes", [f"--vse.pretrained={folder}", "--vse.only=[none]"])
        return Graph(recipe, Workspace(tmp_path / "artifacts")).rows[0].job.key

    first, moved = tmp_path / "first", tmp_path / "moved"
    first.mkdir()
    (first / "model.safetensors").write_bytes(b"weights")
    before = key(first)
    shutil.copytree(first, moved)
    assert key(moved) == before
    (moved / "model.safetensors").write_bytes(b"others!")
    assert key(moved) != before
    assert key("name-on-the-hub") not in (before, key(moved))


def moved(folder: Path) -> Path:
    """Move a folder to another disk, and leave a link to it."""
    elsewhere = folder.parents[3] / "disk" / folder.name
    elsewhere.parent.mkdir(exist_ok=True)
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere, target_is_directory=True)
    return elsewhere


@pytest.mark.parametrize("whole", [True, False])
def test_what_a_linked_job_is_a_link_to_is_left_alone(tmp_path: Path, whole: bool) -> None:
    workspace = Workspace(tmp_path / "artifacts")
    folder = ran(workspace, make())
    elsewhere = moved(folder)
    if not whole:
        (elsewhere / "manifest.json").unlink()
    left = sorted(path.name for path in elsewhere.iterdir())
    for _ in range(2):
        ran(workspace, make(), force=whole)
        assert workspace.done(make())
        assert not folder.is_symlink()
        assert sorted(path.name for path in folder.parent.iterdir()) == [folder.name, f"{folder.name}.lock"]
    assert sorted(path.name for path in elsewhere.iterdir()) == left


def test_a_linked_job_whose_disk_is_away_is_one_line(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "artifacts")
    folder = ran(workspace, make())
    shutil.rmtree(moved(folder))
    for read in (workspace.done, workspace.require, partial(ran, workspace)):
        with pytest.raises(RecipeError, match=r"a link to .*, which is not there; mount its disk, or delete the link"):
            read(make())
    folder.unlink()
    assert ran(workspace, make()) == folder


def test_a_lock_is_not_waited_for_where_no_file_can_be_made(tmp_path: Path, monkeypatch) -> None:
    tried = []

    class Refused(files.FileLock):
        def _acquire(self) -> None:
            """Get no lock and make no file, as under /proc."""
            tried.append(self)
            assert len(tried) == 1, "it waits"

    monkeypatch.setattr(files, "FileLock", Refused)
    with pytest.raises(RecipeError, match="cannot be written"), files.lock(tmp_path / "job.lock", "job"):
        pass
