"""The captions of a table as objects."""

from pathlib import Path

from data.captions.table import Caption, listed_captions, write_captions


def test_listed_captions_are_those_that_were_written(tmp_path: Path) -> None:
    captions = [
        Caption("1.jpg", "1.jpg#en1", "en", "A man.", "train"),
        Caption("1.jpg", "1.jpg#en1~de", "de", "Ein Mann.", "train", "mmt:en-de", "1.jpg#en1", -0.25),
    ]
    write_captions(iter(captions), tmp_path / "captions.parquet")
    assert listed_captions(tmp_path / "captions.parquet") == captions
    write_captions([], tmp_path / "captions.parquet")
    assert listed_captions(tmp_path / "captions.parquet") == []
