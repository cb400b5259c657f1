"""The data report: counts of what was read, and what is wrong with it."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from data.captions.table import Caption, Pair
from data.corpora import Corpus
from data.findings.checks import Finding, errors_first, find, find_in_regions, num_words
from data.pictures.regions import RegionStore

NUM_EXAMPLES = 5  # shown with a finding


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

    def with_regions(self, captions: Sequence[Caption], regions: RegionStore) -> "DataReport":
        """The report of a corpus whose regions were found after it was made; nothing else is checked again."""
        findings = (_shortened(finding, NUM_EXAMPLES) for finding in find_in_regions(captions, regions))
        return replace(self, findings=errors_first([*findings, *self.findings]))

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain lists and dictionaries, ready for JSON."""
        return asdict(self)

    def counts(self) -> dict[str, list[dict[str, Any]]]:
        """The tables of counts by their titles."""
        return {"Captions": self.captions, "Parallel text": self.pairs, "Lengths in words": self.lengths}

    def as_markdown(self) -> str:
        """All of it as Markdown tables."""
        findings = [asdict(finding) | {"examples": "; ".join(finding.examples)} for finding in self.findings]
        tables = self.counts() | {"Findings": findings}
        parts = [f"## {title}\n\n{_table(rows)}" for title, rows in tables.items()]
        return "# Data report\n\n" + "\n".join(parts)


def data_report(corpus: Corpus, regions: RegionStore | None, examples: int = NUM_EXAMPLES) -> DataReport:
    """Check a whole corpus: counts, and what is wrong with it.

    Args:
        corpus: captions, pairs and pictures; synthetic captions are checked like human ones.
        regions: the region store, or None where there is none yet (regions are then not checked).
        examples: how many are kept with each finding; `count` is of all.
    """
    return DataReport(
        captions=_caption_counts(corpus.captions),
        pairs=_pair_counts(corpus.pairs),
        lengths=_lengths(corpus.captions),
        findings=[_shortened(finding, examples) for finding in find(corpus, regions)],
    )


def _shortened(finding: Finding, examples: int) -> Finding:
    return replace(finding, examples=finding.examples[:examples])


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
        lengths[caption.language].append(num_words(caption))
    return [
        {"language": language, "median": int(median), "95 %": int(high), "longest": max(lengths[language])}
        for language in sorted(lengths)
        for median, high in [np.percentile(lengths[language], [50, 95], method="lower")]
    ]


def _table(rows: Sequence[dict[str, Any]]) -> str:
    """Rows as a Markdown table; their keys are the columns."""
    if not rows:
        return "none\n"
    lines: list[Iterable[Any]] = [rows[0], ["---"] * len(rows[0]), *(row.values() for row in rows)]
    return "".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |\n" for line in lines)
