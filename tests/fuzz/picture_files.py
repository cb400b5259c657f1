"""Picture files of many formats, modes and sizes, and headers and EXIF that are damaged on purpose."""

import io
import struct
import zlib

import numpy as np
from PIL import Image

from tests.fuzz.case import Chance
from tests.fuzz.mutations import spoiled_bytes

MODES = {
    "JPEG": ["RGB", "L", "CMYK"], "PNG": ["1", "L", "LA", "P", "RGB", "RGBA", "I;16", "I"], "WEBP": ["RGB", "RGBA"],
    "GIF": ["P", "L", "1", "RGB"], "BMP": ["1", "L", "P", "RGB", "RGBA"], "TIFF": ["1", "L", "LA", "P", "RGB", "RGBA",
    "CMYK", "YCbCr", "LAB", "F", "I", "I;16", "I;16B"], "MPO": ["RGB"], "ICO": ["RGBA"], "PPM": ["RGB", "L", "1"],
    "TGA": ["RGB", "P"], "PCX": ["RGB", "P"], "SGI": ["RGB"], "JPEG2000": ["RGB", "L"], "DDS": ["RGBA"],
    "DIB": ["RGB"], "AVIF": ["RGB"], "IM": ["RGB"], "MSP": ["1"], "PDF": ["RGB"], "EPS": ["RGB"],
}  # fmt: skip
COMMON = ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "MPO"]
ENDINGS = [
    ".jpg",
    ".jpg",
    ".png",
    ".png",
    ".jpeg",
    ".webp",
    ".gif",
    ".bmp",
    ".tif",
    ".tiff",
    ".JPG",
    ".eps",
    ".svg",
    "",
]
THIN = [(1, 1), (600, 1), (1, 600), (1, 5000), (5000, 1), (30_000, 2), (2, 30_000), (257, 1), (3, 1000), (65_000, 1)]
SIZES = [(24, 24), (24, 24), (24, 24), (25, 17), (2, 3), (300, 200), (257, 255)]
_TIFF = ["raw", "tiff_lzw", "tiff_deflate", "jpeg", "packbits", "group4", "lzma", "zstd", "tiff_adobe_deflate"]
_NO_PICTURES = {
    "EPS": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 24 24\n%%EndComments\n{} loop\n%%EOF\n",
    "a large EPS": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9000 9000\n%%EndComments\nshowpage\n%%EOF\n",
    "PostScript": b"%!PS\n(/etc/passwd) (r) file { } loop\n",
    "SVG": b'<svg xmlns="http://www.w3.org/2000/svg" width="24" height="24"><image href="file:///etc/passwd"/></svg>',
    "SVG of entities": b'<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]><svg>&b;</svg>',
    "PDF": b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n",
    "HTML": b"<!doctype html><title>404</title>", "a pointer of git": b"version https://git-lfs.github.com/spec/v1\n",
    "text": b"no picture\n", "nothing": b"", "zeros": b"\0" * 3000,
    "XPM": b'/* XPM */\nstatic char *x[] = {\n"24 24 2 1",\n',
    "XBM": b"#define x_width 60000\n#define x_height 60000\nstatic char x_bits[] = { 0x00 };\n",
    "PPM of many pixels": b"P6\n60000 60000\n255\n\0", "PPM of words": b"P3\n3 3\n255\n" + b"9" * 100_000,
    "WMF": b"\xd7\xcd\xc6\x9a\x00\x00" + b"\xff" * 60, "FITS": b"SIMPLE  =                    T" + b" " * 4000,
    "QOI": b"qoif" + struct.pack(">IIBB", 9000, 9000, 4, 0) + b"\xfe", "BLP": b"BLP2" + b"\x01" * 200,
    "ICNS": b"icns" + struct.pack(">I", 40) + b"ic10" + struct.pack(">I", 8) + b"\0" * 24,
    "FLI": struct.pack("<IHHHHH", 128, 0xAF11, 3, 60000, 60000, 8) + b"\0" * 114,
    "a movie": b"\0\0\0\x18ftypmp42" + b"\0" * 100, "HEIC": b"\0\0\0\x18ftypheic" + b"\0" * 100,
    "ZIP": b"PK\3\4" + b"\0" * 40, "a pickle": b"cos\nsystem\n(S'touch sprung'\ntR.",
    "a gzip": b"\x1f\x8b\x08" + b"\0" * 30,
}  # fmt: skip


def pixels(rng: Chance, mode: str, size: tuple[int, int]) -> Image.Image:
    """A picture of a mode: colours that run over it, and a spot."""
    width, height = size
    across = np.linspace(0, 255, width)[None] + np.linspace(0, 99, height)[:, None] + rng.randrange(99)
    grey = Image.fromarray((across % 256).astype(np.uint8))
    if mode in ("I", "F"):
        factor = rng.choice([1, 200, 1e7]) if mode == "I" else rng.choice([1 / 256, 1, 1e30])
        return Image.fromarray((across * factor).astype(np.int32 if mode == "I" else np.float32))
    if mode in ("I;16", "I;16B"):
        return Image.fromarray((across * 200).astype(np.uint16))
    colours = Image.merge("RGB", [grey, grey.rotate(180), Image.new("L", size, rng.randrange(256))])
    if mode == "LAB":
        return Image.frombytes("LAB", size, colours.tobytes())
    made = colours.convert(mode)
    if mode in ("LA", "RGBA"):
        made.putalpha(grey)
    return made


def encoded(rng: Chance, kind: str, mode: str, size: tuple[int, int]) -> bytes:
    """A picture in a format, with one of its options."""
    image, options = pixels(rng, mode, size), dict[str, object]()
    if kind == "JPEG":
        options = {"progressive": rng.random() < 0.3, "quality": rng.choice([5, 75, 100]), "dpi": (72, 72)}
    elif kind == "TIFF":
        options = {"compression": rng.choice(_TIFF)}
    elif kind in ("GIF", "WEBP") or (kind == "PNG" and mode in ("RGB", "RGBA")) or kind == "MPO":
        several = rng.random() < 0.3 or kind == "MPO"
        options = {"save_all": True, "append_images": [pixels(rng, mode, size)] * 3} if several else {}
        options |= {"loop": 0} if several and kind == "GIF" else {}
        options |= {"lossless": True} if kind == "WEBP" and rng.random() < 0.5 else {}
    if kind in ("PNG", "GIF") and mode in ("P", "L", "1", "RGB", "I") and rng.random() < 0.5:
        options["transparency"] = (1, 2, 3) if mode == "RGB" and kind == "PNG" else rng.choice([0, 1, 200])
    if kind in ("JPEG", "PNG", "WEBP", "TIFF", "MPO") and rng.random() < 0.4:
        options["exif"] = exif(rng)
    for chosen in (options, {}):
        held = io.BytesIO()
        try:
            image.save(held, kind, **chosen)  # type: ignore[arg-type]
            return held.getvalue()
        except Exception:  # a mode that the format has not with this option
            continue
    held = io.BytesIO()
    image.convert("RGB").save(held, "PNG")
    return held.getvalue()


def exif(rng: Chance) -> bytes:
    """EXIF whose orientation or offsets are odd."""
    orientation = rng.choice([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 255, 65535])
    kind, count = rng.choice(
        [(3, 1), (3, 1), (3, 1), (4, 1), (2, 4), (5, 1), (3, 0), (3, 2**31), (12, 1), (99, 1), (7, 400)]
    )
    order = rng.choice("<>")
    held = struct.pack(f"{order}H", orientation) + b"\0\0"
    entries = [struct.pack(f"{order}HHI", 0x112, kind, count) + held]
    if rng.random() < 0.3:  # a folder of tags that leads to itself, or out of the file
        entries.append(
            struct.pack(f"{order}HHII", rng.choice([0x8769, 0x8825, 0xA005]), 4, 1, rng.choice([8, 0, 2**32 - 1]))
        )
    if rng.random() < 0.3:
        entries.append(struct.pack(f"{order}HHII", rng.choice([0x10E, 0x132, 0x9286]), 2, 2**31 - 1, 8))
    start = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}I", rng.choice([8, 8, 8, 8, 0, 2**32 - 1]))
    number = rng.choice([len(entries)] * 4 + [0, 65535])
    raw = start + struct.pack(f"{order}H", number) + b"".join(entries) + struct.pack(f"{order}I", rng.choice([0, 8]))
    if rng.random() < 0.3:
        raw = spoiled_bytes(rng, raw)[0]
    return b"Exif\0\0" + raw[:60_000]


def other(rng: Chance) -> tuple[bytes, str]:
    """What is no picture, or one of a format that nobody expects."""
    name = rng.choice(list(_NO_PICTURES))
    return _NO_PICTURES[name], name


def claiming(rng: Chance) -> tuple[bytes, str]:
    """A small file whose header claims very many pixels."""
    how = rng.choice([_png, _png, _gif, _bmp, _jpeg, _tiff, _tiff])
    width, height = rng.choice(
        [(60_000, 60_000), (65_535, 65_535), (13_000, 13_000), (2**31 - 1, 1), (60_000, 1_000), (0, 9)]
    )
    raw = how(rng, width, height)
    return raw, f"{how.__name__[1:].upper()} that claims {width}×{height}"


def large(rng: Chance) -> tuple[bytes, str]:
    """A small file that is a whole picture of many pixels, all of them equal, below the limit of Pillow."""
    mode = rng.choice(["1", "L", "P", "RGB", "RGBA", "RGBA", "LA", "I;16", "I;16", "F", "F", "I", "I", "CMYK"])
    side = rng.choice([3000, 6000, 9400])
    kind = "TIFF" if mode in ("F", "I", "CMYK") or rng.random() < 0.3 else "PNG"
    held = io.BytesIO()
    options = {"compression": "tiff_deflate"} if kind == "TIFF" else {"compress_level": 1}
    Image.new(mode, (side, side)).save(held, kind, **options)  # type: ignore[arg-type]
    return held.getvalue(), f"{kind} {mode} of {side}×{side} equal pixels"


def chunks_spoiled(rng: Chance, raw: bytes) -> tuple[bytes, str]:
    """A PNG one of whose chunks is changed, doubled, left out or put in, with good checksums."""
    chunks, place = [], 8
    while place + 8 <= len(raw):
        (size,) = struct.unpack(">I", raw[place : place + 4])
        chunks.append((raw[place + 4 : place + 8], raw[place + 8 : place + 8 + size]))
        place += 12 + size
    number = rng.randrange(len(chunks))
    name, held = chunks[number]
    how = rng.choice(["changed", "doubled", "left out", "put in", "moved", "emptied"])
    if how == "changed":
        chunks[number] = name, spoiled_bytes(rng, held)[0]
    elif how in ("doubled", "moved"):
        chunks.insert(rng.randrange(len(chunks)), chunks[number] if how == "doubled" else chunks.pop(number))
    elif how == "left out":
        del chunks[number]
    elif how == "emptied":
        chunks[number] = name, b""
    else:
        bomb = zlib.compress(b"\0" * rng.choice([100, 50_000_000]), 9)
        name, held = rng.choice([
            (b"tRNS", bytes(rng.randrange(256) for _ in range(rng.choice([0, 1, 2, 6, 300])))), (b"zTXt",
            b"x\0\0" + bomb), (b"iCCP", b"x\0\0" + bomb), (b"PLTE", b"\0" * rng.choice([0, 1, 3, 900])), (b"eXIf",
            exif(rng)[6:]), (b"tEXt", b"Raw profile type exif\0\nexif\n      9\n4578"), (b"acTL", struct.pack(">II",
            2**31, 0)), (b"fcTL", b"\xff" * 26), (b"IDAT", b""), (b"gAMA", b"\0\0\0\0"), (b"iTXt",
            b"x\0\1\0\0\0" + bomb),
        ])  # fmt: skip
        chunks.insert(rng.randint(1, len(chunks)), (name, held))
    return png_of(chunks), f"chunk {name.decode('latin-1')} {how}"


def png_of(chunks: list[tuple[bytes, bytes]]) -> bytes:
    """A PNG of chunks."""
    body = (
        struct.pack(">I", len(held)) + name + held + struct.pack(">I", zlib.crc32(name + held)) for name, held in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(body)


def _png(rng: Chance, width: int, height: int) -> bytes:
    kind, depth = rng.choice([(0, 1), (0, 8), (0, 16), (2, 8), (2, 16), (3, 8), (4, 8), (6, 8), (6, 16), (7, 3)])
    header = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, rng.choice([0, 1, 9]))
    return png_of([(b"IHDR", header), (b"IDAT", zlib.compress(b"\0" * 1000)), (b"IEND", b"")])


def _gif(rng: Chance, width: int, height: int) -> bytes:
    screen = struct.pack("<HHBBB", min(width, 65535), min(height, 65535), 0x80, rng.choice([0, 255]), 0)
    frame = struct.pack("<BHHHHB", 0x2C, rng.choice([0, 60_000]), 0, min(width, 65535), min(height, 65535), 0)
    return b"GIF89a" + screen + b"\0\0\0\xff\xff\xff" + frame + b"\x02\x02\x4c\x01\x00\x3b"


def _bmp(rng: Chance, width: int, height: int) -> bytes:
    depth, packed = rng.choice([(24, 0), (1, 0), (8, 1), (4, 2), (32, 3), (16, 3), (99, 9)])
    signed = [min(one, 2**31 - 1) * rng.choice([1, 1, -1]) for one in (width, height)]
    about = struct.pack("<IiiHHIIiiII", rng.choice([40, 40, 124, 12, 3]), *signed, 1, depth, packed, 0, 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 100, 0, 0, rng.choice([54, 14, 2**31])) + about + b"\0" * 64


def _jpeg(rng: Chance, width: int, height: int) -> bytes:
    raw = encoded(rng, "JPEG", "RGB", (24, 24))
    place = max(raw.find(b"\xff\xc0"), raw.find(b"\xff\xc2"))
    return raw[: place + 5] + struct.pack(">HH", min(height, 65535), min(width, 65535)) + raw[place + 9 :]


def _tiff(rng: Chance, width: int, height: int) -> bytes:
    tags = {
        256: width, 257: height, 258: rng.choice([1, 8, 16, 32, 64]), 259: rng.choice([1, 5, 7, 8, 4, 32773, 50000,
        99]), 262: rng.choice([0, 1, 2, 3, 5, 6, 8]), 273: rng.choice([8, 200, 2**32 - 1]), 277: rng.choice([1, 3, 4,
        60_000]), 278: rng.choice([height, 1, 2**32 - 1]), 279: rng.choice([0, 10, 2**32 - 1]), 339: rng.choice([1, 2,
        3, 4]),
    }  # fmt: skip
    for tag in rng.sample(sorted(tags), rng.choice([0, 0, 1, 2])):
        del tags[tag]
    body = b"".join(struct.pack("<HHII", tag, 4, rng.choice([1, 1, 1, 1, 1, 9]), one) for tag, one in tags.items())
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + body + b"\0" * 100
