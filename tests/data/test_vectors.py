"""fastText in a process of its own: vectors of our words, finite, near where they should be."""

import random
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from data.errors import DataError
from data.text import CHARACTERS, WORDS
from data.vectors import train_vectors

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
    monkeypatch.setattr("data.vectors.find_spec", lambda name: None)
    with pytest.raises(DataError, match="not installed: run `make setup-fasttext` or `pip install fasttext`"):
        train_vectors(["a b"], ["en"], ["a"], 10, tmp_path / "vectors.npy")
    assert not list(tmp_path.iterdir())


def test_chinese_is_trained_on_by_what_the_vocabulary_reads(tmp_path, monkeypatch) -> None:
    pytest.importorskip("rjieba")
    seen = []

    def run(command: list[str], **_) -> SimpleNamespace:
        seen.append(Path(command[3]).read_text(encoding="utf-8"))
        np.save(command[6], np.ones((1, 10)))
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr("subprocess.run", run)
    monkeypatch.setattr("data.vectors.installed", lambda: True)
    for by in (WORDS, CHARACTERS):
        train_vectors(["公园里的自行车"], ["zh"], ["自行车"], 10, tmp_path / "vectors.npy", by)
    assert seen == ["公园 里 的 自行车", "公 园 里 的 自 行 车"]
