"""The captions that a job left, as objects."""

from pathlib import Path

from data.captions import Caption, write_captions
from pipeline.translation.augment import captions_in


def test_captions_of_a_job_are_those_that_it_wrote(tmp_path: Path) -> None:
    captions = [
        Caption("1.jpg", "1.jpg#en1", "en", "A man.", "train"),
        Caption("1.jpg", "1.jpg#en1~de", "de", "Ein Mann.", "train", "mmt:en-de", "1.jpg#en1", -0.25),
    ]
    write_captions(iter(captions), tmp_path / "captions.parquet")
    assert captions_in(tmp_path) == captions
    write_captions([], tmp_path / "captions.parquet")
    assert captions_in(tmp_path) == []
