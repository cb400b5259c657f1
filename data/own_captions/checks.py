"""What captions that were found must have before a model can be trained and tested on them."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from data.captions.table import SPLITS
from data.corpora import Corpus
from data.errors import BadLinesError, DataError
from data.findings.checks import OTHER_LANGUAGE, Finding, pictures_in_two_splits
from data.findings.report import data_report
from data.own_captions.corpus import split_of_images
from data.own_captions.detection import FoundCaptions

_LEAST = 10  # pictures with captions


def as_of_source(error: DataError, file: Path, source: str) -> BadLinesError:
    """An error of a table that was written from a data set, and is deleted now, as one of the data set.

    Examples:
        >>> str(as_of_source(DataError("a/captions.tsv:3: it is empty"), Path("a/captions.tsv"), "hub:me/dogs"))
        'caption 3 of hub:me/dogs: it is empty'
    """
    told = error.problems if isinstance(error, BadLinesError) else [str(error)]
    line = re.compile(rf"{re.escape(str(file))}:(\d+)")
    return BadLinesError([
        line.sub(lambda found: f"caption {found[1]} of {source}", text).replace(f"{file}:", f"{source}:")
        for text in told
    ])  # fmt: skip


def require_usable(found: FoundCaptions, corpus: Corpus) -> None:
    """Refuse what the stage prepare would refuse later, but for pictures that cannot be read.

    Raises:
        DataError: pictures are missing, there are too few, a split has none, or the data report has errors.
    """
    images, where = split_of_images(corpus), found.captions
    without = {one.image_id: one for one in reversed(corpus.captions) if one.image_id not in corpus.pictures}
    if without:
        folder = found.root / found.pictures
        places = {
            name: corpus.place(one, one.language) if corpus.place else str(where) for name, one in without.items()
        }
        raise BadLinesError([f"{place}: no picture {name!r} in {folder}; put it there, or leave its captions out, "
                             "or all such captions by --skip-missing"
                             for name, place in reversed(places.items())])  # fmt: skip
    if len(images) < _LEAST:
        pictures = "1 picture" if len(images) == 1 else f"{len(images)} pictures"
        raise DataError(f"{where}: {pictures} with captions; expected {_LEAST} or more")
    for split, what in zip(SPLITS, ("training", "validation", "the test"), strict=True):
        if split not in images.values():
            if found.drawn:
                raise DataError(f"{where}: of so few different pictures none is drawn for {what}; add pictures, or "
                                  "give each a split")  # fmt: skip
            raise DataError(f"{where}: no picture is for {what}; give some the split {split}, or leave all splits out")
    if errors := [*data_report(replace(corpus, pictures={}), None).errors, *pictures_in_two_splits(corpus)]:
        taken = found.languages.languages if found.languages else found.corpus.get("languages", [])
        worst, read = _worst(errors), ",".join(taken)
        if read and OTHER_LANGUAGE.partition("{")[0] in worst:
            raise DataError(f"{where}: {worst}; all captions were taken for {read}: if others are right, name all "
                            "languages by --languages, else correct the data")  # fmt: skip
        raise DataError(f"{where}: {worst}; correct the data first")


def _worst(errors: Sequence[Finding]) -> str:
    """What is wrong most often, all its places together."""
    counts, languages = Counter[str](), {error.where.split(", ")[1] for error in errors if ", " in error.where}
    for error in errors:
        counts[error.what] += error.count
    what, count = counts.most_common(1)[0]
    examples = max((error for error in errors if error.what == what), key=lambda error: error.count).examples
    swapped = len(languages) > 1 and {OTHER_LANGUAGE.format(language) for language in languages} <= counts.keys()
    return f"{what} ({count:,}×: {', '.join(examples[:3])})" + ("; are the columns swapped?" if swapped else "")
