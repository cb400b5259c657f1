"""Files of public data sets: where they belong, and whether those that are here are theirs."""

import zipfile
from pathlib import Path

import pytest

from data.corpora.multi30k_files import TASKS
from data.corpora.originals import Archive, Original, Part, data_sets, fault_of, lay_out, pictures_here
from data.errors import DataError

KARPATHY = Part("captions", "page", "none", (Original("dataset.json", 2),), archive=Archive("captions.zip"))
PICTURES = Part("pictures", "page", "none", folder="all/pictures", pictures=2, known_as=("Images",),
                archive=Archive("pictures.zip"))  # fmt: skip


def test_the_files_of_multi30k_are_those_that_its_reader_wants() -> None:
    (text, _) = data_sets()["multi30k"]
    wanted = {task.images(Path("multi30k"), split) for task in TASKS.values() for split in task.lists}
    wanted |= {task.raw(Path("multi30k"), split, language, number) for task in TASKS.values() for split in task.lists
               for language in task.languages for number in task.numbers}  # fmt: skip
    assert {Path(file.path) for file in text.files} == wanted
    assert all(len(file.sha256) == 64 and file.size > 0 for file in text.files)


def test_a_file_is_checked_by_its_size_and_digest(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"ab")
    digest = "fb8e20fc2e4c3f248c60c39bd652f3c1347298bb977b8b4d5903b85055620603"  # of "ab"
    assert fault_of(path, 2, digest) is fault_of(path, 0) is None
    assert fault_of(path, 3, digest) == "2 bytes, expected 3"
    assert fault_of(path, 2, "0" * 64) == "SHA-256 fb8e20fc2e4c…, expected 000000000000…"


def test_a_clone_of_multi30k_is_laid_out(tmp_path: Path) -> None:
    (text, _) = data_sets()["multi30k"]
    lists = tmp_path / "dataset" / "data" / "task1" / "image_splits"
    lists.mkdir(parents=True)
    (lists / "val.txt").write_text("1.jpg\n")
    (done,) = lay_out(text, tmp_path)
    assert done == f"{lists / 'val.txt'} copied to {tmp_path}/multi30k/task1/image_splits/val.txt"
    assert (tmp_path / "multi30k" / "task1" / "image_splits" / "val.txt").read_text() == "1.jpg\n"
    assert list(lay_out(text, tmp_path)) == []


def test_zip_files_are_unpacked_by_names_alone(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "captions.zip", "w") as archive:
        archive.writestr("below/dataset.json", "{}")
    with zipfile.ZipFile(tmp_path / "pictures.zip", "w") as archive:
        for name in ("in/1.jpg", "../../2.jpg", "in/run.sh", "__MACOSX/in/._1.jpg"):
            archive.writestr(name, name)
    assert len([*lay_out(KARPATHY, tmp_path), *lay_out(PICTURES, tmp_path)]) == 2
    assert (tmp_path / "dataset.json").read_text() == "{}"
    assert {path.name for path in (tmp_path / "all" / "pictures").iterdir()} == {"1.jpg", "2.jpg"}
    assert not (tmp_path.parent / "2.jpg").exists()
    assert pictures_here(PICTURES, tmp_path) == 2
    assert [*lay_out(KARPATHY, tmp_path), *lay_out(PICTURES, tmp_path)] == []  # nothing is replaced


@pytest.mark.parametrize(("place", "value"), [(8, 99), (6, 1), (None, None)])
def test_a_member_that_cannot_be_read_is_told(tmp_path: Path, place: int | None, value: int | None) -> None:
    """Of another compression, encrypted, damaged."""
    path = tmp_path / "captions.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("dataset.json", "{}" * 5000)
    content = bytearray(path.read_bytes())
    if place is None:
        content[45:60] = b"\xff" * 15
    else:
        for begin, more in ((b"PK\3\4", 0), (b"PK\1\2", 2)):
            content[content.index(begin) + place + more] = value
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"captions\.zip: not a whole zip file"):
        list(lay_out(KARPATHY, tmp_path))


def test_a_damaged_zip_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "captions.zip").write_bytes(b"PK\3\4 half of it")
    with pytest.raises(DataError, match=r"captions\.zip: not a whole zip file"):
        list(lay_out(KARPATHY, tmp_path))


def test_a_folder_of_pictures_that_is_called_otherwise_is_moved(tmp_path: Path) -> None:
    (tmp_path / "archive" / "Images").mkdir(parents=True)
    (tmp_path / "archive" / "Images" / "1.jpg").touch()
    assert list(lay_out(PICTURES, tmp_path)) == [f"{tmp_path}/archive/Images moved to {tmp_path}/all/pictures"]
    assert pictures_here(PICTURES, tmp_path) == 1
