"""Pictures of any format, mode and size, damaged or not: read one by one, and as those of a corpus."""

import os
from pathlib import Path

import numpy as np
from PIL import Image

from data.pictures.extractor import Extractor, ExtractorSettings
from data.pictures.folder import pictures_in
from data.pictures.images import open_picture, require_picture
from data.pictures.objects import Found
from data.pictures.pixels import middle_square
from pipeline.visualization.pictures import embedded, read_thumbnail
from tests.data.layouts import sentence
from tests.fuzz.case import Case, Reader
from tests.fuzz.mutations import TEXTS, spoiled_bytes
from tests.fuzz.picture_files import (
    COMMON,
    ENDINGS,
    MODES,
    SIZES,
    THIN,
    chunks_spoiled,
    claiming,
    encoded,
    large,
    other,
)

_RECIPE = "base: own\nseed: 1\ncorpus: {root: given, pictures: pictures, captions: captions.tsv}\n"
_COUNT = 12
_KINDS = {
    "whole": 22, "damaged": 30, "thin": 8, "other": 8, "claiming": 8, "large": 2, "chunks": 12, "link": 5, "name": 5,
}  # fmt: skip


class Pictures(Reader):
    """A folder of small pictures of which one is odd."""

    name = "pictures"

    def __init__(self) -> None:
        self._extractor = Extractor(ExtractorSettings())
        self._path: Path | None = None
        self._dim, self._large = 0, False

    def prepare(self, base: Path, light: bool) -> None:
        (base / "pictures").mkdir()
        lines = []
        for number in range(_COUNT):
            Image.new("RGB", (24, 24), (20 * number, 90, 9)).save(base / "pictures" / f"{number}.png")
            split = ["val", "test", *["train"] * _COUNT][number]
            lines.append(f"{number}.png\ten\t{sentence(str(number), 1)}\t{split}\n")
        (base / "captions.tsv").write_text("".join(lines))
        self._dim = self._extractor.extract(base / "pictures" / "0.png")[0].shape[1]

    def spoil(self, case: Case, base: Path) -> str:
        self.give(case, base)
        kind = case.rng.choices(list(_KINDS), list(_KINDS.values()))[0]
        if case.rng.light and kind in ("large", "link"):
            kind = "damaged"
        (case.given / "pictures" / "0.png").unlink()
        self._large = kind == "large"
        if kind == "link":
            self._path = None
            return self._link(case)
        raw, what, ending = self._made(case, kind)
        name = f"0{case.rng.choice(ENDINGS) if case.rng.random() < 0.3 else ending}"
        if kind == "name":
            name = _odd_name(case, ending)
            what = f"{what}, called {name[:40]!r}"
        self._path = case.given / "pictures" / os.fsdecode(name)
        try:
            self._path.parent.mkdir(exist_ok=True)
            self._path.write_bytes(raw)
        except (OSError, ValueError):  # no file can be called so
            self._path = case.given / "pictures" / "0.jpg"
            self._path.write_bytes(raw)
        captions = case.given / "captions.tsv"
        captions.write_bytes(captions.read_bytes().replace(b"0.png", os.fsencode(self._path.name), 1))
        return what

    def read(self, case: Case) -> None:
        found = case.call(lambda: pictures_in(case.given / "pictures"))
        for path in found[0].values() if found else ():
            real = path.resolve()
            case.check(real.is_relative_to(case.given.resolve()), "a picture outside of the folder", real)
        if self._path is not None:
            self._read_one(case, self._path)
        recipe = case.work / "mine.yaml"
        recipe.write_text(_RECIPE.replace("given", str(case.given)))
        if (case.is_one_of(4) and not self._large) or self._path is None:
            case.command("doctor", "./mine.yaml")
        if case.is_one_of(20, 1) and not case.rng.light:
            case.command("prepare", "./mine.yaml", "--jobs", "1")

    def _read_one(self, case: Case, path: Path) -> None:
        ways = [
            lambda: case.call(lambda: require_picture(path)), lambda: case.call(lambda: require_picture(path,
            whole=True)), lambda: self._opened(case, path, None), lambda: self._opened(case, path, 64),
            lambda: self._regions(case, case.call(lambda: self._extractor.extract(path))), lambda: self._square(case,
            path), lambda: self._small(case, path),
        ]  # fmt: skip
        for way in ways if not self._large else case.rng.sample(ways, 1):
            way()

    def _opened(self, case: Case, path: Path, size: int | None) -> None:
        image = case.call(lambda: open_picture(path, size))
        if image is not None:
            fits = image.mode == "RGB" and min(image.size) > 0 and (size is None or max(image.size) <= size)
            case.check(fits, "no RGB picture of the size", f"{image.mode} {image.size}")

    def _square(self, case: Case, path: Path) -> None:
        square = case.call(lambda: middle_square(path, 16))
        case.check(square is None or square.shape == (3, 16, 16), "no square")

    def _small(self, case: Case, path: Path) -> None:
        small = read_thumbnail(path)
        case.check(small is None or (small.mode == "RGB" and max(small.size) <= 128), "no thumbnail")
        embedded(small)

    def _regions(self, case: Case, found: Found | None) -> None:
        if found is None:
            return
        regions, boxes = found
        case.check(regions.shape == (9, self._dim) and boxes.shape == (9, 4), "other shapes", regions.shape)
        case.check(bool(np.isfinite(regions.astype(np.float16)).all()), "regions that are not finite")
        case.check(bool(((boxes >= 0) & (boxes <= 1)).all()), "boxes outside of the picture", boxes)

    def _made(self, case: Case, kind: str) -> tuple[bytes, str, str]:
        """Bytes, what they are, and the usual ending."""
        rng = case.rng
        if kind in ("other", "claiming", "large"):
            raw, what = {"other": other, "claiming": claiming, "large": large}[kind](rng)
            return raw, what, ".jpg" if kind == "other" else ".png"
        form = "PNG" if kind == "chunks" else rng.choice(COMMON if rng.random() < 0.8 else list(MODES))
        mode, size = rng.choice(MODES[form]), rng.choice(THIN if kind == "thin" else SIZES)
        raw, what = encoded(rng, form, mode, size), f"{form} {mode} {size[0]}×{size[1]}"
        if kind == "damaged":
            raw, how = spoiled_bytes(rng, raw)
            what = f"{what}, {how}"
        elif kind == "chunks":
            raw, how = chunks_spoiled(rng, raw)
            what = f"{what}, {how}"
        return raw, what, {"JPEG": ".jpg", "MPO": ".jpg", "TIFF": ".tif"}.get(form, f".{form.lower()}")

    def _link(self, case: Case) -> str:
        """Something that is no file of the folder, in the place of a picture."""
        path, rng = case.given / "pictures" / "0.png", case.rng
        secret = case.outside / "secret.png"
        targets = {
            "a link out": secret, "a relative link out": Path(os.path.relpath(secret, path.parent)),
            "a link to itself": path, "a link to nothing": Path("nothing.png"), "a link to zeros": Path("/dev/zero"),
            "a link to a folder": case.outside, "a link to a picture beside it": Path("1.png"),
            "a link to its folder": Path(),
        }  # fmt: skip
        how = rng.choice(
            [*targets, "a folder", "a pipe", "a folder that is a link", "a link to a link out", "unreadable"]
        )
        if how in targets:
            path.symlink_to(targets[how])
        elif how == "a folder":
            path.mkdir()
        elif how == "a pipe":
            os.mkfifo(path)
        elif how == "a folder that is a link":
            (path.parent / "sub").symlink_to(case.outside)
            captions = case.given / "captions.tsv"
            captions.write_text(captions.read_text().replace("0.png", "sub/secret.png", 1))
        elif how == "a link to a link out":
            (path.parent / "z.png").symlink_to(secret)
            path.symlink_to("z.png")
        else:
            path.write_bytes(b"")
            path.chmod(0)
        return how


def _odd_name(case: Case, ending: str) -> bytes:
    """The name of a file that few would choose, as the system holds it."""
    rng = case.rng
    odd = rng.choice([one for one in TEXTS if len(one) < 400])
    name = rng.choice([odd, f"{odd}0", f"a{odd}b", f"0{odd}"]).replace("/", "∕").replace("\0", "")
    raw = name.encode("utf-8", "surrogatepass") + (b"\xff" if rng.random() < 0.15 else b"")
    return raw + ending.encode() if rng.random() < 0.8 else raw or b"0"
