"""Thousands of spoiled files for each reader: a result or one line of error, in bounded time and memory, and nothing
read or written beside the given folder.

`FUZZ=17,30-40` reads these numbers alone (with `-k pictures`), `FUZZ_COUNT=100` the first hundred.
"""

import os
from pathlib import Path

import pytest

from tests.fuzz.bench import READERS, grouped, numbers
from tests.fuzz.workers import read_all

CHOSEN = numbers(os.environ["FUZZ"]) if "FUZZ" in os.environ else list(range(int(os.environ.get("FUZZ_COUNT", "2000"))))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", READERS)
def test_spoiled_files_are_read_or_refused_in_one_line(name: str, tmp_path: Path) -> None:
    processes = min(len(CHOSEN), int(os.environ.get("FUZZ_PROCESSES", "2")))
    outcome = read_all(name, CHOSEN, tmp_path, processes)
    most = [f"{number} ({seconds:.1f} s)" for seconds, number in outcome.slowest]
    most += [f"{number} ({used:.0f} MB)" for used, number in outcome.largest]
    print(f"{name}: {outcome.seconds:.0f} s, {outcome.accepted} results, {outcome.refused} refusals; {', '.join(most)}")
    faults = grouped(outcome.faults)
    assert not faults, f"{len(faults)} distinct faults of {name}:\n" + "\n".join(faults)
    assert len(CHOSEN) < 100 or min(outcome.accepted, outcome.refused) > 0
