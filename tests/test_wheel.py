"""The wheel holds all packages and recipes: installed into a fresh environment, the commands run."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.whole

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built of the tracked files alone."""
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in listed.splitlines():
        if name.startswith(("data/", "modules/", "pipeline/")) or name in ("pyproject.toml", "README.md", "LICENSE"):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", built, source]
    subprocess.run(pip, check=True, capture_output=True, env=os.environ | {"PIP_NO_INDEX": "1"})
    (found,) = built.glob("*.whl")
    return found


def test_the_wheel_holds_all_packages_and_recipes_and_no_more(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    wanted = {
        path.relative_to(ROOT).as_posix().removeprefix("pipeline/" * (path.parent.name == "bildwort"))
        for package in ("data", "modules", "pipeline") for path in (ROOT / package).rglob("*")
        if path.suffix in (".py", ".yaml", ".html", ".md", ".csv", ".toml") and "__pycache__" not in path.parts
        and path.name != "README.md"
    }  # fmt: skip
    assert names == wanted


def test_its_commands_run_in_a_fresh_environment(wheel: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "fresh")], check=True)
    fresh = tmp_path / "fresh" / "bin"
    pip = [sys.executable, "-m", "pip", "--python", str(fresh / "python"), "install", "-q", "--no-deps", str(wheel)]
    subprocess.run(pip, check=True, capture_output=True, env=os.environ | {"PIP_NO_INDEX": "1"})
    # the dependencies are those of this environment; a path's .pth files are not read, so the checkout is not found
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": sysconfig.get_path("purelib")}
    said = {}
    for command in ("--help", "recipes", "--version"):
        done = subprocess.run(
            [fresh / "bildwort", command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        said[command] = done.stdout
    assert "Train and test translators" in said["--help"]
    code = "import bildwort; print(bildwort.load_recipe('scenes').vse.model, bildwort.__file__)"
    run = [fresh / "python", "-c", code]
    done = subprocess.run(run, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"san {tmp_path / 'fresh'}")
    assert {line.split()[0] for line in said["recipes"].splitlines()} == {
        path.stem for path in (ROOT / "pipeline" / "configs").glob("*.yaml")
    }
