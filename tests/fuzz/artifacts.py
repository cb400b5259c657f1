"""What a disk can damage of what was made: a prepared corpus, a trained model, a region store, a gallery."""

import io
import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from data.captions.table import read_captions, read_pairs
from data.pictures.pixels import open_images
from data.pictures.regions import RegionStore, read_standard
from pipeline.cli import main
from pipeline.corpus.prepare import about_corpus, pictures_of
from pipeline.engine.artifacts import read_manifest
from pipeline.gallery.gallery import Gallery
from pipeline.retrieval.ranks import read_ranks
from pipeline.training.model_files import load_model
from tests.data.layouts import write_folder
from tests.fuzz.case import Case, Chance, Reader
from tests.fuzz.made import write_gallery, write_model
from tests.fuzz.models import safetensors_spoiled
from tests.fuzz.mutations import as_json, content_of, put_special, spoiled_bytes, spoiled_tree, text, ways_out
from tests.pipeline.tiny import at

_RECIPE = """
base: own
seed: 1
trainer: {{accelerator: cpu, threads: 1, progress: false}}
corpus: {{root: "{root}", validation: 0.2, test: 0.2}}
regions: {{regions: 3, size: 64}}
vse: {{dim: 8, word_dim: 8, epochs: 1, warmup_epochs: 0, batch_size: 4, min_count: 1, only: [en-de],
  reranker: {{model: null}}}}
report: {{resamples: 100}}
"""


class Artifacts(Reader):
    """The artifacts of a tiny recipe, and a gallery."""

    name = "artifacts"
    reads_elsewhere = True  # they may be links to a larger disk

    def prepare(self, base: Path, light: bool) -> None:
        self._data = base.parent / "some"
        write_folder(self._data, 12)
        self._recipe = self._data / "mine.yaml"
        self._recipe.write_text(_RECIPE.format(root=self._data))
        with at(base):
            for command in ["prepare"] if light else ["prepare", "vse"]:
                assert main([command, str(self._recipe), "--jobs", "1"]) == 0
        model = self._data / "model"
        write_model(model, self._data / "pictures" / "0.png")
        write_gallery(base / "gallery", model, self._data / "pictures")
        self._names = sorted(path.relative_to(base).as_posix() for path in base.rglob("*") if path.is_file())
        self._names = [
            one for one in self._names if not one.endswith((".log", ".md", ".lock")) and "lightning" not in one
        ]

    def give(self, case: Case, base: Path) -> None:
        self._base, self._spoiled = base, list[str]()
        _link_all(base / "artifacts", case.work / "artifacts")
        _link_all(base / "gallery", case.given / "gallery")

    def spoil(self, case: Case, base: Path) -> str:
        self.give(case, base)
        rng, said = case.rng, []
        for _ in range(rng.choice([1, 1, 1, 2])):
            kind = rng.choice(["corpus", "regions", "vse", "gallery", "gallery", "manifest", "small"])
            name = rng.choice([one for one in self._names if _is_of(one, kind)] or self._names)
            self._spoiled.append(name)
            folder = case.given if name.startswith("gallery") else case.work
            said.append(f"{_short(name)}: {_spoil(case, folder / name)}")
        return "; ".join(said)

    def read(self, case: Case) -> None:
        for kind in ("artifacts", "gallery") if case.is_good else {name.partition("/")[0] for name in self._spoiled}:
            (self._read_artifacts if kind == "artifacts" else self._read_gallery)(case)

    def _read_artifacts(self, case: Case) -> None:
        jobs = case.work / "artifacts" / "jobs"
        folders = [
            next(one for one in found.iterdir() if one.is_dir()) for found in sorted(jobs.iterdir()) if found.is_dir()
        ]
        corpus = next(folder for folder in folders if folder.parent.name == "corpus")
        trained = [folder for folder in folders if folder.parent.name.startswith("vse")]
        store = case.call(lambda: RegionStore(corpus / "regions"))
        if store is not None:
            case.call(lambda: store.take(store.rows(store.ids[:2])))
        for read in (open_images, read_standard):
            case.call(partial(read, corpus / "regions"))
        for name, table_of in (("captions", read_captions), ("pairs", read_pairs)):
            case.call(lambda: table_of(corpus / f"{name}.parquet").to_list())  # noqa: B023
        for of in (about_corpus, pictures_of):
            case.call(partial(of, corpus))
        for folder in folders:
            case.call(partial(read_manifest, folder))
        for folder in trained:
            case.call(partial(read_ranks, folder, "en"))
            case.call(partial(load_model, folder))
        recipe = str(self._recipe)
        commands = [["prepare", recipe, "--jobs", "1"], ["all", recipe, "--dry-run"]]
        if trained:
            commands += [
                ["report", recipe], ["export", recipe, "--output", "model"], ["index", recipe, "--gallery", "other"],
                ["compare", str(corpus), str(trained[0])],
            ]  # fmt: skip
        for command in commands if case.is_good else case.rng.sample(commands, 2):
            case.command(*command)
        if trained and case.is_one_of(40, 7):
            case.command("vse", recipe, "--jobs", "1", "--vse.dim=9")

    def _read_gallery(self, case: Case) -> None:
        gallery = str(case.given / "gallery")
        opened = case.call(lambda: Gallery.open(gallery))
        if opened is not None:
            case.call(lambda: opened.search("a dog in the park", 3, "en"))
            case.call(lambda: opened.describe_known("0.png", 2))
            case.call(
                lambda: [
                    opened.draw_pictures(3, 1),
                    opened.draw_captions("en", 2, 1) if "en" in opened.languages else None,
                ]
            )
        if case.is_one_of(3):
            case.command("search", "a dog", "--gallery", gallery, "--sheet", "found.html", "--json")
        if case.is_one_of(3, 1):
            case.command("describe", "0.png", "--gallery", gallery)
        if case.is_one_of(6, 2):
            _link_all(case.given / "gallery", case.work / "gallery")  # this one is written to
            case.command(
                "index",
                "--gallery",
                "gallery",
                "--model",
                str(self._data / "model"),
                "--pictures",
                str(self._data / "pictures"),
            )


def _is_of(name: str, kind: str) -> bool:
    place, job = name.partition("/")[0], name.split("/")[2] if name.startswith("artifacts/jobs/") else ""
    return {
        "corpus": job == "corpus", "regions": "/regions/" in name, "vse": job.startswith("vse"),
        "gallery": place == "gallery", "manifest": name.endswith("manifest.json"),
        "small": place == "artifacts" and not job,
    }[kind]  # fmt: skip


def _short(name: str) -> str:
    parts = name.split("/")
    return "/".join(parts[2:3] + parts[4:]) if name.startswith("artifacts/jobs") else name


def _link_all(source: Path, target: Path) -> None:
    """Copies, but of large files hard links: a spoiled file is put in the place of one."""
    for place, _, files in os.walk(source):
        folder = target / Path(place).relative_to(source)
        folder.mkdir(parents=True, exist_ok=True)
        for name in files:
            os.link(Path(place) / name, folder / name)


def _spoil(case: Case, path: Path) -> str:
    rng = case.rng
    raw, chance = content_of(path), rng.random()
    if raw is None:
        return "twice"
    path.unlink()  # the link
    if chance < 0.08:
        how = rng.choice(["missing", "folder", "link to itself", "empty", "link out"])
        put_special(path, how, case.outside / "secret.json")
        return how
    if chance < 0.2:
        raw, how = spoiled_bytes(rng, raw)
    elif path.suffix == ".json" and (rng.random() < 0.3 or path.parent.name == "gallery"):
        try:
            tree = json.loads(raw)
        except (ValueError, RecursionError):
            tree = {}
        tree, how = spoiled_tree(rng, tree, ways_out(path.parent, case.outside, ".json"))
        raw, also = as_json(rng, tree)
        how = f"{how} {also}"
    elif path.suffix == ".parquet":
        return _spoil_table(case, path, raw)
    elif path.suffix in (".npy", ".npz"):
        return _spoil_arrays(rng, path, raw)
    elif path.suffix == ".safetensors":
        raw, how = safetensors_spoiled(rng, raw)
    elif path.suffix == ".txt":
        lines = raw.decode("utf-8", "replace").split("\n")
        lines[rng.randrange(len(lines))] = rng.choice([text(rng), lines[0], "", "../x"])
        raw, how = "\n".join(lines).encode("utf-8", "surrogatepass"), "a line changed"
    else:
        raw, how = spoiled_bytes(rng, raw)
    path.write_bytes(raw)
    return how


def _spoil_table(case: Case, path: Path, raw: bytes) -> str:
    """Another table of captions or pictures."""
    rng, table = case.rng, pq.read_table(pa.BufferReader(raw))
    rows = table.to_pylist()
    name, how = (
        rng.choice(table.column_names),
        rng.choice(["cell", "cell", "cell", "type", "drop", "rename", "rows", "empty", "way"]),
    )
    if how in ("cell", "way") and rows:
        rng.choice(rows)[name] = (
            None
            if rng.random() < 0.2
            else text(rng)
            if how == "cell"
            else rng.choice(ways_out(path, case.outside, ".png"))
        )
    if how == "rows":
        rows = rng.choice([rows * 3, rows[:1], rows[::-1], rows[1:]])
    if how == "empty":
        rows = []
    try:
        made = pa.Table.from_pylist(rows, table.schema)
        if how == "type":
            kinds = {
                "int": list(range(len(rows))),
                "null": [None] * len(rows),
                "list": [["a"]] * len(rows),
                "bytes": [b"\xff"] * len(rows),
            }
            made = made.set_column(made.column_names.index(name), name, pa.array(kinds[rng.choice(list(kinds))]))
        elif how == "drop":
            made = made.drop_columns([name])
        elif how == "rename":
            made = made.rename_columns(
                [text(rng).encode("utf-8", "replace").decode() if one == name else one for one in made.column_names]
            )
        pq.write_table(made, path)
    except (pa.ArrowException, UnicodeError, ValueError, TypeError, OSError):
        path.write_bytes(raw[:-3])
    return f"column {name}: {how}"


def _spoil_arrays(rng: Chance, path: Path, raw: bytes) -> str:
    """Arrays of another shape, type or value."""
    held = io.BytesIO(raw)
    try:
        read = np.load(held)
        arrays: dict[str, Any] = {"": read} if path.suffix == ".npy" else {name: read[name] for name in read.files}
    except Exception:  # spoiled before
        path.write_bytes(raw[:-5])
        return "cut"
    name = rng.choice(list(arrays))
    array = arrays[name]
    how = rng.choice(["value", "value", "type", "shape", "empty", "object", "rows", "huge", "missing", "order"])
    if how == "value" and array.size:
        array = array.copy()
        new = rng.choice([np.nan, np.inf, -1, 0, 60000, 2**31])
        with np.errstate(all="ignore"):
            array.reshape(-1)[rng.randrange(array.size)] = new if array.dtype.kind == "f" or np.isfinite(new) else -5
    elif how == "type":
        with np.errstate(all="ignore"):
            array = np.nan_to_num(array.astype(np.float64)).astype(
                rng.choice(["f8", "f4", ">f2", "i8", "U5", "c8", "?", "u1", "M8[s]"])
            )
    elif how == "shape":
        array = rng.choice([array.reshape(-1), array[None], array[..., None], array.sum(), array[:0], array.T])
    elif how == "empty":
        array = np.zeros((0,), array.dtype)
    elif how == "object":
        array = np.array([{"a": 1}, None], dtype=object)
    elif how == "rows":
        array = rng.choice([array[1:], np.concatenate([array, array]), array[::-1]]) if array.ndim else array
    elif how == "order":
        array = np.asfortranarray(array)
    arrays[name] = array
    if how == "missing" and path.suffix == ".npz":
        del arrays[name]
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    elif how == "huge":
        header = (
            f"{{'descr': '<f2', 'fortran_order': False, 'shape': ({rng.choice([10**12, 2**63, -1])}, 3, 5)}}\n".encode()
        )
        path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + raw[128:])
    else:
        np.save(path, array)
    return f"array {name} {how}"
