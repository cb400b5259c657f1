"""Updating a gallery: new vectors are computed, the rest comes from the vector cache."""

import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from data.progress import shown
from modules.errors import ModelError
from modules.search.fit import sampled
from modules.search.index import VectorIndex
from modules.search.shards import ABOUT as ABOUT_SHARDS
from modules.search.shards import ShardedIndex
from pipeline.engine.files import digest_of, lock, rename_atomically, require_folder, write_atomically
from pipeline.errors import RecipeError
from pipeline.export.exported_files import ABOUT
from pipeline.export.exported_model import ExportedModel
from pipeline.gallery.fit import Fits
from pipeline.gallery.generation import (
    FORMAT,
    OWN,
    OWN_COLUMNS,
    PICTURE_COLUMNS,
    POINTER,
    captions_of,
    own_before,
    own_rows_of,
    read_pointer,
    rows_of,
)
from pipeline.gallery.hits import Own
from pipeline.gallery.picture_sources import Pictures, StoredRegions
from pipeline.gallery.vector_cache import Arrays, VectorCache

SHARD = 1_000_000  # vectors of a file of an index, and in memory while it is built
LARGE = 200_000  # vectors from which an index is `ivf-pq`: a flat one takes a tenth of a second a query then
_PART = 256  # pictures or captions computed between two writes
_LOCK = ".gallery.lock"
_CONTENT = "content.txt"
_OURS = {POINTER, "parts", "generations", "models", _LOCK}


@dataclass(frozen=True)
class Update:
    """What an update did.

    Attributes:
        pictures: in the gallery now.
        computed: contents that were read now.
        new: of the pictures, those that were not in it before; one that was moved was.
        gone: those that are no longer there, under any name.
        left: what was left out, by name, with the reason.
        captions: in the gallery now, by language.
    """

    pictures: int
    computed: int
    new: int
    gone: int
    left: dict[str, str]
    captions: dict[str, int]


def update_gallery(
    folder: Path, exported: ExportedModel, pictures: Pictures, captions: Mapping[str, Sequence[str]] | None = None,
    own: Mapping[str, Own] | None = None,
) -> Update:  # fmt: skip
    """Bring a gallery up to date with pictures and captions; known vectors are not computed again.

    Args:
        folder: of the gallery; made if it is not there.
        exported: the model; of one vector an item.
        pictures: all that it should hold; others leave it.
        captions: sentences by language; None: those that it has, in languages that the model reads.
        own: of them, those of a picture, by its name and the language; None: they are not known.

    Raises:
        RecipeError: the model has no single vectors, or the folder holds something else.
    """
    if exported.model.score != "inner product":
        raise RecipeError(f"{exported.folder}: {exported.name} has no single vectors to index; index an inner-product "
                          "model (san, dan, vse-inf …) and give this one to `search` as --rerank")  # fmt: skip
    _require_ours(folder)
    if isinstance(pictures, StoredRegions):
        _require_same_regions(exported, pictures)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecipeError(f"{folder}: cannot be made ({error.strerror}); choose another gallery") from None
    require_folder(folder, "index")
    with lock(folder / _LOCK, f"gallery {folder}"):
        pointer = read_pointer(folder)
        before = folder / "generations" / pointer["generation"] if pointer else None
        same = pointer is not None and pointer["made_of"] == exported.fingerprint
        old = rows_of(before if same else None)
        parts = VectorCache(folder / "parts" / exported.fingerprint / "pictures", mend=True)
        rows, computed, left = _take_in(parts, exported, pictures, old)
        own_rows = own_rows_of(rows, own or {})
        if captions is None:
            captions = {name: texts for name, texts in captions_of(before).items() if name in exported.languages}
            own_rows = own_before(before, rows, by_files=pictures.store is None)
        texts_by_language = {language: list(dict.fromkeys(texts)) for language, texts in captions.items() if texts}
        _write_generation(folder, exported, rows, parts, texts_by_language, own_rows, left, pointer)
        counts = {language: len(texts) for language, texts in texts_by_language.items()}
        known = [row for name, row in old.items() if name not in left]
        return Update(len(rows), computed, *_changes(known, rows), left, counts)


def _take_in(
    parts: VectorCache, exported: ExportedModel, pictures: Pictures, old: Mapping[str, dict[str, Any]]
) -> tuple[list[dict[str, Any]], int, dict[str, str]]:
    """Rows of all pictures that can be read, how many were computed now, and why others were left out."""
    left, known_rows = dict(pictures.left), list[dict[str, Any]]()
    store = None if pictures.store is None else str(pictures.store.folder.absolute())
    for name, file in pictures.paths.items():
        path, state, known = str(file.absolute()) if file else None, pictures.state(name), old.get(name)
        same = known is not None and (known["state"], known["path"]) == (state, path)
        try:
            digest = known["digest"] if known and same else pictures.digest(name)
        except OSError as error:  # gone or locked since the folder was listed
            left[name] = f"cannot be read ({error.strerror})"
        else:
            known_rows.append({"name": name, "path": path, "digest": digest, "state": state, "store": store})
    computed, unread = _compute(parts, exported, pictures, known_rows)
    left |= {row["name"]: unread[row["digest"]] for row in known_rows if row["digest"] in unread}
    return [row for row in known_rows if row["digest"] not in unread], computed, left


def _changes(old: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    """How many pictures are new, and how many gone: by content, or by name where another store is read."""
    alike = {row["store"] for row in old} == {row["store"] for row in rows}
    before, now = (Counter(row["digest" if alike else "name"] for row in some) for some in (old, rows))
    return (now - before).total(), (before - now).total()


def _compute(
    parts: VectorCache, exported: ExportedModel, pictures: Pictures, rows: Sequence[Mapping[str, Any]]
) -> tuple[int, dict[str, str]]:
    """Add the contents that the cache lacks, each once; how many, and why others cannot be computed, by digest."""
    first: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        if row["digest"] not in parts:
            first.setdefault(row["digest"], row)
    computed, unread, count = 0, dict[str, str](), len(first)
    read = pictures.arrays(exported, [row["name"] for row in first.values()]) if first else iter(())
    todo = zip(first.values(), shown(read, "encoding pictures", count), strict=True)
    while some := list(islice(todo, _PART)):
        batch: dict[str, Arrays] = {}
        for row, arrays in some:
            if pictures.state(row["name"]) != row["state"]:
                unread[row["digest"]] = "changed while it was read; run it again"
            elif isinstance(arrays, str):
                unread[row["digest"]] = arrays
            else:
                batch[row["digest"]] = arrays
        if batch:
            stacked = {name: np.stack([arrays[name] for arrays in batch.values()]) for name in ("regions", "boxes")}
            vectors = {"vectors": exported.encode_regions(stacked["regions"]).single().numpy()}
            if pictures.store is not None:  # regions lie there already
                del stacked["regions"]
            parts.add(list(batch), stacked | vectors)
            computed += len(batch)
    return computed, unread


def _write_generation(
    folder: Path, exported: ExportedModel, rows: Sequence[dict[str, Any]], parts: VectorCache,
    captions: Mapping[str, Sequence[str]], own: Sequence[dict[str, str]], left: Mapping[str, str],
    pointer: Mapping[str, Any] | None,
) -> None:  # fmt: skip
    """Write a generation, point to it, and clear away what neither it nor the one before needs."""
    number = 1 + (int(pointer["generation"]) if pointer else 0)
    place = folder / "generations" / str(number)
    before = place.with_name(pointer["generation"]) if pointer else None
    half = place.with_name(f"{number}.partial")
    for stale in (half, place):
        shutil.rmtree(stale, ignore_errors=True)
    half.mkdir(parents=True)
    copy = _keep_model(folder / "models", exported)
    for name, table, columns in (("pictures.parquet", rows, PICTURE_COLUMNS), (OWN, own, OWN_COLUMNS)):
        schema = pa.schema([(column, pa.string()) for column in columns])
        pq.write_table(pa.Table.from_pylist(list(table), schema=schema), half / name)
    (half / "left.json").write_text(json.dumps(left, indent=1, ensure_ascii=False), encoding="utf-8")
    if rows:
        _index(half / "pictures", parts, [row["digest"] for row in rows], exported, before)
        _fits(half, parts, rows, exported).save(half)
    vectors = VectorCache(parts.folder.with_name("captions"), mend=True)
    digests = {language: [_digest(language, text) for text in texts] for language, texts in captions.items()}
    for language, texts in captions.items():
        name = f"captions-{language}"
        _add_captions(vectors, exported, language, texts, digests[language])
        pq.write_table(pa.table({"text": pa.array(texts, pa.string())}), half / f"{name}.parquet")
        _index(half / name, vectors, digests[language], exported, before)
    rename_atomically(half, place)
    about = {"format": FORMAT, "generation": str(number), "made_of": exported.fingerprint, "model": exported.name,
             "copy": copy, "languages": list(captions)}  # fmt: skip
    write_atomically(folder / POINTER, json.dumps(about, indent=1))
    for stale in folder.glob(f"{POINTER}.*.tmp"):  # of an update that was killed
        stale.unlink(missing_ok=True)
    parts.keep({row["digest"] for row in [*rows, *rows_of(before).values()]})
    vectors.keep({digest for some in digests.values() for digest in some})
    for kind, key in (("generations", "generation"), ("parts", "made_of"), ("models", "copy")):
        for stale in (folder / kind).glob("*"):
            if stale.name not in {known[key] for known in (about, pointer) if known}:
                shutil.rmtree(stale, ignore_errors=True)


def _keep_model(models: Path, exported: ExportedModel) -> str:
    """Copy the model into the gallery, if it is not there; its name."""
    name = digest_of(exported.folder / ABOUT)[:16]
    if (models / name).is_dir():
        with suppress(RecipeError):
            ExportedModel.load(models / name)
            return name
        shutil.rmtree(models / name)  # it is damaged
    half = models / f"{name}.partial"
    shutil.rmtree(half, ignore_errors=True)
    shutil.copytree(exported.folder, half, ignore=shutil.ignore_patterns(".*"))
    rename_atomically(half, models / name)
    return name


def _require_ours(folder: Path) -> None:
    """Refuse a folder that holds anything else than a gallery."""
    if not folder.exists():
        return
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else {folder.name}
    foreign = {name for name in names - _OURS if not (name.startswith(f"{POINTER}.") and name.endswith(".tmp"))}
    if foreign or (names and not names & {_LOCK, POINTER}):
        raise RecipeError(f"{folder}: is there already and holds something else; choose another folder")


def _require_same_regions(exported: ExportedModel, pictures: StoredRegions) -> None:
    """Refuse a corpus whose regions are not made as those that the model was trained on."""
    ours, theirs = exported.standard, pictures.standard
    if (ours is None) != (theirs is None) or (
        ours is not None and theirs is not None
        and not all(np.array_equal(one, other) for one, other in zip(ours, theirs, strict=True))
    ):  # fmt: skip
        raise RecipeError(
            f"{pictures.store.folder}: its regions are not made as those that {exported.name} was trained on; index "
            "the corpus of the model's own recipe, or a folder of pictures"
        )


def _add_captions(
    parts: VectorCache, exported: ExportedModel, language: str, texts: Sequence[str], digests: Sequence[str]
) -> None:
    todo = [(digest, text) for digest, text in zip(digests, texts, strict=True) if digest not in parts]
    for start in range(0, len(todo), 16 * _PART):
        some = todo[start : start + 16 * _PART]
        vectors = exported.encode_captions([text for _, text in some], language).single().numpy()
        parts.add([digest for digest, _ in some], {"vectors": vectors})


def _index(
    place: Path, parts: VectorCache, digests: Sequence[str], exported: ExportedModel, before: Path | None
) -> None:
    """Write an index in shards, one in memory at a time; one that is as in the generation before is taken from it."""
    starts = range(0, len(digests), SHARD)
    for number, start in enumerate(starts):
        some = digests[start : start + SHARD]
        content, shard = hashlib.sha256("".join(some).encode()).hexdigest(), place / str(number)
        old = before / place.name / str(number) if before is not None else None
        if old is not None and _holds(old, content, exported):
            shutil.copytree(old, shard, copy_function=_link)
            continue
        vectors = torch.from_numpy(parts.take(some, "vectors"))
        VectorIndex(vectors, "ivf-pq" if len(some) >= LARGE else "flat", gpu=-1).save(shard, exported.fingerprint)
        (shard / _CONTENT).write_text(content, encoding="utf-8")
    (place / ABOUT_SHARDS).write_text(json.dumps({"shards": len(starts)}), encoding="utf-8")


def _fits(half: Path, parts: VectorCache, rows: Sequence[Mapping[str, Any]], exported: ExportedModel) -> Fits:
    """The scores that those of queries and pictures will be compared with."""
    some = sampled(len(rows))
    vectors = torch.from_numpy(parts.take([rows[row]["digest"] for row in some], "vectors"))
    index = ShardedIndex.load(half / "pictures", exported.fingerprint, gpu=-1)
    return Fits.measure(exported, index, some, vectors)


def _link(source: str, target: str) -> None:
    """A hard link to a file, or a copy where the file system has none."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _holds(shard: Path, content: str, exported: ExportedModel) -> bool:
    """Is a shard whole, of this model and of these contents?"""
    try:
        return (shard / _CONTENT).read_text("utf-8") == content and len(
            VectorIndex.load(shard, exported.fingerprint)
        ) > 0
    except (OSError, ValueError, ModelError):
        return False


def _digest(language: str, text: str) -> str:
    return hashlib.sha256(f"{language}\n{text}".encode()).hexdigest()
