"""The manifest of a finished job: what was computed, from what, at what cost, and its figures."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.errors import RecipeError
from pipeline.jobs.files import write_atomically

FORMAT = 2
_DIGEST = "sha256"


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write a finished job's manifest, with a digest of what is in it."""
    whole = {**manifest, "format": FORMAT}
    write_atomically(
        folder / "manifest.json", json.dumps({**whole, _DIGEST: _digest(whole)}, indent=1, ensure_ascii=False)
    )


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest in a finished job's folder.

    Raises:
        RecipeError: it is damaged, or of another format.
    """
    path = folder / "manifest.json"
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(manifest, dict):
            raise ValueError(f"it holds a {type(manifest).__name__}")
    except (OSError, ValueError, RecursionError) as error:
        raise RecipeError(f"{path}: not a readable manifest ({error}); delete the folder and run again") from None
    if manifest.get("format") != FORMAT:
        stage = f"`make stage-{manifest['stage']}`" if "stage" in manifest else "its stage"
        raise RecipeError(
            f"{path}: format {manifest.get('format')}, this code reads {FORMAT}; run {stage} with ARGS=--force"
        )
    if manifest.pop(_DIGEST, None) != _digest(manifest):
        raise RecipeError(f"{path}: damaged, its digest is another; delete the folder and run again")
    return manifest


def source_digest() -> str:
    """A digest of all Python files of the three packages."""
    digest = hashlib.sha256()
    root = Path(__file__).parents[2]
    for package in ("data", "modules", "pipeline"):
        for path in sorted((root / package).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _digest(manifest: Mapping[str, Any]) -> str:
    """SHA-256 of the contents of a manifest, whatever their order."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
