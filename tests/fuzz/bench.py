"""A reader at work in this process: its cases one after another, and the list of what must not be."""

import contextlib
import os
import re
import shutil
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path

from py3langid import langid

from tests.fuzz.case import Case, Chance, Fault, Reader, last_words, raised_at
from tests.fuzz.guard import Outside, Watch

SECONDS, MEMORY = 20.0, 2 * 2**30
"""A case takes at most so many seconds of a core, and bytes beyond what the process had."""
READERS = {
    "pictures": "tests.fuzz.pictures:Pictures", "tsv": "tests.fuzz.tables:Tables", "json": "tests.fuzz.trees:Trees",
    "data-sets": "tests.fuzz.data_sets:DataSets", "n-best": "tests.fuzz.lists:Lists",
    "recipes": "tests.fuzz.recipes:Recipes", "models": "tests.fuzz.models:Models",
    "artifacts": "tests.fuzz.artifacts:Artifacts",
}  # fmt: skip


class Bench:
    """A reader with its good files.

    Args:
        name: of the reader.
        folder: where all is written.
        light: only light cases are read, and files that are opened are not watched.
    """

    def __init__(self, name: str, folder: Path, light: bool = False) -> None:
        module, _, kind = READERS[name].partition(":")
        self.reader: Reader = getattr(import_module(module), kind)()
        self.folder, self._light = folder, light
        self.base, self.temporary = folder / "base", folder / "tmp"
        self.base.mkdir(parents=True)
        self.temporary.mkdir(exist_ok=True)
        self.outside = Outside(folder / "outside")
        langid._load_model_file = cache(langid._load_model_file)  # takes longer than all else, each time
        self.reader.prepare(self.base, light)

    def warm_up(self) -> list[Fault]:
        """Read the good files; what they are refused for is a fault of the fuzzer."""
        case = self._case(-1)
        self.reader.give(case, self.base)
        self._read(case)
        self._clear(case)
        refused = [Fault("good files are refused", self.reader.name, one[:300]) for one in case.refusals]
        found = [fault for fault in case.faults if fault.what != "starts a program"]  # some libraries do, once
        return [*found, *refused]

    def run(self, number: int, tell: Callable[[str], object] = str) -> tuple[str, Case]:
        """Spoil and read one case.

        Args:
            number: which.
            tell: is told what is wrong with its files, before they are read.

        Returns:
            what is wrong with them, and what was found.
        """
        case = self._case(number)
        try:
            what = self.reader.spoil(case, self.base)
        except Exception as error:
            what = "not spoiled"
            case.faults.append(Fault(f"the fuzzer: {type(error).__name__}", raised_at(error), last_words(error)))
            case.traces.append(traceback.format_exc())
        else:
            tell(what)
            self._read(case)
        self._clear(case)
        return what, case

    def _case(self, number: int) -> Case:
        given, work = (self.folder / "cases" / str(number) / name for name in ("given", "work"))
        given.mkdir(parents=True)
        work.mkdir()
        return Case(number, Chance.of(self.reader.name, number), given, work, self.outside.folder)

    def _read(self, case: Case) -> None:
        before = _listing(case.given)
        watch = Watch(lambda what, place: self._seen(case, what, place))
        started = time.process_time()
        _forget_peak()
        had = _peak()
        watched = watch.over((case.work, self.temporary), self.outside.folder)
        with contextlib.nullcontext() if self._light else watched:
            try:
                self.reader.read(case)
            except BaseException as error:
                case.note(error)
        took, case.used = time.process_time() - started, _peak() - had
        if took > SECONDS:
            case.faults.append(Fault("time", "?", f"{took:.0f} s"))
        if case.used > MEMORY:
            case.faults.append(Fault("memory", "?", f"{case.used / 2**20:,.0f} MB"))
        if _listing(case.given) != before:
            case.faults.append(Fault("changes the given folder", "?", ""))
        if self.outside.is_changed():
            case.faults.append(Fault("changes a folder beside the given one", "?", ""))
        if not self.reader.reads_elsewhere:
            case.faults += case.leaks()
        case.faults = [replace(one, detail=one.detail.replace(str(case.given.parent), "")) for one in case.faults]

    def _seen(self, case: Case, what: str, place: str) -> None:
        if not (what.startswith("reads outside") and self.reader.reads_elsewhere):
            case.faults.append(Fault(what, place, ""))

    def _clear(self, case: Case) -> None:
        shutil.rmtree(case.given.parent, ignore_errors=True)


def grouped(found: Iterable[tuple[int, str, Fault]]) -> list[str]:
    """A line for each distinct fault: how often, its first case, and what was wrong there.

    Args:
        found: number of the case, what was wrong with its files, and the fault.
    """
    groups: dict[tuple[str, str], list[tuple[int, str, Fault]]] = {}
    for one in sorted(found, key=lambda one: one[0]):
        groups.setdefault((one[2].what, one[2].place), []).append(one)
    return [
        f"{what} at {place}: {len(cases)}×, first number {cases[0][0]} ({cases[0][1][:300]}): {cases[0][2].detail}"
        for (what, place), cases in sorted(groups.items(), key=lambda group: -len(group[1]))
    ]


def numbers(text: str) -> list[int]:
    """`17,30-33` as numbers."""
    spans = [one.partition("-") for one in text.split(",")]
    return [number for first, _, last in spans for number in range(int(first), int(last or first) + 1)]


def _listing(folder: Path) -> Mapping[str, tuple[int, int, int]]:
    found = {}
    for place, _, files in os.walk(folder):
        for name in files:
            state = os.lstat(os.path.join(place, name))  # noqa: PTH118 # names may not be UTF-8, and this is fast
            found[f"{place}/{name}"] = state.st_mode, state.st_size, state.st_mtime_ns
    return found


def _forget_peak() -> None:
    with contextlib.suppress(OSError):  # Linux alone
        Path("/proc/self/clear_refs").write_text("5")


def _peak() -> int:
    """Bytes: the most memory since `_forget_peak`; 0 where the system does not say."""
    with contextlib.suppress(OSError):
        found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
        return 1024 * int(found[1]) if found else 0
    return 0
