"""Sentences that stand for images: pairs with the teacher's vectors of their originals, stored and read again."""

import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from torch import Tensor

from data.batches.taught import (
    TaughtPair,
    TaughtStore,
    pairs_of_captions,
    pairs_of_parallel,
    taught_captions,
    write_pairs,
)
from data.captions.table import Caption, Pair, read_pairs, table_of
from data.captions.table import write_pairs as write_parallel
from data.errors import DataError
from data.pictures.pixels import VectorStore
from data.vectors.sentence_vectors import compute_vectors, open_vectors

PAIRS = [
    TaughtPair("a red dog", "de", "ein roter hund"), TaughtPair("a house", "de", "ein haus"),
    TaughtPair("a red dog", "fr", "un chien rouge"), TaughtPair("a red dog", "en", "a red dog"),
]  # fmt: skip
SOURCE = "text:mt:en-de"


def vector_of(text: str) -> list[float]:
    return [float(len(text)), float(sum(map(ord, text)) % 97), 1.0]


def write(folder: Path, pairs: list[TaughtPair] = PAIRS, dim: int = 3) -> Path:
    texts = [pair.original for pair in pairs]

    def encode(batch: Tensor) -> np.ndarray:
        return np.array([vector_of(texts[row[0] - 1])[:dim] for row in batch.tolist()], np.float32)

    folder.mkdir()
    compute_vectors(texts, lambda text: [1 + texts.index(text)], encode, folder, folder / "parts")
    write_pairs(pairs, folder)
    return folder


@pytest.fixture
def taught(tmp_path: Path) -> Path:
    return write(tmp_path / "taught")


@pytest.fixture
def images(tmp_path: Path) -> VectorStore:
    folder = tmp_path / "images"
    folder.mkdir()
    np.save(folder / "vectors.npy", -np.arange(6, dtype=np.float32).reshape(2, 3))
    (folder / "ids.txt").write_text("one\ntwo\n")
    return VectorStore(folder)


def test_each_sentence_points_to_the_vector_of_its_original(taught: Path, images: VectorStore, tmp_path: Path) -> None:
    other = write(tmp_path / "other", [TaughtPair("a cat", "de", "eine katze"), TaughtPair("a house", "de", "haus")])
    store = TaughtStore(images, {SOURCE: taught, "text:toy": other})
    assert (len(store), store.num_regions, store.dim) == (2 + 2 + 2, 1, 3)
    assert store.regions.shape == (6, 1, 3)
    assert store.boxes.shape == (6, 1, 4)
    captions = taught_captions(taught, SOURCE, ["de", "fr", "en"]) + taught_captions(other, "text:toy", ["de"])
    assert [caption.text for caption in captions] == [*(pair.text for pair in PAIRS), "eine katze", "haus"]
    assert {(caption.split, caption.source) for caption in captions} == {("train", SOURCE), ("train", "text:toy")}
    assert len({caption.caption_id for caption in captions}) == 6
    rows = store.rows([caption.image_id for caption in captions])
    originals = ["a red dog", "a house", "a red dog", "a red dog", "a cat", "a house"]
    np.testing.assert_array_equal(store.regions[rows][:, 0], [vector_of(text) for text in originals])
    mixed = store.rows(["two", captions[1].image_id, "one"])
    np.testing.assert_array_equal(store.regions[mixed][:, 0], [[-3, -4, -5], vector_of("a house"), [0, -1, -2]])
    assert store.regions[mixed].dtype == np.float32
    assert captions[0].image_id in store
    assert "three" not in store
    with pytest.raises(DataError, match="image 'three' has no"):
        store.rows(["three"])


def test_only_sentences_of_the_languages_are_captions(taught: Path) -> None:
    german = taught_captions(taught, SOURCE, ["de"])
    assert [caption.text for caption in german] == ["ein roter hund", "ein haus"]
    assert taught_captions(taught, SOURCE, []) == []
    table = table_of(german)
    assert table["image_id"][:] == [caption.image_id for caption in german]
    assert table["language"][:] == ["de", "de"]


HUMAN = table_of([
    Caption("1", "1#0", "en", "a red dog", "train"), Caption("1", "1#1", "de", "ein Hund", "train"),
    Caption("2", "2#0", "en", "a house", "val"), Caption("3", "3#0", "en", "a sea", "train"),
])  # fmt: skip


def test_translated_captions_are_paired_with_the_training_captions_they_were_made_from() -> None:
    parents = {"1#0": "ein roter Hund", "2#0": "ein Haus", "1#1": "a dog", "9": "nichts"}
    translated = table_of(
        Caption("?", f"{parent}@", "de", text, "train", "mt:en-de", parent) for parent, text in parents.items()
    )
    assert pairs_of_captions(HUMAN, "en", translated) == [("a red dog", "de", "ein roter Hund")]
    assert pairs_of_captions(HUMAN, "en") == [(text, "en", text) for text in ("a red dog", "a sea")]


def test_parallel_text_about_no_image_of_the_corpus_is_paired(tmp_path: Path) -> None:
    texts, held_out = {"en": "a dog", "de": "ein Hund", "fr": "un chien"}, {"en": "a sea", "fr": "une mer"}
    rows = [
        Pair("0", None, "train", "tatoeba", texts), Pair("1", None, "val", "tatoeba", held_out),
        Pair("2", "1", "train", "tatoeba", texts), Pair("3", "other", "train", "tatoeba", {"de": "nur hier"}),
        Pair("4", "other", "train", "tatoeba", {"en": "a sea", "de": "ein Meer"}), Pair("5", "2", "train", "own", texts)
    ]  # fmt: skip
    write_parallel(rows, tmp_path / "pairs.parquet")
    table = read_pairs(tmp_path / "pairs.parquet")
    own, other = ("a dog", "de", "ein Hund"), ("a sea", "de", "ein Meer")
    found = pairs_of_parallel(table, HUMAN, "tatoeba", "en")
    assert set(found) == {own, ("a dog", "en", "a dog"), ("a dog", "fr", "un chien"), other, ("a sea", "en", "a sea")}
    for origin, language in (("own", "en"), ("toy", "en"), ("tatoeba", "cs")):
        with pytest.raises(DataError, match=f"text:{origin}: no parallel text .*; there is text:tatoeba$"):
            pairs_of_parallel(table, HUMAN, origin, language)


def test_it_goes_to_worker_processes(taught: Path, images: VectorStore) -> None:
    store = TaughtStore(images, {SOURCE: taught})
    sent = pickle.dumps(store)
    assert len(sent) < 2000  # no vectors
    copy = pickle.loads(sent)
    rows = np.arange(len(store))
    np.testing.assert_array_equal(copy.regions[rows], store.regions[rows])
    assert (copy.ids, copy.folder) == (store.ids, store.folder)
    assert np.array_equal(copy.boxes, store.boxes)


def says(expected: str, folder: Path, act) -> None:
    with pytest.raises(DataError) as error:
        act()
    assert str(error.value).startswith(f"{folder}: {expected}"), error.value
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("damage", ["missing", "cut", "of others", "columns", "empty"])
def test_damaged_pairs_are_one_line(taught: Path, damage: str) -> None:
    path = taught / "pairs.parquet"
    if damage == "missing":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:60])
    elif damage == "of others":
        write_pairs([TaughtPair("a zebra", "de", "ein zebra")], taught)
    elif damage == "columns":
        pq.write_table(pa.table({"original": ["a house"], "language": ["de"]}), path)
    else:
        path.write_bytes(b"")
    says("no pairs of sentences (", taught, lambda: taught_captions(taught, SOURCE, ["de"]))


@pytest.mark.parametrize("name", ["vectors.npy", "sentences.parquet"])
@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_damaged_vectors_are_one_line(taught: Path, images: VectorStore, name: str, damage: str) -> None:
    path = taught / name
    path.write_bytes(path.read_bytes()[:60])
    if damage == "missing":
        path.unlink()
    says("no sentence vectors (", taught, lambda: open_vectors(taught))
    says("no sentence vectors (", taught, lambda: taught_captions(taught, SOURCE, ["de"]))
    says("no sentence vectors (", taught, lambda: TaughtStore(images, {SOURCE: taught}))


def test_vectors_of_another_size_are_one_line(images: VectorStore, tmp_path: Path) -> None:
    taught = write(tmp_path / "small", dim=2)
    expected = "the teacher's vectors of sentences have 2 numbers, those of images 3; take a teacher whose images are"
    says(expected, taught, lambda: TaughtStore(images, {SOURCE: taught}))


@pytest.mark.parametrize("damage", ["missing", "cut", "type", "ids", "shape"])
def test_damaged_vectors_of_images_are_one_line(images: VectorStore, damage: str) -> None:
    path = images.folder / "vectors.npy"
    if damage == "missing":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:40])
    elif damage == "type":
        np.save(path, np.zeros((2, 3), np.uint8))
    elif damage == "ids":
        (images.folder / "ids.txt").write_text("one\n")
    else:
        np.save(path, np.zeros((2, 3, 1), np.float32))
    with pytest.raises(DataError) as error:
        VectorStore(images.folder)
    assert str(error.value).startswith(str(images.folder))
    assert "\n" not in str(error.value)
