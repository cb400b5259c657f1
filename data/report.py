"""The data report: counts of what was read, and findings: what would spoil a result is an error, the rest a warning."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from data.captions import TRAINING_SPLITS, Caption, Pair
from data.regions import RegionStore
from data.sentences import normalise_sentence

SHORTEST, LONGEST = 3, 100  # words; captions outside are odd
NUM_EXAMPLES = 5  # ids shown with a finding
_UNSPACED = {"ja", "zh", "th"}  # written without spaces: a character counts as a word
_ODD_CHARACTERS = re.compile("[\x00-\x1f\x7f-\x9f\ufffd]")  # U+FFFD stands where a decoder gave up

Level = Literal["error", "warning"]


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong (`error`) or must be known (`warning`).

    Attributes:
        level: an error spoils results, a warning does not.
        what: what was found, in words.
        where: the split, language or part that it was found in.
        count: how often.
        examples: a few ids or sentences.
    """

    level: Level
    what: str
    where: str
    count: int
    examples: list[str]


@dataclass
class DataReport:
    """Counts and findings of a corpus.

    Attributes:
        captions: a row for each split, language and source: images, captions.
        pairs: a row for each split and origin of parallel text: languages, pairs.
        lengths: a row for each language: median, 95 % and longest caption in words.
        findings: errors first.
    """

    captions: list[dict[str, Any]] = field(default_factory=list)
    pairs: list[dict[str, Any]] = field(default_factory=list)
    lengths: list[dict[str, Any]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def errors(self) -> list[Finding]:
        """The findings that would spoil a result."""
        return [finding for finding in self.findings if finding.level == "error"]

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain lists and dictionaries, ready for JSON."""
        return asdict(self)

    def as_markdown(self) -> str:
        """All of it as Markdown tables."""
        findings = [asdict(finding) | {"examples": "; ".join(finding.examples)} for finding in self.findings]
        tables = {"Captions": self.captions, "Parallel text": self.pairs, "Lengths in words": self.lengths}
        parts = [f"## {title}\n\n{_table(rows)}" for title, rows in (tables | {"Findings": findings}).items()]
        return "# Data report\n\n" + "\n".join(parts)


def data_report(captions: Sequence[Caption], pairs: Sequence[Pair], regions: RegionStore | None) -> DataReport:
    """Look at a whole corpus: count it, and find what is wrong with it.

    Args:
        captions: the caption table; synthetic captions are looked at like human ones.
        pairs: the parallel table.
        regions: the region store, or None where there is none yet (regions are then not looked at).
    """
    findings = [
        *(_region_findings(captions, regions) if regions is not None else ()),
        *_images_in_two_splits(captions),
        *_leaking_pairs(captions, pairs),
        *_missing_captions(captions),
        *_shared_sentences(captions),
        *_sentences_in_two_splits(captions, pairs),
        *_odd_captions(captions),
        *_odd_pairs(pairs),
    ]
    return DataReport(
        captions=_caption_counts(captions),
        pairs=_pair_counts(pairs),
        lengths=_lengths(captions),
        findings=sorted(findings, key=lambda finding: finding.level),  # "error" < "warning"; the sort is stable
    )


def _caption_counts(captions: Sequence[Caption]) -> list[dict[str, Any]]:
    counts = Counter((caption.split, caption.language, caption.source) for caption in captions)
    images = Counter(key[:3] for key in {(c.split, c.language, c.source, c.image_id) for c in captions})
    return [
        {"split": split, "language": language, "source": source, "images": images[key], "captions": counts[key]}
        for key in sorted(counts)
        for split, language, source in [key]
    ]


def _pair_counts(pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    counts = Counter((pair.split, pair.origin, ", ".join(sorted(pair.texts))) for pair in pairs)
    names = ("split", "origin", "languages")
    return [dict(zip(names, key, strict=True)) | {"pairs": count} for key, count in sorted(counts.items())]


def _lengths(captions: Sequence[Caption]) -> list[dict[str, Any]]:
    lengths = defaultdict(list)
    for caption in captions:
        lengths[caption.language].append(_num_words(caption))
    return [
        {"language": language, "median": int(median), "95 %": int(high), "longest": max(lengths[language])}
        for language in sorted(lengths)
        for median, high in [np.percentile(lengths[language], [50, 95], method="lower")]
    ]


def _region_findings(captions: Sequence[Caption], regions: RegionStore) -> Iterator[Finding]:
    split_of = {caption.image_id: caption.split for caption in captions}
    without = defaultdict(list)
    for image_id, split in split_of.items():
        if image_id not in regions:
            without[split].append(image_id)
    for split, images in sorted(without.items()):
        yield _finding("error", "images without regions", split, images)
    yield from _some("warning", "images without captions", "regions", [i for i in regions.ids if i not in split_of])


def _images_in_two_splits(captions: Sequence[Caption]) -> Iterator[Finding]:
    splits = defaultdict(set)
    for caption in captions:
        splits[caption.image_id].add(caption.split)
    yield from _in_two("error", "images in two splits", "captions", splits)


def _leaking_pairs(captions: Sequence[Caption], pairs: Sequence[Pair]) -> Iterator[Finding]:
    held_out = defaultdict(set)
    for caption in captions:
        if caption.split not in TRAINING_SPLITS:
            held_out[caption.split].add(caption.image_id)
    for split, images in sorted(held_out.items()):
        leaks = [pair.pair_id for pair in pairs if pair.split == "train" and pair.image_id in images]
        yield from _some("error", f"training pairs about {split} images", "pairs", leaks)


def _missing_captions(captions: Sequence[Caption]) -> Iterator[Finding]:
    """Images with fewer captions than is usual in their split: lines that were empty or got lost."""
    images: dict[str, dict[str, None]] = defaultdict(dict)  # split → its images, a dictionary for their order
    counts: dict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
    for caption in captions:
        images[caption.split][caption.image_id] = None
        counts[caption.split, caption.language, caption.source][caption.image_id] += 1
    for (split, language, source), count in sorted(counts.items()):
        usual = Counter(count.values()).most_common(1)[0][0]
        few = [image_id for image_id in images[split] if count[image_id] < usual]
        yield from _some("warning", f"images with fewer than {usual} captions", f"{split}, {language}, {source}", few)


def _shared_sentences(captions: Sequence[Caption]) -> Iterator[Finding]:
    """Sentences that several images of one split share: false negatives in training, undecidable queries in a test."""
    images: dict[tuple[str, str], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for caption in captions:
        images[caption.split, caption.language][normalise_sentence(caption.text)].add(caption.image_id)
    for (split, language), by_sentence in sorted(images.items()):
        shared = {sentence: ids for sentence, ids in by_sentence.items() if len(ids) > 1}
        touched, total = len(set().union(*shared.values())), len(set().union(*by_sentence.values()))
        what = f"sentences on several images ({touched / total:.1%} of the images)"
        most = sorted(shared, key=lambda sentence: -len(shared[sentence]))
        yield from _some("warning", what, f"{split}, {language}", most)


def _sentences_in_two_splits(captions: Sequence[Caption], pairs: Sequence[Pair]) -> Iterator[Finding]:
    """Sentences in two splits, captions and parallel text taken together, for both are trained on."""
    splits: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for caption in captions:
        splits[caption.language][normalise_sentence(caption.text)].add(caption.split)
    for pair in pairs:
        for language, text in pair.texts.items():
            splits[language][normalise_sentence(text)].add(pair.split)
    for language, of_sentence in sorted(splits.items()):
        yield from _in_two("warning", "sentences in two splits", language, of_sentence)


def _odd_captions(captions: Sequence[Caption]) -> Iterator[Finding]:
    odd = defaultdict(list)
    for caption in captions:
        words = _num_words(caption)
        if words < SHORTEST:
            odd[f"captions of fewer than {SHORTEST} words", caption.language].append(caption.caption_id)
        if words > LONGEST:
            odd[f"captions of more than {LONGEST} words", caption.language].append(caption.caption_id)
        if _ODD_CHARACTERS.search(caption.text):
            odd["captions with control characters or U+FFFD", caption.language].append(caption.caption_id)
    for (what, language), ids in sorted(odd.items()):
        yield _finding("warning", what, language, ids)


def _odd_pairs(pairs: Sequence[Pair]) -> Iterator[Finding]:
    odd = defaultdict(list)
    for pair in pairs:
        if any(_ODD_CHARACTERS.search(text) for text in pair.texts.values()):
            odd[pair.origin].append(pair.pair_id)
    for origin, ids in sorted(odd.items()):
        yield _finding("warning", "pairs with control characters or U+FFFD", origin, ids)


def _num_words(caption: Caption) -> int:
    words = caption.text.split()
    return sum(map(len, words)) if caption.language in _UNSPACED else len(words)


def _in_two(level: Level, what: str, where: str, splits_of: dict[str, set[str]]) -> Iterator[Finding]:
    """A finding for each combination of splits that things stand in together."""
    together = defaultdict(list)
    for thing, splits in splits_of.items():
        if len(splits) > 1:
            together[" + ".join(sorted(splits))].append(thing)
    for names, things in sorted(together.items()):
        yield _finding(level, what, f"{where}: {names}", things)


def _some(level: Level, what: str, where: str, things: Sequence[str]) -> Iterator[Finding]:
    """A finding if there is anything to find."""
    if things:
        yield _finding(level, what, where, things)


def _finding(level: Level, what: str, where: str, things: Sequence[str]) -> Finding:
    return Finding(level, what, where, len(things), list(things[:NUM_EXAMPLES]))


def _table(rows: Sequence[dict[str, Any]]) -> str:
    """Rows as a Markdown table; their keys are the columns."""
    if not rows:
        return "none\n"
    lines: list[Iterable[Any]] = [rows[0], ["---"] * len(rows[0]), *(row.values() for row in rows)]
    return "".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |\n" for line in lines)
