"""Processes that are forked from one that has imported what jobs need: where, and what they know of their start."""

import os
import sys
from pathlib import Path

from pipeline.engine.executors import LocalProcesses
from pipeline.engine.machine import cpu_seconds


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


def test_processes_have_the_environment_of_now(monkeypatch) -> None:
    monkeypatch.setenv("BILDWORT_TEST", "before")
    for value in ("before", "after", None):
        monkeypatch.delenv("BILDWORT_TEST") if value is None else monkeypatch.setenv("BILDWORT_TEST", value)
        with LocalProcesses(1) as processes:
            assert processes.submit(os.getenv, "BILDWORT_TEST").result(60) == value
