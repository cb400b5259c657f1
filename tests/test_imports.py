"""The direction of imports: pipeline may import data and modules; these two import only themselves and libraries.

Inside data and pipeline the rooms stand in an order: each imports only itself and those before it.
"""

import ast
import re
import sys
import tomllib
from graphlib import TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FORBIDDEN = {"data": {"modules", "pipeline"}, "modules": {"data", "pipeline"}}
ROOMS = {
    "data": [
        "errors", "lines", "processes", "progress", "parts", "yaml_text", "text", "pictures", "captions", "vectors",
        "corpora", "findings", "own_captions", "translators", "batches", "evaluation",
    ],
    "pipeline": [
        "errors", "recipes", "engine", "training", "visualization", "corpus", "translation", "vectors", "init",
        "retrieval", "analyses", "graph", "similarity", "export", "gallery", "embedding", "serve", "app", "reporting",
        "evaluation", "stages", "library", "bildwort", "commands",
    ],
}  # fmt: skip
OUTSIDE = {"data": {"__init__"}, "pipeline": {"__init__", "__main__", "cli"}}  # files that are no rooms
MOST_FILES = 12
APART = {("reporting", room) for room in ("export", "gallery", "embedding", "serve", "app")}  # neither knows the other


def imported(path: Path) -> set[str]:
    """Dotted names of all modules that a file imports, wherever in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the direction"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("package", sorted(FORBIDDEN))
def test_data_and_modules_never_import_each_other_nor_the_pipeline(package: str) -> None:
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    for path in files:
        assert not {name.partition(".")[0] for name in imported(path)} & FORBIDDEN[package], path


@pytest.mark.parametrize("package", ROOMS)
def test_every_file_stands_in_a_room(package: str) -> None:
    top = ROOT / package
    found = {path.relative_to(top).parts[0].removesuffix(".py") for path in top.rglob("*.py")}
    assert found == {*ROOMS[package], *OUTSIDE[package]}


@pytest.mark.parametrize(("package", "room"), [(package, room) for package in ROOMS for room in ROOMS[package]])
def test_a_room_imports_only_the_rooms_before_it(package: str, room: str) -> None:
    rooms = ROOMS[package]
    allowed = {*rooms[: rooms.index(room) + 1]} - {other for one, other in APART if one == room}
    files = sorted((ROOT / package / room).rglob("*.py")) or [ROOT / package / f"{room}.py"]
    for path in files:
        used = {name.split(".")[1] for name in imported(path) if name.startswith(f"{package}.")}
        assert used <= allowed, f"{path} imports {used - allowed}"


@pytest.mark.parametrize("package", [*FORBIDDEN, "pipeline"])
def test_the_tests_of_a_room_stand_in_a_folder_of_its_name(package: str) -> None:
    rooms = {path.name for path in (ROOT / package).iterdir() if any(path.glob("*.py"))}
    assert {path.parent.name for path in (ROOT / "tests" / package).glob("*/*.py")} <= rooms


@pytest.mark.parametrize("package", FORBIDDEN | {"pipeline": set()})
def test_a_room_has_twelve_files_at_most(package: str) -> None:
    for folder in (path for path in (ROOT / package).rglob("*") if path.is_dir()):
        files = [path.name for path in folder.glob("*.py") if path.name != "__init__.py"]
        assert len(files) <= MOST_FILES or folder.name == "retrieval_models", folder


def test_no_import_leads_back() -> None:
    """Of files, wherever in them an import stands; what only types need is left out."""
    files = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path
        for package in ("data", "modules", "pipeline")
        for path in (ROOT / package).rglob("*.py")
    }
    needs = {name: set[str]() for name in files}
    for name, path in files.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                node.body = []
        for node in (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)):
            needs[name] |= {
                used
                for alias in node.names
                for used in (f"{node.module}.{alias.name}", str(node.module))
                if used in files and used != name
            }
    TopologicalSorter(needs).prepare()  # a CycleError names the circle


OF_EXTRAS = {
    "streamlit": r"pipeline/app/(command|page|page_\w+)\.py",
    "fastapi": r"pipeline/serve/service\.py", "fastapi_offline": r"pipeline/serve/service\.py",
    "pydantic": r"pipeline/serve/schemas\.py",
    "starlette": r"pipeline/serve/service\.py", "uvicorn": r"pipeline/serve/(command|protocol)\.py",
    "h11": r"pipeline/serve/protocol\.py",
    "distributed": r"pipeline/engine/cluster\.py",
    "rjieba": r"data/text/segmentation\.py", "fugashi": r"data/text/segmentation\.py",
    "wandb": r"pipeline/training/loggers\.py",
    "onnxruntime": r"modules/onnx_files\.py",
    "mteb": r"pipeline/evaluation/benchmark\.py",
    "peft": r"modules/pretrained/adapters\.py",
}  # fmt: skip


def test_only_declared_packages_are_imported_and_those_of_extras_where_they_are_needed() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    core = {re.split(r"[\[>=<]", text)[0] for text in declared["dependencies"]} | {"faiss-cpu", "faiss-gpu"}
    packages = {
        name: {re.sub(r"[-_.]+", "-", one).lower() for one in found} for name, found in packages_distributions().items()
    }
    known = {*sys.stdlib_module_names, "data", "modules", "pipeline"}
    for path in sorted(path for folder in ("data", "modules", "pipeline") for path in (ROOT / folder).rglob("*.py")):
        used = {name.partition(".")[0] for name in imported(path)} - known
        for name in used:
            if not re.fullmatch(OF_EXTRAS.get(name, "-"), path.relative_to(ROOT).as_posix()):
                assert packages.get(name, {name}) & core, f"{path} imports {name}, which the core does not install"
