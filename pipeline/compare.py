"""Why two runs differ: their manifests side by side, down to the inputs of their inputs (`report --compare A B`)."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline.errors import RecipeError
from pipeline.jobs import FORMAT, Workspace
from pipeline.processes import say
from pipeline.sheets import Sheet

_CAUSES = ("job", "version", "settings", "source", "python", "libraries", "runtime", "machine")
_ABSENT = "–"


def compare(first: str, second: str, workspace: Workspace) -> None:
    """Say in what two runs differ and what their figures are.

    Args:
        first: a job's folder, `job/key`, or a key or the first digits of one.
        second: the other.
        workspace: where jobs are looked for.

    Raises:
        RecipeError: no such run, or more than one.
    """
    folders = [_find(name, workspace.root / "jobs") for name in (first, second)]
    names = [f"{folder.parent.name}/{folder.name}" for folder in folders]
    one, two = (_read(folder) for folder in folders)
    causes = list(_causes(one, two, folders[0].parents[1], folders[1].parents[1]))
    figures = list(_different(one["metrics"], two["metrics"]))
    say(f"{names[0]} and {names[1]}: {len(causes)} differences in what they were made of, {len(figures)} in figures")
    if causes:
        Sheet("What they were made of", ["", *names], causes).show()
    elif figures:
        say("made of the same: sums in another order (a GPU) are the likely cause; on one CPU it is a fault")
    if figures:
        Sheet("Figures", ["", *names], figures).show()


def _find(name: str, jobs: Path) -> Path:
    """The folder of a finished run."""
    if (Path(name) / "manifest.json").is_file():
        return Path(name).resolve()
    job, _, key = name.rpartition("/")
    found = sorted(path.parent for path in jobs.glob(f"{job or '*'}/{key}*/manifest.json"))
    found = [folder for folder in found if "." not in folder.name]  # whole ones
    if len(found) != 1:
        several = f"fits {', '.join(f'{one.parent.name}/{one.name}' for one in found[:3])}" if found else "is not there"
        raise RecipeError(f"run {name!r} {several}; give a folder or job/key, as in {jobs}/mmt-en-de/0123456789ab")
    return found[0].resolve()


def _read(folder: Path) -> dict[str, Any]:
    path = folder / "manifest.json"
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if manifest["format"] != FORMAT:
            raise RecipeError(f"{path}: format {manifest['format']}, this code reads {FORMAT}; run that job again")
        return manifest | {"inputs": dict(manifest["inputs"]), "metrics": dict(manifest["metrics"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecipeError(f"{path}: not a readable manifest ({error!r}); run that job again") from None


def _causes(
    one: dict[str, Any], two: dict[str, Any], jobs_one: Path, jobs_two: Path, where: str = ""
) -> Iterator[tuple[str, str, str]]:
    """(what, first, second) of all that may change figures, inputs first looked into, then the run itself."""
    for name in sorted(one["inputs"].keys() | two["inputs"].keys()):
        left, right = one["inputs"].get(name), two["inputs"].get(name)
        if left == right:
            continue
        folders = [jobs / made["job"] / made["key"] for jobs, made in ((jobs_one, left), (jobs_two, right)) if made]
        if len(folders) == 2 and all((folder / "manifest.json").is_file() for folder in folders):
            yield from _causes(_read(folders[0]), _read(folders[1]), jobs_one, jobs_two, f"{where}{name}: ")
        else:
            yield f"{where}{name}", _short(left and left["key"]), _short(right and right["key"])
    left, right = ({part: made.get(part) for part in _CAUSES} for made in (one, two))
    for what, first, second in _different(left, right):
        yield where + what, first, second


def _different(left: Any, right: Any, where: str = "") -> Iterator[tuple[str, str, str]]:
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
