"""`embed`: vectors of pictures or captions as a file for a vector database; streamed, and resumed after any stop.

While it works, `FILE.partial/` holds the vectors of a fixed number of items a file. At the end they are joined.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from data.progress import shown
from data.vectors.vector_files import ENDINGS, ids_of, join, told_by, write_part
from pipeline.embedding.items import CaptionLines, Items
from pipeline.engine.artifacts import read_json
from pipeline.engine.console import counted, flag, info
from pipeline.engine.files import lock, require_output, write_atomically, writing_output
from pipeline.errors import RecipeError
from pipeline.export.exported_model import ExportedModel

ABOUT = "about.json"
_NAMED = 5  # captions without a known word that are named


def check_output(output: Path, captions: Path | None = None) -> None:
    """Refuse a file of another ending, that cannot be written or that captions are read from, by a RecipeError."""
    if output.suffix not in ENDINGS:
        raise RecipeError(f"--output {output}: expected a name that ends in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}")
    for path in [output, ids_of(output)] if output.suffix == ".npy" else [output]:
        require_output(path, "embed: --output", True, [captions])  # `_is_finished` says what else may not be replaced


def embed(exported: ExportedModel, items: Items, output: Path, force: bool = False) -> None:
    """Write the vectors of items to a file; after a stop, the same call continues.

    Args:
        exported: the model; of one vector an item.
        output: a file in Parquet (columns `id`, `vector` of H numbers, `model`), a CSV (`id`, `model`, `v1` … `vH`), or
            NumPy's `.npy` (N, H) with the ids beside it (`ids_of`), one a line; float32.

    Raises:
        DataError: the items cannot be read.
        RecipeError: the model has no single vectors or does not know the language, the output exists or cannot be
            written, an unfinished one is of something else, no picture can be read, or the items change.
    """
    check_output(output, items.path if isinstance(items, CaptionLines) else None)
    exported.require_single()
    items.require(exported)
    output.parent.mkdir(parents=True, exist_ok=True)
    with lock(output.with_name(f".{output.name}.lock"), f"embed {output}"):
        partial, state = output.with_name(f"{output.name}.partial"), items.state()
        files = [partial / f"{number:08d}.parquet" for number in range(-(-items.count // items.size))]
        if _is_finished(output, partial, {"model": exported.fingerprint, "items": state}, force):
            _clear(partial)
            info(f"{output}: it is complete")
            return
        with writing_output(output, "embed: --output"):
            _write_parts(exported, items, files)
        if items.state() != state:
            raise RecipeError(f"{partial}: its input changed while it was read; delete this folder and start again")
        count, left, arbitrary = told_by(files)
        if count:
            with writing_output(output, "embed: --output"):
                join(files, output, count)
        _clear(partial)
    if not count:
        first = ": ".join(next(iter(left.items())))
        raise RecipeError(f"embed: none of {len(left)} pictures can be read ({first}); give others")
    if arbitrary:
        named = ", ".join(arbitrary[:_NAMED]) + (" …" if len(arbitrary) > _NAMED else "")
        unknown = counted(len(arbitrary), "captions")
        info(f"the model knows no word of {unknown}, so their vectors are arbitrary: line {named}", colour="yellow")
    for name, reason in left.items():
        info(f"{name}: {reason}", "left out:", "yellow")
    info(f"{output}: {counted(count, 'vectors')}, {len(left):,} left out")


def _is_finished(output: Path, partial: Path, about: Mapping[str, Any], force: bool) -> bool:
    """Was the output finished by a run that was killed before it had cleared up? Else begin or continue.

    Raises:
        RecipeError: the output exists, or an unfinished one is of another model or input.
    """
    begun: dict[str, Any] = {}
    with suppress(RecipeError):
        begun = read_json(partial / ABOUT, dict)
    same = {name: begun.get(name) for name in about} == about
    outputs = [output, ids_of(output)] if output.suffix == ".npy" else [output]
    existing = next((path for path in outputs if path.exists()), None)
    if existing is not None and not force:
        if not same or begun["replaces"]:
            raise RecipeError(f"{existing}: exists; choose another --output, or replace it with {flag('--force')}")
        if output.exists():
            return True
    if partial.exists() and not same and not _is_bare(partial):
        raise RecipeError(f"{partial}: an unfinished output of another model or input; continue it with those, or "
                          "delete this folder")  # fmt: skip
    if not same:
        partial.mkdir(exist_ok=True)
        write_atomically(partial / ABOUT, json.dumps({**about, "replaces": existing is not None}))
    return False


def _is_bare(partial: Path) -> bool:
    """Has a run been killed before it wrote anything?"""
    return partial.is_dir() and all(path.suffix == ".tmp" for path in partial.iterdir())


def _write_parts(exported: ExportedModel, items: Items, files: Sequence[Path]) -> None:
    """Write the parts that are not there."""
    done = next((number for number, file in enumerate(files) if not file.exists()), len(files))
    if done < len(files):
        model = f"{exported.name} {exported.fingerprint}"
        todo = shown(items.parts(exported, done), "encoding", len(files) - done)
        for part, path in zip(todo, files[done:], strict=False):  # input that changes is found out afterwards
            write_part(part, model, path)


def _clear(partial: Path) -> None:
    """Delete the parts, what they are of last."""
    for path in sorted(partial.iterdir(), key=lambda path: path.name == ABOUT):
        path.unlink()
    partial.rmdir()
