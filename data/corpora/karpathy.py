"""Flickr30K and MS-COCO as split and published by Karpathy and Fei-Fei (2015): one JSON file with all captions.

Captions in other languages come from a TSV each: YJ Captions (Miyazaki and Shimizu 2016, Japanese), COCO-CN (Li et al.
2019, Chinese), or any other about the same images.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from data.captions import Caption, Pair
from data.corpora import Corpus
from data.errors import DataError
from data.lines import read_lines, read_text, visible_files

ORIGINALS = "https://cs.stanford.edu/people/karpathy/deepimagesent/caption_datasets.zip"
SPLITS = {"train": "train", "restval": "train", "val": "val", "test": "test"}
_KEPT = ("images", "filename", "filepath", "split", "cocoid", "sentences", "raw")
_ENTRY = "images[{}].sentences[{}].raw"
_EXPECTED = f"Karpathy's JSON; it is at {ORIGINALS}"


@dataclass
class KarpathySettings:
    """What is read, and from where. Paths are relative to the data root."""

    captions: str = "dataset_flickr30k.json"
    """The JSON file (or .json.gz): `dataset_flickr30k.json`, `dataset_flickr8k.json`, `dataset_coco.json`."""

    languages: list[str] = field(default_factory=lambda: ["en"])
    """Languages of the captions: en, and those of `translated`."""

    translated: dict[str, str] = field(default_factory=dict)
    """Language → a TSV (or .tsv.gz) of captions, `image TAB caption`; the image by its id, its file name or its
    COCO number."""

    restval: bool = True
    """Train on COCO's `restval` (30,504 images) too, as all do; false leaves it out."""

    keep_suffix: bool = False
    """Image ids are file names without their ending (`1000092795`); true keeps it (`1000092795.jpg`), as Multi30K's
    ids do, so that both read one region store."""

    regions: str | None = None
    """Region store of the images (`data.regions`); null: regions are extracted from `pictures`."""

    pictures: str | None = None
    """Folder of the pictures, or of `train2014` and `val2014` for COCO; null: no pictures."""

    label: str = "Flickr30K"
    """What the corpus is called beside its figures."""

    task: str = "karpathy"
    """What the split is called beside its figures."""


class _Image(NamedTuple):
    """One entry of the JSON."""

    filename: str
    folder: str
    split: str
    number: str
    sentences: list[str]


def read(settings: KarpathySettings, root: Path | None, folder: Path) -> Corpus:
    """Read captions, and where regions and pictures are.

    Images keep the order of the file: COCO's folds of 1,000 test images depend on it. Empty captions are left out;
    `Corpus.empty` says where they stand.

    Args:
        settings: what to read.
        root: the data root that the paths of `settings` start from.
        folder: unused; nothing is made.

    Raises:
        DataError: no root, or a setting or a file that does not fit.
    """
    root = _require(root)
    _check(settings)
    path, pictures, regions = root / settings.captions, settings.pictures, settings.regions
    images = _read_images(path, settings.keep_suffix)
    split_of = {name: SPLITS[i.split] for name, i in images.items() if settings.restval or i.split != "restval"}
    files = {language: root / settings.translated[language] for language in settings.languages if language != "en"}
    empty: list[str] = []
    captions = list(_captions(path if "en" in settings.languages else None, files, images, split_of, empty))
    return Corpus(
        captions=captions,
        pairs=[],
        pictures={} if pictures is None else _pictures(root / pictures, images, split_of),
        regions=None if regions is None else root / regions,
        task=settings.task,
        label=settings.label,
        place=_Places(path, images, files),
        empty=empty,
    )


def sources(settings: KarpathySettings, root: Path | None) -> list[Path]:
    """The files that decide what `read` returns: JSON, TSVs, and the region store or, if there is none, the pictures.

    Raises:
        DataError: no root.
    """
    root = _require(root)
    names = [settings.captions, *(settings.translated[one] for one in settings.languages if one in settings.translated)]
    stored = settings.regions or settings.pictures
    return sorted([root / name for name in names] + ([] if stored is None else visible_files(root / stored)))


def _require(root: Path | None) -> Path:
    if root is None:
        raise DataError("karpathy: no data root; set BILDWORT_DATA=FOLDER or pass --corpus.root=FOLDER")
    return root


def _check(settings: KarpathySettings) -> None:
    languages, known = settings.languages, ["en", *settings.translated]
    if "en" in settings.translated:
        raise DataError("karpathy: translated names 'en', but English is in the JSON; leave it out")
    if len(set(languages)) != len(languages) or not languages:
        raise DataError(f"karpathy: languages {languages} must be one or more, each once")
    for language in languages:
        if language not in known:
            raise DataError(
                f"karpathy: no captions in {language!r}, there are {', '.join(known)}; name their file as "
                f"corpus.translated.{language}"
            )


def _read_images(path: Path, keep_suffix: bool) -> dict[str, _Image]:
    """Image id → its entry, in the order of the file."""
    images: dict[str, _Image] = {}
    for number, entry in enumerate(_load(path)):
        where = f"{path}: images[{number}]"
        image = _image(entry, where)
        name, dot, _ = image.filename.rpartition(".")
        image_id = image.filename if keep_suffix or not (name and dot) else name
        if image_id in images:
            first = list(images).index(image_id)
            raise DataError(f"{where}: image {image_id!r} stands twice, first in images[{first}]; ids are file names")
        images[image_id] = image
    return images


def _load(path: Path) -> list[Any]:
    """The list of images; of every object only what is needed is kept, at once: COCO's tokens are most of it."""
    try:
        content = json.loads(read_text(path, _EXPECTED), object_hook=_slim)
    except json.JSONDecodeError as error:
        reason = f"{error.msg}, character {error.colno}"
        raise DataError(f"{path}:{error.lineno}: not whole JSON ({reason}), perhaps cut short; get it again") from None
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits, brackets 5,000 deep
        raise DataError(f"{path}: not JSON that can be read ({error}); expected {_EXPECTED}") from None
    images = content.get("images") if isinstance(content, dict) else None
    if not isinstance(images, list) or not images:
        raise DataError(f"{path}: no list of `images` in it; expected {_EXPECTED}")
    return images


def _slim(found: dict[str, Any]) -> dict[str, Any]:
    return {key: found[key] for key in _KEPT if key in found}


def _image(entry: Any, where: str) -> _Image:
    """Check one entry of the list."""
    split, sentences = _text(entry, "split", where), entry.get("sentences")
    if split not in SPLITS:
        raise DataError(f"{where}.split: {split!r} is unknown; expected one of {', '.join(SPLITS)}")
    if not isinstance(sentences, list) or not sentences:
        raise DataError(f"{where} ({entry.get('filename')!r}): no sentences; expected `sentences`, a list, each `raw`")
    filename = _text(entry, "filename", where)
    stem = filename.rpartition(".")[0] or filename  # the id, where the suffix is cut
    if any(not part.strip() or part != part.strip() or not part.isprintable() for part in (filename, stem)):
        raise DataError(f"{where}.filename: {filename!r} is no file name")
    folder = _text(entry, "filepath", where) if "filepath" in entry else ""
    raw = [_text(sentence, "raw", f"{where}.sentences[{k}]").strip() for k, sentence in enumerate(sentences)]
    return _Image(filename, folder, split, str(entry.get("cocoid", "")), raw)


def _text(entry: Any, key: str, where: str) -> str:
    """A text of an entry; JSON can spell half a character (`\\ud83d`), which no file can hold."""
    value = entry.get(key) if isinstance(entry, dict) else None
    if not isinstance(value, str):
        raise DataError(f"{where}: no text {key!r}; expected {_EXPECTED}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise DataError(f"{where}.{key}: {value!r} holds half a character; correct it") from None
    return value


def _captions(
    english: Path | None, files: dict[str, Path], images: dict[str, _Image], split_of: dict[str, str], empty: list[str]
) -> Iterator[Caption]:
    """Captions image by image, English first; `english` is the JSON, None if English is not requested."""
    others: dict[str, list[Caption]] = defaultdict(list)
    for language, path in files.items():
        for caption in _translated(path, language, images, split_of, empty):
            others[caption.image_id].append(caption)
    for number, (image_id, image) in enumerate(images.items()):
        if image_id not in split_of:
            continue
        for k, text in enumerate(image.sentences if english is not None else ()):
            if text:
                yield Caption(image_id, f"{image_id}#en{k + 1}", "en", text, split_of[image_id])
            else:
                empty.append(f"{english}: {_ENTRY.format(number, k)}")
        yield from others.pop(image_id, ())


def _translated(
    path: Path, language: str, images: dict[str, _Image], split_of: dict[str, str], empty: list[str]
) -> Iterator[Caption]:
    """The captions of a TSV; its line stands in the caption's id."""
    named: dict[str, str] = {}
    twice: dict[str, str] = {}
    for one, image in images.items():
        for other in {image.number, image.filename, one} - {""}:
            if named.setdefault(other, one) != one:
                twice[other] = one
    for line, row in enumerate(read_lines(path, f"a TSV of captions in {language!r}, `image TAB caption`"), 1):
        name, tab, text = row.partition("\t")
        image_id = named.get(name.strip()) if name.strip() else None
        if name.strip() in twice:
            both = f"{named[name.strip()]!r} and {twice[name.strip()]!r}"
            raise DataError(f"{path}:{line}: {name!r} is the id, file name or COCO number of {both}; name the image "
                            "by what is its own alone")  # fmt: skip
        if not tab:
            raise DataError(f"{path}:{line}: no TAB, expected `image TAB caption`")
        if image_id is None:
            raise DataError(
                f"{path}:{line}: image {name!r} is not in the JSON; expected an id, file name or COCO number"
            )
        if not text.strip():
            empty.append(f"{path}:{line}")
        elif image_id in split_of:
            yield Caption(image_id, f"{image_id}#{language}{line}", language, text.strip(), split_of[image_id])


class _Places:
    """Where captions stand, worked out from their ids."""

    def __init__(self, path: Path, images: dict[str, _Image], files: dict[str, Path]) -> None:
        self._path, self._files = path, files
        self._number = {image_id: number for number, image_id in enumerate(images)}

    def __call__(self, item: Caption | Pair, language: str) -> str:
        """`file: images[0].sentences[0].raw`, or `file:line` of a TSV."""
        assert isinstance(item, Caption)  # there are no pairs
        number = int(item.caption_id.removeprefix(f"{item.image_id}#{language}"))
        if language != "en":
            return f"{self._files[language]}:{number}"
        return f"{self._path}: {_ENTRY.format(self._number[item.image_id], number - 1)}"


def _pictures(folder: Path, images: dict[str, _Image], split_of: dict[str, str]) -> dict[str, Path]:
    """Picture files, in `folder` or in the folder below it that the JSON names."""
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; expected the pictures, named as in the JSON")
    on_disk = {below: _names(folder / below) for below in {"", *(image.folder for image in images.values())}}
    found = {}
    for image_id in split_of:
        name, below = images[image_id].filename, images[image_id].folder
        place = below if name in on_disk[below] else ""
        if name in on_disk[place]:
            found[image_id] = folder / place / name
    if not found:
        first = images[next(iter(split_of), next(iter(images)))]
        raise DataError(f"{folder}: none of the {len(split_of)} pictures, expected {first.filename!r} …")
    return found


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()
