"""Words that have more than one common translation, found in parallel text, and which one a translation chose.

Word alignment is IBM Model 1 (Brown et al. 1993), trained by EM; what counts as a word's common translations is ours.
"""

import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Senses = tuple[frozenset[str], ...]
"""The groups of translations of one word; forms of one stem stand in one group."""
_NULL = "\0"  # aligned with what translates nothing


def ambiguous_words(
    source: Sequence[Sequence[str]], target: Sequence[Sequence[str]], least: int = 20, share: float = 0.15,
    frequent: int = 50, iterations: int = 5,
) -> dict[str, Senses]:  # fmt: skip
    """Source words with two or more groups of translations, each of a good share of their occurrences.

    Args:
        source: tokenised sentences.
        target: their translations.
        least: occurrences of a word, so that shares mean something.
        share: of a word's expected alignments that a group of translations needs.
        frequent: as many of the most frequent words of both languages are left out: articles and prepositions.
        iterations: of EM.

    Returns:
        word → its groups, the commonest first.
    """
    occurrences = Counter(word for words in source for word in words)
    words_found = Counter(word for words in target for word in words)
    common, usual = ({word for word, _ in counted.most_common(frequent)} for counted in (occurrences, words_found))
    found: dict[str, Senses] = {}
    for word, translations in _alignments(source, target, iterations).items():
        if occurrences[word] < least or word in common or not _is_word(word):
            continue
        total = sum(translations.values())
        groups: list[tuple[float, set[str]]] = []
        for other, weight in sorted(translations.items(), key=lambda item: -item[1]):
            if other in usual or not _is_word(other) or weight < 0.02 * total:
                continue
            place = next((i for i, (_, group) in enumerate(groups) if any(_same(other, one) for one in group)), None)
            if place is None:
                groups.append((weight, {other}))
            else:
                groups[place] = (groups[place][0] + weight, groups[place][1] | {other})
        senses = [group for weight, group in groups if weight >= share * total]
        if len(senses) > 1:
            found[word] = tuple(frozenset(group) for group in senses)
    return found


class Choice(NamedTuple):
    """A place where a reference decides between a word's translations: the word, and the group that is right."""

    word: str
    right: frozenset[str]


def choices(lexicon: Mapping[str, Senses], source: Sequence[str], reference: Sequence[str]) -> list[Choice]:
    """The ambiguous words of a sentence whose reference has words of just one of their groups."""
    words_found, found = set(reference), []
    for word in dict.fromkeys(source):
        chosen = [group for group in lexicon.get(word, ()) if group & words_found]
        if len(chosen) == 1:
            found.append(Choice(word, chosen[0]))
    return found


def hits(found: Sequence[Choice], hypothesis: Sequence[str]) -> int:
    """Count the choices that a translation makes as the reference does."""
    words_found = set(hypothesis)
    return sum(bool(choice.right & words_found) for choice in found)


def _alignments(
    source: Sequence[Sequence[str]], target: Sequence[Sequence[str]], iterations: int
) -> dict[str, dict[str, float]]:
    """Expected alignments by IBM Model 1: source word → target word → how often."""
    numbers: tuple[dict[str, int], dict[str, int]] = ({_NULL: 0}, {})
    rows: list[NDArray[np.int64]] = []  # source word, target word, place of the target word in the corpus
    place = 0
    for words, others in zip(source, target, strict=True):
        inside = [0, *(numbers[0].setdefault(word, len(numbers[0])) for word in dict.fromkeys(words))]
        outside = [numbers[1].setdefault(other, len(numbers[1])) for other in others]
        places = range(place, place + len(outside))
        rows.append(np.stack([np.tile(inside, len(outside)), *np.repeat([outside, places], len(inside), axis=1)]))
        place += len(outside)
    if not place:
        return {}
    left, right, at = np.concatenate(rows, axis=1)
    pairs, pair = np.unique(left * len(numbers[1]) + right, return_inverse=True)
    first, second = pairs // len(numbers[1]), pairs % len(numbers[1])
    given: NDArray[Any] = np.ones(len(pairs))  # t(target | source), up to a factor at first
    counts = given
    for _ in range(iterations):
        weight = given[pair]
        counts = np.bincount(pair, weight / np.bincount(at, weight)[at], len(pairs))
        given = counts / np.bincount(first, counts)[first]
    words, others = list(numbers[0]), list(numbers[1])
    found: dict[str, dict[str, float]] = {}
    for a, b, count in zip(first.tolist(), second.tolist(), counts.tolist(), strict=True):
        if a and count > 0.5:
            found.setdefault(words[a], {})[others[b]] = count
    return found


def _is_word(word: str) -> bool:
    return len(word) > 2 and word.isalpha()


def _same(one: str, other: str) -> bool:
    """Are two words forms of one another: do they begin alike, accents aside, or is one a part of the other?"""
    a, b = (unicodedata.normalize("NFKD", word).encode("ascii", "ignore").decode() or word for word in (one, other))
    return a[:4] == b[:4] or a in b or b in a
