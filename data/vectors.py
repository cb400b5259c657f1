"""Word vectors by fastText, trained on our own training captions."""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from data.errors import DataError
from data.text import CHARACTERS, SPECIALS, words_of

# A process of its own: fastText draws start values in min(1, threads/10) of its matrix only and leaves the rest as
# it finds memory, so 10 threads are the least. 100,000 buckets of n-grams keep the model at 150 MB instead of 2.4 GB.
_TRAIN = """
import sys, fasttext, numpy as np
text, words, dim, out = sys.argv[1:]
model = fasttext.train_unsupervised(text, model="skipgram", dim=int(dim), minCount=1, thread=10, bucket=100000,
                                    epoch=10, verbose=0)
np.save(out, np.stack([model.get_word_vector(word) for word in open(words, encoding="utf-8").read().splitlines()]))
"""

INSTALL = "`make setup-fasttext` or `pip install fasttext` (with a C++ compiler)"


def installed() -> bool:
    """Is fastText at hand? If not, `INSTALL` says how to get it."""
    return find_spec("fasttext") is not None


def train_vectors(
    texts: Sequence[str], languages: Sequence[str], words: Sequence[str], dim: int, path: Path, by: str = CHARACTERS
) -> None:
    """Train fastText on sentences and write the vectors of `words` to the `.npy` file `path`, (V, dim) float32.

    Args:
        texts: surface sentences.
        languages: of each.
        words: the vocabulary, its special entries first (they get vectors of zeros).
        dim: size of a vector, divisible by 10.
        path: file to write.
        by: what the vocabulary reads languages that are written without spaces by (`WordVocabulary.by`).

    Raises:
        DataError: `dim` does not fit, or fastText is not installed or failed.
    """
    if dim % 10:
        raise DataError(f"word_dim is {dim}; fastText needs a multiple of 10 (it leaves the rest uninitialised)")
    if not installed():
        raise DataError(f"vse.words is fasttext, which is not installed: run {INSTALL}, or leave vse.words out")
    with tempfile.TemporaryDirectory() as folder:
        text, vocabulary, out = (Path(folder) / name for name in ("text", "words", "vectors.npy"))
        lines = (words_of(one, language, by) for one, language in zip(texts, languages, strict=True))
        text.write_text("\n".join(lines), encoding="utf-8")
        named = tuple(f"{language}:" for language in set(languages))  # words of one language are named `de:wort`
        plain = [word.partition(":")[2] or word if word.startswith(named) else word for word in words]
        vocabulary.write_text("\n".join(plain), encoding="utf-8")
        command = [sys.executable, "-c", _TRAIN, str(text), str(vocabulary), str(dim), str(out)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise DataError(f"fastText failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
        vectors = np.load(out, allow_pickle=False).astype(np.float32)
    vectors[[number for number, word in enumerate(words) if word in SPECIALS]] = 0
    if not np.isfinite(vectors).all():
        raise DataError("fastText gave vectors that are not finite; run the stage again")
    np.save(path, vectors)
