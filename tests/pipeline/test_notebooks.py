"""The notebooks of the site run from top to bottom."""

import os
import re
import sys
from pathlib import Path

import nbclient
import nbformat
import pytest

from tests.documentation import PAGES
from tests.pipeline.tiny import ROOT, Tiny

NOTEBOOKS = ROOT / ".docs" / "pages" / "notebooks"


def execute(notebook: nbformat.NotebookNode) -> None:
    """Run all cells in the notebooks' folder; outputs are put into them."""
    os.environ["JUPYTER_PLATFORM_DIRS"] = "1"
    nbclient.NotebookClient(notebook, timeout=500, resources={"metadata": {"path": str(NOTEBOOKS)}}).execute()


def run(name: str, parameters: str) -> str:
    """What a notebook prints, with other values in its cell of parameters."""
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    (cell,) = (one for one in notebook.cells if "parameters" in one.metadata.get("tags", []))
    assert {line.split(" = ")[0] for line in parameters.splitlines()} <= set(cell.source.split())
    cell.source += f"\n{parameters}"
    execute(notebook)
    outputs = [output for one in notebook.cells if one.cell_type == "code" for output in one.outputs]
    return "".join(output.get("text", "") for output in outputs)


@pytest.mark.slow
def test_translation_that_looks(used: Tiny, tmp_path: Path) -> None:
    artifacts, yaml = used.workspace.root.resolve(), Path(used.yaml).resolve()
    told = run("scenes", f'RECIPE = "{yaml}"\nARTIFACTS = "{artifacts}"\nMODEL = "{tmp_path / "model"}"')
    assert "expected for the first: " in told
    assert told.count("MMT, picture") == 2


@pytest.mark.slow
def test_own_pictures(tmp_path: Path) -> None:
    told = run("own_pictures", f'PICTURES = "{tmp_path / "my holiday"}"\nARTIFACTS = "{tmp_path / "artifacts"}"')
    assert "captions of rendered pictures in" in told
    assert "Lengths in words" in told  # doctor has found the recipe
    assert "error:" not in told


def test_a_notebook_without_widgets_is_not_told_to_install_them() -> None:
    cell = nbformat.v4.new_code_cell("import bildwort\nbildwort.train")
    execute(nbformat.v4.new_notebook(cells=[cell]))
    assert "IProgress" not in str(cell.outputs)


EACH = pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)


@EACH
def test_what_is_imported_is_there(path: Path) -> None:
    """The whole notebooks are run by `make test-long` only."""
    sources = [one.source for one in nbformat.read(path, as_version=4).cells if one.cell_type == "code"]
    imports = [
        line for source in sources for line in source.splitlines()
        if re.match(r"(from|import) (bildwort|data|modules|pipeline)\b", line)
    ]  # fmt: skip
    assert imports
    for line in imports:
        exec(line, {})


@EACH
def test_outputs_name_no_path_of_a_machine(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert str(Path.home()) not in text
    assert str(ROOT) not in text
    assert sys.prefix not in text


def test_the_notebook_of_scenes_shows_what_the_readme_prints() -> None:
    """Its outputs are of the recipe as it is: the first pictures found are those of README.md, for the same query."""
    found = re.findall(r"^(\d\.\d{3} [\w-]+)$", PAGES["README.md"], re.M)[:3]
    assert len(found) == 3
    shown = (NOTEBOOKS / "scenes.ipynb").read_text(encoding="utf-8")
    assert [one for one in found if f"{one}.png" not in shown] == []
