"""A few spoiled files for each reader, read in this process: they take it down with nothing, and little time."""

from pathlib import Path

import pytest

from tests.fuzz.bench import READERS, Bench, grouped
from tests.fuzz.case import LIGHT

pytestmark = pytest.mark.whole

FEW = 12


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", READERS)
def test_a_few_spoiled_files_are_read_or_refused_in_one_line(name: str, tmp_path: Path) -> None:
    bench, found = Bench(name, tmp_path, light=True), []
    for number in range(LIGHT, LIGHT + FEW):
        what, case = bench.run(number)
        found += [(number, what, fault) for fault in case.faults]
    faults = grouped(found)
    assert not faults, f"{len(faults)} distinct faults of {name}:\n" + "\n".join(faults)
