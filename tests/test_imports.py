"""The direction of imports: pipeline may import data and modules; these two import only themselves and libraries."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FORBIDDEN = {"data": {"modules", "pipeline"}, "modules": {"data", "pipeline"}}


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the direction"
            names.add((node.module or "").split(".")[0])
    return names


@pytest.mark.parametrize("package", sorted(FORBIDDEN))
def test_data_and_modules_never_import_each_other_nor_the_pipeline(package: str) -> None:
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    for path in files:
        assert not imported(path) & FORBIDDEN[package], path
