"""`bildwort data`: where a data set comes from, what of it is here, and what is not its own."""

import hashlib
import shutil
from pathlib import Path

import pytest

from data.corpora import originals
from data.corpora.originals import Archive, Original, Part
from pipeline.cli import main
from pipeline.corpus import originals as command

REAL = Path(__file__).parents[4] / "shared" / "data" / "multi30k"


def test_it_says_origin_license_and_size_of_each_part(tmp_path: Path, capsys) -> None:
    for name, told in {
        "multi30k": [f"48 files, 9.6 MB: {tmp_path}/multi30k/multi30k", "https://github.com/multi30k/dataset",
                     "0 of 48 files", ", on request", "0 of 31,783 pictures; digests not checked"],
        "flickr8k": ["caption_datasets.zip", "8,091 pictures, size not known",
                     "packed in Flickr8k_Dataset.zip, on request"],
        "coco": ["1 file, 144.2 MB", "82,783 pictures, 13.5 GB", "Flickr's terms of use"],
    }.items():  # fmt: skip
        assert main(["data", name, str(tmp_path / name)]) == 0
        said = capsys.readouterr().out
        assert [text for text in told if text not in said] == []
        assert f"put them with their folders, or the zip files, into {tmp_path / name}" in said
        assert said.count("  license   ") == said.count("  from      ") == said.count("  there     ")
    assert main(["data", "flickr", str(tmp_path)]) == 1
    assert "no data set 'flickr'; expected multi30k, flickr8k, coco" in capsys.readouterr().err


@pytest.mark.skipif(not REAL.is_dir(), reason="needs the text of Multi30K")
def test_the_real_text_is_as_published_and_a_changed_file_is_not(tmp_path: Path, capsys) -> None:
    shutil.copytree(REAL, tmp_path / "dataset" / "data")  # as in a clone
    assert main(["data", "multi30k", str(tmp_path)]) == 0
    assert "48 of 48 files, 48 as published (SHA-256)" in capsys.readouterr().out
    changed = tmp_path / "multi30k" / "task1" / "image_splits" / "val.txt"
    changed.write_bytes(changed.read_bytes().replace(b"1", b"2", 1))
    assert main(["data", "multi30k", str(tmp_path)]) == 1
    assert f"{changed}: SHA-256 " in capsys.readouterr().err


def test_what_is_open_is_downloaded_and_checked(tmp_path: Path, capsys, monkeypatch) -> None:
    """From files of this machine, by `file:` addresses."""
    published, root = tmp_path / "published", tmp_path / "mine"
    published.mkdir()
    (published / "a.txt").write_text("a dog\n")
    (published / "c.json").write_text("{}")
    shutil.make_archive(str(published / "b"), "zip", published, "c.json")
    digest = hashlib.sha256(b"a dog\n").hexdigest()
    listed = {
        "coco": [
            Part("text", "page", "none", (Original("text/a.txt", 6, digest, (published / "a.txt").as_uri()),)),
            Part("packed", "page", "none", (Original("c.json", 2),),
                 archive=Archive("b.zip", 0, (published / "b.zip").as_uri())),
            Part("asked for", "page", "on request", folder="pictures", pictures=1),
        ]
    }  # fmt: skip
    monkeypatch.setattr(command, "data_sets", lambda: listed)
    assert main(["data", "coco", str(root)]) == 0
    assert not list(root.iterdir())  # without --download
    assert main(["data", "coco", str(root), "--download"]) == 0
    said = capsys.readouterr().out
    assert "1 of 1 file, 1 as published (SHA-256)" in said
    assert "1 of 1 file, 1 as published (size; digest not checked)" in said
    assert {path.name for path in root.iterdir()} == {"text", "c.json", "b.zip"}
    (root / "text" / "a.txt").unlink()
    (published / "a.txt").write_text("a cat\n")
    assert main(["data", "coco", str(root), "--download"]) == 1
    assert "a.txt: SHA-256 " in capsys.readouterr().err
    (published / "a.txt").unlink()
    assert main(["data", "coco", str(root), "--download"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "cannot be reached" in line
    assert f"without internet, get it elsewhere, put it to {root / 'text' / 'a.txt'}, and" in line
    assert not list((root / "text").iterdir())


def test_every_address_is_one_of_the_web() -> None:
    parts = [part for some in originals.data_sets().values() for part in some]
    addresses = [one.address for part in parts for one in (*part.files, *([part.archive] if part.archive else []))]
    assert all(address.startswith(("https://", "http://images.cocodataset.org/")) for address in addresses if address)
