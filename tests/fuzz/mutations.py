"""What is done to good files: to their bytes, their texts, their numbers, their names and their trees of JSON or YAML.

All take a generator that decides everything, and say in words what they did.
"""

import gzip
import json
import math
import os
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

from tests.fuzz.case import Chance

TEXTS = [
    "", " ", "\t", "\0", "a\0b", "\r", "a\rb", "\n", "a\nb", "\x1b[31mred\x1b[0m", "\x07", "\u2028", "a\u2029b",
    "\x85", "\ufeff", "\ufffe", "\ud800", "\udcff", "a\udfffb", "\u202eabc", "\u200b", "e\u0301", "é", "İ", "ß", "文字",
    "עברית", "😀", "👨\u200d👩\u200d👧", "a" * 300, "字" * 300, "x" * 100_000, "word " * 20_000, "..", ".", "/", "\\",
    "a/b", "../x", "a\\b", "~", "%s", "{}", "{0.__class__}", "[red]", "[/]", "[bold", "=1+1", "@x", "-x", "--help",
    "'", '"', '"a""b"', "<b>&amp;</b>", "null", "true", "no", "NaN", "Infinity", "1e400", "0x10", "1_000", "٣", "²",
    "0b_", "2001-99-99", "en", "de", "xx", "EN", "en-US", "train", "test", "human", "#0", "0.png#0", "CON", "a.",
    "a ", "*.png", "a|b", "|||", "German", "validation", "./0.png", ".\\0.png", "%30.png", "%00", "%ff.png", "file://0.png",
]  # fmt: skip
"""Texts that something has stumbled over."""
NUMBERS: list[Any] = [
    0, -1, 1, 2, 3, 7, 255, 256, 65535, 65536, 10**7, 10**9, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63,
    2**64, -(2**63) - 1, 10**30, 10**400, -(10**400), 0.0, -0.0, 0.5, 1.0, 1.5, -1.5, 1e-300, 5e-324, 1e38, 1e39,
    1e308, -1e308, math.nan, math.inf, -math.inf,
]  # fmt: skip
"""Numbers likewise."""
VALUES: list[Any] = [None, True, False, [], {}, [[]], [None], [1], [""], {"": ""}, {"a": None}, [[], {}], ["a", 1]]
_RAW = [
    b"", b"\0", b"\xff", b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\n",
    b"\r\n", b"\t", b"\xef\xbb\xbf", b"\xc3\x28", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", "\u2028".encode(), b"{", b"[",
    b'"', b"\\",
]  # fmt: skip
ENCODINGS = ("utf-16", "utf-16-le", "utf-32", "latin-1", "cp1252", "utf-8-sig", "utf-7", "shift_jis")


def text(rng: Chance) -> str:
    """A text that something has stumbled over."""
    return rng.choice(TEXTS)


def number(rng: Chance) -> Any:
    """A number likewise."""
    found = rng.choice(NUMBERS) if rng.random() < 0.8 else rng.choice([rng.randint(-300, 300), rng.uniform(-2, 2)])
    return 300 if rng.light and 2**16 < abs(found) < 10**20 else found  # of those a network could be built


def value(rng: Chance) -> Any:
    """Any value."""
    return deepcopy(rng.choice([text, number, lambda rng: rng.choice(VALUES), nested])(rng))


def nested(rng: Chance) -> Any:
    """A value deep inside others."""
    found: Any = rng.choice([1, "a", None])
    for _ in range(rng.choice([2, 20, 90])):
        found = [found] if rng.random() < 0.5 else {"a": found}
    return found


def ways_out(folder: Path, outside: Path, ending: str) -> list[str]:
    """Names by which something in a folder could reach a file with such an ending beside the given one."""
    secret = outside / f"secret{ending}"
    near = os.path.relpath(secret, folder)
    return [
        near, str(secret), f"./{near}", f"x/../{near}", near.replace("/", "//"), f"file://{secret}", near.replace("/",
        "\\"), str(outside), os.path.relpath(outside, folder), "/etc/passwd", "/dev/zero", "/proc/self/environ", "/",
        "../..",
    ]  # fmt: skip


def content_of(path: Path) -> bytes | None:
    """The bytes of a file that has not been replaced by something else yet."""
    return path.read_bytes() if path.is_file() and not path.is_symlink() else None


def spoiled_bytes(rng: Chance, raw: bytes) -> tuple[bytes, str]:
    """Bytes that are damaged, and how."""
    ways = [_flipped, _flipped, _cut, _put_in, _left_out, _doubled, _swapped, _filled, _grown, _recoded]
    how = rng.choice(ways)
    return how(rng, raw)


def _flipped(rng: Chance, raw: bytes) -> tuple[bytes, str]:
    content, places = bytearray(raw), []
    for _ in range(rng.choice([1, 1, 1, 2, 5, 20])):
        if content:
            places.append(place := rng.randrange(min(len(content), rng.choice([40, 400, 10**9]))))
            content[place] = rng.choice([content[place] ^ (1 << rng.randrange(8)), rng.randrange(256), 0, 255])
    return bytes(content), f"bytes {places} changed"


def _cut(rng: Chance, raw: bytes) -> tuple[bytes, str]:
    place = rng.choice([0, 1, rng.randint(0, len(raw)), max(0, len(raw) - rng.randint(1, 12))])
    return raw[:place], f"cut at {place} of {len(raw)}"


def _put_in(rng: Chance, raw: bytes) -> tuple[bytes, str]:
    place, more = rng.randint(0, len(raw)), rng.choice(_RAW) * rng.choice([1, 1, 3, 1000])
    return raw[:place] + more + raw[place:], f"{more[:12]!r} put in at {place}"


def _left_out(rng: Chance, raw: bytes) -> tuple[bytes, str]:
    place, size = rng.randint(0, len(raw)), rng.choice([1, 2, 4, 100])
    return raw[:place] + raw[place + size :], f"{size} bytes left out at {place}"


def _doubled(rng: Chance, raw: bytes) -> tuple[bytes, str]:
    place, size = rng.randint(0, len(raw)), rng.choice([1, 4, 100, len(raw)])
    return raw[: place + size] + raw[place:], f"{size} bytes twice from {place}"


def _swapped(rng: Chance, raw: bytes) -> tuple[bytes, str]:
    first, second = sorted(rng.randint(0, len(raw)) for _ in range(2))
    return raw[:first] + raw[second:] + raw[first:second], f"parts swapped, from {first} and {second}"


def _filled(rng: Chance, raw: bytes) -> tuple[bytes, str]:
    place, size, one = rng.randint(0, len(raw)), rng.choice([2, 4, 8, 64]), rng.choice([b"\0", b"\xff", b"\x7f", b"A"])
    return raw[:place] + one * min(size, len(raw) - place) + raw[place + size :], f"{size} bytes {one!r} from {place}"


def _grown(rng: Chance, raw: bytes) -> tuple[bytes, str]:
    more = rng.choice(
        [b"\0" * 1000, b"\n", b"\r\n" * 3, b"x" * 100_000, raw, bytes(rng.randrange(256) for _ in range(50))]
    )
    return (
        (raw + more, f"{len(more)} bytes behind") if rng.random() < 0.7 else (more + raw, f"{len(more)} bytes before")
    )


def _recoded(rng: Chance, raw: bytes) -> tuple[bytes, str]:
    if rng.random() < 0.3:
        return gzip.compress(raw, mtime=0), "packed by gzip"
    encoding = rng.choice(ENCODINGS)
    return raw.decode("utf-8", "replace").encode(encoding, "replace"), f"in {encoding}"


def places_in(tree: Any) -> list[tuple[Any, Any]]:
    """All values below a tree: what each is in, and its key or place there."""
    return list(_places(tree))


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    items = list(tree.items()) if isinstance(tree, dict) else list(enumerate(tree)) if isinstance(tree, list) else []
    for key, one in items:
        yield tree, key
        yield from _places(one)


def spoiled_tree(rng: Chance, good: Any, ways: list[str]) -> tuple[Any, str]:
    """A tree of dicts and lists in which something is wrong, and what.

    Args:
        rng: decides.
        good: the tree, which is left as it is.
        ways: names that lead out of the folder (`ways_out`).
    """
    tree, said = deepcopy(good), []
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        places = places_in(tree)
        if not places or rng.random() < 0.01:
            return value(rng), "another tree"
        within, key = rng.choice(places)
        said.append(_spoil_place(rng, within, key, places, ways))
    return tree, "; ".join(said)


def _spoil_place(rng: Chance, within: Any, key: Any, places: list[tuple[Any, Any]], ways: list[str]) -> str:
    old, name = within[key], f"{key!r}"[:30]
    how = rng.choice(["value", "value", "kind", "way", "delete", "copy", "swap", "rename", "wrap", "repeat", "digits"])
    if how == "delete":
        del within[key]
        return f"{name} deleted"
    if how == "rename" and isinstance(within, dict):
        new = text(rng) if rng.random() < 0.5 else f"{key}x"
        within[new] = within.pop(key)
        return f"{name} called {new[:30]!r}"
    if how == "copy":
        other, place = rng.choice(places)
        within[key] = deepcopy(other[place]) if other[place] is not within else None
        return f"{name} is a copy of {place!r}"[:80]
    if how == "swap":
        other, place = rng.choice(places)
        if isinstance(other[place], str | int | float) and isinstance(old, str | int | float):
            within[key], other[place] = other[place], old
        return f"{name} and {place!r} swapped"[:80]
    if how == "repeat" and isinstance(within, list):
        within[key:key] = [deepcopy(old) for _ in range(rng.choice([1, 3, 300]))]
        return f"entry {name} repeated"
    new = _another(rng, old, how, ways)
    within[key] = new
    return f"{name} is {str(new)[:40]!r}"


def _another(rng: Chance, old: Any, how: str, ways: list[str]) -> Any:
    """A value for another one, of its kind or not."""
    if how == "way":
        return rng.choice(ways)
    if how == "wrap":
        return rng.choice([[old], {"a": old}, [old] * 3, {str(old)[:50]: old}])
    if how == "digits" and isinstance(old, int | float):
        return rng.choice(
            [-old, old + 1, old * 10, old * (10 if rng.light else 10**7), -1 - old, float(old), str(old), bool(old)]
        )
    if how == "kind" and isinstance(old, str):
        return rng.choice([old + text(rng), text(rng) + old, old.upper(), old[:-1], old[1:], old * 50, f" {old} "])
    if how == "kind" and isinstance(old, int | float):
        return number(rng)
    if how == "kind" and isinstance(old, list):
        return rng.choice([old[:1], old[::-1], [*old, value(rng)], dict.fromkeys(map(str, old)), tuple(old), str(old)])
    return value(rng)


def as_json(rng: Chance, tree: Any) -> tuple[bytes, str]:
    """A tree as JSON, which now and then is none any more; and how it is written."""
    try:
        raw = json.dumps(tree, ensure_ascii=rng.random() < 0.7, indent=rng.choice([None, None, 1]))
    except ValueError:
        raw = json.dumps(str(tree)[:100])
    if rng.random() < 0.8:
        return raw.encode("utf-8", "surrogatepass"), ""
    how = rng.choice(
        ["deep", "deep", "digits", "exponent", "twice", "comma", "comment", "quotes", "bom", "crlf", "nul", "bytes"]
    )
    place = rng.choice([k for k, one in enumerate(raw) if one in ":,["] or [0]) + 1
    if how == "deep":
        depth = rng.choice([500, 5_000, 5_000 if rng.light else 100_000])
        raw = raw[:place] + "[" * depth + "]" * depth + rng.choice([",", ""]) + raw[place:]
    elif how in ("digits", "exponent"):
        raw = f"{raw[:place]}{'9' * 5000 if how == 'digits' else '1e999999'},{raw[place:]}"
    elif how == "twice":
        raw = raw.replace("{", '{"images": [], "format": 9, "files": {}, ', 1)
    elif how == "quotes":
        raw = raw.replace('"', "'")
    elif how == "bytes":
        spoiled, what = spoiled_bytes(rng, raw.encode("utf-8", "surrogatepass"))
        return spoiled, what
    else:
        new = {"comma": ",", "comment": "/* x */", "bom": "\ufeff", "crlf": "\r\n", "nul": "\0"}[how]
        raw = f"{new}{raw}" if how == "bom" else raw[:place] + new + raw[place:]
    return raw.encode("utf-8", "surrogatepass"), f"JSON with {how}"


def put_special(path: Path, how: str, secret: Path | None = None) -> None:
    """Put what is no plain file where nothing is: a `folder`, a `pipe`, a `link to itself` or a `link out` to a secret,
    an `empty` file; for anything else nothing."""
    if how == "folder":
        path.mkdir()
    elif how == "pipe":
        os.mkfifo(path)
    elif how == "empty":
        path.touch()
    elif how == "link to itself":
        path.symlink_to(path)
    elif how == "link out" and secret is not None:
        path.symlink_to(secret)
