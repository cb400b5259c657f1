"""Runs of the pipeline that die at a chosen event: each is forked from a process that has imported everything.

What changes the disk is an *event*, told by Python's audit hooks before it happens (`open`, `rename`, `remove`), and so
is an optimiser's `step` and a Parquet file's `table`. At the n-th event whose line matches, a run is killed, or it is
killed in the middle of what it writes there (the kernel stops it after some bytes, so the file is really cut), or the
disk is full or read-only from there on.
"""

import contextlib
import errno
import fnmatch
import json
import os
import resource
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import pipeline

ROOT = Path(__file__).parents[2]
BYTES = 50  # what is left of a file that is cut


@dataclass(frozen=True)
class Moment:
    """What happens to a run at the `count`-th event that matches `event`.

    Attributes:
        event: a pattern as for file names.
        count: from 1.
        what: `kill` before it, `cut` its file and kill; or from there on files are `short` (writing fails after some
            bytes), or opening them to write fails by an errno's name, `ENOSPC`, `EROFS` or `EACCES`.
    """

    event: str
    count: int = 1
    what: str = "kill"

    def __str__(self) -> str:
        return f"{self.what} {self.event} {self.count}"


@dataclass(frozen=True)
class Ended:
    """How a run ended.

    Attributes:
        status: of the process; negative for a signal.
        said: what it printed.
        events: a line each.
    """

    status: int
    said: str
    events: list[str]

    @property
    def steps(self) -> int:
        """Optimiser steps taken."""
        return self.events.count("step")


def but_one(moments: list[Moment], place: int) -> list[Any]:
    """Parameters of a test: all but one are for the long tests, which try all events too."""
    import pytest  # not in the process that runs are forked from

    return [pytest.param(one, marks=() if one is moments[place] else pytest.mark.slow) for one in moments]


class Kills:
    """The process that runs are forked from."""

    def __init__(self) -> None:
        environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, __file__], env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def run(self, folder: Path, *arguments: str, moment: Moment | None = None, times: int = 1) -> list[Ended]:
        """`python -m pipeline` in a folder that holds `tiny.yaml` and `artifacts`; so many at once."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order = {"folder": str(folder), "arguments": arguments, "moment": vars(moment) if moment else None}
        self._process.stdin.write(json.dumps(order | {"times": times}) + "\n")
        self._process.stdin.flush()
        return [Ended(*ended) for ended in json.loads(self._process.stdout.readline())]

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


@contextlib.contextmanager
def kills() -> Iterator[Kills]:
    """The process, ended at the end."""
    made = Kills()
    try:
        yield made
    finally:
        made.close()


def strike(what: str, owner: int) -> int:
    """Let it happen; what to answer to whoever opens a file from now on, 0 for nothing."""
    if what == "kill":
        os.kill(owner, signal.SIGKILL)
        time.sleep(10)
    if what == "cut":
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # who writes beyond the limit dies
    if what in ("cut", "short"):
        resource.setrlimit(resource.RLIMIT_FSIZE, (BYTES, resource.RLIM_INFINITY))
    return getattr(errno, what, 0)


def watch(artifacts: Path, log: int, moment: Moment | None) -> None:
    """Write this process's events to a pipe, and do to it what the moment says."""
    seen, broken, owner = 0, 0, os.getpid()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def happens(line: str) -> None:
        nonlocal seen, broken
        if os.getpid() != owner:  # a worker
            return
        line = line.replace(f".{owner}.tmp", ".tmp")
        os.write(log, f"{line}\n".encode())
        if moment is not None and fnmatch.fnmatchcase(line, moment.event):
            seen += 1
            if seen == moment.count:
                broken = strike(moment.what, owner)
        if broken and line.startswith("open"):
            raise OSError(broken, os.strerror(broken), line.removeprefix("open "))

    def below(path: Any) -> str | None:
        with contextlib.suppress(TypeError, ValueError):
            return str(Path(os.fsdecode(path)).absolute().relative_to(artifacts))
        return None

    def hook(name: str, arguments: tuple[Any, ...]) -> None:
        if name == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            kind, path = "open", arguments[0]
        elif name in ("os.rename", "os.remove", "shutil.rmtree", "pipeline.table"):
            kind, path = name.split(".")[1], arguments[0]
            if kind == "remove" and arguments[1] >= 0:  # by its name in an open folder
                path = Path(f"/proc/self/fd/{arguments[1]}").readlink() / os.fsdecode(path)
        elif name == "pipeline.step":
            return happens("step")
        else:
            return None
        if not isinstance(path, int) and (line := below(path)) is not None:
            happens(f"{kind} {line}")
        return None

    sys.addaudithook(hook)


def child(order: dict[str, Any], said: int, events: int) -> None:
    """One run; does not come back."""
    folder = Path(order["folder"])
    os.dup2(said, 1)
    os.dup2(said, 2)
    os.environ["BILDWORT_ARTIFACTS"] = str(folder / "artifacts")
    os.chdir(folder)
    watch(folder / "artifacts", events, Moment(**order["moment"]) if order["moment"] else None)
    from pipeline.cli import main

    stage, *more = order["arguments"]
    status = main([stage, "--recipe", str(folder / "tiny.yaml"), *more])
    sys.stdout.flush()
    os._exit(status)


def fork(order: dict[str, Any]) -> tuple[int, int, int]:
    """Start a run: its process, and pipes (no files: those may be cut) of what it says and of its events."""
    (said, its_said), (events, its_events) = os.pipe(), os.pipe()
    if (process := os.fork()) == 0:
        try:
            child(order, its_said, its_events)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(99)
    os.close(its_said)
    os.close(its_events)
    return process, said, events


def end(process: int, said: int, events: int) -> tuple[int, str, list[str]]:
    """Wait for a run: its status, what it said and its events."""
    texts = []
    for pipe in (said, events):
        with os.fdopen(pipe, encoding="utf-8", errors="replace") as file:
            texts.append(file.read())
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), texts[0], texts[1].splitlines()


def serve() -> None:
    """Fork a run for each order that comes in; all that one imports is imported before."""
    import pyarrow.parquet as pq

    for module in walk_packages(pipeline.__path__, "pipeline."):
        if module.name not in ("pipeline.__main__", "pipeline.app.page"):
            import_module(module.name)
    for name in ("datasets", "faiss", "pipeline.training.trainer", "sacrebleu", "sklearn.decomposition"):
        import_module(name)
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    write_table = pq.write_table
    pq.write_table = lambda table, where, **more: (
        sys.audit("pipeline.table", where),
        write_table(table, where, **more),
    )
    register_optimizer_step_pre_hook(lambda *_: sys.audit("pipeline.step"))
    for line in sys.stdin:
        order = json.loads(line)
        started = [fork(order) for _ in range(order["times"])]
        print(json.dumps([end(*one) for one in started]), flush=True)


if __name__ == "__main__":
    serve()
