"""What is found of somebody's captions in a folder of pictures."""

import json
from pathlib import Path

import pytest
from PIL import Image

from data.errors import DataError
from data.own_captions.corpus import read_found
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
