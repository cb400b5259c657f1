"""Errors that are the machine's: one line that says what to do."""

import errno
import os
import re
import shutil
from pathlib import Path

import pytest
import torch

from pipeline.cli import main
from pipeline.engine.files import write_atomically
from pipeline.engine.machine_errors import line_of, lost_process, of_machine, out_of_memory, require_current_folder
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.training.model_files import load_weights
from tests.pipeline.tiny import Tiny

CPU = RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: 8000000 bytes")
GPU = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


@pytest.mark.parametrize("error", [MemoryError(), CPU, GPU], ids=["python", "cpu", "gpu"])
def test_too_little_memory_names_the_setting_to_lower(fresh: Tiny, monkeypatch, capsys, error: Exception) -> None:
    def breaks(*arguments, **more) -> None:
        raise error

    monkeypatch.setattr("pipeline.stages.require_parts", breaks)
    assert fresh.main("vse") == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("error: vse:")
    assert "lower vse.batch_size" in line
    assert ("the GPU" in line) == (error is GPU)


def test_too_little_memory_for_the_doctor(monkeypatch, capsys) -> None:
    def breaks(*arguments) -> None:
        raise MemoryError

    monkeypatch.setattr("pipeline.corpus.doctor.doctor", breaks)
    assert main(["doctor"]) == 1
    assert capsys.readouterr().err == "error: doctor: this machine has too little memory for this\n"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["prepare", "--examples=0"], "No such option: --examples"),
        (["report", "--force"], "No such option: --force"),
        (["doctor", "--force"], "No such option: --force"),
        (["index", "--top", "3"], "No such option: --top"),
        (["vse", "--forced"], "No such option: --forced (Possible options: --force)"),
        (["all", "--epochs", "3"], "No such option: --epochs; settings are named with their section: --vse.epochs"),
        (
            ["all", "scenes", "vse.epochs=3"],
            "Got unexpected extra argument(s) (vse.epochs=3); settings begin with --: --vse.epochs …",
        ),
        (["vsee"], "No such command 'vsee'. Did you mean 'vse', 'serve'?"),
    ],
)
def test_an_unknown_option_or_command_is_one_line(capsys, arguments: list[str], line: str) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err == f"error: {line}\n"


def test_every_stage_has_a_setting_to_lower() -> None:
    for stage in ("prepare", "mmt", "augment", "vse", "report"):
        assert "lower" in (out_of_memory(MemoryError(), stage) or "")


def test_other_errors_are_not_touched(fresh: Tiny, monkeypatch) -> None:
    def breaks(*arguments, **more) -> None:
        raise RuntimeError("size mismatch")

    monkeypatch.setattr("pipeline.stages.require_parts", breaks)
    with pytest.raises(RuntimeError, match="size mismatch"):
        fresh.main("vse")


@pytest.mark.parametrize(
    ("number", "expected"),
    [(errno.ENOSPC, "make room"), (errno.EDQUOT, "make room"), (errno.EROFS, "allow it"), (errno.EACCES, "allow it")],
)
def test_a_disk_that_is_full_or_closed(number: int, expected: str) -> None:
    line = line_of(OSError(number, "what it is", "/where/it/is"))
    assert line is not None
    assert line.startswith("/where/it/is: what it is")
    assert expected in line
    assert "BILDWORT_ARTIFACTS" in line


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.ENOENT, "no such file", "x"), "x: no such file; check the path"),
        (OSError(errno.ENAMETOOLONG, "File name too long", "x"), "x: File name too long; choose a shorter name"),
        (OSError(errno.EMFILE, "Too many open files", b"x"), "x: Too many open files; allow more open files"),
        (shutil.Error([("a", "b", "[Errno 28] No space left on device: 'b'")]), "b: .*No space left.*; make room"),
        (shutil.Error([]), "make room"),
        (OSError("5 requested and 3 written"), "make room"),
    ],
)
def test_any_error_of_a_file_is_one_line(error: OSError, expected: str) -> None:
    assert re.search(expected, line_of(error) or "")


def test_a_slip_of_ours_is_no_error_of_a_file() -> None:
    assert line_of(FileNotFoundError("a slip of ours")) is None


def test_an_override_may_hold_spaces(fresh: Tiny, capsys) -> None:
    """It is no query, wherever it stands; what is wrong in it is told of its key."""
    assert fresh.main("prepare", "--vse.rows={both: [en/human + de/human]}", "--vse.only=[both]") == 0
    capsys.readouterr()
    assert fresh.main("vse", "--vse.rowz={both: [en/human + de/human]}") == 1
    assert "vse.rowz" in capsys.readouterr().err
    assert fresh.main("vse", "--vse.only=[a, b]", "--vse.only=[c]") == 1  # the last one counts
    assert "vse.only names 'c'" in " ".join(capsys.readouterr().err.split())


def test_what_has_no_name_may_be_an_artifact_or_a_temporary_file() -> None:
    line = line_of(OSError(errno.ENOSPC, "No space left on device"))
    assert line == ("a file or the output: No space left on device; make room where the command writes (artifacts lie "
                    "where BILDWORT_ARTIFACTS says, temporary files where TMPDIR says)")  # fmt: skip


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_of_a_copy_that_does_not_fit_the_new_file_is_named(number: int) -> None:
    line = line_of(OSError(number, "what it is", "/what/is/read", None, "/what/is/written"))
    assert line is not None
    assert line.startswith("/what/is/written: what it is")


def test_of_a_folder_that_does_not_fit_an_error_is_told_once() -> None:
    error = shutil.Error([("a", "b", "[Errno 28] No space left on device: 'a' -> 'b'")])
    assert (line_of(error) or "").startswith("b: No space left on device; make room")


@pytest.mark.parametrize("path", ["/their/lightning_logs/scenes", "/their/lightning_logs"])
def test_logs_that_may_not_be_written_are_no_matter_of_artifacts(path: str) -> None:
    line = line_of(OSError(errno.EACCES, "Permission denied", path))
    assert line == f"{path}: Permission denied; run the command from a folder where you may write"


def test_weights_that_may_not_be_read_are_not_called_damaged(tmp_path: Path, monkeypatch) -> None:
    """Safetensors says that there is no such file; to delete the folder would destroy a finished training."""
    path = tmp_path / "weights.safetensors"
    path.write_bytes(b"whole")

    def denied(file: Path, *arguments) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(file))

    def missing(file: Path) -> None:
        raise FileNotFoundError(f"No such file or directory: {file}")

    monkeypatch.setattr("pipeline.training.model_files.load_file", missing)
    assert of_machine(FileNotFoundError("No such file"), path) is None
    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(PermissionError, match="weights"):
        load_weights(torch.nn.Linear(1, 1), path)


def test_a_folder_of_artifacts_with_a_colon(tmp_path: Path, monkeypatch) -> None:
    """Libraries take what stands before it for a protocol."""
    monkeypatch.chdir(tmp_path)
    assert Workspace(Path("a:b")).root == tmp_path / "a:b"
    with pytest.raises(RecipeError, match="cannot lie in a folder with :: in its path"):
        Workspace(Path("a::b"))


def test_a_data_worker_that_has_ended_names_shared_memory() -> None:
    line = lost_process(RuntimeError("DataLoader worker (pid(s) 7) exited unexpectedly"), "vse")
    assert line is not None
    assert line.startswith("vse: a data worker has ended")
    assert "trainer.workers=0" in line


def test_a_folder_that_was_deleted_is_named_as_the_reason(tmp_path: Path, monkeypatch, capsys) -> None:
    (gone := tmp_path / "gone").mkdir()
    monkeypatch.chdir(gone)
    require_current_folder()
    gone.rmdir()
    assert main(["recipes"]) == 1
    assert capsys.readouterr().err == "error: the current folder has been deleted; change to another one (cd)\n"


def test_a_file_that_may_not_grow_is_named(tmp_path: Path, monkeypatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.EFBIG, "File too large")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError) as raised:
        write_atomically(tmp_path / "a.json", "{}")
    assert line_of(raised.value) == (
        f"{tmp_path / 'a.json'}: File too large; allow larger files (`ulimit -f unlimited`), then the same command "
        "continues"
    )


def test_what_a_file_holds_already_is_not_written(tmp_path: Path, monkeypatch) -> None:
    write_atomically(tmp_path / "a.json", "{}")
    monkeypatch.setattr(os, "fsync", None)  # any writing would fail
    write_atomically(tmp_path / "a.json", b"{}")
    with pytest.raises(TypeError):
        write_atomically(tmp_path / "a.json", "[]")


@pytest.mark.parametrize("target", ["nowhere", "artifacts"])
def test_artifacts_that_are_a_link_to_nothing_are_refused(tmp_path: Path, target: str) -> None:
    (tmp_path / "artifacts").symlink_to(tmp_path / target)
    with pytest.raises(RecipeError, match=f"artifacts: a link to .*{target}, which is not there"):
        Workspace(tmp_path / "artifacts")
