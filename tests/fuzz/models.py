"""Exported model folders: files that were damaged, or written by somebody who signs whatever is in them."""

import json
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from pipeline.export.exported_files import ABOUT
from pipeline.export.exported_model import ExportedModel
from tests.fuzz.case import Case, Chance, Reader
from tests.fuzz.made import ENGLISH, TRANSLATOR, sign, write_model
from tests.fuzz.mutations import as_json, content_of, number, spoiled_bytes, spoiled_tree, text, ways_out
from tests.fuzz.tables import write_pictures

_TYPES = ["F64", "F32", "F16", "BF16", "I64", "I32", "U8", "BOOL", "F8_E4M3", "x", "C64"]
_MORE = ["a.py", "a.bin", "a.pt", "a.pkl", ".hidden/a.py", "a.so", "a.json", "sub/a.txt", "text/config.json",
"vision/config.json",
         "translators/x/network.json", "translators/mt-en-de/a.py", "a\nb.json", "a" * 200 + ".json", "LICENSE",
         "README.MD"]  # fmt: skip


class Models(Reader):
    """A folder of a model with a reranker and a translator, or of one that writes and draws."""

    name = "models"

    def prepare(self, base: Path, light: bool) -> None:
        self._pictures, self._lines = base.parent / "some", base.parent / "lines.txt"
        write_pictures(self._pictures, 3)
        self._lines.write_text("".join(f"{line}\n" for line in ENGLISH[:3]))
        self._image = Image.new("RGB", (24, 24), "red")
        for kind in ("san", "gxn"):
            write_model(base / kind, self._pictures / "0.png", kind)

    def give(self, case: Case, base: Path) -> None:
        self._kind = "gxn" if not case.is_good and case.rng.random() < 0.25 else "san"
        super().give(case, base / self._kind)

    def spoil(self, case: Case, base: Path) -> str:
        self.give(case, base)
        rng, said = case.rng, list[str]()
        about = json.loads((case.given / ABOUT).read_text())
        names = sorted(path.relative_to(case.given).as_posix() for path in case.given.rglob("*") if path.is_file())
        signed = rng.random() < 0.9
        for _ in range(rng.choice([1, 1, 1, 2])):
            chance = rng.random()
            if chance < 0.3:
                about, how = spoiled_tree(rng, about, [*ways_out(case.given, case.outside, ".json"), *names])
                said.append(f"{ABOUT}: {how}")
            elif chance < 0.37:
                about, how = _signed_otherwise(case, about)
                signed = False
                said.append(f"{ABOUT}: {how}")
            elif chance < 0.42:
                said.append(_another_file(case))
            else:
                said.append(_spoil_file(case, case.given / rng.choice([name for name in names if name != ABOUT])))
        if signed and isinstance(about, dict) and isinstance(about.get("files"), dict):
            sign(case.given, about)
        else:
            (case.given / ABOUT).write_bytes(as_json(rng, about)[0])
        return "; ".join(said)

    def read(self, case: Case) -> None:
        exported = case.call(lambda: ExportedModel.load(case.given))
        if exported is not None:
            captions = case.call(lambda: exported.encode_captions(["a dog in the park", "ein Hund", "字"]))
            if exported.extractor is not None:
                images = case.call(lambda: exported.encode_pictures([self._image]))
                second = exported.reranker
                if images is not None and captions is not None and second is not None:
                    regions = exported.regions_of(self._image)[0][None]
                    case.call(
                        lambda: second.score(second.encode_regions(regions), second.encode_captions(ENGLISH[:2], "en"))
                    )
        model = str(case.given)
        if case.is_one_of(4, 0) or TRANSLATOR in " ".join(case.said):
            case.command(
                "translate", "--with", "mt:en-de", "--model", model, "--input", str(self._lines), "--output", "out.txt"
            ) if (self._kind == "san") else None
        if case.is_one_of(6, 1):
            case.command("embed", "--model", model, "--captions", str(self._lines), "--output", "out.npy")
        if case.is_one_of(6, 3):
            case.command("embed", "--model", model, "--pictures", str(self._pictures), "--output", "out.parquet")
        if case.is_one_of(12, 5):
            case.command("index", "--model", model, "--pictures", str(self._pictures), "--gallery", "gallery")
        if self._kind == "gxn" and case.is_one_of(3):
            case.command("caption", str(self._pictures / "0.png"), "--model", model, "--beam", "1")
            case.command("imagine", "a dog", "--model", model, "--output", "drawn.png")


def _spoil_file(case: Case, path: Path) -> str:
    """Something wrong in one file."""
    rng = case.rng
    name = path.relative_to(case.given)
    raw, chance = content_of(path), rng.random()
    if raw is None:
        return "twice"
    if chance < 0.04 and not rng.light:
        return f"{name}: {_no_file(case, path)}"
    if chance < 0.12:
        raw, how = spoiled_bytes(rng, raw)
    elif path.suffix == ".json" and (good := _tree(raw)) is not None:
        tree, how = spoiled_tree(rng, good, [*ways_out(path.parent, case.outside, ".json"), *_arguments(rng)])
        raw, also = as_json(rng, tree)
        how = f"{how} {also}"
    elif path.suffix == ".safetensors" and len(raw) > 100:
        raw, how = safetensors_spoiled(rng, raw)
    else:
        raw, how = spoiled_bytes(rng, raw)
    path.write_bytes(raw)
    return f"{name}: {how}"


def _tree(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


def _arguments(rng: Chance) -> list[str]:
    """Texts that arguments of networks may be."""
    return [
        "san",
        "gxn",
        "scan-t2i-avg",
        "dan",
        "mule",
        "pivot",
        "transformer",
        "bilstm",
        "en",
        "fr",
        "words",
        "sentences",
        text(rng),
    ]


def safetensors_spoiled(rng: Chance, raw: bytes) -> tuple[bytes, str]:
    """Weights whose header or numbers are wrong."""
    (size,) = struct.unpack("<Q", raw[:8])
    header, body = _tree(raw[8 : 8 + size]), bytearray(raw[8 + size :])
    if not isinstance(header, dict) or not {*header} - {"__metadata__"}:
        return spoiled_bytes(rng, raw)
    how = rng.choice(["header", "header", "type", "shape", "name", "numbers", "size", "offsets", "missing", "more"])
    names = [name for name in header if name != "__metadata__"]
    name = rng.choice(names)
    about = header[name]
    if how == "header":
        header, how = spoiled_tree(rng, header, [*_TYPES, *names])
    elif how == "type":
        about["dtype"] = rng.choice(_TYPES)
    elif how == "shape":
        about["shape"] = rng.choice(
            [[], about["shape"][::-1], [*about["shape"], 1], [2**40, 0], [-1], [2**63], [int(np.prod(about["shape"]))]]
        )
    elif how == "offsets":
        about["data_offsets"] = rng.choice(
            [[0, 0], [0, 2**60], [5, 1], [number(rng), number(rng)], about["data_offsets"][::-1]]
        )
    elif how == "name":
        header[rng.choice([text(rng), f"{name}x", rng.choice(names), "__metadata__"])] = header.pop(name)
    elif how == "missing":
        del header[name]
    elif how == "more":
        header[text(rng)] = dict(about)
    elif how == "numbers":
        new = rng.choice([np.nan, np.inf, -np.inf, 3e38, 1e-45, 0.0])
        start, end = about["data_offsets"]
        body[start:end] = (np.full((end - start) // 4 + 1, new, np.float32).tobytes())[: end - start]
        how = f"{name} all {new}"
    written = as_json(rng, header)[0]
    claimed = len(written) if how != "size" else rng.choice([0, 7, 2**63 - 1, 2**32, len(written) + 1, 10**8])
    return struct.pack("<Q", claimed) + written + bytes(body), f"{name} {how}"[:100]


def _signed_otherwise(case: Case, about: Any) -> tuple[Any, str]:
    """The names of `files` lead elsewhere, or are odd."""
    rng = case.rng
    if not isinstance(about, dict) or not isinstance(about.get("files"), dict) or not about["files"]:
        return about, ""
    name = rng.choice(list(about["files"]))
    new = rng.choice(
        [*ways_out(case.given, case.outside, ".json"), text(rng), name.upper(), f"./{name}", f"x/../{name}", f"{name}/"]
    )
    about["files"][new] = about["files"][name] if rng.random() < 0.5 else about["files"].pop(name)
    return about, f"{name} called {new[:60]!r}"


def _another_file(case: Case) -> str:
    """A file that was not exported."""
    rng, name = case.rng, case.rng.choice(_MORE)
    path = case.given / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            rng.choice(
                ["", "{}", "cos\nsystem\n(S'touch sprung'\ntR.", "open('sprung', 'w')\n", '{"model_type": "bert"}']
            )
        )
    except OSError:
        return ""
    return f"with {name[:40]!r}"


def _no_file(case: Case, path: Path) -> str:
    how = case.rng.choice(["missing", "folder", "link to itself", "link to nothing", "pipe", "empty"])
    path.unlink()
    if how == "folder":
        path.mkdir()
    elif how.startswith("link"):
        path.symlink_to(path if how == "link to itself" else "nothing")
    elif how == "pipe":
        os.mkfifo(path)
    elif how == "empty":
        path.touch()
    return how
