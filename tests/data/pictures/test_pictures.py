"""Pictures as users have them: each kind gives the regions of what is to be seen, or one line that names the file."""

import io
import os
import re
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image, UnidentifiedImageError

from data.errors import DataError
from data.pictures.extractor import Extractor, ExtractorSettings
from data.pictures.images import format_of, formats_restricted, open_picture, require_picture, size_of
from data.pictures.objects import DIM
from pipeline.visualization.pictures import read_thumbnail

EXTRACTOR = Extractor(ExtractorSettings(regions=3, size=64))


def scene(size: tuple[int, int] = (48, 32)) -> Image.Image:
    """A red square and a blue one on grey."""
    image = Image.new("RGB", size, (120, 120, 120))
    image.paste((220, 30, 30), (4, 4, 16, 16))
    image.paste((30, 30, 220), (28, 14, 40, 26))
    return image


def stored(image: Image.Image, path: Path, **options) -> np.ndarray:
    """The regions of a picture by way of a file."""
    image.save(path, **options)
    regions, boxes = EXTRACTOR.extract(path)
    assert regions.shape == (3, DIM)
    assert np.isfinite(regions).all()
    assert ((boxes >= 0) & (boxes <= 1)).all()
    return regions


def like(first: np.ndarray, second: np.ndarray) -> float:
    """The least cosine of two pictures' regions, row by row."""
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return float(((first * second).sum(1) / lengths).min())


@pytest.fixture
def plain() -> np.ndarray:
    return EXTRACTOR.extract(scene())[0]


@pytest.mark.parametrize("suffix", ["jpg", "png", "gif", "webp", "bmp", "tiff"])
@pytest.mark.parametrize("share", [0.05, 0.5, 0.9])
def test_truncated(suffix: str, share: float, tmp_path: Path) -> None:
    path = tmp_path / f"cut.{suffix}"
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3)).astype(np.uint8)
    Image.fromarray(noise).save(path)
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(DataError, match=rf"cut\.{suffix}: not a readable picture.*replace it") as told:
        EXTRACTOR.extract(path)
    assert "\n" not in str(told.value)
    with pytest.raises(DataError, match=rf"cut\.{suffix}: not a readable picture"):
        require_picture(path, whole=True)


def png_of(width: int, height: int) -> bytes:
    """A PNG that says how large it is, and holds next to nothing."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 99)) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("side", [10_000, 60_000])  # Pillow reads the first and refuses the second
def test_huge(side: int, tmp_path: Path) -> None:
    (tmp_path / "bomb.png").write_bytes(png_of(side, side))
    with pytest.raises(DataError, match=r"bomb\.png: not a readable picture.*(at most 89 million|decompression bomb)"):
        EXTRACTOR.extract(tmp_path / "bomb.png")


@pytest.mark.parametrize("progressive", [False, True])
def test_a_large_picture_of_a_phone(progressive: bool, tmp_path: Path) -> None:
    """It is read at a fraction of its size; one whose pixels come in several passes would take much memory."""
    Image.new("L", (12_000, 9_000), 99).save(path := tmp_path / "phone.jpg", quality=10, progressive=progressive)
    if progressive:
        with pytest.raises(DataError, match=r"phone\.jpg: not a readable picture \(12000×9000 pixels; at most 89 mil"):
            open_picture(path)
    else:
        assert open_picture(path).size == (6000, 4500)
        assert open_picture(path, 100).size == (100, 75)


def test_a_file_of_another_format_is_told_what_is_read(tmp_path: Path) -> None:
    (path := tmp_path / "phone.jpg").write_bytes(b"\0\0\0\x18ftypheic" + bytes(99))
    with pytest.raises(DataError, match=r"it is none of JPEG, PNG, WEBP, GIF, BMP and TIFF\); replace it"):
        open_picture(path)


def test_palette(tmp_path: Path, plain: np.ndarray) -> None:
    assert like(stored(scene().quantize(8), tmp_path / "palette.png"), plain) > 0.99


def test_cmyk(tmp_path: Path, plain: np.ndarray) -> None:
    assert like(stored(scene().convert("CMYK"), tmp_path / "cmyk.jpg", quality=95), plain) > 0.95


@pytest.mark.parametrize("suffix", ["png", "tiff"])  # those of a TIFF are turned by Pillow as they are read
@pytest.mark.parametrize("turn", range(1, 9))
def test_exif_rotated(turn: int, suffix: str, tmp_path: Path, plain: np.ndarray) -> None:
    """However the camera was held, the regions are those of the upright picture."""
    method = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}.get(turn)  # the transposition that the tag undoes
    image = scene() if method is None else scene().transpose(Image.Transpose(method))
    exif = Image.Exif()
    exif[0x0112] = turn
    np.testing.assert_array_equal(stored(image, tmp_path / f"turned.{suffix}", exif=exif), plain)


def test_16_bit(tmp_path: Path) -> None:
    """65,535 is white, whatever the brightest number of a picture is."""
    grey = scene().convert("L")
    deep = Image.fromarray(np.asarray(grey).astype(np.uint16) // 2 * 257)
    grey = Image.fromarray(np.asarray(grey) // 2)
    assert like(stored(deep, tmp_path / "deep.png"), stored(grey, tmp_path / "grey.png")) > 0.98


def test_alpha(tmp_path: Path, plain: np.ndarray) -> None:
    """What is opaque is seen as it is; what is transparent is white, whatever colours lie under it."""
    opaque = scene()
    opaque.putalpha(255)
    np.testing.assert_array_equal(stored(opaque, tmp_path / "opaque.png"), plain)
    seen = Image.new("RGB", (48, 32), "white")
    seen.paste(scene().crop((0, 0, 48, 20)))
    mask = Image.new("L", (48, 32), 0)
    mask.paste(255, (0, 0, 48, 20))
    half = scene()
    half.putalpha(mask)
    np.testing.assert_array_equal(stored(half, tmp_path / "half.png"), EXTRACTOR.extract(seen)[0])


@pytest.mark.parametrize(
    "content", [b"", b"no picture", b"GIF89a", b"\xff\xd8\xff\xe0", b"BM" + b"\0" * 60, b"%PDF-1.4"]
)
def test_not_a_picture(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "text.jpg").write_bytes(content)
    with pytest.raises(DataError, match=r"text\.jpg: not a readable picture"):
        EXTRACTOR.extract(tmp_path / "text.jpg")


def test_a_folder_is_not_a_picture(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a readable picture"):
        EXTRACTOR.extract(tmp_path)


def encoded(suffix: str) -> bytes:
    buffer = io.BytesIO()
    scene().save(buffer, suffix)
    return buffer.getvalue()


FORMATS = {name: encoded(name) for name in ("jpeg", "png", "gif", "webp", "bmp", "tiff")}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(sorted(FORMATS)), st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=12))
def test_damaged_anywhere(tmp_path: Path, name: str, changes: list[tuple[float, int]]) -> None:
    """Bytes of a good picture are changed: it is read all the same, or refused in one line."""
    raw = bytearray(FORMATS[name])
    for where, value in changes:
        raw[int(where * (len(raw) - 1))] = value
    (tmp_path / "damaged").write_bytes(raw)
    try:
        regions, _ = EXTRACTOR.extract(tmp_path / "damaged")
    except DataError as error:
        told = str(error)
    else:
        told = None
        assert np.isfinite(regions).all()
    assert told is None or ("damaged: not a readable picture" in told and "\n" not in told)


def run(script: Path, pictures: int, timeout: int) -> subprocess.CompletedProcess:
    """A script over pictures that lie beside it; comes back when nobody holds its output any more."""
    for number in range(pictures):
        scene().save(script.with_name(f"{number}.png"))
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, script, script.parent]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=timeout)


@pytest.mark.slow
def test_a_picture_that_kills_its_reader_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    """Forty pictures in three chunks; at one the decoder dies."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from data.pictures.extractor import Extractor, ExtractorSettings\n"
        "from data.pictures.objects import find_objects\n"
        "def faulty(picture):\n"
        "    if picture.name == '17.png':\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return find_objects(picture, 3, 64)\n"
        "if __name__ == '__main__':\n"
        "    paths = [Path(sys.argv[1]) / f'{n}.png' for n in range(40)]\n"
        "    extractor = Extractor(ExtractorSettings(3, 64))\n"
        "    extractor._look = faulty\n"
        "    found = list(extractor.extract_readable(paths, 2))\n"
        "    print([n for n, one in enumerate(found) if isinstance(one, str)], len(found), found[17])\n"
    )
    done = run(script, pictures=40, timeout=300)
    assert done.stdout.startswith("[17] 40 "), done.stderr
    assert "the process that read it died" in done.stdout


def test_processes_that_read_end_with_the_one_that_was_killed(tmp_path: Path) -> None:
    """They would hold their memory, and whatever waits for their output, for ever."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from data.pictures.extractor import Extractor, ExtractorSettings\n"
        "if __name__ == '__main__':\n"
        "    paths = [Path(sys.argv[1]) / f'{n % 4}.png' for n in range(400)]\n"
        "    found = Extractor(ExtractorSettings(3, 64)).extract_readable(paths, 2)\n"
        "    next(found)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = run(script, pictures=4, timeout=120)
    assert done.returncode == -9


def test_a_thumbnail_shows_what_the_extractor_sees(tmp_path: Path) -> None:
    ramp = np.linspace(0, 65535, 64 * 64).reshape(64, 64).astype(np.uint16)
    Image.fromarray(ramp).save(tmp_path / "16-bit.png")
    Image.new("LA", (64, 64), (0, 0)).save(tmp_path / "clear.png")
    Image.fromarray(np.linspace(0, 1, 64 * 64, dtype=np.float32).reshape(64, 64)).save(tmp_path / "float.tiff")
    for path in tmp_path.iterdir():
        seen, shown = np.asarray(open_picture(path)), np.asarray(read_thumbnail(path, 32))
        assert shown.shape == (32, 32, 3)
        assert abs(seen.mean() - shown.mean()) < 1
        assert seen.max() > 250
    (tmp_path / "text.png").write_text("no picture")
    assert read_thumbnail(tmp_path / "text.png") is None


POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 20 20\n%%EndComments\n0 0 20 20 rectfill\nshowpage\n%%EOF\n"
XPM = b'/* XPM */\nstatic char *a[] = {"1 1 1 1", "  c #ffffff", " "};\n'


@pytest.mark.parametrize("content", [POSTSCRIPT, XPM, b"P6\n1 1\n255\n123"])
def test_only_formats_that_we_claim_are_opened(content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow would start Ghostscript for an EPS, whatever the file is called."""
    started: list[object] = []
    monkeypatch.setattr(subprocess, "Popen", lambda *args, **options: started.append(args))
    path = tmp_path / "z.jpg"
    path.write_bytes(content)
    for use in (
        EXTRACTOR.extract,
        open_picture,
        require_picture,
        lambda one: require_picture(one, whole=True),
        size_of,
    ):
        with pytest.raises(DataError, match="not a readable picture"):
            use(path)
    assert read_thumbnail(path) is None
    assert format_of(content) is None
    assert not started


def test_other_libraries_are_held_to_these_formats(tmp_path: Path) -> None:
    (tmp_path / "z.jpg").write_bytes(b"P6\n1 1\n255\n123")
    with formats_restricted(), pytest.raises(UnidentifiedImageError):
        Image.open(tmp_path / "z.jpg")
    assert Image.open(tmp_path / "z.jpg").format == "PPM"


def test_one_place_opens_pictures() -> None:
    root = Path(__file__).parents[3]
    files = [path for package in ("data", "modules", "pipeline") for path in (root / package).rglob("*.py")]
    opening = {
        path.relative_to(root).as_posix() for path in files if re.search(r"Image\.open\(", path.read_text("utf-8"))
    }
    assert opening == {"data/pictures/images.py"}


def damaged_tags(suffix: str, path: Path) -> None:
    """A picture whose pixels are fine and whose EXIF is not."""
    tags = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\xff\xff"
    scene().save(path, suffix, exif=tags)


@pytest.mark.parametrize("suffix", ["png", "webp", "jpeg"])
def test_damaged_tags_spoil_no_pixels(suffix: str, tmp_path: Path) -> None:
    """What checks and what reads are one function, so that no picture passes the one and fails the other."""
    path, clean = tmp_path / f"a.{suffix}", tmp_path / f"b.{suffix}"
    damaged_tags(suffix, path)
    scene().save(clean, suffix)
    require_picture(path, whole=True)
    np.testing.assert_array_equal(np.asarray(open_picture(path)), np.asarray(open_picture(clean)))
    np.testing.assert_array_equal(EXTRACTOR.extract(path)[0], EXTRACTOR.extract(clean)[0])


@pytest.mark.parametrize("size", [(600, 1), (1, 5000), (30_000, 2), (1, 1)])
def test_very_thin_pictures(size: tuple[int, int], tmp_path: Path) -> None:
    Image.new("RGB", size, "red").save(tmp_path / "thin.png")
    require_picture(tmp_path / "thin.png", whole=True)
    seen = read_thumbnail(tmp_path / "thin.png")
    assert seen is not None
    assert max(seen.size) == 128
    assert min(seen.size) >= 1
    assert EXTRACTOR.extract(tmp_path / "thin.png")[0].shape == (3, DIM)


@pytest.mark.parametrize("mode", ["RGB", "L", "P", "1", "RGBA", "LA", "I", "F", "I;16", "CMYK"])
def test_a_large_picture_is_reduced_before_anything_else(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = scene((96, 64)).convert("L" if mode == "I;16" else mode)
    image = Image.fromarray(np.asarray(image, dtype=np.uint16) * 257) if mode == "I;16" else image
    image.save(tmp_path / "large.tiff")
    whole = np.asarray(open_picture(tmp_path / "large.tiff", 48), dtype=float)
    monkeypatch.setattr("data.pictures.images._LARGEST", 96 * 64 // 4)
    assert open_picture(tmp_path / "large.tiff").size == (48, 32)
    reduced = np.asarray(open_picture(tmp_path / "large.tiff", 48), dtype=float)
    assert np.abs(reduced - whole).mean() < 12


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["F", "I", "I;16"])
def test_a_small_file_of_many_pixels_takes_little(mode: str, tmp_path: Path) -> None:
    Image.new(mode, (9400, 9400)).save(tmp_path / "0.tiff", compression="tiff_adobe_deflate")
    script = (
        "import resource, sys; from pathlib import Path; from data.pictures import extractor\n"
        "extractor.Extractor(extractor.ExtractorSettings(3, 64)).extract(Path(sys.argv[1]))\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    command = ["sh", "-c", '"$@"; exit', "", sys.executable, "-c", script, str(tmp_path / "0.tiff")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert int(done.stdout) < 2e6  # KiB; a process begins with the most of what has started it, here of a shell
