"""How much CPU time a command takes until it ends, beside importing torch."""

import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = pytest.mark.benchmark
ROOT = Path(__file__).parents[2]
TURNS = 5
SEARCH = "import pipeline.gallery.search_commands"


@contextmanager
def cpu_of_children() -> Iterator[list[float]]:
    """CPU seconds of the processes that are started and end in between."""
    found, before = [], os.times()
    yield found
    after = os.times()
    found.append(after.children_user + after.children_system - before.children_user - before.children_system)


def cpu_of(command: list[str], folder: Path, status: int = 0) -> float:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "BILDWORT_ARTIFACTS": str(folder / "artifacts")}
    with cpu_of_children() as found:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    return found[0]


def test_start_up(tmp_path: Path, capsys) -> None:
    """In turns: `--help`, a wrong setting, a search in a small gallery."""
    from tests.pipeline.tiny import Tiny

    tiny = Tiny(tmp_path)
    for stage, *more in (["prepare"], ["vse", "--vse.rows={human: [en/human]}", "--vse.only=[human]"]):
        assert tiny.main(stage, "--augment.paths=[]", *more) == 0
    assert tiny.main("index", "--augment.paths=[]", "--vse.rows={human: [en/human]}", "--vse.only=[human]") == 0
    bildwort = [sys.executable, "-m", "pipeline"]
    gallery = ["--gallery", str(tmp_path / "artifacts" / "tiny" / "gallery")]
    commands = {
        "import torch": ([sys.executable, "-c", "import torch"], 0),
        "bildwort --help": ([*bildwort, "--help"], 0),
        "a wrong setting": ([*bildwort, "vse", "--vse.epoch=3"], 1),
        "imports of a search": ([sys.executable, "-c", SEARCH], 0),
        "a search": ([*bildwort, "search", "a red bat", *gallery], 0),
    }
    times = {name: list[float]() for name in commands}
    for _ in range(TURNS):
        for name, (command, status) in commands.items():
            times[name].append(cpu_of(command, tmp_path, status))
    medians = {name: statistics.median(of) for name, of in times.items()}
    with capsys.disabled():
        print("\nCPU time until it ends, median of five turns, and beside import torch")
        for name, median in medians.items():
            print(f"  {name:22}{median:6.2f} s  {median / medians['import torch']:5.2f}×")
    assert medians["bildwort --help"] < 0.25 * medians["import torch"]
    assert medians["a wrong setting"] < 0.75 * medians["import torch"]
    assert medians["imports of a search"] < 1.5 * medians["import torch"]
    assert medians["a search"] < 2.5 * medians["import torch"]
