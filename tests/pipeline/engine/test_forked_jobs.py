"""Processes that are forked from one that has imported what jobs need: where, and what they know of their start."""

import os
import subprocess
import sys
from pathlib import Path

from pipeline.engine.executors import LocalProcesses
from pipeline.engine.machine import cpu_seconds

ROOT = Path(__file__).parents[3]


def test_the_cpu_time_of_processes_that_still_run_counts() -> None:
    with LocalProcesses(1) as processes:
        spent = processes.submit(eval, "sum(range(3 * 10**7)) and __import__('time').process_time()").result(60)
        assert cpu_seconds(running=True) - cpu_seconds() >= spent > 0.05


def test_processes_start_where_a_socket_has_no_room(tmp_path: Path, monkeypatch) -> None:
    with LocalProcesses(1) as processes:
        assert processes._forked == (sys.platform == "linux")
    (deep := tmp_path / ("long" * 20)).mkdir()
    monkeypatch.setenv("TMPDIR", str(deep))
    monkeypatch.setattr("tempfile.tempdir", None)
    with LocalProcesses(1) as processes:
        assert not processes._forked
        assert processes.submit(len, "abc").result(60) == 3


def test_processes_find_modules_where_this_one_does(tmp_path: Path) -> None:
    (here := tmp_path / "here").mkdir()
    (here / "data.py").write_text("raise SystemExit('of another person')\n")
    (script := tmp_path / "script.py").write_text(
        "import os\n"
        "from pipeline.engine.executors import LocalProcesses\n"
        "if __name__ == '__main__':\n"
        "    before = dict(os.environ)\n"
        "    with LocalProcesses(1, imported=['data.errors']) as processes:\n"
        "        processes.expect()\n"
        "        print(processes.submit(eval, \"__import__('data.errors').errors.__file__\").result(60))\n"
        "    assert os.environ == before\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        [sys.executable, script], cwd=here, env=environment, capture_output=True, text=True, timeout=60
    )
    assert ran.stdout.strip() == str(ROOT / "data" / "errors.py"), ran.stderr[-1000:]


def test_processes_have_the_environment_of_now(monkeypatch) -> None:
    monkeypatch.setenv("BILDWORT_TEST", "before")
    for value in ("before", "after", None):
        monkeypatch.delenv("BILDWORT_TEST") if value is None else monkeypatch.setenv("BILDWORT_TEST", value)
        with LocalProcesses(1) as processes:
            assert processes.submit(os.getenv, "BILDWORT_TEST").result(60) == value
