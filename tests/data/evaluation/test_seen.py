"""What a model has seen, counted in other data; what people have written of a split."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from data.captions.table import Caption
from data.errors import DataError
from data.evaluation.evaluation_set import ALL, EvaluationSet
from data.evaluation.seen import TRAIN, VAL, Overlap, TrainingHashes, name_hash, picture_hash

DIGESTS = {"a.jpg": "12" * 32, "b.jpg": "f0" * 32, "unused.jpg": "ee" * 32}
ROWS = {
    TRAIN: [
        {"image_id": "a.jpg", "text": "A red dog."}, {"image_id": "a.jpg", "text": "Ein Hund"},
        {"image_id": "c.jpg", "text": "A sea"}, {"image_id": "text:A house", "text": "Ein Haus"},
    ],
    VAL: [{"image_id": "b.jpg", "text": "A boat"}],
}  # fmt: skip


def test_images_pictures_and_sentences_are_counted_by_split(tmp_path: Path) -> None:
    made = TrainingHashes.of_rows(ROWS, DIGESTS)
    assert [len(made.hashes[TRAIN][kind]) for kind in ("names", "files", "sentences")] == [2, 1, 5]
    made.save(tmp_path / "hashes.safetensors")
    names = ["elsewhere/c.jpg", "b.jpg", "A house", "a.jpg"]
    pictures = [picture_hash(DIGESTS[name]) for name in ("a.jpg", "b.jpg", "unused.jpg", "a.jpg")]  # one twice
    sentences = ["a red dog", "A house", "ein haus!", "A boat", "A red", "a sea", "A sea."]
    for seen in (made, TrainingHashes.load(tmp_path / "hashes.safetensors")):
        assert seen.overlap(TRAIN, names, pictures, sentences) == Overlap(2, 2, 5)
        assert seen.overlap(VAL, names, pictures, sentences) == Overlap(1, 1, 1)
        assert seen.overlap(TRAIN, None, None, []) == Overlap(None, None, 0)


def test_what_cannot_be_compared_is_none(tmp_path: Path) -> None:
    no_files = TrainingHashes.of_rows(ROWS, {})
    assert no_files.overlap(TRAIN, ["a.jpg"], [1], ["A sea"]) == Overlap(1, None, 1)
    other_rule = TrainingHashes(no_files.hashes, no_files.rule + 1)
    assert other_rule.overlap(TRAIN, [], None, ["A sea"]) == Overlap(0, None, None)
    other_rule.save(tmp_path / "hashes.safetensors")
    assert TrainingHashes.load(tmp_path / "hashes.safetensors").rule == other_rule.rule


def test_a_file_of_something_else_is_told_and_one_without_a_rule_is_of_the_first(tmp_path: Path) -> None:
    path, kinds = tmp_path / "hashes.safetensors", ("names", "files", "sentences")
    whole = {f"{split}.{kind}": np.zeros(1, np.int64) for split in ROWS for kind in kinds}
    save_file(whole, path)
    assert TrainingHashes.load(path).rule == 1
    for odd in (np.zeros(1), np.zeros((1, 1), np.int64)):
        save_file(whole | {"val.names": odd}, path)
        with pytest.raises(DataError, match="expected whole numbers"):
            TrainingHashes.load(path)


def test_hashes_have_63_bits() -> None:
    assert picture_hash("ff" * 32) == 2**63 - 1
    assert picture_hash("00" * 7 + "02" + "ff" * 24) == 1
    digest = hashlib.blake2b(b"17", digest_size=8).hexdigest()  # those of exported models stay comparable
    assert name_hash("sea/17.jpg") == int(digest, 16) // 2
    assert len({name_hash(f"{number}.jpg") for number in range(1000)}) == 1000
    assert all(0 <= name_hash(f"{number}.jpg") < 2**63 for number in range(1000))


def test_people_s_captions_of_a_split_are_tested_on() -> None:
    captions = [
        Caption("b", "b0", "fr", "x", "test"), Caption("a", "a0", "en", "x", "test"),
        Caption("b", "b1", "en", "y", "test"), Caption("a", "a1", "de", "x", "test", "mt:en-de", "a0"),
        Caption("c", "c0", "cs", "x", "val"),
    ]  # fmt: skip
    found = EvaluationSet.of_split("own", "test", captions, {})
    assert [caption.caption_id for caption in found.captions] == ["b0", "a0", "b1"]
    assert (found.split, found.languages, found.images) == ("test", ["en", "fr"], ["b", "a"])
    whole = EvaluationSet.of_split("own", None, captions, {})
    assert (whole.split, whole.languages, whole.images) == (ALL, ["cs", "en", "fr"], ["b", "a", "c"])
    with pytest.raises(DataError, match="--split train: own has no captions by people there, but in test, val;"):
        EvaluationSet.of_split("own", "train", captions, {})
