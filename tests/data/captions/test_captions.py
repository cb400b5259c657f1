"""The caption table and the parallel table: what is written is read again, and damage is named in one line."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data.captions.table import Caption, Pair, read_captions, read_pairs, write_captions, write_pairs
from data.errors import DataError

CAPTIONS = [
    Caption("1.jpg", "1.jpg#de1", "de", "Zwei Männer – draußen.", "train"),
    Caption("1.jpg", "1.jpg#en1~de", "de", "Ein Mann.", "train", "mmt:en-de", "1.jpg#en1", -0.25),
]


def test_captions_are_read_as_they_were_written(tmp_path: Path) -> None:
    write_captions(CAPTIONS, tmp_path / "captions.parquet")
    table = read_captions(tmp_path / "captions.parquet")
    assert [Caption(**row) for row in table] == CAPTIONS


def test_an_empty_caption_table_has_its_columns(tmp_path: Path) -> None:
    write_captions([], tmp_path / "captions.parquet")
    table = read_captions(tmp_path / "captions.parquet")
    assert len(table) == 0
    assert table.column_names[:2] == ["image_id", "caption_id"]


def test_pairs_have_a_column_for_each_language(tmp_path: Path) -> None:
    pairs = [
        Pair("task1#1.jpg", "1.jpg", "train", "task1", {"en": "Two men.", "de": "Zwei Männer."}),
        Pair("tatoeba#1", None, "train", "tatoeba", {"en": "Hi.", "fr": "Salut."}),
    ]
    write_pairs(pairs, tmp_path / "pairs.parquet")
    table = read_pairs(tmp_path / "pairs.parquet")
    assert table.column_names == ["pair_id", "image_id", "split", "origin", "de", "en", "fr"]
    assert table[0]["de"] == "Zwei Männer."
    assert table[1]["image_id"] is None
    assert table[1]["de"] is None


def test_extra_columns_are_left_out(tmp_path: Path) -> None:
    write_captions(CAPTIONS, tmp_path / "captions.parquet")
    table = pq.read_table(tmp_path / "captions.parquet")
    pq.write_table(table.append_column("note", pa.array(["a", "b"])), tmp_path / "captions.parquet")
    assert "note" not in read_captions(tmp_path / "captions.parquet").column_names


@pytest.mark.parametrize("read", [read_captions, read_pairs])
def test_a_missing_file_names_the_make_line(read, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.parquet: no such file; delete .* and run its stage again"):
        read(tmp_path / "nowhere.parquet")


@pytest.mark.parametrize("read", [read_captions, read_pairs])
def test_other_columns_are_refused_by_name(read, tmp_path: Path) -> None:
    path = tmp_path / "other.parquet"
    pq.write_table(pa.table({"image_id": ["1.jpg"], "split": ["train"]}), path)
    with pytest.raises(DataError, match=r"no column '(caption_id|pair_id)'"):
        read(path)


@pytest.mark.parametrize("damage", ["empty", "no Parquet", "cut", "inside"])
def test_a_damaged_file_is_named_in_one_line(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "captions.parquet"
    write_captions(CAPTIONS * 200, path)
    raw = path.read_bytes()
    inside = raw[:40] + b"\xff" * 60 + raw[100:]
    path.write_bytes({"empty": b"", "no Parquet": b"id,text\n" * 9, "cut": raw[:-20], "inside": inside}[damage])
    with pytest.raises(DataError, match="not a readable Parquet file") as caught:
        read_captions(path)
    assert "\n" not in str(caught.value)
