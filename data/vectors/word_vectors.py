"""Word vectors by fastText: trained on our own training captions, or of a published model."""

import mmap
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from data.errors import DataError
from data.text.tokenisation import SPECIALS

# A process of its own: fastText draws start values in min(1, threads/10) of its matrix only and leaves the rest as
# it finds memory, so 10 threads are the least. 100,000 buckets of n-grams keep the model at 150 MB instead of 2.4 GB.
_TRAIN = """
import sys, fasttext, numpy as np
text, words, dim, out = sys.argv[1:]
model = fasttext.train_unsupervised(text, model="skipgram", dim=int(dim), minCount=1, thread=10, bucket=100000,
                                    epoch=10, verbose=0)
np.save(out, np.stack([model.get_word_vector(word) for word in open(words, encoding="utf-8").read().splitlines()]))
"""

# A word that the model has not seen gets a vector by its parts, unless it has seen it capitalised.
_READ = """
import sys, fasttext, numpy as np
path, words, out = sys.argv[1:]
model = fasttext.load_model(path)
def vector(word):
    capitalised = model.get_word_id(word) < 0 <= model.get_word_id(word.capitalize())
    return model.get_word_vector(word.capitalize() if capitalised else word)
np.save(out, np.stack([vector(word) for word in open(words, encoding="utf-8").read().splitlines()]))
"""

INSTALL = "`make setup EXTRA=fasttext` or `pip install fasttext` (with a C++ compiler)"


def installed() -> bool:
    """Is fastText at hand? If not, `INSTALL` says how to get it."""
    return find_spec("fasttext") is not None


def require_fasttext(dim: int) -> None:
    """Refuse vectors of a size that fastText does not train, and any where it is not installed.

    Raises:
        DataError: `dim` is not divisible by 10, or fastText is not installed.
    """
    if dim % 10:
        raise DataError(f"word_dim is {dim}; fastText needs a multiple of 10 (it leaves the rest uninitialised)")
    if not installed():
        raise DataError(f"vse.words is fasttext, which is not installed: run {INSTALL}, or leave vse.words out")


def train_vectors(
    sentences: Sequence[str], languages: Sequence[str], words: Sequence[str], dim: int, path: Path
) -> None:
    """Train fastText on sentences and write the vectors of `words` to the `.npy` file `path`, (V, dim) float32.

    Args:
        sentences: their words separated by spaces, as `words_of` gives them.
        languages: of each.
        words: the vocabulary, its special entries first (they get vectors of zeros).
        dim: size of a vector, divisible by 10.
        path: file to write.

    Raises:
        DataError: `dim` does not fit, or fastText is not installed or failed.
    """
    require_fasttext(dim)
    named = tuple(f"{language}:" for language in set(languages))  # words of one language are named `de:wort`
    plain = [word.partition(":")[2] or word if word.startswith(named) else word for word in words]
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text"
        text.write_text("\n".join(sentences), encoding="utf-8")
        vectors = _by_fasttext(_TRAIN, text, plain, str(dim))
    vectors[[number for number, word in enumerate(words) if word in SPECIALS]] = 0
    if not np.isfinite(vectors).all():
        raise DataError("fastText gave vectors that are not finite; run the stage again")
    np.save(path, vectors)


def model_vectors(path: Path, words: Sequence[str], dim: int) -> NDArray[np.float32]:
    """Vectors (V, dim) of words by a model that fastText has saved; zeros where the model has none.

    fastText loads the whole model: `cc.en.300.bin` takes 7 GB of memory while it is read.

    Args:
        path: the model, a `.bin` file.
        words: in lower case; one that the model has not seen but in capitals is looked up capitalised.
        dim: size of a vector.

    Raises:
        DataError: the file is missing, cut short or no such model, its vectors are of another size or not finite, or
            fastText is not installed.
    """
    _require_whole(path, dim)
    if not installed():
        raise DataError(f"{path}: read by fastText, which is not installed: run {INSTALL}, or name the .vec file")
    vectors = _by_fasttext(_READ, path, words) if words else np.zeros((0, dim), np.float32)
    if not np.isfinite(vectors).all():
        raise DataError(f"{path}: a vector is not finite; get the file again")
    return vectors


def other_width(where: str, width: int, dim: int) -> DataError:
    """The error of a file whose vectors do not fit."""
    return DataError(
        f"{where}: vectors of {width} numbers, but vse.word_dim is {dim}; set vse.word_dim={width} or name another file"
    )


def _by_fasttext(code: str, file: Path, words: Sequence[str], *arguments: str) -> NDArray[np.float32]:
    """Vectors (V, dim) of words by a program that gets a file, a file of words, arguments and the file to write."""
    with tempfile.TemporaryDirectory() as folder:
        vocabulary, out = Path(folder) / "words", Path(folder) / "vectors.npy"
        vocabulary.write_text("\n".join(words), encoding="utf-8")
        command = [sys.executable, "-c", code, str(file), str(vocabulary), *arguments, str(out)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            said = done.stderr.strip().splitlines() or [f"code {done.returncode}; is there too little memory?"]
            raise DataError(f"fastText failed: {said[-1]}")
        vectors: NDArray[np.float32] = np.load(out, allow_pickle=False).astype(np.float32)
    return vectors


_MAGIC, _NEWEST = 793712314, 12
_HEAD = struct.Struct("<2i 12i d 3i 2q")  # magic, version; 12 arguments and a rate; sizes of the dictionary
_MATRIX = struct.Struct("<? 2q")  # is it compressed, rows, columns


def _require_whole(path: Path, dim: int) -> None:
    """Refuse a file that fastText would not read, or read without an end or without an error though it is cut short.

    A model is its arguments, a dictionary of words (text, 0, a count of 8 bytes, a kind of 1) and two matrices.
    """
    if not path.is_file():
        raise DataError(f"{path}: no such file; expected a model of fastText")
    size = path.stat().st_size
    if size < _HEAD.size:
        raise _cut(path)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        magic, version, width, *_, count, _, _, _, pruned = _HEAD.unpack_from(data)
        if magic != _MAGIC or version > _NEWEST:
            raise DataError(f"{path}: no model of fastText, or of a later version; expected a .bin of fasttext.cc")
        if width != dim:
            raise other_width(str(path), width, dim)
        place = _HEAD.size
        for _ in range(count):
            place = data.find(b"\0", place) + 10
            if place < 10:
                raise _cut(path)
        place += 8 * max(pruned, 0)
        for _ in range(2):
            if place + _MATRIX.size > size:
                raise _cut(path)
            compressed, rows, columns = _MATRIX.unpack_from(data, place)
            if compressed:
                raise DataError(f"{path}: a compressed model (.ftz); get the .bin, or the .vec")
            place += _MATRIX.size + 4 * rows * columns
    if place != size:
        raise _cut(path)


def _cut(path: Path) -> DataError:
    size = path.stat().st_size
    return DataError(f"{path}: {size:,} bytes are not a whole model of fastText; get the file again")
