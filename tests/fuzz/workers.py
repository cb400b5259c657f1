"""Cases read in a process of their own, which is watched: one that hangs, takes too much memory or dies is replaced."""

import faulthandler
import multiprocessing
import os
import re
import signal
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import psutil

from tests.fuzz.bench import MEMORY, SECONDS, Bench
from tests.fuzz.case import Fault
from tests.fuzz.guard import ROOT, use_folder

_ASLEEP = 3 * SECONDS  # seconds of the clock: on a busy machine a case takes longer than its seconds of a core
_STEP, _SHOWN = 0.02, 4
_FRAME = re.compile(rf'File "{re.escape(str(ROOT))}/((?:data|modules|pipeline)/\S+)", line (\d+)')
_ANY_FRAME = re.compile(r'File "(\S+)", line (\d+)')


@dataclass
class Outcome:
    """What came of many cases.

    Attributes:
        faults: number of the case, what was wrong with its files, and what must not be.
        accepted: calls that gave a result.
        refused: calls that refused.
        seconds: it took.
        slowest: the cases that took longest, as (seconds, number).
        largest: those that took most memory, as (MB, number).
    """

    faults: list[tuple[int, str, Fault]] = field(default_factory=list)
    accepted: int = 0
    refused: int = 0
    seconds: float = 0.0
    slowest: list[tuple[float, int]] = field(default_factory=list)
    largest: list[tuple[float, int]] = field(default_factory=list)


def read_all(name: str, numbers: Sequence[int], folder: Path, processes: int) -> Outcome:
    """Read cases of a reader.

    Args:
        name: of the reader.
        numbers: of the cases.
        folder: where all is written.
        processes: that share the cases.
    """
    started = time.monotonic()
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # a process reads for itself
    shares = [numbers[start::processes] for start in range(processes)]
    with ThreadPoolExecutor(processes) as pool:
        parts = list(pool.map(lambda k: _Share(name, folder / str(k)).read(shares[k]), range(processes)))
    whole = Outcome(seconds=time.monotonic() - started)
    for part in parts:
        whole.faults += part.faults
        whole.accepted, whole.refused = whole.accepted + part.accepted, whole.refused + part.refused
        whole.slowest = sorted([*whole.slowest, *part.slowest], reverse=True)[:_SHOWN]
        whole.largest = sorted([*whole.largest, *part.largest], reverse=True)[:_SHOWN]
    return whole


class _Share:
    """A process after the other that reads some of the cases."""

    def __init__(self, name: str, folder: Path) -> None:
        self._name, self._folder, self._starts = name, folder, 0
        self._out = Outcome()

    def read(self, numbers: Sequence[int]) -> Outcome:
        """Read these cases."""
        left = list(numbers)
        while left:
            left = self._with_a_process(left)
        return self._out

    def _with_a_process(self, numbers: list[int]) -> list[int]:
        """Read cases until the process has to be replaced; those that are left."""
        self._starts += 1
        folder = self._folder / str(self._starts)
        folder.mkdir(parents=True)
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(self._name, folder, theirs), daemon=True)
        process.start()
        theirs.close()
        try:
            began = ours.recv()  # the good files have been read
            if self._starts == 1:
                self._out.faults += [(-1, "good files", fault) for fault in began]
            for place, number in enumerate(numbers):
                ours.send(number)
                if not self._case(process.pid, number, ours, folder):
                    return numbers[place + 1 :]
            return []
        except EOFError:
            self._out.faults.append((-1, "good files", Fault("the process died", "?", _log(folder, "printed")[-500:])))
            return []
        finally:
            process.kill()
            process.join()

    def _case(self, pid: int | None, number: int, answers: Connection, folder: Path) -> bool:
        """Watch over one case; False if the process is of no more use."""
        watched = psutil.Process(pid)
        began, had, cpu = time.monotonic(), watched.memory_info().rss, _cpu(watched)
        stopped = None
        while not answers.poll(_STEP):
            try:
                took, used = _cpu(watched) - cpu, watched.memory_info().rss - had
            except psutil.Error:
                break
            if took > SECONDS or time.monotonic() - began > _ASLEEP:
                stopped = Fault("hangs", "", f"{took:.0f} s of a core, {time.monotonic() - began:.0f} s of the clock")
            elif used > MEMORY:
                stopped = Fault("memory", "", f"{used / 2**20:,.0f} MB and more")
            if stopped is not None:
                break
        what = _log(folder, "case")
        if stopped is not None:
            place = self._place(watched, folder)
            self._out.faults.append((number, what, Fault(stopped.what, place, stopped.detail)))
            return False
        try:
            what, faults, accepted, refused, used = answers.recv()
        except (EOFError, ConnectionResetError):
            place = self._place(None, folder)
            self._out.faults.append((number, what, Fault("the process died", place, _log(folder)[:200])))
            return False
        self._out.faults += [(number, what, fault) for fault in faults]
        self._out.accepted, self._out.refused = self._out.accepted + accepted, self._out.refused + refused
        self._out.slowest = sorted([*self._out.slowest, (time.monotonic() - began, number)], reverse=True)[:_SHOWN]
        self._out.largest = sorted([*self._out.largest, (used / 2**20, number)], reverse=True)[:_SHOWN]
        return True

    def _place(self, process: psutil.Process | None, folder: Path) -> str:
        """The line that a process is at, or was when it died."""
        if process is not None:
            process.send_signal(signal.SIGUSR1)  # it writes where it is
            for _ in range(100):
                time.sleep(_STEP)
                if _log(folder) or not process.is_running() or process.memory_info().rss > 3 * MEMORY:
                    break
            time.sleep(_STEP)
        stack = _log(folder)
        found = _FRAME.findall(stack) or _ANY_FRAME.findall(stack)
        return f"{found[0][0]}:{found[0][1]}" if found else "?"


def _work(name: str, folder: Path, answers: Connection) -> None:
    """What a process does: it reads the cases that it is sent the numbers of."""
    sys.dont_write_bytecode = True  # Python's own files beside libraries are not what the watch looks for
    use_folder(folder / "tmp")
    log = (folder / "log").open("w", encoding="utf-8")
    faulthandler.enable(log)
    faulthandler.register(signal.SIGUSR1, log)
    os.dup2(os.open(folder / "printed", os.O_WRONLY | os.O_CREAT), 1)  # C libraries print there
    os.dup2(1, 2)
    import torch

    torch.set_num_threads(1)
    bench = Bench(name, folder)
    answers.send(bench.warm_up())
    while True:
        try:
            number = answers.recv()
        except EOFError:
            return
        what, case = bench.run(number, lambda what: (folder / "case").write_text(what, "utf-8", "backslashreplace"))
        answers.send((what, case.faults, case.accepted, len(case.refusals), case.used))


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _log(folder: Path, name: str = "log") -> str:
    path = folder / name
    return path.read_text("utf-8", "replace") if path.is_file() else ""
