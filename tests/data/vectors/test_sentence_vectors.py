"""Sentence vectors on disk: computed once, resumed, looked up, refused where they are not whole."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

import data.vectors.sentence_vectors
from data.captions.table import Caption, read_captions, write_captions
from data.errors import DataError
from data.text.text_inputs import PretrainedTokens
from data.vectors.sentence_vectors import Arrays, KnownSentences, compute_vectors
from tests.modules.text_models import save

TEXTS = ["a red dog", "hund", "a dog", "ein roter hund", "hund", "house", "a red dog", "dog"]
FILES = ("vectors.npy", "sentences.parquet")


@pytest.fixture(scope="module")
def tokens(tmp_path_factory) -> PretrainedTokens:
    torch.manual_seed(0)
    return PretrainedTokens(str(save("bert", tmp_path_factory.mktemp("bert"))))


class Reader:
    """Stands for a text model; remembers the batches that it has read."""

    def __init__(self, most: int = 1000) -> None:
        self.read: list[int] = []
        self.most = most

    def __call__(self, batch: torch.Tensor) -> np.ndarray:
        if len(self.read) == self.most:
            raise KeyboardInterrupt
        self.read.append(len(batch))
        return np.stack([batch.sum(1).numpy(), (batch > 0).sum(1).numpy()], 1).astype(np.float32)


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data.vectors.sentence_vectors, "_BATCH", 2)
    monkeypatch.setattr(data.vectors.sentence_vectors, "_PART", 3)


def written(tokens: PretrainedTokens, folder: Path, reader: Reader) -> list[bytes]:
    folder.mkdir(exist_ok=True)
    assert compute_vectors(TEXTS, partial(tokens.encode, language=""), reader, folder, folder / "parts") == 6
    return [(folder / name).read_bytes() for name in FILES]


def test_each_different_sentence_is_read_once(tokens: PretrainedTokens, tmp_path: Path) -> None:
    reader = Reader()
    written(tokens, tmp_path, reader)
    assert reader.read == [2, 1, 2, 1]
    known = KnownSentences(tokens, [tmp_path])
    assert len(known) == len(tokens)
    for text in TEXTS:
        (number,) = known.encode(text, "en")
        numbers = tokens.encode(text, "en")
        row = np.array([number - len(tokens)])
        np.testing.assert_array_equal(known.vectors[row], [[sum(numbers), len(numbers)]])
    assert known.encode("a house", "en") == tokens.encode("a house", "en")


def test_a_run_that_is_stopped_goes_on_to_the_same_bytes(tokens: PretrainedTokens, tmp_path: Path) -> None:
    whole = written(tokens, tmp_path / "whole", Reader())
    assert written(tokens, tmp_path / "again", Reader()) == whole
    for stop in range(4):
        folder = tmp_path / f"stop{stop}"
        with pytest.raises(KeyboardInterrupt):
            written(tokens, folder, Reader(stop))
        assert not (folder / "vectors.npy").exists()
        assert len(list((folder / "parts").glob("*.npy"))) == stop // 2
        (folder / "parts" / "000000003.half").write_bytes(b"cut")
        rest = Reader()
        assert written(tokens, folder, rest) == whole
        assert len(rest.read) == 4 - stop // 2 * 2  # finished parts are not read again


def test_rows_of_several_arrays(tmp_path: Path) -> None:
    whole = np.arange(14, dtype=np.float32).reshape(7, 2)
    arrays = Arrays([whole[:2], whole[2:3], whole[3:]])
    assert len(arrays) == 7
    for rows in ([6, 0, 2, 2, 1], [3], []):
        np.testing.assert_array_equal(arrays[np.array(rows, dtype=np.int64)], whole[rows].reshape(-1, 2))


def test_tables_stand_one_behind_the_other(tokens: PretrainedTokens, tmp_path: Path) -> None:
    written(tokens, tmp_path / "human", Reader())
    (tmp_path / "other").mkdir()
    places = tmp_path / "other", tmp_path / "other" / "parts"
    compute_vectors(["a hund", "dog"], partial(tokens.encode, language=""), Reader(), *places)
    known = KnownSentences(tokens, [tmp_path / "human", tmp_path / "other"])
    assert len(known.vectors) == 8
    for text in ("a hund", "dog", "house"):
        row = np.array(known.encode(text, "en")) - len(tokens)
        assert known.vectors[row][0, 0] == sum(tokens.encode(text, "en"))


def test_a_caption_without_a_vector_is_one_line(tokens: PretrainedTokens, tmp_path: Path) -> None:
    written(tokens, tmp_path, Reader())
    known = KnownSentences(tokens, [tmp_path])
    captions = [Caption("1", "1#en1", "en", "a dog", "train"), Caption("1", "1#en2", "en", "a zebra", "test")]
    write_captions(captions, tmp_path / "captions.parquet")
    table = read_captions(tmp_path / "captions.parquet")
    known.require(table.select([0]))
    with pytest.raises(DataError, match=r"^caption '1#en2' has no sentence vector in .*; delete .* the stage vse"):
        known.require(table)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["missing", "cut", "of others"])
def test_damaged_vectors_are_one_line(tokens: PretrainedTokens, tmp_path: Path, name: str, damage: str) -> None:
    written(tokens, tmp_path, Reader())
    path = tmp_path / name
    if damage == "missing":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:60])
    else:
        (tmp_path / "other").mkdir()
        places = tmp_path / "other", tmp_path / "other" / "parts"
        compute_vectors(["dog"], partial(tokens.encode, language=""), Reader(), *places)
        path.write_bytes((tmp_path / "other" / name).read_bytes())
    with pytest.raises(DataError) as error:
        KnownSentences(tokens, [tmp_path])
    assert str(error.value).startswith(f"{tmp_path}: no sentence vectors (")
    assert "\n" not in str(error.value)
