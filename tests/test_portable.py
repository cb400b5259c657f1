"""What only some systems have stands in few places; the rest is psutil's and filelock's."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = {"fcntl", "resource", "pwd", "grp", "termios", "msvcrt"}
CALLS = {
    "fork", "kill", "killpg", "setsid", "sched_getaffinity", "cpu_count", "getrusage", "posix_fallocate", "sysconf",
    "getuid", "geteuid", "getloadavg", "nice", "uname", "mkfifo", "getppid", "link", "SIGKILL", "SIGXFSZ",
}  # fmt: skip
ALLOWED = {
    ("pipeline/engine/machine.py", "resource"): "macOS: the peak of memory, which psutil lacks there",
    ("pipeline/engine/machine.py", "getrusage"): "the same",
    ("pipeline/engine/machine.py", "/proc"): "Linux: the peak since a job began",
    ("pipeline/engine/machine.py", "getppid"): "of a rank that Lightning has started, while its parent lives",
    ("pipeline/serve/protocol.py", "resource"): "the usual number of connections where there is none",
    ("pipeline/gallery/indexing.py", "link"): "a copy where it fails",
    ("data/pictures/regions.py", "posix_fallocate"): "where there is one",
}


def found_in(path: Path) -> set[str]:
    """Modules, functions and folders that not every system has."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & MODULES
        elif isinstance(node, ast.ImportFrom):
            found |= {str(node.module)} & MODULES
            found |= {alias.name for alias in node.names} & CALLS if node.module in ("os", "signal") else set()
        elif (
            isinstance(node, ast.Attribute)
            and ast.unparse(node.value) in ("os", "signal", *MODULES)
            and node.attr in CALLS
        ):
            found.add(node.attr)
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(("/proc", "/dev"))
        ):
            found.add("/" + node.value.split("/")[1])
    return found


@pytest.mark.parametrize("package", ["data", "modules", "pipeline"])
def test_what_only_some_systems_have_stands_in_few_places(package: str) -> None:
    files = {path.relative_to(ROOT).as_posix(): found_in(path) for path in (ROOT / package).rglob("*.py")}
    assert {(path, name) for path, names in files.items() for name in names} == {
        place for place in ALLOWED if place[0].startswith(f"{package}/")
    }


@pytest.mark.parametrize("package", ["data", "modules", "pipeline"])
def test_texts_are_read_and_written_in_utf_8(package: str) -> None:
    """Windows has another encoding by default."""
    for path in (ROOT / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            method = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
            if method in ("read_text", "write_text") and "/proc" not in ast.unparse(node):
                named = len(node.args) > (method == "write_text") or "encoding" in {one.arg for one in node.keywords}
                assert named, f"{path}:{node.lineno}"


def test_tests_that_only_linux_can_run_are_left_out_elsewhere() -> None:
    listed = (ROOT / "tests" / "conftest.py").read_text(encoding="utf-8")
    for path in (ROOT / "tests").rglob("test_*.py"):
        if path != Path(__file__) and re.search(r"os\.fork\(|[\"']/proc/", path.read_text(encoding="utf-8")):
            assert f"/{path.name}" in listed, path
