"""What is found of somebody's captions in a folder of pictures."""

import json
from pathlib import Path

import datasets
import pytest
from PIL import Image

from data.errors import DataError
from data.own_captions.corpus import read_found
from data.own_captions.data_sets import write_data_set
from data.own_captions.detection import look_at

TEXTS = {f"{number}.png": f"a small dog number {number} runs on the beach" for number in range(12)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, name in enumerate(TEXTS):
        Image.new("RGB", (20, 20), (20 * number, 0, 0)).save(tmp_path / name)
    return tmp_path


def entries() -> list[dict[str, object]]:
    splits = ["val"] * 2 + ["test"] * 2 + ["train"] * 8
    return [{"filename": name, "split": split, "sentences": [{"raw": text}]}
            for (name, text), split in zip(TEXTS.items(), splits, strict=True)]  # fmt: skip


@pytest.mark.parametrize(("name", "separator"), [("Captions.CSV", ","), ("captions.TSV", "\t"), ("Captions.Json", "")])
def test_endings_are_known_in_letters_of_any_size(folder: Path, name: str, separator: str) -> None:
    lines = "".join(f"{picture}{separator}{text}\n" for picture, text in TEXTS.items())
    (folder / name).write_text(lines if separator else json.dumps({"images": entries()}))
    _, corpus = read_found(look_at(folder, None))
    assert [one.text for one in corpus.captions] == list(TEXTS.values())


def test_words_of_three_letters_are_no_languages(folder: Path) -> None:
    labels = ["dog", "car", "bus", "man"] * 3
    lines = (f"{name}\t{label}\t{text}\n" for (name, text), label in zip(TEXTS.items(), labels, strict=True))
    (folder / "captions.tsv").write_text("".join(lines))
    with pytest.raises(DataError, match=r"the second has no codes of languages such as en \(first 'dog'\)"):
        look_at(folder, None)


@pytest.mark.parametrize("lacks", [None, "split", "caption"])
@pytest.mark.parametrize("columns", [("image", "caption", "split"), ("image", "split", "caption")])
def test_splits_are_drawn_where_a_picture_has_none(folder: Path, columns: tuple[str, ...], lacks: str | None) -> None:
    """Wherever the column stands; a caption that is missing has nothing to do with it."""
    rows = [{"image": one["filename"], "split": one["split"], "caption": TEXTS[str(one["filename"])]}
            for one in entries()]  # fmt: skip
    rows[-1] |= {lacks: ""} if lacks else {}
    lines = [columns, *([row[name] for name in columns] for row in rows)]
    (folder / "captions.csv").write_text("\n".join(map(",".join, lines)))
    assert look_at(folder, None).drawn == (lacks == "split")


def test_numbers_that_stand_for_splits_and_languages(folder: Path, tmp_path_factory) -> None:
    """A `ClassLabel` of the library `datasets`."""
    held = [{"path": None, "bytes": (folder / name).read_bytes()} for name in TEXTS]
    numbers = [number % 3 for number in range(12)]
    rows = datasets.Dataset.from_dict({"image": held, "text": list(TEXTS.values()), "split": numbers, "lang": numbers})
    kinds = {"split": ["train", "val", "test"], "lang": ["en", "nl", "da"]}
    for name, names in kinds.items():
        rows = rows.cast_column(name, datasets.ClassLabel(names=names))
    place = tmp_path_factory.mktemp("set")
    rows.cast_column("image", datasets.Image()).save_to_disk(place / "saved")
    lines = write_data_set(str(place / "saved"), place / "made").captions.read_text().splitlines()
    told = [(line.split("\t")[3], line.split("\t")[1]) for line in lines]
    assert told == [("train", "en"), ("val", "nl"), ("test", "da")] * 4


def test_quotation_marks_of_a_data_set_are_kept(folder: Path, tmp_path_factory) -> None:
    texts = ['"Stop"', 'a "stop" sign', '"Stop" and "go"', "a dog", '12" pipe'] * 2
    made = tmp_path_factory.mktemp("made")
    rows = (json.dumps({"file_name": name, "text": text}) for name, text in zip(TEXTS, texts, strict=False))
    (folder / "metadata.jsonl").write_text("\n".join(rows))
    _, corpus = read_found(write_data_set(str(folder), made / "1"))
    assert [one.text for one in corpus.captions] == texts
    few = [{"file_name": name, "text": '"Stop"'} for name in TEXTS]
    (folder / "metadata.jsonl").write_text("\n".join(map(json.dumps, few)))
    _, corpus = read_found(write_data_set(str(folder), made / "2"))
    assert {one.text for one in corpus.captions} == {'"Stop"'}
    assert not corpus.half_quoted
