"""Precomputed features: both row counts, what is converted, every complaint, and that little of it is in memory."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.corpora.precomputed import PrecomputedSettings, read, sources
from data.errors import DataError
from data.findings.report import data_report
from data.pictures.regions import RegionStore, write_regions
from tests.data.layouts import sentence, write_precomputed
from tests.data.memory import least_peak
from tests.data.official import pack

SIZES = {"train": 7, "dev": 3, "test": 4, "testall": 6}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_precomputed(tmp_path / "f30k_precomp", SIZES)
    return tmp_path


def load(root: Path, **changed):
    return read(PrecomputedSettings(**changed), root, root)


def array(root: Path, name: str) -> np.ndarray:
    return np.load(root / "f30k_precomp" / f"{name}_ims.npy")


def edit(root: Path, name: str, change) -> Path:
    """Change one array."""
    path = root / "f30k_precomp" / f"{name}_ims.npy"
    np.save(path, change(np.load(path)))
    return path


def test_captions_and_regions_of_three_splits(root: Path) -> None:
    corpus = load(root)
    assert Counter(caption.split for caption in corpus.captions) == {"train": 35, "val": 15, "test": 20}
    caption = corpus.captions[35 + 5 + 2]
    assert (caption.image_id, caption.caption_id, caption.text) == ("dev-1", "dev-1#en3", sentence("dev1", 2))
    assert corpus.place(caption, "en") == f"{root / 'f30k_precomp' / 'dev_caps.txt'}:8"
    regions = corpus.open_regions()
    assert (len(regions), regions.num_regions, regions.dim) == (14, 2, 5)
    rows = regions.rows(["train-6", "dev-0", "test-3"])
    for row, (name, place) in zip(rows, (("train", 6), ("dev", 0), ("test", 3)), strict=True):
        assert np.array_equal(regions.regions[row], array(root, name)[place].astype(np.float16))
        assert np.array_equal(regions.boxes[row], [[0, 0, 1, 1]] * 2)
    assert data_report(corpus, regions).findings == []
    assert list((root / "f30k_precomp").parent.iterdir()) == [root / "f30k_precomp"]  # nothing is written


def test_the_5k_test_of_coco(root: Path) -> None:
    corpus = load(root, test="testall")
    assert [c.image_id for c in corpus.captions if c.split == "test"][::5] == [f"testall-{k}" for k in range(6)]


@pytest.mark.parametrize("shape", [(2, 5), (5,)])
def test_copies_and_single_rows_give_the_same_store(tmp_path: Path, shape: tuple[int, ...]) -> None:
    stores = []
    for copies in (1, 5):
        root = tmp_path / str(copies)
        write_precomputed(root / "f30k_precomp", SIZES, copies=copies, shape=shape)
        regions = load(root).open_regions()
        write_regions(root / "store", regions.ids, ((regions.regions[k], regions.boxes[k]) for k in range(14)))
        stores.append(RegionStore(root / "store"))
    assert len(array(tmp_path / "5", "train")) == 35
    assert stores[0].regions.shape == (14, 2 if len(shape) == 2 else 1, 5)
    assert np.array_equal(stores[0].regions, stores[1].regions)
    assert stores[0].ids == stores[1].ids
    assert len(np.unique(stores[0].regions[:, 0], axis=0)) == 14  # else the order would not matter


def test_another_number_of_captions(root: Path) -> None:
    write_precomputed(root / "f30k_precomp", SIZES, each=2)
    assert len(load(root, lines_per_image=2).captions) == 2 * 14
    write_precomputed(root / "f30k_precomp", SIZES, each=1)
    assert len(load(root, lines_per_image=1).open_regions()) == 14


@pytest.mark.parametrize("each", [1, 5])
def test_ids_stand_once_an_image_or_once_a_caption(root: Path, each: int) -> None:
    pack(root / "f30k_precomp" / "dev_ids.txt", [str(9 - k) for k in range(3) for _ in range(each)])
    assert list(dict.fromkeys(c.image_id for c in load(root).captions if c.split == "val")) == ["9", "8", "7"]
    assert {c.image_id for c in load(root, ids=False).captions if c.split == "val"} == {"dev-0", "dev-1", "dev-2"}


def test_sources_are_what_is_read(root: Path) -> None:
    pack(root / "f30k_precomp" / "test_ids.txt", ["1", "2", "3", "4"])
    read_ = {path.name for path in sources(PrecomputedSettings(), root)}
    usual = {f"{name}_{kind}" for name in ("train", "dev", "test") for kind in ("ims.npy", "caps.txt")}
    assert read_ == usual | {"test_ids.txt"}
    assert {path.name for path in sources(PrecomputedSettings(ids=False), root)} == usual


def test_empty_lines_are_left_out_with_their_places(root: Path) -> None:
    path = root / "f30k_precomp" / "dev_caps.txt"
    lines = path.read_text().splitlines()
    pack(path, [*lines[:6], " ", *lines[7:]])
    corpus = load(root)
    assert corpus.empty == [f"{path}:7"]
    assert [c.caption_id for c in corpus.captions if c.image_id == "dev-1"] == [f"dev-1#en{k}" for k in (1, 3, 4, 5)]
    assert corpus.place(next(c for c in corpus.captions if c.caption_id == "dev-1#en3"), "en") == f"{path}:8"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"lines_per_image": 0}, "lines_per_image is 0"),
        ({"language": "english"}, "language is 'english', expected a code like en or de"),
        ({"val": "test"}, "train, val and test are train, test, test; each is its own"),
        ({"folder": "nowhere"}, r"nowhere/train_caps\.txt: no such file; expected the captions of train_ims\.npy, 5"),
        ({"test": "test2"}, r"test2_caps\.txt: no such file"),
        ({"lines_per_image": 4}, r"train_caps\.txt: 35 lines, expected a multiple of 4"),
        (
            {"lines_per_image": 7},
            r"train_ims\.npy: 7 rows for 35 lines of train_caps\.txt; expected 5 \(each image once\) or 35 \(once a "
            r"caption\), for corpus\.lines_per_image is 7",
        ),
    ],
)
def test_settings_that_do_not_fit(root: Path, changed: dict, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load(root, **changed)


def test_no_data_root(tmp_path: Path) -> None:
    for function in (lambda: read(PrecomputedSettings(), None, tmp_path), lambda: sources(PrecomputedSettings(), None)):
        with pytest.raises(DataError, match=r"set BILDWORT_DATA=FOLDER or pass --corpus\.root"):
            function()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a[:-1], r"dev_ims\.npy: 2 rows for 15 lines of dev_caps\.txt; expected 3 .* or 15"),
        (lambda a: a.astype(int), r"type int64, expected float32"),
        (lambda a: a[..., None], r"shape \(3, 2, 5, 1\), expected \(rows, R, D\)"),
        (lambda a: a[:, :0], r"shape \(3, 0, 5\)"),
        (lambda a: a[:, :, :4], r"dev_ims\.npy: regions \(2, 4\), but \(2, 5\) in train_ims\.npy"),
        (lambda a: np.array([{}], dtype=object), "not a readable .npy file"),
        (lambda a: np.float32(1), r"shape \(\)"),
    ],
)
def test_arrays_that_do_not_fit(root: Path, change, message: str) -> None:
    path = edit(root, "dev", change)
    with pytest.raises(DataError, match=message) as caught:
        load(root)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize("row", [0, 34])
def test_rows_that_are_no_copies(root: Path, row: int) -> None:
    write_precomputed(root / "f30k_precomp", SIZES, copies=5)
    first, last = row // 5 * 5, row // 5 * 5 + 4

    def change(images: np.ndarray) -> np.ndarray:
        images[row, 1, 4] += 1
        return images

    edit(root, "train", change)
    with pytest.raises(DataError, match=rf"train_ims\.npy: rows {first} … {last} differ, expected 5 copies"):
        load(root)


@pytest.mark.parametrize("value", [np.nan, -np.inf, 70_000])
@pytest.mark.parametrize("copies", [1, 5])
def test_a_number_that_float16_does_not_hold_is_named_when_its_row_is_read(
    root: Path, value: float, copies: int
) -> None:
    write_precomputed(root / "f30k_precomp", SIZES, copies=copies)

    def change(images: np.ndarray) -> np.ndarray:
        images[2 * copies : 3 * copies, 1, 3] = value
        return images

    edit(root, "dev", change)
    corpus = load(root)
    with pytest.raises(DataError, match=rf"dev_ims\.npy: row {2 * copies} \(image 'dev-2'\) holds NaN, infinity or"):
        data_report(corpus, corpus.open_regions())


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (["1", "2"], r"dev_ids\.txt: 2 ids for 3 images, expected 3 or 15"),
        (["1", "", "3"], r"dev_ids\.txt:2: empty line"),
        (["1"] * 5 + ["2"] * 4 + ["3"] * 6, r"dev_ids\.txt:10: '3', expected '2' again: 5 lines belong to one image"),
        (
            ["1", "2", "1"],
            r"image id '1' stands twice \(dev_ims\.npy, image 0; dev_ims\.npy, image 2\).*corpus\.ids=fa",
        ),
        (["1", "train-6", "2"], r"id 'train-6' stands twice \(train_ims\.npy, image 6; dev_ims\.npy, image 1\)"),
    ],
)
def test_ids_that_do_not_fit(root: Path, ids: list[str], message: str) -> None:
    pack(root / "f30k_precomp" / "dev_ids.txt", ids)
    with pytest.raises(DataError, match=message):
        load(root)


def test_zero_rows_are_found_and_an_image_without_regions_cannot_be(root: Path) -> None:
    edit(root, "test", lambda images: images * (np.arange(4) != 1)[:, None, None])
    corpus = load(root)
    (finding,) = data_report(corpus, corpus.open_regions()).findings
    assert (finding.level, finding.what) == ("error", "images whose regions are all zero")
    assert finding.examples == ["test-1 (row 11)"]


def test_arrays_are_converted_without_being_loaded(tmp_path: Path) -> None:
    write_precomputed(tmp_path / "f30k_precomp", SIZES | {"train": 500}, copies=5, shape=(36, 64))
    size = (tmp_path / "f30k_precomp" / "train_ims.npy").stat().st_size

    def convert() -> None:
        """Write the region store of the arrays."""
        regions = load(tmp_path).open_regions()
        write_regions(tmp_path / "store", regions.ids, ((regions.regions[k], regions.boxes[k]) for k in range(507)))

    assert least_peak(convert) < size / 10
    assert len(RegionStore(tmp_path / "store")) == 507


PIECES = st.sampled_from([b"\n", b"\r\n", b"a dog runs\n", b"\xff", b"\0", b"\xef\xbb\xbf", "\u2028".encode(), b" "])
BYTES = st.lists(st.one_of(PIECES, st.binary(max_size=20)), max_size=20).map(b"".join)


@settings(max_examples=80, deadline=None)
@given(raw=BYTES, at=st.integers(0, 300), name=st.sampled_from(["dev_ims.npy", "dev_caps.txt", "dev_ids.txt"]))
@pytest.mark.parametrize("whole", [True, False])
def test_whatever_stands_in_a_file_is_read_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, whole: bool, raw: bytes, at: int, name: str
) -> None:
    root = tmp_path_factory.getbasetemp() / "any"
    write_precomputed(root / "f30k_precomp", SIZES)
    pack(root / "f30k_precomp" / "dev_ids.txt", ["a", "b", "c"])
    path = root / "f30k_precomp" / name
    good = path.read_bytes()
    path.write_bytes(raw if whole else good[:at] + raw + good[at:])
    told = ""
    try:
        corpus = load(root)
        assert data_report(corpus, corpus.open_regions()).captions
    except DataError as error:
        told = str(error)
    assert told == "" or told.startswith(str(root))
    assert "\n" not in told


def test_several_rows_are_taken_at_once(root: Path) -> None:
    store = load(root, test="testall").regions
    rows = np.array([4, -1, 0])
    taken = store.take(rows)
    assert (taken.shape, taken.dtype) == ((3, *store.regions.shape[1:]), np.float16)
    assert (taken[0] == store.regions[4]).all()
    assert not taken[1].any()
    assert store.take(rows[:0]).shape == (0, *store.regions.shape[1:])
