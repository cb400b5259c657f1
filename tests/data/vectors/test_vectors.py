"""fastText in a process of its own: vectors of our words, finite, near where they should be."""

import random
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from data.errors import DataError
from data.vectors.published_vectors import read_vectors
from data.vectors.word_vectors import train_vectors

ANIMALS, COLOURS = ["hund", "katze", "pferd", "vogel"], ["rot", "blau", "grün", "gelb"]


def sentences(count: int) -> list[str]:
    generator = random.Random(0)
    return [
        f"Der {generator.choice(ANIMALS)} und der {generator.choice(ANIMALS)} rennen um 10:30 Uhr im Park."
        if generator.random() < 0.5
        else f"Das Haus ist {generator.choice(COLOURS)} oder {generator.choice(COLOURS)}, nicht grau."
        for _ in range(count)
    ]


def test_vectors_are_finite_and_a_row_a_word(tmp_path) -> None:
    words = ["<pad>", "<unk>", *ANIMALS, *COLOURS, "10:30", "30", ":", "de:hund", "de:10:30"]
    train_vectors(sentences(400), ["de"] * 400, words, 20, tmp_path / "vectors.npy")
    vectors = np.load(tmp_path / "vectors.npy", allow_pickle=False)
    assert vectors.shape == (len(words), 20)
    assert vectors.dtype == np.float32
    assert np.isfinite(vectors).all()
    row = dict(zip(words, vectors, strict=True))
    assert not vectors[:2].any()
    assert all(row[word].any() for word in words[2:])
    np.testing.assert_array_equal(row["de:hund"], row["hund"])  # named by its language, spelt without it
    np.testing.assert_array_equal(row["de:10:30"], row["10:30"])
    assert (row["10:30"] != row["30"]).any()  # a colon alone names no language
    assert len({vector.tobytes() for vector in vectors[2:10]}) == 8


def test_a_size_that_fasttext_leaves_uninitialised_is_refused(tmp_path) -> None:
    with pytest.raises(DataError, match="word_dim is 25; fastText needs a multiple of 10"):
        train_vectors(["a b"], ["en"], ["a"], 25, tmp_path / "vectors.npy")
    assert not list(tmp_path.iterdir())


def test_what_fasttext_says_is_passed_on(tmp_path) -> None:
    with pytest.raises(DataError, match=r"fastText failed: \S+"):
        train_vectors([], [], ["a"], 10, tmp_path / "vectors.npy")
    assert not list(tmp_path.iterdir())


def test_without_fasttext_one_line_says_what_to_install(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("data.vectors.word_vectors.find_spec", lambda name: None)
    with pytest.raises(DataError, match="not installed: run `make setup EXTRA=fasttext` or `pip install fasttext`"):
        train_vectors(["a b"], ["en"], ["a"], 10, tmp_path / "vectors.npy")
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """A model of fastText of the usual kind, small."""
    folder = tmp_path_factory.mktemp("fasttext")
    (folder / "text").write_text("der Hund und die katze rennen im Park\n" * 50)
    code = (
        "import sys, fasttext; text, out = sys.argv[1:]; fasttext.train_unsupervised(text, dim=10, minCount=1, "
        "thread=10, bucket=100, epoch=1, verbose=0).save_model(out)"
    )
    subprocess.run([sys.executable, "-c", code, folder / "text", folder / "wiki.de.bin"], check=True)
    return folder / "wiki.de.bin"


def test_a_published_model_gives_vectors_of_unseen_words_too(model: Path) -> None:
    import fasttext

    expected = fasttext.load_model(str(model)).get_word_vector
    found = read_vectors(model, {"hund": 7, "katze": 3, "kätzchen": 2}, 10)
    assert found.numbers.tolist() == [7, 3, 2]
    for vector, word in zip(found.vectors, ("Hund", "katze", "kätzchen"), strict=True):  # it has seen `Hund` alone
        np.testing.assert_array_equal(vector, expected(word))
        assert vector.any()
    assert len(read_vectors(model, {}, 10).numbers) == 0


def test_a_word_without_a_vector_in_a_model_is_not_found(monkeypatch, model: Path) -> None:
    monkeypatch.setattr(
        "data.vectors.word_vectors._by_fasttext", lambda *_: np.array([[0.0] * 10, [1.0] * 10], np.float32)
    )
    assert read_vectors(model, {"a": 4, "b": 9}, 10).numbers.tolist() == [9]
    monkeypatch.setattr("data.vectors.word_vectors._by_fasttext", lambda *_: np.full((2, 10), np.nan, np.float32))
    with pytest.raises(DataError, match=r"wiki.de.bin: a vector is not finite"):
        read_vectors(model, {"a": 4, "b": 9}, 10)


def test_models_that_fasttext_would_read_wrongly_or_for_ever_are_one_line(model: Path, tmp_path: Path) -> None:
    raw, path = model.read_bytes(), tmp_path / "wiki.bin"
    matrix = raw.index(struct.pack("<? 2q", False, 9 + 100, 10))  # 9 words with the end of a line
    other = "no model of fastText, or of a later version; expected a .bin of fasttext.cc"
    cases = [
        *((raw[:end], f"{end:,} bytes are not a whole model") for end in (*range(0, len(raw), 61), len(raw) - 1)),
        (raw + b"\0", f"{len(raw) + 1:,} bytes are not a whole model"),
        (b"the 0.1 0.2 0.3\n" * 20, other),
        (raw[:4] + b"\x0d" + raw[5:], other),
        (raw[:matrix] + b"\1" + raw[matrix + 1 :], "a compressed model (.ftz); get the .bin, or the .vec"),
    ]
    for content, said in cases:
        path.write_bytes(content)
        with pytest.raises(DataError) as error:
            read_vectors(path, {"a": 2}, 10)
        assert str(error.value).startswith(f"{path}: {said}")
        assert "\n" not in str(error.value)
    with pytest.raises(DataError, match=r"none.bin: no such file; expected a model of fastText"):
        read_vectors(tmp_path / "none.bin", {"a": 2}, 10)


def test_a_model_of_another_width_or_without_fasttext(model: Path, monkeypatch) -> None:
    with pytest.raises(DataError, match=r"wiki.de.bin: vectors of 10 numbers, but vse.word_dim is 300"):
        read_vectors(model, {"a": 2}, 300)
    monkeypatch.setattr("data.vectors.word_vectors.find_spec", lambda name: None)
    with pytest.raises(
        DataError, match=r"wiki.de.bin: read by fastText, which is not installed: run `make setup EXTRA=fast"
    ):
        read_vectors(model, {"a": 2}, 10)
