"""Whatever bytes stand in a file: the readers give a value or a DataError of one line, never another exception."""

import gzip
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from data.corpora.multi30k import Multi30kSettings, read
from data.errors import DataError
from data.findings.report import data_report
from data.lines import read_lines
from data.pictures.regions import RegionStore
from tests.data.official import write_data
from tests.data.spoiling import Copy

pytestmark = pytest.mark.whole

FEW = settings(max_examples=40, deadline=None)
# Bytes that mean something to one of the readers, mixed with any others.
PIECES = st.sampled_from([
    b"\n", b"\r\n", b"\r", b"\t", b"t1.jpg", b"t1.jpg\n", b"a dog runs", b"\xff", b"\0", b"\xef\xbb\xbf",
    b"\x1f\x8b\x08", "\u2028".encode(), "\x85".encode(), "\ufeff".encode(), b" ", b"#", b"/", b"..",
])  # fmt: skip
BYTES = st.lists(st.one_of(PIECES, st.binary(max_size=30)), max_size=30).map(b"".join)
PACKED = BYTES.map(lambda raw: gzip.compress(raw, 1, mtime=0))


@st.composite
def damaged(draw: st.DrawFn, raw: bytes) -> bytes:
    """Good bytes of which some are changed, cut away or put in."""
    content = bytearray(raw)
    for _ in range(draw(st.integers(0, 4))):
        where = draw(st.integers(0, max(len(content) - 1, 0)))
        content[where : where + draw(st.integers(0, 3))] = draw(st.binary(max_size=4))
    return bytes(content[: draw(st.one_of(st.none(), st.integers(0, len(content))))])


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    good = tmp_path_factory.mktemp("good")
    write_data(good)
    return Copy(good, tmp_path_factory.mktemp("copy"))


def refusal(action: Callable[[], object]) -> str | None:
    """What a DataError says, None if there is none; any other exception is the test's failure."""
    try:
        action()
    except DataError as error:
        return str(error)
    return None


def look(data: Copy) -> None:
    corpus = read(data.settings(), data.root, data.root)
    data_report(corpus, RegionStore(corpus.regions)).as_markdown()


def feed(data: Copy, path: Path, raw: bytes) -> None:
    """Read the data with `raw` in place of one file, which is then put back."""
    before = path.read_bytes()
    data.write(path, raw)
    told = refusal(lambda: look(data))
    data.write(path, before)
    assert told is None or ("\n" not in told and told.startswith(str(data.root))), told


@FEW
@given(raw=st.one_of(BYTES, PACKED))
@pytest.mark.parametrize("name", ["x.txt", "x.gz"])
def test_lines_of_anything(tmp_path_factory: pytest.TempPathFactory, name: str, raw: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / name
    path.write_bytes(raw)
    told = refusal(lambda: read_lines(path, "anything"))
    assert told is None or (told.startswith(str(path)) and "\n" not in told)


@FEW
@given(raw=st.one_of(BYTES, PACKED, st.lists(BYTES, min_size=6, max_size=6).map(b"\n".join).map(gzip.compress)))
@pytest.mark.parametrize("number", [1, None])
def test_a_text_file_of_anything(data: Copy, number: int | None, raw: bytes) -> None:
    feed(data, data.raw("train", "en", number), raw)


@FEW
@given(raw=st.one_of(BYTES, PACKED))
def test_parallel_text_of_anything(data: Copy, raw: bytes) -> None:
    feed(data, data.parallel, raw)


@FEW
@given(lines=st.lists(st.tuples(BYTES, BYTES).map(b"\t".join), max_size=5))
def test_parallel_text_of_any_sides(data: Copy, lines: list[bytes]) -> None:
    feed(data, data.parallel, gzip.compress(b"\n".join(lines)))


@FEW
@given(raw=BYTES)
@pytest.mark.parametrize("name", ["own", "task1", "task2"])
def test_a_list_of_anything(data: Copy, name: str, raw: bytes) -> None:
    feed(data, data.lists / "train.txt" if name == "own" else data.list_of("train", name), raw)


@FEW
@given(names=st.lists(st.text(min_size=1), min_size=9, max_size=9))
def test_ids_of_any_characters(data: Copy, names: list[str]) -> None:
    feed(data, data.ids, "\n".join(names).encode("utf-8", "replace"))


@FEW
@given(raw=BYTES)
@pytest.mark.parametrize("name", ["ids.txt", "regions.npy", "boxes.npy"])
def test_a_region_store_of_anything(data: Copy, name: str, raw: bytes) -> None:
    feed(data, data.features / name, raw)


def npy(header: str, version: int) -> bytes:
    """An array file with any header and some zeros."""
    content = header.encode("utf-8", "replace")
    length = struct.pack("<H" if version == 1 else "<I", len(content))
    return b"\x93NUMPY" + bytes([version, 0]) + length + content + bytes(99)


SHAPES = st.sampled_from(["(9, 2, 5)", "()", "None", "(-1, 2, 5)", "(9, True, 5)", "(10**30,)", "9", "("])
TYPES = st.sampled_from(["<f2", ">f2", "<f4", "|O", "<U5", "V3", "f", "m8[s]", "", "0", "zz", "(2,)<f2"])
ORDERS, KEYS = st.sampled_from(["False", "True", "None", "'"]), st.sampled_from(["fortran_order", "descr", "x"])


@settings(max_examples=150, deadline=None)
@given(st.one_of(SHAPES, st.text()), TYPES, ORDERS, KEYS, st.integers(0, 4))
@example("(9, 2, 5)", "<f2", "False", "fortran_order", 1)
@example("(" * 300, "<f2", "False", "fortran_order", 1)
@example("(99999999999, 99999999999, 99999999999)", "<f2", "False", "fortran_order", 3)
def test_an_array_with_any_header(data: Copy, shape: str, kind: str, order: str, key: str, version: int) -> None:
    header = f"{{'descr': '{kind}', '{key}': {order}, 'shape': {shape}}}\n"
    feed(data, data.features / "regions.npy", npy(header, version))


@settings(max_examples=100, deadline=None)
@given(content=st.data())
@pytest.mark.parametrize("name", ["regions.npy", "boxes.npy", "ids.txt"])
def test_a_region_store_damaged_anywhere(data: Copy, name: str, content: st.DataObject) -> None:
    path = data.features / name
    raw = path.read_bytes()
    feed(data, path, content.draw(st.one_of(damaged(raw), damaged(raw[:128]).map(lambda head: head + raw[128:]))))


@settings(max_examples=60, deadline=None)
@given(content=st.data())
@pytest.mark.parametrize("name", ["text", "parallel", "list"])
def test_files_damaged_anywhere(data: Copy, name: str, content: st.DataObject) -> None:
    path = {"text": data.raw("train", "de", 1), "parallel": data.parallel, "list": data.lists / "test.txt"}[name]
    feed(data, path, content.draw(damaged(path.read_bytes())))


def test_the_data_is_whole_again(data: Copy) -> None:
    assert refusal(lambda: look(data)) is None
    assert np.load(data.features / "regions.npy").shape == (9, 2, 5)
    assert Multi30kSettings() != data.settings()
