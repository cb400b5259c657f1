"""Why two runs differ: their manifests side by side, down to the inputs of their inputs (`compare A B`)."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline.engine.artifacts import read_manifest
from pipeline.engine.console import info
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.visualization.text_table import TextTable

_CAUSES = ("job", "version", "settings", "source", "python", "libraries", "runtime", "machine")
_ABSENT = "–"
_Line = tuple[str, str, str]


def compare(first: str, second: str, workspace: Workspace) -> None:
    """Print how two runs differ, and their figures.

    Args:
        first: a job's folder, `job/key`, or a key or the first digits of one.

    Raises:
        RecipeError: no such run, or more than one.
    """
    folders = [_find(name, workspace.root / "jobs") for name in (first, second)]
    names = [f"{folder.parent.name}/{folder.name}" for folder in folders]
    first_manifest, second_manifest = (read_manifest(folder) for folder in folders)
    causes = list(dict.fromkeys(_causes(folders[0], folders[1])))
    figures = list(_different(first_manifest["metrics"], second_manifest["metrics"]))
    info(f"{names[0]} and {names[1]}: {len(causes)} differences in what they were made of, {len(figures)} in figures")
    if causes:
        TextTable("What they were made of", ["", *names], causes).show()
    elif figures:
        info("settings, inputs and code are equal: a GPU sums in another order; on one CPU a difference is an error")
    if figures:
        TextTable("Figures", ["", *names], figures).show()


def _find(name: str, jobs: Path) -> Path:
    """The folder of a finished run."""
    if (Path(name) / "manifest.json").is_file():
        return Path(name).resolve()
    job, _, key = name.rpartition("/")
    folders = [
        path.parent
        for path in sorted(jobs.glob("*/*/manifest.json"))
        if job in ("", path.parts[-3]) and path.parts[-2].startswith(key) and "." not in path.parts[-2]  # whole ones
    ]
    if len(folders) != 1:
        several = (
            f"fits {', '.join(f'{folder.parent.name}/{folder.name}' for folder in folders[:3])}"
            if folders
            else "is not there"
        )
        raise RecipeError(f"run {name!r} {several}; give a folder or job/key, as in {jobs}/mmt-en-de/0123456789ab")
    return folders[0].resolve()


def _causes(first: Path, second: Path, where: str = "", seen: set[tuple[Path, Path]] | None = None) -> Iterator[_Line]:
    """(what, first, second) of all that may change figures: inputs are looked into before the run itself.

    An input of the same key may have been made by other code or elsewhere, so it is looked into too.
    """
    seen = set() if seen is None else seen
    if first == second or (first, second) in seen:
        return
    seen.add((first, second))
    first_manifest, second_manifest = read_manifest(first), read_manifest(second)
    for name in sorted(first_manifest["inputs"].keys() | second_manifest["inputs"].keys()):
        made = [
            (folder.parents[1], manifest["inputs"].get(name))
            for folder, manifest in ((first, first_manifest), (second, second_manifest))
        ]
        folders = [jobs / input["job"] / input["key"] for jobs, input in made if input]
        if len(folders) == 2 and all((folder / "manifest.json").is_file() for folder in folders):
            yield from _causes(folders[0], folders[1], f"{name}: ", seen)
        elif made[0][1] != made[1][1]:
            keys = [_short(input and input["key"]) for _, input in made]
            yield where + name, keys[0], keys[1]
    left, right = ({part: manifest.get(part) for part in _CAUSES} for manifest in (first_manifest, second_manifest))
    for what, value, other in _different(left, right):
        yield where + what, value, other


def _different(left: Any, right: Any, where: str = "") -> Iterator[_Line]:
    """(dotted key, first, second) of the leaves that differ."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        for key in sorted(left.keys() | right.keys()):
            yield from _different(left.get(key), right.get(key), f"{where}.{key}" if where else key)
    elif left != right:
        yield where, _short(left), _short(right)


def _short(value: Any) -> str:
    if value is None:
        return _ABSENT
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 40 else text[:37] + "…"
