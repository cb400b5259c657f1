"""Flickr30K and MS-COCO as split and published by Karpathy and Fei-Fei (2015): one JSON file with all captions.

COCO's own form is read too (`captions_val2017.json`): `images` with `id` and `file_name`, `annotations` with `image_id`
and `caption`. It has no split, so `drawn` or `splits` must name one.

Captions in other languages come from a file each: YJ Captions (Miyazaki and Shimizu 2016, Japanese), COCO-CN (Li et al.
2019, Chinese), or any other about the same images (`data.corpora.coco.translations`).
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from data.captions.table import Caption, Pair, split_called
from data.corpora import Corpus, require_root
from data.corpora.caption_files import is_code
from data.corpora.coco.drawn_split import drawn_split
from data.corpora.coco.form import entries_of_coco, id_of
from data.corpora.coco.translations import ImageNames, Translated, place_of, read_splits, read_translated
from data.corpora.parallel import held_out, read_parallel
from data.errors import DataError
from data.lines import read_text, visible_files
from data.pictures.folder import copies_of, named_pictures, pictures_in, unfit_name

ORIGINALS = "https://cs.stanford.edu/people/karpathy/deepimagesent/caption_datasets.zip"
_REST = "restval"  # the split of COCO's validation images that are for training
_KEPT = (
    "images", "filename", "filepath", "split", "cocoid", "sentences", "raw",
    "annotations", "id", "file_name", "image_id", "caption",
)  # fmt: skip
_ENTRY = "images[{}].sentences[{}].raw"
_OF_COCO = "annotations[{}].caption"
_EXPECTED = f"Karpathy's JSON; it is at {ORIGINALS}"


@dataclass
class KarpathySettings:
    """What is read, and from where. Paths are relative to the data root."""

    captions: str = "dataset_flickr30k.json"
    """The JSON file (or .json.gz): `dataset_flickr30k.json`, `dataset_flickr8k.json`, `dataset_coco.json`, or one of
    COCO's own form."""

    language: str = "en"
    """Language of its captions."""

    languages: list[str] = field(default_factory=lambda: ["en"])
    """Languages of the captions: `language`, and those of `translated`."""

    translated: dict[str, str] = field(default_factory=dict)
    """Language → a file of captions: a TSV (or .tsv.gz), `image TAB caption`; COCO-CN's `.txt`; YJ Captions' `.json`.
    The image is named by its id, its file name or its COCO number."""

    parallel: dict[str, str] = field(default_factory=dict)
    """Language → parallel text without pictures, for translators: a TSV (or .tsv.gz), `english TAB translation`.
    Some of it is for validation and test (`data.corpora.parallel`)."""

    restval: bool = True
    """Train on COCO's `restval` (30,504 images) too, as all do; false leaves it out."""

    splits: dict[str, str] = field(default_factory=dict)
    """Split → a file that lists its images, one a line, instead of the JSON's own split: `val`, `test`, and `train`
    if not all other images are for training. Empty: none."""

    drawn: int = 0
    """This number of images for validation, and as many for the test, are drawn from those with captions in all
    `languages`; all others are for training (MULE's split of COCO: 1000). 0: the file's own split."""

    drawn_seed: int = 1
    """Seed of this draw."""

    keep_suffix: bool = False
    """Image ids are file names without their ending (`1000092795`); true keeps it (`1000092795.jpg`), as Multi30K's
    ids do, so that both read one region store."""

    regions: str | None = None
    """Region store of the images (`data.pictures.regions`); null: regions are extracted from `pictures`."""

    pictures: str | None = None
    """Folder of the pictures, or of `train2014` and `val2014` for COCO; null: no pictures."""

    label: str = "Flickr30K"
    """What the corpus is called beside its figures."""

    task: str = "karpathy"
    """What the split is called beside its figures."""


class _Image(NamedTuple):
    """One entry of the JSON; `places` of its sentences among the annotations, in COCO's form."""

    filename: str
    folder: str
    split: str
    number: str
    sentences: list[str]
    places: list[int]


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
    root = require_root(root, "karpathy")
    _check(settings)
    path, pictures, regions = root / settings.captions, settings.pictures, settings.regions
    images = _read_images(path, settings.keep_suffix)
    own = settings.language
    files = {language: root / settings.translated[language] for language in settings.languages if language != own}
    empty: list[str] = []
    names = ImageNames({image_id: (image.filename, image.number) for image_id, image in images.items()})
    translations = {language: list(read_translated(file, language, names, empty)) for language, file in files.items()}
    paths = {} if pictures is None else _pictures(root / pictures, images)
    split_of = _split(settings, images, translations, names, root, paths)
    parallel = {language: root / file for language, file in settings.parallel.items()}
    captions = list(_captions(path if own in settings.languages else None, own, translations, images, split_of, empty))
    return Corpus(
        captions=captions,
        pairs=[pair for language, file in parallel.items() for pair in _pairs(file, language, empty)],
        pictures={image_id: paths[image_id] for image_id in split_of if image_id in paths},
        regions=None if regions is None else root / regions,
        task=settings.task,
        label=settings.label,
        place=_Places(path, own, images, files, parallel),
        empty=empty,
        unnamed=[] if pictures is None else _unnamed(root / pictures, paths),
    )


def sources(settings: KarpathySettings, root: Path | None) -> list[Path]:
    """The files that decide what `read` returns: captions, lists, and the region store or, without one, the pictures.

    Raises:
        DataError: no root.
    """
    root = require_root(root, "karpathy")
    known = settings.translated
    names = [settings.captions, *(known[language] for language in settings.languages if language in known)]
    names += [*settings.splits.values(), *settings.parallel.values()]
    files = [root / name for name in names]
    if settings.regions is not None:
        files += visible_files(root / settings.regions)
    elif settings.pictures is not None:
        files += pictures_in(root / settings.pictures)[0].values()
    return sorted(files)


def _check(settings: KarpathySettings) -> None:
    own, languages, known = settings.language, settings.languages, [settings.language, *settings.translated]
    if own in settings.translated:
        name = "English" if own == "en" else own
        raise DataError(f"karpathy: translated names {own!r}, but {name} is in the JSON; leave it out")
    if unread := sorted(settings.parallel.keys() - ({*languages} - {"en"})):
        raise DataError(f"karpathy: parallel names {unread[0]!r}, but languages are {', '.join(languages)}; name one "
                        "of them beside en, or leave it out")  # fmt: skip
    if len(set(languages)) != len(languages) or not languages:
        raise DataError(f"karpathy: languages {languages} must be one or more, each once")
    for language in languages:
        if not is_code(language):
            raise DataError(f"karpathy: language is {language!r}, expected a code like en or de")
        if language not in known:
            raise DataError(
                f"karpathy: no captions in {language!r}, there are {', '.join(known)}; name their file as "
                f"corpus.translated.{language}"
            )
    if settings.splits and (not {"val", "test"} <= settings.splits.keys() <= {"train", "val", "test"}):
        raise DataError(f"karpathy: splits names {', '.join(settings.splits)}; expected val and test, perhaps train")
    if settings.drawn < 0 or (settings.drawn and settings.splits):
        raise DataError(f"karpathy: drawn is {settings.drawn}; expected 0 or more, and 0 where splits are named")
    if settings.drawn_seed != 1 and not settings.drawn:
        raise DataError(f"karpathy: drawn_seed is {settings.drawn_seed}, but nothing is drawn; set drawn too")


def _read_images(path: Path, keep_suffix: bool) -> dict[str, _Image]:
    """Image id → its entry, in the order of the file."""
    images: dict[str, _Image] = {}
    places: dict[str, int] = {}
    for number, entry in enumerate(read_entries(path)):
        place = entry.get("place", number) if isinstance(entry, dict) else number
        where = f"{path}: images[{place}]"
        image = _image(entry, where)
        name, dot, _ = image.filename.rpartition(".")
        image_id = image.filename if keep_suffix or not (name and dot) else name
        if image_id in images:
            first = places[image_id]
            raise DataError(f"{where}: image {image_id!r} stands twice, first in images[{first}]; ids are file names")
        images[image_id], places[image_id] = image, place
    return images


def read_entries(path: Path) -> list[Any]:
    """Karpathy's list of images, unchecked, or one of COCO's form as such a list.

    Of every object only what is needed is kept: COCO's tokens are most of it.

    Raises:
        DataError: the file is no whole JSON with such a list, or an entry of COCO's form does not fit.
    """
    text = read_text(path, _EXPECTED)
    try:
        content = json.loads(text, object_hook=lambda it: {k: it[k] for k in _KEPT if k in it})
    except json.JSONDecodeError as error:
        reason = f"{error.msg}, character {error.colno}"
        raise DataError(f"{path}:{error.lineno}: not whole JSON ({reason}), perhaps cut short; get it again") from None
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits, brackets 5,000 deep
        raise DataError(f"{path}: not JSON that can be read ({error}); expected {_EXPECTED}") from None
    images = content.get("images") if isinstance(content, dict) else None
    if not isinstance(images, list) or not images:
        raise DataError(f"{path}: no list of `images` in it; expected {_EXPECTED}")
    return images if "annotations" not in content else entries_of_coco(images, content["annotations"], path)


def _image(entry: Any, where: str) -> _Image:
    """Check one entry of the list."""
    split, sentences = _text(entry, "split", where), entry.get("sentences")
    if split_called(split) is None:
        raise DataError(f"{where}.split: {split!r} is unknown; expected one of train, {_REST}, val, test")
    if not isinstance(sentences, list) or not sentences:
        raise DataError(f"{where} ({entry.get('filename')!r}): no sentences; expected `sentences`, a list, each `raw`")
    filename = _text(entry, "filename", where)
    stem = filename.rpartition(".")[0] or filename  # the id, where the suffix is cut
    if any(not part.strip() or part != part.strip() or unfit_name(part) for part in (filename, stem)):
        raise DataError(f"{where}.filename: {filename!r} is no file name")
    folder = _text(entry, "filepath", where) if "filepath" in entry else ""
    for key, name in (("filename", filename), ("filepath", folder)):
        if name.startswith("/") or ".." in PurePosixPath(name).parts:
            raise DataError(f"{where}.{key}: {name!r} leads out of the folder of pictures; name the picture by its "
                            "path in it")  # fmt: skip
    raw = [_text(sentence, "raw", f"{where}.sentences[{k}]").strip() for k, sentence in enumerate(sentences)]
    places = [sentence["annotation"] for sentence in sentences if "annotation" in sentence]
    return _Image(filename, folder, split, id_of(entry.get("cocoid")) or "", raw, places)


def _entry(image: _Image, number: int, k: int) -> str:
    """Where the k-th sentence of the image of that number stands in the JSON."""
    return _OF_COCO.format(image.places[k]) if image.places else _ENTRY.format(number, k)


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


def _split(
    settings: KarpathySettings, images: Mapping[str, _Image], translations: Mapping[str, list[Translated]],
    names: ImageNames, root: Path, pictures: Mapping[str, Path],
) -> dict[str, str]:  # fmt: skip
    """Image → split: the file's own, that of the lists, or a drawn one; images that are left out are not in it."""
    kept = [name for name, image in images.items() if settings.restval or image.split != _REST]
    if settings.splits:
        return read_splits({split: root / name for split, name in settings.splits.items()}, names, kept)
    if not settings.drawn:
        if any(image.places for image in images.values()):
            raise DataError(
                "karpathy: COCO's form has no split; set corpus.drawn to a number of images, or corpus.splits"
            )
        return {name: split_called(images[name].split) or "train" for name in kept}
    in_all = {name for name in kept if any(images[name].sentences) or settings.language not in settings.languages}
    in_all = in_all.intersection(*({caption.image_id for caption in captions} for captions in translations.values()))
    copies = copies_of({name: pictures[name] for name in kept if name in pictures})
    stay = {copies.get(name, name) for name in kept if name not in in_all}  # they train, and so do their copies
    in_all = {name for name in in_all if copies.get(name, name) not in stay}
    if len(in_all) < 2 * settings.drawn:
        raise DataError(f"karpathy: drawn is {settings.drawn}, for val and test, but only {len(in_all)} images have "
                        f"captions in {', '.join(settings.languages)}; draw fewer")  # fmt: skip
    drawn = drawn_split(in_all, settings.drawn, settings.drawn_seed, copies)
    return {name: drawn.get(name, "train") for name in kept}


def _captions(
    path: Path | None, own: str, translations: Mapping[str, list[Translated]], images: dict[str, _Image],
    split_of: dict[str, str], empty: list[str],
) -> Iterator[Caption]:  # fmt: skip
    """Captions image by image, those of the JSON (`path`, in the language `own`) first; None: they are not read."""
    of_image: dict[str, list[Caption]] = defaultdict(list)
    for language, captions in translations.items():
        for image_id, number, text in captions:
            if image_id in split_of:
                name = f"{image_id}#{language}{number}"
                of_image[image_id].append(Caption(image_id, name, language, text, split_of[image_id]))
    for number, (image_id, image) in enumerate(images.items()):
        if image_id not in split_of:
            continue
        for k, text in enumerate(image.sentences if path is not None else ()):
            if text:
                yield Caption(image_id, f"{image_id}#{own}{k + 1}", own, text, split_of[image_id])
            else:
                empty.append(f"{path}: {_entry(image, number, k)}")
        yield from of_image.pop(image_id, ())


def _pairs(path: Path, language: str, empty: list[str]) -> list[Pair]:
    """Parallel text of English and another language."""
    return held_out(list(read_parallel(path, language, empty, name=language)))


class _Places:
    """Where captions stand, worked out from their ids."""

    def __init__(
        self, path: Path, own: str, images: dict[str, _Image], files: dict[str, Path], parallel: dict[str, Path]
    ) -> None:
        self._path, self._own, self._files, self._parallel = path, own, files, parallel
        self._images = {image_id: (image, number) for number, (image_id, image) in enumerate(images.items())}

    def __call__(self, item: Caption | Pair, language: str) -> str:
        """`file: images[0].sentences[0].raw`, or where it stands in the file of another language or of pairs."""
        if isinstance(item, Pair):
            of_pair = next(other for other in item.texts if other != "en")
            return f"{self._parallel[of_pair]}:{item.pair_id.rpartition('#')[2]}"
        number = int(item.caption_id.removeprefix(f"{item.image_id}#{language}"))
        if language != self._own:
            return place_of(self._files[language], number)
        return f"{self._path}: {_entry(*self._images[item.image_id], number - 1)}"


def _pictures(folder: Path, images: Mapping[str, _Image]) -> dict[str, Path]:
    """Picture files, in `folder` or in the folder below it that the JSON names."""
    names = {
        image_id: [str(PurePosixPath(image.folder, image.filename)), image.filename]
        for image_id, image in images.items()
    }
    return named_pictures(folder, names, "the pictures, named as in the JSON")


def _unnamed(folder: Path, paths: Mapping[str, Path]) -> list[str]:
    """Pictures of the folder that are no image's."""
    named = {*paths.values()}
    return [name for name, path in pictures_in(folder)[0].items() if path not in named]
