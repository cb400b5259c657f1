"""Which captions a folder has, in which form, and the settings of the corpus that reads them."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from data.corpora.folder import CAPTIONS, HEADINGS, SPLITS, WITHOUT_LANGUAGE, is_code
from data.errors import DataError
from data.languages import languages_in
from data.lines import read_lines, read_text
from data.pictures import SUFFIXES, composed, pictures_in

_TSV, _JSON = (".tsv", ".txt", ".token"), (".json",)
_SAMPLE = 200  # lines or pictures that are tried
_TO_MAKE = "`picture TAB caption`, a line a caption, for example `{}<TAB>A dog on the beach.`"


@dataclass
class Found:
    """Captions that were found.

    Attributes:
        form: what they are, in words.
        root: the folder that paths start from.
        corpus: settings of the recipe's section `corpus`, without `root`.
        names: names of pictures, as the captions have them.
        detected: were the languages detected?
        drawn: the setting that says how much is drawn for validation and test (`validation`, `drawn`); None: the
            captions bring their splits.
        made: a folder that was written for them; None: none.
    """

    form: str
    root: Path
    corpus: dict[str, Any]
    names: list[str]
    detected: bool
    drawn: str | None
    made: Path | None = None


def look_at(folder: Path, captions: Path | None) -> Found:
    """Find pictures and captions in a folder.

    Args:
        folder: to look at, with all folders in it.
        captions: the file of captions; None: the one that is found.

    Raises:
        DataError: there are no pictures or no captions, several files have captions, or a file cannot be read.
    """
    pictures = pictures_in(folder)[0]
    if not pictures:
        raise DataError(f"{folder}: no pictures in it; expected files like {', '.join(sorted(SUFFIXES))}, and captions")
    look, file = _chosen(folder, captions, next(iter(pictures)))
    found = look(file)
    place = _folder_of(found.names, pictures)
    name = str(file.relative_to(folder)) if file.is_relative_to(folder) else str(file.absolute())
    return Found(
        f"{found.form} ({file.name})", folder.resolve(), {**found.corpus, "captions": name, "pictures": place or "."},
        found.names, found.detected, found.drawn,
    )  # fmt: skip


def _chosen(folder: Path, captions: Path | None, example: str) -> tuple[Callable[[Path], Found], Path]:
    """How the file of captions is looked at, and which it is."""
    files = [captions] if captions else [p for depth in ("*", "*/*") for p in sorted(folder.glob(depth)) if _may_be(p)]
    broken: list[DataError] = []
    found: list[tuple[Callable[[Path], Found], Path]] = []
    for file in files:
        try:
            if look := _form_of(file):
                found.append((look, file))
        except DataError as error:
            broken.append(error)
    if len(found) > 1:
        names = ", ".join(str(file.relative_to(folder)) for _, file in found)
        raise DataError(
            f"{folder}: several files have captions: {names}; choose one by --captions FILE, or leave one there"
        )
    if found:
        return found[0]
    if broken:
        raise broken[0]
    if captions:
        raise DataError(f"{captions}: no captions of pictures; expected {_TO_MAKE.format(example)}, or JSON of "
                        "COCO's or Karpathy's form")  # fmt: skip
    raise DataError(
        f"{folder}: pictures, but no captions; write a file captions.tsv into it: {_TO_MAKE.format(example)}"
    )


def _may_be(path: Path) -> bool:
    """May a file have captions, by its name?"""
    hidden = path.name.startswith(".") or path.parent.name.startswith(".")
    return not hidden and path.name.removesuffix(".gz").endswith(_TSV + _JSON) and path.is_file()


def _form_of(file: Path) -> Callable[[Path], Found] | None:
    """How captions of a file are read; None if it has none."""
    if not file.name.removesuffix(".gz").endswith(_JSON):
        return _table if _lines_of(file) else None
    text = read_text(file, "JSON")
    if '"annotations"' in text and '"caption"' not in text:  # COCO's boxes, hundreds of megabytes
        return None
    content = _parsed(file, text)
    return _tree if isinstance(content, dict) and "images" in content else None


def _parsed(file: Path, text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(f"{file}:{error.lineno}: not whole JSON ({error.msg}, character {error.colno}); correct it or "
                        "get it again") from None  # fmt: skip
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file}: not JSON that can be read ({error}); correct it or get it again") from None


def _lines_of(file: Path) -> list[list[str]]:
    """The fields of the lines, without a header; none if they are no captions of pictures."""
    lines = [line.rstrip("\r").split("\t") for line in read_lines(file, "captions") if line.strip()]
    rows = lines[1:] if lines and lines[0][0].strip().lower() in HEADINGS else lines
    sample = rows[:_SAMPLE]
    named = sum(len(row) > 1 and PurePosixPath(row[0].partition("#")[0]).suffix.lower() in SUFFIXES for row in sample)
    return rows if sample and 2 * named >= len(sample) else []


def _table(file: Path) -> Found:
    """A TSV: has it columns of languages and splits?"""
    rows = [[field.strip() for field in row] for row in _lines_of(file)]
    width = max(map(len, rows))
    split = width > 2 and all(row[width - 1] in (*SPLITS, "") for row in rows if len(row) == width)
    with_language = width > 2 and all(is_code(row[1]) and len(row[1]) < 4 for row in rows if len(row) > 2)
    if len(rows[0]) > 2 and not (split or with_language):
        raise DataError(f"{file}: more than two columns, but the second has no codes of languages such as en (first "
                        f"{rows[0][1]!r}), and the last no splits ({', '.join(SPLITS)}); expected {CAPTIONS}, or "
                        f"{WITHOUT_LANGUAGE}")  # fmt: skip
    settings: dict[str, Any] = {"name": "folder"}
    if not with_language:
        settings["languages"] = languages_in([row[1] for row in rows if len(row) > 1]) or ["en"]
    every = split and all(len(row) == width and row[-1] for row in rows)
    names = [composed(row[0].partition("#")[0]) for row in rows]
    return Found("a TSV", file.parent, settings, names, not with_language, None if every else "validation")


def _tree(file: Path) -> Found:
    """JSON of Karpathy's or of COCO's form; entries that do not fit are told by the corpus that reads them."""
    content = _parsed(file, read_text(file, "JSON"))
    images, annotations = (content.get(key) if isinstance(content, dict) else None for key in ("images", "annotations"))
    if not isinstance(images, list):
        raise DataError(f"{file}: no list of `images` in it; expected JSON of COCO's or Karpathy's form")
    entries = [image for image in images if isinstance(image, dict)]
    if isinstance(annotations, list):
        form, about = "JSON of COCO's form", [one for one in annotations if isinstance(one, dict)]
        described = {str(one.get("image_id")) for one in about}  # the file may list many more images
        names = [str(image.get("file_name", "")) for image in entries if str(image.get("id")) in described]
        texts = [one.get("caption") for one in about]
    else:
        form, names = "JSON of Karpathy's form", _file_names(entries)
        lists = [found for image in entries if isinstance(found := image.get("sentences"), list)]
        texts = [one.get("raw") for found in lists for one in found if isinstance(one, dict)]
    languages = languages_in([text for text in texts if isinstance(text, str)]) or ["en"]
    if len(languages) > 1:
        raise DataError(f"{file}: captions in {', '.join(languages)}; expected one language in JSON: write them as a "
                        "TSV, `picture TAB language TAB caption`")  # fmt: skip
    splits = {str(image.get("split")) for image in entries}
    drawn = "drawn" if isinstance(annotations, list) or not {"val", "test"} <= splits else None
    settings: dict[str, Any] = {"name": "karpathy", "language": languages[0], "languages": languages}
    return Found(form, file.parent, settings, names, True, drawn)


def _file_names(entries: Iterable[Mapping[str, Any]]) -> list[str]:
    """Names of pictures in Karpathy's form, with the folder that some have."""
    return [str(PurePosixPath(str(image.get("filepath", "")), str(image.get("filename", "")))) for image in entries]


def _folder_of(names: Sequence[str], pictures: Mapping[str, Path]) -> str:
    """The folder, relative to that of all pictures, in which most of the named ones lie; the outer of several."""
    some = names[:: max(1, len(names) // _SAMPLE)]
    inner = {str(parent) for name in pictures for parent in PurePosixPath(name).parents} - {"."}
    folders = ["", *sorted(inner, key=lambda one: (one.count("/"), one))]

    def hits(place: str) -> int:
        """How many of them lie there."""
        return sum((f"{place}/{name}" if place else name) in pictures for name in some)

    best = max(folders, key=hits)
    if not hits(best):  # Karpathy's names of folders, where all pictures lie in one
        some = [PurePosixPath(name).name for name in some]
        best = max(folders, key=hits)
    return best
