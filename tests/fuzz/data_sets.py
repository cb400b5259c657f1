"""Data sets that the library `datasets` reads: pictures with metadata, Parquet files, and saved data sets."""

import csv
import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from PIL import Image

from tests.data.layouts import sentence
from tests.fuzz.case import Case, Chance, Reader
from tests.fuzz.mutations import as_json, number, spoiled_bytes, spoiled_tree, text, value, ways_out
from tests.fuzz.tables import COUNT, init_and_doctor

_FORMS = ["csv", "jsonl", "parquet-metadata", "parquet", "parquet", "saved", "saved-dict"]
_COLUMNS = ["file_name", "image", "text", "caption", "captions", "en", "de", "text_de", "split", "label", "id",
"image_file_name", "",
            "file_names", "images", "x_file_name", "caption_0", "raw", "sentences"]  # fmt: skip
_SIZE = (24, 24)


class DataSets(Reader):
    """A small data set in one of its forms."""

    name = "data-sets"

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []

    def prepare(self, base: Path, light: bool) -> None:
        pictures = base / "pictures"
        pictures.mkdir()
        for k in range(COUNT):
            Image.new("RGB", _SIZE, (20 * k, 90, 9)).save(pictures / f"{k}.png")
            self._rows.append({"file_name": f"{k}.png", "text": sentence(str(k), 1)})
        columns = {
            "image": [str(pictures / row["file_name"]) for row in self._rows],
            "text": [row["text"] for row in self._rows],
        }
        made = datasets.Dataset.from_dict(columns).cast_column("image", datasets.Image())
        made.save_to_disk(base / "saved")
        parts = {"train": made.select(range(10)), "validation": made.select([10, 11])}
        datasets.DatasetDict(parts).save_to_disk(base / "saved-dict")

    def give(self, case: Case, base: Path) -> None:
        self._build(case, base, "csv", [])

    def spoil(self, case: Case, base: Path) -> str:
        form, said = case.rng.choice(_FORMS), list[str]()
        self._build(case, base, form, said)
        if case.rng.random() < 0.12:
            said.append(_more(case))
        return f"{form}: {'; '.join(said)}"

    def read(self, case: Case) -> None:
        init_and_doctor(case)

    def _build(self, case: Case, base: Path, form: str, said: list[str]) -> None:
        """Write one form; where `said` is given a list that is filled, something in it is wrong."""
        good = case.is_good
        if form.startswith("saved"):
            _copy(base / form, case.given)
            if not good:
                said.append(_spoil_saved(case))
            return
        if form != "parquet":
            _copy(base / "pictures", case.given)
        rows: list[dict[str, Any]] = [dict(row) for row in self._rows]
        if form == "parquet":
            rows = [{"image": {"bytes": (base / "pictures" / row["file_name"]).read_bytes(), "path": row["file_name"]},
                     "text": row["text"]} for row in rows]  # fmt: skip
        if not good and case.rng.random() < 0.75:
            said += [_spoil_rows(case, rows, form == "parquet") for _ in range(case.rng.choice([1, 1, 2]))]
        raw, name = _written(case, rows, form, said)
        if not good and case.rng.random() < 0.15:
            raw, how = spoiled_bytes(case.rng, raw)
            said.append(how)
        path = case.given / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(raw)
        if not good and case.rng.random() < 0.06:
            said.append(_link(case, path))


def _copy(source: Path, target: Path) -> None:
    for path in sorted(source.rglob("*")):
        if path.is_file():
            (target / path.relative_to(source)).parent.mkdir(exist_ok=True)
            (target / path.relative_to(source)).write_bytes(path.read_bytes())


def _spoil_rows(case: Case, rows: list[dict[str, Any]], in_table: bool) -> str:
    """Something wrong in a row, or in a column."""
    if not rows:
        return "no rows"
    rng, row = case.rng, case.rng.choice(rows)
    key, way = ("image" if in_table else "file_name"), rng.choice(ways_out(case.given, case.outside, ".png"))
    how = rng.choice(["way", "way", "column", "cell", "cell", "row", "rename", "types", "all", "split", "link"])
    if how == "way":
        row[key] = {"bytes": None, "path": way} if in_table else way
        return f"a picture is {way!r}"
    if how == "link":
        if in_table:
            row[key] = {
                "bytes": rng.choice([b"", b"no picture", b"\xff\xd8\xff", None]),
                "path": rng.choice([None, "", text(rng)]),
            }
            return f"a picture is {row[key]}"[:80]
        name = f"{rng.randrange(COUNT)}.png"
        (case.given / name).unlink()
        (case.given / name).symlink_to(
            rng.choice([case.outside / "secret.png", Path(name), Path("/dev/zero"), Path("nothing.png")])
        )
        return f"{name} is a link to {(case.given / name).readlink()}"
    if how == "cell":
        name = rng.choice(list(row))
        row[name] = rng.choice([value(rng), text(rng), text(rng), number(rng), None])
        return f"{name} is {str(row[name])[:40]!r}"
    if how == "row":
        rows[:] = rng.choice([rows * 30, rows[:1], [], rows[:3], [*rows, dict(row)], [*rows, {}], rows[::-1]])
        return f"{len(rows)} rows"
    if how == "rename":
        old, new = rng.choice(list(row)), rng.choice([*_COLUMNS, text(rng)])
        for one in rows:
            if old in one:
                one[new] = one.pop(old)
        return f"column {old} called {new[:30]!r}"
    name = rng.choice([*_COLUMNS, "text", key])
    given = value(rng) if how == "types" else text(rng)
    for k, one in enumerate(rows):
        one[name] = {"split": ["val", "test", *["train"] * COUNT][k % 12], "all": given, "types": given}.get(
            how, f"{given}{k}"
        )
    return f"column {name} is {str(given)[:40]!r}"


def _written(case: Case, rows: list[dict[str, Any]], form: str, said: list[str]) -> tuple[bytes, str]:
    """The bytes and the name of the file of rows."""
    rng, good = case.rng, case.is_good
    if form == "csv":
        held = io.StringIO()
        names = list(dict.fromkeys(name for row in rows for name in row))
        ends, split = (
            ("\n", ",") if good or rng.random() < 0.8 else (rng.choice(["\r\n", "\r", "\n\n"]), rng.choice(";\t|"))
        )
        quoting = csv.QUOTE_MINIMAL if good or rng.random() < 0.8 else rng.choice([csv.QUOTE_ALL, csv.QUOTE_NONE])
        writer = csv.DictWriter(held, names, delimiter=split, lineterminator=ends, quoting=quoting, escapechar="\\")
        writer.writeheader()
        writer.writerows(rows)
        return held.getvalue().encode("utf-8", "surrogatepass"), "metadata.csv"
    if form == "jsonl":
        lines = []
        for row in rows:
            tree, how = (
                (row, "")
                if good or rng.random() < 0.93
                else spoiled_tree(rng, row, ways_out(case.given, case.outside, ".png"))
            )
            raw, also = as_json(rng, tree) if tree is not row else (json.dumps(row).encode(), "")
            said += [one for one in (how, also) if one]
            lines.append(raw)
        return b"\n".join(lines) + b"\n", "metadata.jsonl"
    table = _table(rows, said)
    if form == "parquet" and rng.random() < 0.5:
        about: Any = {
            "info": {"features": {"image": {"_type": "Image"}, "text": {"dtype": "string", "_type": "Value"}}}
        }
        if rng.random() < 0.5:
            about, how = spoiled_tree(
                rng, about, ["Audio", "Video", "ClassLabel", "List", "Array2D", "Json", "Pdf", "Translation"]
            )
            said.append(f"features: {how}")
        table = table.replace_schema_metadata({"huggingface": as_json(rng, about)[0]})
    held_bytes = io.BytesIO()
    try:
        pq.write_table(table, held_bytes, compression=rng.choice(["none", "snappy", "zstd", "gzip"]))
    except pa.ArrowException as error:
        said.append(f"no file ({error})"[:60])
    name = (
        "metadata.parquet"
        if form == "parquet-metadata"
        else rng.choice(["data/train-00000-of-00001.parquet", "a.parquet"])
    )
    return held_bytes.getvalue(), name


def _table(rows: list[dict[str, Any]], said: list[str]) -> pa.Table:
    """Rows as a table; cells that do not fit their column are texts."""
    for kind in (lambda one: one, lambda one: one if isinstance(one, dict | bytes) else str(one)):
        try:
            clean = [
                {name.encode("utf-8", "replace").decode(): kind(cell) for name, cell in row.items()} for row in rows
            ]
            return pa.Table.from_pylist(clean or [{}])
        except (pa.ArrowException, ValueError, TypeError, OverflowError, UnicodeError):
            continue
    said.append("no table")
    return pa.table({"text": ["a"]})


def _spoil_saved(case: Case) -> str:
    """A saved data set one of whose files is wrong."""
    rng = case.rng
    path = rng.choice(sorted(one for one in case.given.rglob("*") if one.is_file()))
    raw, name = path.read_bytes(), path.relative_to(case.given)
    chance = rng.random()
    if chance < 0.1:
        path.unlink()
        return f"{name} is missing"
    if chance < 0.2:
        return f"{name}: {_link(case, path)}"
    if path.suffix == ".json" and chance < 0.85:
        ways = [*ways_out(path.parent, case.outside, ".parquet"), "Audio", "Image", "Value", "ClassLabel", "List"]
        tree, how = spoiled_tree(rng, json.loads(raw), ways)
        raw, also = as_json(rng, tree)
        how = f"{how} {also}"
    else:
        raw, how = spoiled_bytes(rng, raw)
    path.write_bytes(raw)
    return f"{name}: {how}"


def _link(case: Case, path: Path) -> str:
    target = case.rng.choice([case.outside / f"secret{path.suffix}", path, Path("/dev/zero"), Path("nothing")])
    path.unlink()
    path.symlink_to(target)
    return f"a link to {target}"


def _more(case: Case) -> str:
    """A file beside the others, which a data set of the hub may have."""
    rng, given = case.rng, case.given
    how = rng.choice(["card", "card", "card", "script", "zip", "infos", "pipe", "folder", "second"])
    if how == "card":
        files = rng.choice(
            [
                *ways_out(given, case.outside, ".parquet"),
                *ways_out(given, case.outside, ".csv"),
                "*.png",
                "**",
                ["a"],
                {"train": "*"},
            ]
        )
        about: Any = rng.choice([
            {"configs": [{"config_name": "default", "data_files": files}]}, {"configs": [{"config_name": "default",
            "data_dir": files}]}, {"configs": [{"config_name": "x" * 300, "data_files": [{"split": "../x",
            "path": files}]}]}, {"configs": 3}, {"configs": [3]}, {"dataset_info": {"features": [{"name": "text",
            "dtype": "int8"}]}}, {"dataset_info": value(rng)}, [1], text(rng),
            {"configs": [{"config_name": "a/../../b", "data_files": "*.parquet"}]},
            {"dataset_info": {"splits": [{"name": "/x"}]}},
        ])  # fmt: skip
        written = (
            yaml.safe_dump(about) if rng.random() < 0.9 else "a: !!python/object/apply:os.system ['touch sprung']\n"
        )
        (given / "README.md").write_text(f"---\n{written}---\n", encoding="utf-8", errors="surrogatepass")
    elif how == "script":
        for name in (f"{given.name}.py", "dataset.py", "__init__.py"):
            (given / name).write_text("from pathlib import Path\nPath('sprung').touch()\n")
    elif how == "zip":
        with zipfile.ZipFile(given / "more.zip", "w") as packed:
            packed.writestr(rng.choice(["../../sprung.png", "/tmp/sprung.png", "a.png", "x" * 300 + ".png"]), _png(rng))
    elif how == "infos":
        (given / "dataset_infos.json").write_bytes(as_json(rng, value(rng))[0])
    elif how == "pipe":
        os.mkfifo(given / rng.choice(["a.png", "b.parquet", "metadata.csv.gz"]))
    elif how == "folder":
        _place(given, rng.choice(["a.png", "b.parquet", "train", "metadata.csv"]), None)
    else:
        name, text_of = rng.choice(["metadata.csv", "metadata.jsonl", "b.parquet"]), "file_name,text\n0.png,a dog\n"
        _place(given, name, text_of if rng.random() < 0.7 else None)
    return f"with a {how}"


def _place(folder: Path, name: str, content: str | None) -> None:
    """A file in a folder, or a folder of that name, unless something is there."""
    path = folder / name
    if path.exists() or path.is_symlink():
        return
    path.mkdir() if content is None else path.write_text(content)


def _png(rng: Chance) -> bytes:
    Image.new("RGB", _SIZE, (rng.randrange(256), 0, 0)).save(held := io.BytesIO(), "PNG")
    return held.getvalue()
