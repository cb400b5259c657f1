"""TSV: captions of a folder of pictures and translations, as hands, spreadsheets and editors spoil them."""

import csv
import gzip
import io
import os
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from PIL import Image

from data.corpora import Corpus
from data.corpora.folder import FolderSettings, read, sources
from data.findings.report import data_report
from tests.data.layouts import sentence
from tests.fuzz.case import Case, Reader
from tests.fuzz.mutations import TEXTS, content_of, put_special, spoiled_bytes, text, ways_out

COUNT = 12
Rows = list[list[str]]


def write_pictures(folder: Path, count: int = COUNT) -> list[str]:
    """Small pictures; their names."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        Image.new("RGB", (24, 24), (20 * number, 90, 9)).save(folder / f"{number}.png")
    return [f"{number}.png" for number in range(count)]


def check_corpus(case: Case, corpus: Corpus | None) -> None:
    """What must hold of a corpus that was read, and the report on it."""
    if corpus is None:
        return
    inside = case.given.resolve()
    for path in corpus.pictures.values():
        case.check(path.resolve().is_relative_to(inside), "a picture outside of the folder", path)
    case.check(all(one.text.strip() for one in corpus.captions), "an empty caption")
    case.check(all(one.split in ("train", "val", "test") for one in corpus.captions), "a caption of another split")
    known = {one.caption_id for one in corpus.captions}
    case.check(len(known) == len(corpus.captions), "two captions of one id")
    report = case.call(lambda: data_report(corpus, None))
    if report is not None:
        report.as_markdown().encode()
        case.said.append(report.as_markdown())
    for one in corpus.captions:
        if corpus.place is not None:
            corpus.place(one, one.language)


def init_and_doctor(case: Case, *options: str) -> None:
    """`bildwort init` on the given folder, and `doctor` on the recipe that it writes."""
    made = case.command(
        "init", str(case.given), "--backbone", "built-in", "--translator", "none", "--output", "made.yaml", *options
    )
    left = sorted(path.name for path in case.work.iterdir())
    if made == 0:
        case.command("doctor", "./made.yaml")
    else:
        case.check(left == [], "init refuses, but leaves files", left)


class Tables(Reader):
    """A folder of pictures, `captions.tsv` and `parallel.tsv`."""

    name = "tsv"

    def __init__(self) -> None:
        self._settings, self._named = FolderSettings(), False

    def prepare(self, base: Path, light: bool) -> None:
        rows, lines = [], ["en\tde"]
        for number, name in enumerate(write_pictures(base / "pictures")):
            split = ["val", "test", *["train"] * COUNT][number]
            german = f"Der Ball {number} ist auf dem Bild und die Katzen sind in dem Haus"
            rows += [f"{name}\ten\t{sentence(str(number), 1)}\t{split}", f"{name}\tde\t{german}\t{split}"]
            lines.append(f"{sentence(str(number), 2)}\t{german} dort")
        (base / "captions.tsv").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
        (base / "parallel.tsv").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def give(self, case: Case, base: Path) -> None:
        super().give(case, base)
        self._settings, self._named = FolderSettings(parallel="parallel.tsv"), True

    def spoil(self, case: Case, base: Path) -> str:
        self.give(case, base)
        rng, said = case.rng, []
        for what in rng.choices(
            ["captions", "parallel", "pictures", "settings"], [60, 22, 12, 6], k=rng.choice([1, 1, 2])
        ):
            if what == "settings":
                said.append(self._other_settings(case))
            elif what == "pictures":
                said.append(_rename_picture(case))
            else:
                said.append(f"{what}: {self._spoil_file(case, case.given / f'{what}.tsv')}")
        self._named = rng.random() < 0.3
        return "; ".join(said)

    def read(self, case: Case) -> None:
        corpus = case.call(lambda: read(self._settings, case.given, case.work))
        check_corpus(case, corpus)
        case.call(lambda: sources(self._settings, case.given))
        captions = case.given / self._settings.captions
        named = self._named and not captions.is_symlink()  # one may name a link out of the folder
        init_and_doctor(case, *(["--captions", str(captions)] if named else []))

    def _other_settings(self, case: Case) -> str:
        names = ["pictures", "captions", "parallel", "regions", "label", "languages", "validation", "test"]
        name, rng = case.rng.choice(names), case.rng
        values: dict[str, Any] = {
            "languages": rng.choice([["en"], ["en", "de"], ["xx"], [""], ["EN"], ["en"] * 30]),
            "validation": (share := rng.choice([0.0, 1.0, -0.1, 0.999, float("nan"), 1e308])), "test": share,
        }  # fmt: skip
        value = (
            values[name]
            if name in values
            else rng.choice([*ways_out(case.given, case.outside, ".tsv"), "", "pictures", "captions.tsv"])
        )
        if name in ("pictures", "captions", "parallel", "regions") and Path(str(value)).is_absolute():
            value = "away"  # who writes a recipe may name any folder
        self._settings = replace(self._settings, **{name: value if ".." not in str(value) else "away"})
        return f"setting {name} {value!r}"

    def _spoil_file(self, case: Case, path: Path) -> str:
        rng, raw = case.rng, content_of(path)
        if raw is None:
            return "twice"
        how = rng.choices(["fields", "lines", "file", "bytes", "special"], [40, 15, 25, 14, 6])[0]
        rows = [line.split("\t") for line in raw.decode("utf-8", "replace").split("\n")[:-1]] or [[""]]
        if how == "special":
            return self._special(case, path, raw)
        if how == "bytes":
            raw, said = spoiled_bytes(rng, raw)
        elif how == "file":
            raw, said = _written_otherwise(case, rows)
        else:
            said = "; ".join(
                (_spoil_field if how == "fields" else _spoil_line)(case, rows) for _ in range(rng.choice([1, 1, 3]))
            )
            raw = "".join("\t".join(row) + "\n" for row in rows).encode("utf-8", "surrogatepass")
        path.write_bytes(raw)
        return said

    def _special(self, case: Case, path: Path, raw: bytes) -> str:
        """What is no plain file, or is packed."""
        rng, name = case.rng, path.name
        path.unlink()
        hows = {
            "folder": 3,
            "pipe": 3,
            "link out": 3,
            "link to itself": 3,
            "missing": 3,
            "packed": 6,
            "half packed": 3,
            "packed zeros": 1,
        }
        how = "missing" if rng.light else rng.choices(list(hows), list(hows.values()))[0]
        if "packed" in how:
            packed = {"packed": gzip.compress(raw, mtime=0), "half packed": gzip.compress(raw, mtime=0)[:-9],
                      "packed zeros": packed_zeros()}[how]  # fmt: skip
            path.with_name(f"{name}.gz").write_bytes(packed)
            self._settings = replace(self._settings, **{path.stem: f"{name}.gz"})
        else:
            put_special(path, how, case.outside / "secret.tsv")
        return how


@cache
def packed_zeros() -> bytes:
    """Three gigabytes of zeros, packed by gzip into three megabytes."""
    return gzip.compress(b"\0" * 2**26, 9, mtime=0) * 48


def _spoil_field(case: Case, rows: Rows) -> str:
    rng = case.rng
    rows += [] if rows else [[""]]
    row = rng.choice(rows)
    row += [] if row else [""]
    place = rng.randrange(len(row))
    how = rng.choice(["text", "text", "joined", "way", "deleted", "added", "swapped", "column", "other"])
    if how == "way":
        row[0] = rng.choice(ways_out(case.given / "pictures", case.outside, ".png"))
        return f"picture {row[0]!r}"
    if how == "deleted":
        del row[place:]
        return f"{place} fields"
    if how == "added":
        row.insert(place, text(rng))
        return f"a field more at {place}"
    if how == "swapped":
        rng.shuffle(row)
        return "fields in another order"
    if how == "column":
        new = text(rng)
        for one in rows:
            one[place : place + 1] = rng.choice([[], [new], one[place : place + 1] * 2])
        return f"column {place} changed"
    new = rng.choice(rng.choice(rows) or [""]) if how == "other" else text(rng)
    row[place] = f"{row[place]}{new}" if how == "joined" else new
    return f"field {place} is {row[place][:40]!r}"


def _spoil_line(case: Case, rows: Rows) -> str:
    rng = case.rng
    rows += [] if rows else [[""]]
    place = rng.randrange(len(rows))
    how = rng.choice(["doubled", "deleted", "moved", "empty", "heading", "comment", "many", "few", "blank", "half"])
    if how == "doubled":
        rows.insert(rng.randrange(len(rows)), list(rows[place]))
    elif how == "deleted":
        del rows[place]
    elif how == "moved":
        rng.shuffle(rows)
    elif how == "many":
        rows *= rng.choice([20, 20 if rng.light else 400]) if len(rows) < 50 else 1
    elif how == "few":
        del rows[rng.choice([0, 1, 5]) :]
    elif how == "half":
        del rows[::2]
    else:
        headings = [["picture", "language", "caption"], ["image", "caption"], ["en", "de"], ["picture", "en", "de"],
        ["file_name"],
                    ["picture", "en"], ["en", "en"], ["", ""], ["picture"], ["de", "en", "fr"]]  # fmt: skip
        new = {"empty": [""], "heading": rng.choice(headings), "comment": ["# by hand"], "blank": [" ", "", "\t"]}[how]
        rows.insert(0 if how == "heading" else place, list(new))
    return f"line {place} {how}"


def _written_otherwise(case: Case, rows: Rows) -> tuple[bytes, str]:
    """The same rows as a spreadsheet or an editor may save them."""
    rng = case.rng
    ends, split = rng.choice(["\n", "\r\n", "\r", "\n\r", "\u2028", "\x85", "\x0b", "\0", "\n\n"]), rng.choice("\t,; |")
    quoting = rng.choice([csv.QUOTE_ALL, csv.QUOTE_MINIMAL, csv.QUOTE_NONE, None, None])
    quoting = None if quoting == csv.QUOTE_NONE and any(row in ([], [""]) for row in rows) else quoting
    if rng.random() < 0.5:
        row = rng.choice(rows)
        row[-1 if len(row) < 3 else 2] = rng.choice(
            ['a "dog" runs', "a\ttab", "two\nlines", '"', "it's", 'say ""no""', "a, b"]
        )
    if quoting is None:
        written = ends.join(split.join(row) for row in rows) + rng.choice(["", ends])
    else:
        held = io.StringIO()
        options = {"delimiter": split, "quoting": quoting, "lineterminator": ends, "escapechar": "\\"}
        csv.writer(held, **options).writerows(row or [""] for row in rows)  # type: ignore[arg-type]
        written = held.getvalue()
    encoding = rng.choice(
        ["utf-8", "utf-8", "utf-8-sig", "utf-16", "latin-1", "cp1252", "utf-32", "utf-16-be", "mac-roman"]
    )
    return written.encode(encoding, "replace"), f"ends {ends!r}, fields by {split!r}, quotes {quoting}, in {encoding}"


def _rename_picture(case: Case) -> str:
    """A picture gets an odd name, on the disk and in the captions; or becomes a link."""
    rng, folder, captions = case.rng, case.given / "pictures", case.given / "captions.tsv"
    old = f"{rng.randrange(COUNT)}.png"
    if rng.random() < 0.2:
        (folder / old).unlink(missing_ok=True)
        (folder / old).symlink_to(
            rng.choice([case.outside / "secret.png", Path(old), Path("1.png"), Path("/dev/zero")])
        )
        return f"{old} is a link to {(folder / old).readlink()}"
    odd = rng.choice([one for one in TEXTS if len(one) < 200]).replace("\0", "")
    new = rng.choice(
        [
            f"{odd}.png",
            f"a{odd}.PNG",
            f"sub/{odd}.png",
            f"{odd}#1.png",
            f".{odd}.png",
            f"0.png{odd}",
            f"E\u0301{odd}.jpg",
        ]
    )
    raw = new.encode("utf-8", "surrogatepass")
    if rng.random() < 0.1:
        raw = raw.replace(b".", b"\xff.", 1)
    try:
        (folder / os.fsdecode(raw)).parent.mkdir(parents=True, exist_ok=True)
        (folder / old).rename(folder / os.fsdecode(raw))
        if (held := content_of(captions)) is not None:
            captions.write_bytes(held.replace(f"\n{old}\t".encode(), b"\n" + raw + b"\t"))
    except (OSError, ValueError):
        return f"{new!r} is no name"
    return f"{old} is called {raw[:60]!r}"
