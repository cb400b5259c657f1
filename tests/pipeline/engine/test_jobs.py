"""Jobs: their keys, when they run, what they leave, and what happens when they are stopped."""

import json
import sys
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from pipeline.engine import machine as cost
from pipeline.engine import perform as performing
from pipeline.engine import runner
from pipeline.engine.artifacts import FORMAT
from pipeline.engine.job import Job
from pipeline.engine.runner import Runner
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from tests.pipeline.tiny import ran

ROOT = Path(__file__).parents[3]


class Work:
    """A `run` that writes one file, counts its calls and notes what it was given."""

    def __init__(self, figures: dict | None = None) -> None:
        self.figures, self.calls, self.given = figures or {"score": 1.5}, 0, {}

    def __call__(self, folder: Path, inputs: dict[str, Path]) -> dict:
        self.calls, self.given = self.calls + 1, inputs
        (folder / "result.txt").write_text("whole")
        return self.figures


def make(name="work", version=1, settings=None, inputs=None, run=None, stage="mmt") -> Job:
    return Job(name, stage, version, {"rate": 0.1} if settings is None else settings, inputs or {}, run or Work())


# Keys


def test_a_key_is_the_same_in_every_process_and_forever() -> None:
    start = make("corpus", settings={"corpus": "scenes", "options": {"train": 3, "ratio": 0.5}})
    assert start.key == "11463dd25f8f"
    assert make("mmt", 2, {"b": [1, None], "a": True}, {"corpus": start}).key == "eea513d5ca33"


def test_a_key_changes_with_name_version_settings_and_inputs() -> None:
    old, new = make("corpus"), make("corpus", version=2)
    different = [
        make(), make("other"), make(version=2), make(settings={"rate": 0.2}), make(settings={"rates": 0.1}),
        make(inputs={"corpus": old}), make(inputs={"corpus": new}), make(inputs={"text": old}),
    ]  # fmt: skip
    assert len({job.key for job in different}) == len(different)


def test_a_key_does_not_change_with_the_order_of_settings_the_stage_or_the_code() -> None:
    assert make(settings={"a": 1, "b": 2}).key == make(settings={"b": 2, "a": 1}, stage="vse", run=Work()).key


# Doing


def test_work_is_done_once(workspace: Workspace, capsys) -> None:
    work = Work()
    folder = ran(workspace, make(run=work))
    assert folder == ran(workspace, make(run=work)) == workspace.root / "jobs" / "work" / make().key
    assert work.calls == 1
    assert (folder / "result.txt").read_text() == "whole"
    assert "up to date" in capsys.readouterr().out


def test_force_does_it_again_from_nothing(workspace: Workspace) -> None:
    work = Work()
    folder = ran(workspace, make(run=work))
    (folder / "stale.txt").touch()
    partial = folder.with_name(folder.name + ".partial")
    partial.mkdir()
    (partial / "stale.txt").touch()
    ran(workspace, make(run=work), force=True)
    assert work.calls == 2
    assert sorted(path.name for path in folder.iterdir()) == ["manifest.json", "result.txt"]
    assert not partial.exists()


def test_force_keeps_what_was_there_until_the_new_one_is_whole(workspace: Workspace) -> None:
    folder = ran(workspace, make(run=Work()))
    before = (folder / "manifest.json").read_bytes()

    def fails(partial: Path, inputs: dict[str, Path]) -> dict:
        assert not folder.exists()  # ranks above 0 must not take it for done
        raise RecipeError("no")

    with pytest.raises(RecipeError, match=r"^no$"):
        ran(workspace, make(run=fails), force=True)
    assert (folder / "manifest.json").read_bytes() == before


def test_half_of_an_old_artifact_never_takes_the_place_of_a_new_one(workspace: Workspace) -> None:
    before = workspace.folder(make()).with_name(make().key + ".before")
    before.mkdir(parents=True)
    (before / "result.txt").write_text("the manifest is gone, this was to follow")

    def fails(partial: Path, inputs: dict[str, Path]) -> dict:
        raise RecipeError("no")

    with pytest.raises(RecipeError, match=r"^no$"):
        ran(workspace, make(run=fails))
    assert not workspace.folder(make()).exists()
    ran(workspace, make())
    assert not before.exists()


def test_the_manifest_says_all_about_the_work(workspace: Workspace) -> None:
    start = make("corpus", stage="prepare")
    ran(workspace, start)

    def slow(folder: Path, inputs: dict[str, Path]) -> dict:
        block = bytearray(30_000_000)
        time.sleep(1.1)
        return {"bleu": 30.5, "bytes": len(block)}

    job = make(inputs={"corpus": start}, version=3, run=slow)
    before = time.time()
    ran(workspace, job)
    manifest = workspace.manifest(job)
    assert manifest["format"] == FORMAT
    assert (manifest["job"], manifest["key"], manifest["version"]) == ("work", job.key, 3)
    assert manifest["settings"] == {"rate": 0.1}
    assert manifest["inputs"] == {"corpus": {"job": "corpus", "key": start.key}}
    assert manifest["metrics"] == {"bleu": 30.5, "bytes": 30_000_000}
    assert {"torch", "pytorch-lightning", "numpy"} <= set(manifest["libraries"])
    assert manifest["python"].startswith(f"{sys.version_info.major}.{sys.version_info.minor}")
    assert manifest["source"] == performing.source_digest()
    assert 1.1 <= manifest["wall_s"] < 60
    assert manifest["peak_memory_mb"] > 30
    assert manifest["resumed"] is False
    finished = time.strptime(manifest["finished"], "%Y-%m-%dT%H:%M:%SZ")
    assert time.mktime(finished) - time.timezone >= int(before + 1.1)  # when it ended, not when it began


def test_inputs_are_handed_over_by_their_names(workspace: Workspace) -> None:
    start, work = make("corpus"), Work()
    ran(workspace, start)
    ran(workspace, make(inputs={"pictures": start}, run=work))
    assert work.given == {"pictures": workspace.folder(start)}


def test_a_missing_input_names_itself_and_the_make_line_and_nothing_is_written(workspace: Workspace) -> None:
    work = Work()
    job = make(inputs={"corpus": make("corpus", stage="prepare")}, run=work)
    with pytest.raises(RecipeError, match=r"^corpus: not done yet .*`bildwort prepare`"):
        performing.perform(job, workspace)
    assert work.calls == 0
    assert not workspace.root.exists()


def test_work_that_fails_leaves_its_part_and_goes_on_from_it(workspace: Workspace, capsys) -> None:
    def fails(folder: Path, inputs: dict[str, Path]) -> dict:
        (folder / "checkpoint").write_text("step 5")
        raise ValueError("no luck")

    job = make(run=fails)
    with pytest.raises(ValueError, match="no luck"):
        ran(workspace, job)
    partial = workspace.folder(job).with_name(job.key + ".partial")
    assert not workspace.done(job)
    assert not workspace.folder(job).exists()
    assert not (partial / "manifest.json").exists()

    def goes_on(folder: Path, inputs: dict[str, Path]) -> dict:
        assert folder == partial
        return {"from": (folder / "checkpoint").read_text()}

    again = make(run=goes_on)
    ran(workspace, again)
    assert workspace.manifest(again)["metrics"] == {"from": "step 5"}
    assert workspace.manifest(again)["resumed"] is True
    assert not partial.exists()
    assert "(continued)" in capsys.readouterr().out


def test_a_folder_without_a_manifest_is_not_finished(workspace: Workspace) -> None:
    work = Work()
    job = make(run=work)
    workspace.folder(job).mkdir(parents=True)
    (workspace.folder(job) / "half.txt").touch()
    with pytest.raises(RecipeError, match="not done yet"):
        workspace.require(job)
    ran(workspace, job)
    assert work.calls == 1
    assert not (workspace.folder(job) / "half.txt").exists()


# Damage


@pytest.mark.parametrize("content", ["", "{", "[]", "3", '{"format": 1'])
def test_a_damaged_manifest_is_one_line_with_what_to_do(workspace: Workspace, content: str) -> None:
    job = make()
    (ran(workspace, job) / "manifest.json").write_text(content)
    for read in (workspace.manifest, partial(ran, workspace)):
        with pytest.raises(RecipeError, match=r"manifest\.json: .*; delete the folder and run again") as caught:
            read(job)
        assert "\n" not in str(caught.value)
    ran(workspace, job, force=True)
    assert workspace.manifest(job)["metrics"] == {"score": 1.5}


def test_a_manifest_that_another_run_has_just_moved_is_not_called_damaged(workspace: Workspace) -> None:
    job = make("a")
    folder = ran(workspace, job)
    folder.rename(folder.with_name(f"{job.key}.before"))  # as --force does, after somebody has looked for it
    with pytest.raises(RecipeError, match=r"manifest\.json: not there; another run may be replacing it") as raised:
        workspace.manifest(job)
    assert "delete" not in str(raised.value)


def test_what_reads_finished_jobs_refuses_one_that_is_being_replaced(workspace: Workspace) -> None:
    seen = list[str]()

    def looks(partial: Path, inputs: dict[str, Path]) -> dict:
        with pytest.raises(RecipeError, match=r"work: another run is replacing it .* run `bildwort mmt`") as refused:
            workspace.require_settled([make("new"), make()])
        seen.append(str(refused.value))
        return {}

    ran(workspace, make())
    ran(workspace, make(run=looks), force=True)
    assert len(seen) == 1
    workspace.require_settled([make("new"), make()])


def test_another_format_says_which_command_makes_it_anew(workspace: Workspace) -> None:
    job = make()
    path = ran(workspace, job) / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": FORMAT + 1}))
    with pytest.raises(
        RecipeError, match=rf"format {FORMAT + 1}, this code reads {FORMAT}; run `bildwort mmt --force`"
    ):
        workspace.manifest(job)


def test_artifacts_that_cannot_be_written_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "artifacts").write_text("a file in the place of the folder")
    with pytest.raises(RecipeError, match=r"cannot be written .*BILDWORT_ARTIFACTS") as caught:
        ran(Workspace(tmp_path / "artifacts"), make())
    assert "\n" not in str(caught.value)


def test_changed_source_at_the_same_version_warns_once(workspace: Workspace, capsys, monkeypatch) -> None:
    both = [make("one"), make("two")]
    for job in both:
        ran(workspace, job)
    ran(workspace, both[0])
    assert "other source code" not in capsys.readouterr().out
    monkeypatch.setattr(runner, "source_digest", lambda: "another")
    Runner(workspace).run(both)
    assert capsys.readouterr().out.count("other source code") == 1


def test_a_job_that_ran_elsewhere_with_other_source_is_told_too(workspace: Workspace, monkeypatch, capsys) -> None:
    """As a cluster's worker may."""
    monkeypatch.setattr(performing, "source_digest", lambda: "another")
    Runner(workspace).run([make()])
    assert capsys.readouterr().out.count("other source code") == 1


def test_a_forced_run_that_was_stopped_goes_on_when_it_is_forced_again(workspace: Workspace) -> None:
    folder = ran(workspace, make(run=Work()))

    def stops(partial: Path, inputs: dict[str, Path]) -> dict:
        (partial / "half.txt").touch()
        raise KeyboardInterrupt

    def goes_on(partial: Path, inputs: dict[str, Path]) -> dict:
        assert (partial / "half.txt").is_file()
        return {}

    with pytest.raises(KeyboardInterrupt):
        ran(workspace, make(run=stops), force=True)
    assert ran(workspace, make(run=Work()), force=False) == folder  # what was there is there
    ran(workspace, make(run=goes_on), force=True)
    assert (folder / "half.txt").is_file()


def test_what_was_begun_in_another_format_is_refused(workspace: Workspace) -> None:
    partial = workspace.folder(make()).with_name(make().key + ".partial")
    partial.mkdir(parents=True)
    (partial / "started.json").write_text(json.dumps({"format": 0, "source": "x", "forced": False}))
    with pytest.raises(RecipeError, match="begun in format 0"):
        ran(workspace, make(run=Work()))


@pytest.mark.parametrize("content", [None, "", "shorter"])
def test_an_input_of_which_a_file_is_missing_or_cut_is_one_line(workspace: Workspace, content: str | None) -> None:
    start = make("start")
    file = ran(workspace, start) / "result.txt"
    assert workspace.manifest(start)["files"] == {"result.txt": 5}
    if content is None:
        file.unlink()
    else:
        file.write_text(content)
    for read in (workspace.manifest, workspace.require, partial(ran, workspace)):
        with pytest.raises(RecipeError, match=r"result\.txt: .*; copy it again, or delete .* and run `bildwort"):
            read(start)
    ran(workspace, start, force=True)
    assert ran(workspace, make(inputs={"start": start})).is_dir()


def test_an_input_of_another_format_is_refused(workspace: Workspace) -> None:
    start = make("start", run=Work())
    path = ran(workspace, start) / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 0}))
    with pytest.raises(RecipeError, match="format 0"):
        ran(workspace, make(inputs={"start": start}, run=Work()))


def test_the_artifacts_folder_can_be_chosen(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("BILDWORT_ARTIFACTS", str(tmp_path / "elsewhere"))
    assert Workspace().root == tmp_path / "elsewhere"
    monkeypatch.setenv("BILDWORT_ARTIFACTS", "~/work")  # no shell has seen it
    assert Workspace().root == Path.home() / "work"
    monkeypatch.delenv("BILDWORT_ARTIFACTS")
    assert Workspace().root == Path("artifacts")


@pytest.mark.parametrize(("system", "unit"), [("darwin", 1), ("freebsd", 1024)])
def test_peak_memory_where_there_is_no_proc(monkeypatch, system: str, unit: int) -> None:
    """`ru_maxrss` is bytes on macOS and kilobytes elsewhere."""
    monkeypatch.setattr(cost.Path, "read_text", Mock(side_effect=FileNotFoundError))
    monkeypatch.setattr("resource.getrusage", lambda _: SimpleNamespace(ru_maxrss=300 * 1024**2 // unit))
    monkeypatch.setattr(cost.sys, "platform", system)
    assert cost.peak_memory_mb() == 300


def test_peak_memory_on_windows(monkeypatch) -> None:
    monkeypatch.setattr(cost.Path, "read_text", Mock(side_effect=FileNotFoundError))
    monkeypatch.setattr(cost.psutil.Process, "memory_info", lambda _: SimpleNamespace(peak_wset=300 * 1024**2))
    assert cost.peak_memory_mb() == 300
