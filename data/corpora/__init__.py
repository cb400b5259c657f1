"""Corpora by name. To add one: a file here with a settings dataclass and `read`, and a line in `CORPORA`."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from data.captions.table import Caption, Pair
from data.errors import BadLinesError, DataError
from data.pictures.regions import RegionStore
from data.text.characters import composed


@dataclass
class Corpus:
    """What a corpus's `read` returns.

    Attributes:
        captions: every human caption that retrieval trains, validates or tests on.
        pairs: sentences and their translations, for the translators; `split` train, val, test …
            A train pair's image must never be a val or test image of `captions`.
        pictures: image id → picture file, for images that have one; regions are extracted from them
            when `regions` is None.
        regions: folder of a region store made elsewhere (`data.pictures.regions`), or what is read like one, or None.
        task: which task of the corpus the captions are (`task2`, `scenes`), named in every result.
        tasks: language → the task of its captions, where that is another one.
        label: what the corpus is called beside its figures.
        place: where a sentence stands (`file:line`), from its caption, or from its pair and the language; None for a
            corpus that is made here.
        empty: where lines stand (`file:line`) that were left out because a sentence in them is empty.
        unnamed: pictures of the corpus's folder that no caption names; empty where lists decide what is read.
        missing: what is wrong with lines that were left out since their picture is not there.
        stray: texts of a folder of captions that are named as no picture.
        unreadable: what is wrong with pictures that were left out with their captions.
        half_quoted: where cells in quotation marks stand that are kept, for not all of their file are written so.
        twins: twin image ids and expected words for the ambiguity test; empty in most corpora.
    """

    captions: list[Caption]
    pairs: list[Pair]
    pictures: dict[str, Path]
    regions: Path | RegionStore | None
    task: str
    label: str
    place: Callable[[Caption | Pair, str], str] | None = None
    empty: list[str] = field(default_factory=list)
    unnamed: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    stray: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    half_quoted: list[str] = field(default_factory=list)
    twins: list[dict[str, str]] = field(default_factory=list)
    tasks: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Compose the accents of all sentences: files are written either way, and what reads them expects one."""
        self.captions = [it if (text := composed(it.text)) == it.text else replace(it, text=text)
                         for it in self.captions]  # fmt: skip
        self.pairs = [it if (texts := {of: composed(text) for of, text in it.texts.items()}) == it.texts
                      else replace(it, texts=texts) for it in self.pairs]  # fmt: skip

    def require_pictures(self, advice: str = "") -> None:
        """Refuse lines that were left out since their picture is not there.

        Args:
            advice: what else can be done about them, at the end of each problem.

        Raises:
            BadLinesError: there are some.
        """
        if self.missing:
            raise BadLinesError([f"{problem}{advice}" for problem in self.missing])

    def open_regions(self) -> RegionStore | None:
        """The regions that the corpus brings, None if it brings none.

        Raises:
            DataError: they are damaged.
        """
        return RegionStore(self.regions) if isinstance(self.regions, Path) else self.regions


def require_root(root: Path | None, name: str) -> Path:
    """The data root of a corpus that reads files.

    Args:
        root: what is set, if it is.
        name: of the corpus.

    Raises:
        DataError: it is not set, or there is no such folder.

    Examples:
        >>> require_root(Path("/"), "multi30k").is_dir()
        True
    """
    if root is None:
        raise DataError(f"{name}: no data root; set BILDWORT_DATA=FOLDER or pass --corpus.root=FOLDER")
    if not root.is_dir():
        raise DataError(f"{root}: no such folder, which corpus.root or BILDWORT_DATA names; if it was moved, write its "
                        "new place there: nothing is trained again")  # fmt: skip
    return root
