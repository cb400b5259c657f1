"""The parallel table of a prepared corpus with its token numbers, seen in one direction."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from data.batches.translation import Sentences
from data.captions.table import read_pairs
from data.errors import DataError
from data.pictures.regions import RegionStore

BACK_COLUMNS = ("pair_id", "text", "tokens")
"""Of the table of a back-translation, the last two of the source."""


def sentences_of(rows: Sequence[Mapping[str, Any]], images: Sequence[str | None] | None = None) -> Sentences:
    """Rows of a `ParallelText` as token numbers, with their own images or with others."""
    source, target = ([row[f"{side}_tokens"] for row in rows] for side in ("source", "target"))
    return Sentences(source, target, [row["seen_id"] for row in rows] if images is None else images)


class ParallelText:
    """The parallel table with its token numbers, seen in one direction.

    A row's `seen_id` is its image where that has regions, else None; `caption` says that it is fine-tuned and tested
    on, which rows of images without regions are if `without_regions` is `captions`.

    Args:
        corpus: the folder of the prepared corpus.
        direction: source and target, as `en-de`.
        store: the regions of the corpus.
        twins: what the corpus says about its pairs of pictures.
        without_regions: `text` or `captions`.
        tokens: language → token numbers of each pair; None: they have none.
        back: rows of `BACK_COLUMNS`, source sentences by back-translation for pairs that have none; pairs without any
            are left out.
    """

    def __init__(
        self, corpus: Path, direction: str, store: RegionStore, twins: Sequence[Mapping[str, Any]],
        without_regions: str, tokens: Mapping[str, list[list[int]]] | None = None,
        back: Sequence[Mapping[str, Any]] = (),
    ) -> None:  # fmt: skip
        self.corpus, self.direction, self.store, self.twins = corpus, direction, store, twins
        self.source, self.target = direction.split("-")
        pairs = read_pairs(corpus / "pairs.parquet").to_list()
        source = target = [list[int]()] * len(pairs)
        if tokens is not None:
            source, target = tokens[self.source], tokens[self.target]
        seen = {image_id: image_id for image_id in store.ids}
        about = "seen_id" if without_regions == "text" else "image_id"
        rows = [
            row | {"source_tokens": s, "target_tokens": t, "seen_id": seen.get(row["image_id"])}
            for row, s, t in zip(pairs, source, target, strict=True)
            if row.get(self.target)
        ]
        written = {row["pair_id"]: row for row in back}
        self._rows = [
            row | {"caption": row[about] is not None, "made_up": False} for row in rows if row.get(self.source)
        ]
        self._rows += [
            row | {self.source: new["text"], "source_tokens": new["tokens"], "caption": False, "made_up": True}
            for row in rows
            if not row.get(self.source) and (new := written.get(row["pair_id"]))
        ]

    def rows(self, split: str, captions: bool | None) -> list[dict[str, Any]]:
        """Pairs of a split: captions, text to pre-train on, or (None) all."""
        rows = [row for row in self._rows if row["split"] == split]
        if captions is None or (captions is False and all(row["caption"] or row["made_up"] for row in rows)):
            return rows  # there is no text without pictures: use all of it
        if captions and not any(row["caption"] for row in self._rows):
            return [row for row in rows if not row["made_up"]]  # no pair is about a picture: use the text
        return [row for row in rows if row["caption"] == captions]

    def select(self, split: str, captions: bool | None, repeat: Mapping[str, int] | None = None) -> Sentences:
        """The same as token numbers, those of some origins several times.

        Raises:
            DataError: there are none, or none of an origin that is to be repeated.
        """
        rows = self.rows(split, captions)
        origins = {row["origin"] for row in rows}
        for origin in repeat or {}:
            if origin not in origins:
                raise DataError(f"mmt.repeat names {origin!r}; the pairs are of {', '.join(sorted(origins))}")
        rows = [row for row in rows for _ in range((repeat or {}).get(row["origin"], 1))]
        if not rows:
            kind = {True: "with regions ", False: "", None: ""}[captions]
            raise DataError(f"mmt: no {self.direction} pair {kind}for {split}; see the data report of the corpus")
        return sentences_of(rows)

    def texts(self, language: str, split: str, captions: bool | None) -> list[str]:
        """Surface sentences of the same pairs, in the same order."""
        return [row[language] for row in self.rows(split, captions)]
