"""Find ambiguous words in parallel text and count how often translations choose the same sense as the reference.

Word alignment is IBM Model 1 (Brown et al. 1993), trained by EM; the rule for common translations is our own.
"""

import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Senses = tuple[frozenset[str], ...]
"""The groups of translations of one word; inflected forms of one word are in one group."""
_NULL = "\0"  # aligned with target words that translate no source word


def ambiguous_words(
    source: Sequence[Sequence[str]], target: Sequence[Sequence[str]], least: int = 20, share: float = 0.15,
    frequent: int = 50, iterations: int = 5,
) -> dict[str, Senses]:  # fmt: skip
    """Return source words with two or more groups of frequent translations.

    Args:
        source: tokenised sentences.
        target: their tokenised translations.
        least: minimum occurrences of a word.
        share: minimum share of a word's expected alignments that a group of translations has.
        frequent: number of most frequent words of both languages (articles, prepositions) that are ignored.
        iterations: number of EM iterations.

    Returns:
        word → its groups, the most frequent first.

    Examples:
        >>> english = ["bat flies", "bat breaks", "bird flies", "stick breaks"] * 10
        >>> german = ["fledermaus fliegt", "schläger bricht", "vogel fliegt", "stock bricht"] * 10
        >>> source, target = ([text.split() for text in texts] for texts in (english, german))
        >>> ambiguous_words(source, target, least=20, frequent=0, iterations=20)  # it is small: more iterations
        {'bat': (frozenset({'fledermaus'}), frozenset({'schläger'}))}
    """
    occurrences = Counter(word for words in source for word in words)
    target_counts = Counter(word for words in target for word in words)
    common, common_target = ({word for word, _ in side.most_common(frequent)} for side in (occurrences, target_counts))
    lexicon: dict[str, Senses] = {}
    for word, (total, translations) in _alignments(source, target, iterations).items():
        if occurrences[word] < least or word in common or not _is_word(word):
            continue
        groups: list[tuple[float, set[str]]] = []
        for translation, weight in sorted(translations.items(), key=lambda item: -item[1]):
            if translation in common_target or not _is_word(translation) or weight < 0.02 * total:
                continue
            index = next(
                (i for i, (_, group) in enumerate(groups) if any(_same(translation, member) for member in group)), None
            )
            if index is None:
                groups.append((weight, {translation}))
            else:
                groups[index] = (groups[index][0] + weight, groups[index][1] | {translation})
        groups.sort(key=lambda group: -group[0])  # forms add to a group after it is found
        senses = [group for weight, group in groups if weight >= share * total]
        if len(senses) > 1:
            lexicon[word] = tuple(frozenset(group) for group in senses)
    return lexicon


class Choice(NamedTuple):
    """An ambiguous word of a sentence and the group of translations that its reference uses."""

    word: str
    right: frozenset[str]


def choices(lexicon: Mapping[str, Senses], source: Sequence[str], reference: Sequence[str]) -> list[Choice]:
    """Return the ambiguous words of a sentence whose reference has words of exactly one of their groups.

    Examples:
        >>> lexicon = {"bat": (frozenset({"fledermaus"}), frozenset({"schläger"}))}
        >>> found = choices(lexicon, ["a", "bat"], ["ein", "schläger"])
        >>> found, hits(found, ["der", "schläger"]), hits(found, ["die", "fledermaus"])
        ([Choice(word='bat', right=frozenset({'schläger'}))], 1, 0)
        >>> choices(lexicon, ["a", "bat"], ["ein", "tier"])  # the reference does not tell
        []
    """
    reference_words, picks = set(reference), []
    for word in dict.fromkeys(source):
        chosen = [group for group in lexicon.get(word, ()) if group & reference_words]
        if len(chosen) == 1:
            picks.append(Choice(word, chosen[0]))
    return picks


def hits(found: Sequence[Choice], hypothesis: Sequence[str]) -> int:
    """Return the number of choices for which a translation uses the same group as the reference."""
    words = set(hypothesis)
    return sum(bool(choice.right & words) for choice in found)


def _alignments(
    source: Sequence[Sequence[str]], target: Sequence[Sequence[str]], iterations: int
) -> dict[str, tuple[float, dict[str, float]]]:
    """Return expected counts of IBM Model 1: source word → its alignments, and those with each likely target word."""
    numbers: tuple[dict[str, int], dict[str, int]] = ({_NULL: 0}, {})
    rows: list[NDArray[np.int64]] = []  # source word, target word, position of the target word in the corpus
    position = 0
    for words, translation in zip(source, target, strict=True):
        inside = [0, *(numbers[0].setdefault(word, len(numbers[0])) for word in dict.fromkeys(words))]
        outside = [numbers[1].setdefault(word, len(numbers[1])) for word in translation]
        positions = range(position, position + len(outside))
        rows.append(np.stack([np.tile(inside, len(outside)), *np.repeat([outside, positions], len(inside), axis=1)]))
        position += len(outside)
    if not position:
        return {}
    left, right, at = np.concatenate(rows, axis=1)
    pairs, pair = np.unique(left * len(numbers[1]) + right, return_inverse=True)
    first, second = pairs // len(numbers[1]), pairs % len(numbers[1])
    given: NDArray[Any] = np.ones(len(pairs))  # t(target | source), not normalised at first
    counts = given
    for _ in range(iterations):
        weight = given[pair]
        counts = np.bincount(pair, weight / np.bincount(at, weight)[at], len(pairs))
        given = counts / np.bincount(first, counts)[first]
    words, target_words = list(numbers[0]), list(numbers[1])
    totals = np.bincount(first, counts).tolist()
    alignments: dict[str, tuple[float, dict[str, float]]] = {}
    kept = (first > 0) & (counts > 0.5)  # most pairs are of chance
    for a, b, count in zip(first[kept].tolist(), second[kept].tolist(), counts[kept].tolist(), strict=True):
        alignments.setdefault(words[a], (totals[a], {}))[1][target_words[b]] = count
    return alignments


def _is_word(word: str) -> bool:
    return len(word) > 2 and word.isalpha()


def _same(first: str, second: str) -> bool:
    """Return whether two words have the same first four letters without accents, or one contains the other."""
    a, b = (unicodedata.normalize("NFKD", word).encode("ascii", "ignore").decode() or word for word in (first, second))
    return a[:4] == b[:4] or a in b or b in a
