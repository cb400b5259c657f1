"""CIDEr-D: how much a caption has in common with the references of its image, by n-grams weighed by TF-IDF.

Vedantam et al., "CIDEr: Consensus-based Image Description Evaluation", CVPR 2015. The form D clips counts and has a
penalty of length; it is what `pycocoevalcap` computes as "Cider".
"""

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from modules.errors import ModelError

Token = Hashable
"""A word, or its number."""
Sentence = Sequence[Token]
ORDER = 4
"""Longest n-grams."""
SIGMA = 6.0
"""Standard deviation of the penalty of length, in tokens."""
_KEPT = 20_000  # images
_Gram = tuple[Token, ...]


@dataclass(frozen=True)
class DocumentFrequencies:
    """In how many documents n-grams stand; a document is all references of one image.

    Attributes:
        documents: their number N.
        idf: n-gram → log N - log(documents with it), of those that stand in more than one document. All others count
            as standing in one.
        end: the token that was counted at the end of every reference; None: none.
    """

    documents: int
    idf: dict[_Gram, float]
    end: Token | None = None


def document_frequencies(documents: Iterable[Sequence[Sentence]], end: Token | None = None) -> DocumentFrequencies:
    """Count the documents with each n-gram.

    Args:
        documents: the references of each image, usually the training captions.
        end: a token that counts as the last of every reference; None: none.

    Raises:
        ModelError: there is no document.

    Examples:
        >>> known = document_frequencies([[["a", "dog"], ["a", "dog", "runs"]], [["a", "cat"]]])
        >>> known.documents, known.idf  # "dog" stands in two references, but in one document
        (2, {('a',): 0.0})
    """
    counts, total = Counter[_Gram](), 0
    for references in documents:
        total += 1
        counts.update(set[_Gram]().union(*(_grams(_ended(reference, end)) for reference in references)))
    if not total:
        raise ModelError("no document to count n-grams in; expected the references of at least one image")
    log_total = math.log(total)
    idf = {gram: log_total - math.log(count) for gram, count in counts.items() if count > 1}
    return DocumentFrequencies(total, idf, end)


@dataclass(frozen=True)
class _References:
    """The references of one image, ready to be compared.

    Attributes:
        weights: n-gram → (reference, TF-IDF) of each reference that has it.
        norms: of each reference, the length of its vector of n-grams for n = 1 …
        lengths: of each reference, in tokens.
    """

    weights: dict[_Gram, list[tuple[int, float]]]
    norms: list[list[float]]
    lengths: list[int]


class CiderD:
    """CIDEr-D of captions against the references of their images.

    The vectors of an image's references are computed when it is first asked for, and kept: about 50 kB for five
    references of 11 tokens. Tokens are compared for equality: words or their numbers, but the same in captions,
    references and frequencies.

    Args:
        references: of each image, its sentences.
        frequencies: of n-grams; None: of these references. Those of a single image make every score 0: an n-gram that
            all images have weighs nothing.
        end: a token that counts as the last of every caption and reference; None: none. It is counted in the reward of
            self-critical training, else captions end too early ("… with a"), and not in evaluation. Given frequencies
            must have counted it too.

    Raises:
        ModelError: the frequencies were counted with another end token, or there are no references.

    Examples:
        >>> frequencies = document_frequencies([[["a", "dog"]], [["a", "cat"]]])
        >>> CiderD([[["a", "dog"]]], frequencies).score([["a", "dog"], ["a", "cat"]], [0, 0]).round(2).tolist()
        [5.0, 0.0]
    """

    def __init__(
        self, references: Sequence[Sequence[Sentence]], frequencies: DocumentFrequencies | None = None,
        end: Token | None = None,
    ) -> None:  # fmt: skip
        self.references, self.end = references, end
        self.frequencies = document_frequencies(references, end) if frequencies is None else frequencies
        if self.frequencies.end != end:
            raise ModelError(f"CIDEr-D with end token {end!r}, but its document frequencies have "
                             f"{self.frequencies.end!r}; count both alike")  # fmt: skip
        self._idf, self._rarest = self.frequencies.idf, math.log(self.frequencies.documents)
        self._known: dict[int, _References] = {}

    def score(
        self, captions: Sequence[Sentence], image_rows: Sequence[int] | NDArray[np.integer],
        without: Sequence[int] | NDArray[np.integer] | None = None, ended: Sequence[bool] | None = None,
    ) -> NDArray[np.float64]:  # fmt: skip
        """Score captions, each against the references of its image.

        Args:
            captions: tokens of each of N captions, words or plain numbers (`tolist()` of a tensor); an empty one
                scores 0.
            image_rows: (N,) row in `references` of each caption's image.
            without: (N,) which of the image's references is left out for this caption; -1 or None: none.
            ended: which captions get the end token, if there is one; None: all. A sample that was cut at its greatest
                length gets none, and one that has it already gets no second one.

        Returns:
            (N,) from 0 to 10.

        Raises:
            ModelError: lists differ in length, captions are tensors, there is no such image, or an image has no
                reference (left).
        """
        if any(isinstance(caption, Tensor) for caption in captions):  # elements of a tensor equal nothing in a dict
            raise ModelError("CIDEr-D of tensors; expected lists of words or numbers, as `tolist()` gives them")
        count = len(captions)
        left_out = [-1] * count if without is None else [int(number) for number in without]
        ends = [True] * count if ended is None else ended
        if not len(image_rows) == len(left_out) == len(ends) == count:
            raise ModelError(f"CIDEr-D of {count} captions: {len(image_rows)} rows of images, {len(left_out)} "
                             f"references to leave out and {len(ends)} ends; expected one each")  # fmt: skip
        scores = (
            self._score(_ended(caption, self.end if has_end else None), int(row), left)
            for caption, row, left, has_end in zip(captions, image_rows, left_out, ends, strict=True)
        )
        return np.array(list(scores), dtype=np.float64)

    def _score(self, caption: Sentence, row: int, without: int) -> float:
        """Score one caption that has its end token."""
        references = self._of_image(row)
        number = len(references.lengths)
        counted = number - (0 <= without < number)
        if not counted:
            raise ModelError(f"image {row} has no reference but the one that is left out; expected another one")
        overlaps = [[0.0] * ORDER for _ in range(number)]
        squares = [0.0] * ORDER
        for gram, times in Counter(_grams(caption)).items():
            weight, n = times * self._idf.get(gram, self._rarest), len(gram) - 1
            squares[n] += weight * weight
            for reference, reference_weight in references.weights.get(gram, ()):
                overlaps[reference][n] += min(weight, reference_weight) * reference_weight
        norms, total = [math.sqrt(square) for square in squares], 0.0
        for reference, overlap in enumerate(overlaps):
            if reference != without:
                away = len(caption) - references.lengths[reference]
                cosines = zip(overlap, norms, references.norms[reference], strict=True)
                alike = sum(shared / (own * other) for shared, own, other in cosines if shared)
                total += alike * math.exp(-away * away / (2 * SIGMA**2))
        return 10 * total / (ORDER * counted)

    def _of_image(self, row: int) -> _References:
        """Return the references of an image, computed once."""
        if (known := self._known.get(row)) is not None:
            return known
        if not 0 <= row < len(self.references):
            raise ModelError(f"image row {row} has no references; expected 0 to {len(self.references) - 1}")
        sentences = [_ended(sentence, self.end) for sentence in self.references[row]]
        if not sentences:
            raise ModelError(f"image {row} has no references to compare a caption with; leave it out")
        weights, norms = dict[_Gram, list[tuple[int, float]]](), []
        for number, sentence in enumerate(sentences):
            squares = [0.0] * ORDER
            for gram, times in Counter(_grams(sentence)).items():
                weight = times * self._idf.get(gram, self._rarest)
                squares[len(gram) - 1] += weight * weight
                weights.setdefault(gram, []).append((number, weight))
            norms.append([math.sqrt(square) for square in squares])
        if len(self._known) >= _KEPT:
            del self._known[next(iter(self._known))]
        self._known[row] = references = _References(weights, norms, [len(sentence) for sentence in sentences])
        return references


def _ended(sentence: Sentence, end: Token | None) -> Sentence:
    """The sentence with the end token as its last, if there is one."""
    return sentence if end is None or (len(sentence) and sentence[-1] == end) else [*sentence, end]


def _grams(sentence: Sentence) -> Iterator[_Gram]:
    """All n-grams, n = 1 … `ORDER`."""
    shifted = [sentence[start:] for start in range(ORDER)]
    return chain.from_iterable(zip(*shifted[:n], strict=False) for n in range(1, ORDER + 1))
