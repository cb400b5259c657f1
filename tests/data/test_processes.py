"""Work that processes share."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from PIL import Image

from data.processes import cores, in_parallel


def doubled(numbers: Sequence[int]) -> list[int]:
    return [2 * number for number in numbers]


def numbered(numbers: Sequence[int]) -> list[tuple[int, int]]:
    return [(number, os.getpid()) for number in numbers]


def killed(numbers: Sequence[int]) -> list[int]:
    """Dies in a worker, and works here."""
    if os.environ.get("BILDWORT_TEST_PARENT") != str(os.getpid()):
        os._exit(1)
    return doubled(numbers)


def killed_later(numbers: Sequence[int]) -> list[int]:
    """Dies in a worker when some results have come."""
    if 8 in numbers:
        time.sleep(0.5)
        return killed(numbers)
    return doubled(numbers)


@pytest.mark.whole
def test_few_items_are_done_here_and_many_elsewhere_in_order() -> None:
    assert list(in_parallel(doubled, [], 3)) == []
    assert list(in_parallel(doubled, range(10), 3, workers=1)) == doubled(range(10))
    found = list(in_parallel(numbered, range(10), 3, workers=2))
    assert [number for number, _ in found] == list(range(10))
    assert os.getpid() not in {process for _, process in found}
    assert list(in_parallel(numbered, range(3), 3, workers=2)) == numbered(range(3))


@pytest.mark.whole
@pytest.mark.parametrize("work", [killed, killed_later])
def test_where_a_process_is_killed_the_rest_is_done_here(
    work: Callable[[Sequence[int]], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BILDWORT_TEST_PARENT", str(os.getpid()))
    assert list(in_parallel(work, range(9), 3, workers=2)) == doubled(range(9))


def test_cores_are_those_that_the_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 1 <= cores() <= (os.cpu_count() or 1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "sched_getaffinity", lambda _: {5}, raising=False)
        assert cores() == 1
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")  # joblib's own limit stands for a container's
    assert cores() == 1


UNGUARDED = """
from pathlib import Path
from data import processes
from data.pictures import extractor
extractor._CHUNK = 1
{before}
pictures = {{path.stem: path for path in Path("pictures").iterdir()}}
extractor.Extractor(extractor.ExtractorSettings()).extract_all(pictures, Path("store"), workers=2)
"""


@pytest.mark.whole
@pytest.mark.parametrize("before", ["", "processes.require_main_guard()"])
def test_a_script_whose_processes_begin_its_work_again_is_told_how_to_begin_it(before: str, tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    for number in range(3):
        Image.new("RGB", (60, 40), (90, 40 * number, 30)).save(tmp_path / "pictures" / f"{number}.png")
    (tmp_path / "script.py").write_text(UNGUARDED.format(before=before))
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    ended = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 1
    said = "DataError: a process ended while it was being started"
    (line,) = (line for line in ended.stderr.splitlines() if said in line)
    assert 'if __name__ == "__main__":' in line
    assert ("this process is being started" in ended.stderr) == bool(before)
