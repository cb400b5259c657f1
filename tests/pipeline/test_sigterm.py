"""What comes from outside: SIGTERM, which ends a command as Ctrl-C does, wherever it works; a reader that goes."""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from modules.training.translation import Synthesis
from pipeline import cli
from pipeline.retrieval.training import Retrieval
from pipeline.training.trainer import stopping
from tests.pipeline.tiny import Tiny

AGAIN = "stopped; the same command continues from where it was stopped"


def interrupt(number: int) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.whole
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize(
    ("module", "hook"),
    [
        (Retrieval, "on_validation_epoch_start"), (Retrieval, "on_test_start"), (Retrieval, "on_train_epoch_end"),
        (Synthesis, "on_predict_start"),
    ],
)  # fmt: skip
def test_it_stops_a_stage_wherever_it_is(
    tiny: Tiny, module: type, hook: str, number: int, status: int, tmp_path: Path, monkeypatch, capsys
) -> None:
    made = tiny.without(tmp_path / "made", "vse-*" if module is Retrieval else "synthetic-*")
    stage = ("vse", "--vse.only=[human]") if module is Retrieval else ("augment",)
    with monkeypatch.context() as patched:
        patched.setattr(module, hook, lambda *_: interrupt(number), raising=False)
        assert made.main(*stage, "--jobs=1") == status
    assert capsys.readouterr().err.strip().splitlines()[-1].strip() == AGAIN
    assert signal.getsignal(signal.SIGINT) == signal.default_int_handler  # in a notebook Ctrl-C is pressed again
    assert made.main(*stage) == 0


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("where", ["_run", "quieten"])
def test_it_stops_what_trains_nothing(number: int, status: int, where: str, monkeypatch, capsys) -> None:
    monkeypatch.setattr(cli, where, lambda *words: interrupt(number))
    before = signal.getsignal(signal.SIGTERM)
    assert cli.main(["recipes"]) == status
    assert "stopped" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_process_that_was_forked_ends_by_it_without_a_word() -> None:
    code = (
        "import os, time\nfrom pipeline import cli\n"
        "def run(words):\n"
        "    child = os.fork()\n"
        "    if not child:\n        time.sleep(30)\n"
        "    time.sleep(0.3)\n    os.kill(child, 15)\n"
        "    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        "cli._run = run\nprint(cli.main([]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.stderr) == (["143", "0"], "")


def test_an_error_after_an_interruption_is_the_interruption() -> None:
    """Lightning closes its loggers then, and one may be half closed."""

    def interrupted() -> None:
        try:
            raise KeyboardInterrupt
        finally:
            raise OSError("Writer is closed")

    with pytest.raises(KeyboardInterrupt), stopping():
        interrupted()
    with pytest.raises(OSError, match="Writer"), stopping():
        raise OSError("Writer is closed")


def test_the_end_of_a_file_is_no_interruption(monkeypatch) -> None:
    def read(words: list[str]) -> None:
        """As Typer gives an EOFError."""
        try:
            raise EOFError("Ran out of input")
        except EOFError as error:
            raise cli.typer.Abort from error

    monkeypatch.setattr(cli, "_run", read)
    with pytest.raises(EOFError, match="Ran out"):
        cli.main(["recipes"])


def test_a_reader_that_goes_does_not_end_the_work() -> None:
    code = (
        "import sys\nfrom pipeline import cli\nfrom pipeline.engine.console import info\n"
        "def run(words):\n    for _ in range(20000):\n        info('a line')\n    print('whole', file=sys.stderr)\n"
        "cli._run = run\nsys.exit(cli.main([]))\n"
    )
    words = f"{shlex.quote(sys.executable)} -c {shlex.quote(code)} | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "a line\n", "whole\n")


def test_artifacts_of_nobody_are_told(monkeypatch, capsys) -> None:
    monkeypatch.setenv("BILDWORT_ARTIFACTS", "~nobody-of-this-name/x")
    assert cli.main(["report", "scenes"]) == 1
    assert "BILDWORT_ARTIFACTS is '~nobody-of-this-name/x': Could not" in " ".join(capsys.readouterr().err.split())


def test_a_second_sigterm_at_once_does_not_disturb_the_end_of_the_first(monkeypatch, capsys) -> None:
    done = []

    def work(*_: object) -> None:
        try:
            interrupt(signal.SIGTERM)
        finally:
            interrupt(signal.SIGTERM)  # as `timeout` sends it to the whole group
            done.append("cleared up")

    monkeypatch.setattr("pipeline.corpus.doctor.doctor", work)
    assert cli.main(["doctor"]) == 143
    assert done == ["cleared up"]
    assert capsys.readouterr().err == "stopped\n"
