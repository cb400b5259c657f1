"""Your own pictures and captions: a folder of pictures, and captions in a TSV or CSV or in a text a picture.

    captions.tsv      picture TAB language TAB caption, and if wanted TAB split (train, val, test); with the setting
                      `languages` there is no column of languages: picture TAB caption; a header (`image,caption`) says
                      what columns hold, several of captions too (`caption_1,caption_2` or `caption_en,caption_de`); a
                      cell may hold captions a line, or a list of them (`['a dog', 'a cat']`)
    captions.*.tsv    a table a language, `captions.en.tsv` and others, without a column of languages
    a folder          of texts that are named as the pictures, `1.txt` for `1.jpg`: a caption a line
    parallel.tsv      a header of languages, `en TAB de`, or `picture TAB en TAB de`; then translations of each other,
                      two or more a line

A picture is named by its path in the folder of pictures, with or without its ending; a number behind it (`1.jpg#0`) is
left out. Without splits, a picture's split is drawn from its name alone, so that it stays the same when pictures are
added; copies of a picture are in its split.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from data.captions.table import SPLITS, Caption, Pair, split_called
from data.captions.tables import (
    CAPTION,
    CAPTION_OF,
    KNOWN_HEADINGS,
    LANGUAGE,
    PICTURE,
    SPLIT,
    captions_in,
    columns_of,
    holds_captions,
    is_header,
    is_missing,
    is_picture_name,
    read_table,
)
from data.corpora import Corpus, require_root
from data.corpora.caption_files import LANGUAGE_CODE, all_texts, is_code, require_columns, tables_in, texts_in
from data.corpora.parallel import held_out
from data.corpora.picture_splits import PictureSplits
from data.errors import BadLines, DataError, MissingPictureError
from data.lines import read_lines
from data.pictures.folder import MISSING, PictureNames, path_within, pictures_in
from data.text.language_codes import language_called
from data.text.languages import language_of

CAPTIONS = "picture TAB language TAB caption, and if wanted TAB split"
"""What a line of captions is, in words."""
WITHOUT_LANGUAGE = "picture TAB caption, and if wanted TAB split"
"""What it is without a column of languages."""


@dataclass
class FolderSettings:
    """What is read, and from where. Paths are relative to the data root."""

    pictures: str = "pictures"
    """Folder of the pictures."""

    captions: str = "captions.tsv"
    """The captions, one a line: `picture TAB language TAB caption`, and if wanted `TAB split`. Or tables that are named
    by their languages, `captions.*.tsv` for `captions.en.tsv` and others, without the column of languages. Or a folder
    of texts, each named as a picture (`1.txt` for `1.jpg`), a caption a line."""

    languages: list[str] = field(default_factory=list)
    """Languages of captions without a column of languages (`picture TAB caption`); if several are named, the language
    of each caption is detected. Empty: the captions have such a column."""

    columns: list[str] = field(default_factory=list)
    """What the columns of captions hold, in their order, whatever a header says: `picture`, `caption` or `caption:en`,
    `language`, `split`, or `-` for what is not read. Empty: as a header says, else as above."""

    parallel: str | None = None
    """Sentence pairs for translators: a TSV whose header names the languages, with `picture` before them if lines are
    about pictures. If no line is about a picture, up to 1,000 sentences, a tenth at most, are for validation, and as
    many for the test. null: none."""

    regions: str | None = None
    """Region store with the pictures' names as ids (accents composed, NFC); null: regions are found in their pixels."""

    validation: float = 0.1
    """Share of the pictures without a split that are for validation."""

    test: float = 0.1
    """Share of the pictures without a split that are for the test."""

    label: str = "own pictures"
    """What the corpus is called beside its figures."""


def read(settings: FolderSettings, root: Path | None, folder: Path) -> Corpus:
    """Read captions and parallel text; empty ones are left out, and those of pictures that are not there.

    `Corpus.empty` and `Corpus.missing` say where they stand.

    Pairs about a validation or test picture are of its split, so that no translator learns from them; where no pair is
    about a picture, some are held out (`held_out`).

    Args:
        settings: what to read.
        root: the data root that the paths of `settings` start from.
        folder: unused; nothing is made.

    Raises:
        DataError: no root, or a setting that does not fit.
        BadLinesError: lines that do not fit, named by file and number, or no caption has a picture.
    """
    root = require_root(root, "folder")
    if wrong := [code for code in settings.languages if not is_code(code)]:
        raise DataError(f"folder: languages has {wrong[0]!r}, expected codes like en or de")
    for name in ("validation", "test"):
        if not 0 <= getattr(settings, name) < 1:
            raise DataError(f"folder: {name} is {getattr(settings, name)}; expected a share from 0 to below 1")
    require_columns(settings.columns)
    paths, left = pictures_in(root / settings.pictures)
    splits = PictureSplits(paths, settings.validation, settings.test)
    reading = _Reading(settings, root / settings.pictures, PictureNames(paths, left, root / settings.pictures), splits)
    captions = reading.captions(path_within(root, settings.captions))
    pairs = [] if settings.parallel is None else list(reading.pairs(path_within(root, settings.parallel)))
    if not any(pair.image_id for pair in pairs):
        pairs = held_out(pairs)
    missing = reading.bad.require_missing_alone()
    named = {*(it.image_id for it in captions), *(it.image_id for it in pairs if it.image_id)}
    pictures = {name: paths[name] for name in sorted(named)}
    return Corpus(
        captions=captions, pairs=pairs, pictures=pictures,
        regions=None if settings.regions is None else root / settings.regions,
        task="folder", label=settings.label, empty=reading.empty, half_quoted=reading.half_quoted,
        missing=missing, stray=reading.stray, unnamed=[name for name in paths if name not in pictures],
        place=lambda item, language: reading.places[item.caption_id if isinstance(item, Caption) else item.pair_id],
    )  # fmt: skip


def sources(settings: FolderSettings, root: Path | None) -> list[Path]:
    """The files that decide what `read` returns and which regions are found; pictures decide splits too, as copies of
    one are in one split.

    Raises:
        DataError: no root, or no folder of pictures.
    """
    root = require_root(root, "folder")
    captions, (pictures, left) = root / settings.captions, pictures_in(root / settings.pictures)
    names = PictureNames(pictures, left, root / settings.pictures)
    files = [*(texts_in(captions, names) if captions.is_dir() else tables_in(captions))]
    files += [root / settings.parallel] if settings.parallel else []
    if settings.regions is not None:
        files += [root / settings.regions / name for name in ("regions.npy", "boxes.npy", "ids.txt")]
    if not settings.parallel:  # pictures without captions decide nothing
        reading = _Reading(settings, root / settings.pictures, names, PictureSplits({}, 0, 0))
        with suppress(DataError):  # who reads the captions is told
            pictures = {name: pictures[name] for name in sorted({line.picture for line in reading.lines(captions)})}
    return files + list(pictures.values())


@dataclass
class _Line:
    """A caption as it stands in a file; `split` is empty where none is given, `place` is its own in a cell, from 1."""

    file: Path
    number: int
    place: int
    picture: str
    language: str
    text: str
    split: str


@dataclass
class _Reading:
    """Reads the files of a folder.

    Attributes:
        settings: what to read.
        folder: of the pictures.
        names: what lines may call them.
        splits: of them.
        places: id of a caption or a pair → where it stands.
        empty: where lines without text stand.
        half_quoted: where cells in quotation marks stand that are kept.
        stray: texts that are named as no picture.
        bad: what is wrong with lines.
    """

    settings: FolderSettings
    folder: Path
    names: PictureNames
    splits: PictureSplits
    places: dict[str, str] = field(default_factory=dict)
    empty: list[str] = field(default_factory=list)
    half_quoted: list[str] = field(default_factory=list)
    stray: list[str] = field(default_factory=list)
    bad: BadLines = field(default_factory=BadLines)

    def lines(self, path: Path) -> list[_Line]:
        """The captions of a file, or of a folder of texts, as they stand there; no language where none is given."""
        if path.is_dir():
            return list(self._texts(path))
        return [line for table, language in tables_in(path).items() for line in self._lines(table, language)]

    def captions(self, path: Path) -> list[Caption]:
        """The captions of a file, or of a folder of texts."""
        lines = self.lines(path)
        if not self.settings.parallel:
            self.splits.pictures = {name: self.splits.pictures[name] for name in sorted({it.picture for it in lines})}
        for line in (line for line in lines if line.split):
            with self.bad.gather(here := f"{line.file}:{line.number}"):
                self.splits.give(line.picture, line.split, here)
        captions = []
        for line in lines:
            here = f"{line.file}:{line.number}"
            if is_missing(line.text):
                self.empty.append(here)
                continue
            name, place = line.picture, f".{line.place}" if line.place > 1 else ""
            of = line.language if self._a_language_each else ""
            language = line.language or language_of(line.text, self.settings.languages)
            caption = Caption(name, f"{name}#{of}{line.number}{place}", language, line.text, self.splits.of(name))
            self.places[caption.caption_id] = here
            captions.append(caption)
        if not captions:
            self.bad.require_none()
            raise DataError(f"{path}: no caption; expected {self._expected}")
        return captions

    def pairs(self, path: Path) -> Iterator[Pair]:
        """The translations of a file."""
        expected = "a header of languages, then translations of each other"
        table = read_table(path, expected, separators="\t", bad=self.bad)
        header = table.rows[0][1] if table.rows else []
        self.half_quoted += [f"{path}:{number}" for number in table.half_quoted]
        languages = [language_called(cell) or "" for cell in (header[1:] if header[:1] == ["picture"] else header)]
        if len(languages) < 2 or len(set(languages)) < len(languages) or not all(languages):
            raise DataError(f"{path}:1: {chr(9).join(header)!r}, expected a header: en TAB de, or picture TAB en TAB "
                            "de")  # fmt: skip
        for number, cells in table.rows[1:]:
            with self.bad.gather(f"{path}:{number}"):
                yield from self._pair(path, number, cells, header, languages)

    def _pair(
        self, path: Path, number: int, cells: Sequence[str], header: Sequence[str], languages: Sequence[str]
    ) -> Iterator[Pair]:
        """The translations of a line; none of a line with one text."""
        here = f"{path}:{number}"
        if len(cells) != len(header):
            raise DataError(f"{here}: {len(cells)} fields, expected {len(header)}, as the header has")
        name = self._picture(cells[0], here) if len(languages) < len(header) and cells[0] else ""
        of_languages = zip(languages, cells[-len(languages) :], strict=True)
        texts = {language: text for language, text in of_languages if not is_missing(text)}
        if len(texts) < 2:
            self.empty.append(here)
            return
        split = self.splits.of(name) if name else "train"
        pair = Pair(f"{path.stem}#{number}", name or None, split, path.stem, texts)
        self.places[pair.pair_id] = here
        yield pair

    def _lines(self, path: Path, language: str) -> Iterator[_Line]:
        table = read_table(path, self._expected, bad=self.bad, line_break="\n")
        columns = self.settings.columns or self._usual
        self.half_quoted += [f"{path}:{number}" for number in table.half_quoted]
        rows = table.rows
        if rows and is_header(rows[0][1]):
            columns, rows = self.settings.columns or columns_of(rows[0][1]) or columns, rows[1:]
        else:
            self._refuse_heading(path, rows[:1], columns)
        if not language and LANGUAGE not in columns and CAPTION in columns:
            self._require_languages(path)
        quoted = "" if table.separator == "\t" else "; write a text with commas in quotation marks"
        expected = f"{table.form(self._expected if rows is table.rows else ' TAB '.join(columns))}{quoted}"
        for number, cells in rows:
            with self.bad.gather(f"{path}:{number}"):
                for line in self._row(path, number, cells, columns, expected):
                    yield replace(line, language=line.language or language)

    def _refuse_heading(self, path: Path, rows: Sequence[tuple[int, list[str]]], columns: Sequence[str]) -> None:
        """Note that a first row that names no picture, if there is one, may be a heading that is not known."""
        for number, cells in rows:
            cell = dict(zip(columns, cells, strict=False)).get(PICTURE, "")
            if not cell or is_picture_name(cell):
                continue
            with self.bad.gather(here := f"{path}:{number}"):
                try:
                    self._picture(cell, here)
                except DataError as error:
                    raise DataError(f"{error}; or, for a heading, call its columns {KNOWN_HEADINGS}") from None

    def _row(
        self, path: Path, number: int, cells: Sequence[str], columns: Sequence[str], expected: str
    ) -> Iterator[_Line]:
        """The captions of a row of a table; `expected` is what it should be, for the error."""
        here, least = f"{path}:{number}", len(columns) - (columns[-1] == SPLIT)
        if not least <= len(cells) <= len(columns):
            raise DataError(f"{here}: {len(cells)} fields, expected {expected}")
        row = dict(zip(columns, cells, strict=False))
        name, given = self._picture(row[PICTURE], here), row.get(SPLIT, "")
        own, split = language_called(row[LANGUAGE]) if LANGUAGE in row else "", split_called(given) if given else ""
        if own is None:
            raise DataError(f"{here}: language {row[LANGUAGE]!r}, expected a code like en or de")
        if split is None:
            raise DataError(f"{here}: split {given!r}, expected {', '.join(SPLITS)}; or set corpus.columns")
        of_captions = [(column, cell) for column, cell in zip(columns, cells, strict=False) if holds_captions(column)]
        lines = [
            (column.removeprefix(CAPTION_OF) if column != CAPTION else own, line)
            for column, cell in of_captions for text in captions_in(cell) for line in text.split("\n")
        ]  # fmt: skip
        texts = [(language, line) for language, line in lines if not is_missing(line)] or [(own, "")]
        for place, (language, text) in enumerate(texts, 1):
            yield _Line(path, number, place, name, language, text, split)

    def _texts(self, folder: Path) -> Iterator[_Line]:
        """The lines of the texts that are named as pictures; of a text without a caption its first."""
        self._require_languages(folder)
        of_picture: dict[str, Path] = {}
        texts = texts_in(folder, self.names)
        self.stray = [str(path) for path in all_texts(folder) if path not in texts]
        for path, name in texts.items():
            if (other := of_picture.setdefault(name, path)) != path:
                problem = f"{path}: captions of picture {name!r}, which {other} has too; keep one of them"
                self.bad.problems[str(path)] = problem
                continue
            lines = enumerate(map(str.strip, read_lines(path, "captions, one a line", self.bad)), 1)
            for number, text in [(number, text) for number, text in lines if not is_missing(text)] or [(1, "")]:
                yield _Line(path, number, 1, name, "", text, "")

    def _require_languages(self, path: Path) -> None:
        if not self.settings.languages:
            raise DataError(f"{path}: no column of languages; set corpus.languages to that of the captions, like [en]")

    @property
    def _usual(self) -> list[str]:
        """The columns of captions that neither a header nor a setting explains."""
        return [PICTURE, *([] if self.settings.languages or self._a_language_each else [LANGUAGE]), CAPTION, SPLIT]

    @property
    def _expected(self) -> str:
        usual = CAPTIONS if LANGUAGE in self._usual else WITHOUT_LANGUAGE
        return " TAB ".join(self.settings.columns) or usual

    @property
    def _a_language_each(self) -> bool:
        return LANGUAGE_CODE in Path(self.settings.captions).name

    def _picture(self, cell: str, here: str) -> str:
        if (name := self.names.name_of(cell)) is None:
            shown, advice = repr(cell).replace(r"\\", "\\"), self.names.advice_on(cell)
            kind = MissingPictureError if advice == MISSING else DataError
            raise kind(f"{here}: no picture {shown} in {self.folder}{advice}")
        return name
