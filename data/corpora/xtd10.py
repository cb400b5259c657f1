"""XTD10 (Aggarwal and Kale 2020): 1,000 images of MS-COCO with one caption each in eleven languages, a test set.

    XTD10/test_image_names.txt      the images, a file name of COCO 2014 a line
    XTD10/test_1kcaptions_en.txt    their captions in English, Spanish, Italian, Korean, Polish, Russian, Turkish and
                                    Chinese, a file each, a caption a line in the order of the images
    MIC/test_1kcaptions_de.txt      German and French (Rajendran et al. 2016)
    STAIR/test_1kcaptions_jp.txt    Japanese (Yoshikawa et al. 2017)

All images are for the test. 800 of them are in COCO's `train2014`, so that Karpathy's split has them for training.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from data.captions.table import Caption
from data.corpora import Corpus, require_root
from data.corpora.multi30k_files import read_list
from data.errors import DataError
from data.lines import read_lines, visible_files
from data.pictures.folder import named_pictures
from data.pictures.regions import RegionStore
from data.text.language_codes import NLLB

ORIGINALS = "https://github.com/adobe-research/Cross-lingual-Test-Dataset-XTD10"
_LIST = "XTD10/test_image_names.txt"
_STEM = "test_1kcaptions_"
_CODES = {"jp": "ja"}  # code in the name of a file → ISO 639-1, where they differ
_IMAGE = re.compile(r"COCO_(train2014|val2014)_\d{12}\.jpg", re.ASCII)


@dataclass
class Xtd10Settings:
    """What is read, and from where. Paths are relative to the data root."""

    text: str = "xtd10"
    """Folder of the text as the official repository lays it out, with `XTD10`, `MIC` and `STAIR` in it."""

    languages: list[str] = field(default_factory=list)
    """Languages of the captions (ISO 639-1: Japanese is `ja`); empty: all that there are files of."""

    pictures: str | None = None
    """Folder of COCO's `train2014` and `val2014`, or of their pictures; null: no pictures."""

    regions: str | None = None
    """Region store with the images, named as in Karpathy's split (`COCO_val2014_000000391895`), for models that read
    such regions; null: models read the pictures."""

    label: str = "XTD10"
    """What the corpus is called beside its figures."""


def read(settings: Xtd10Settings, root: Path | None, folder: Path) -> Corpus:
    """Read captions, and where regions and pictures are.

    A set that is not whole is refused: figures on a part of it are not those of XTD10.

    Args:
        settings: what to read.
        root: the data root that the paths of `settings` start from.
        folder: unused; nothing is made.

    Raises:
        DataError: no root, a setting or a file that does not fit, or an image without regions or picture.
    """
    root = require_root(root, "xtd10")
    text = root / settings.text
    files = _caption_files(text, settings.languages)
    line_of = _images(text / _LIST)
    texts = {language: _captions(path, line_of, text / _LIST) for language, path in files.items()}
    if settings.regions is not None:
        _require_regions(root / settings.regions, line_of)
    return Corpus(
        captions=[
            Caption(name, f"{name}#{language}", language, lines[line - 1], "test")
            for name, line in line_of.items()
            for language, lines in texts.items()
        ],
        pairs=[],
        pictures={} if settings.pictures is None else _pictures(root / settings.pictures, line_of, text / _LIST),
        regions=None if settings.regions is None else root / settings.regions,
        task="test",
        label=settings.label,
        place=lambda item, language: f"{files[language]}:{line_of[str(item.image_id)]}",
    )


def sources(settings: Xtd10Settings, root: Path | None) -> list[Path]:
    """The files that decide what `read` returns: text, and the region store or, if there is none, the pictures.

    Raises:
        DataError: no root, or a file that is missing or does not fit.
    """
    root = require_root(root, "xtd10")
    text = root / settings.text
    files = [text / _LIST, *_caption_files(text, settings.languages).values()]
    if settings.regions is not None:
        files += visible_files(root / settings.regions)
    elif settings.pictures is not None:
        files += _pictures(root / settings.pictures, _images(text / _LIST), text / _LIST).values()
    return sorted(files)


def _caption_files(folder: Path, wanted: list[str]) -> dict[str, Path]:
    """Language → its file, in the order of `wanted` or, if that is empty, of the codes."""
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; expected the files of {ORIGINALS}; set corpus.text to their folder")
    files: dict[str, Path] = {}
    for path in sorted(folder.glob(f"*/{_STEM}*.txt")):
        code = path.stem.removeprefix(_STEM)
        if (language := _CODES.get(code, code)) not in NLLB:
            raise DataError(f"{path}: unknown language {code!r}; expected a code of ISO 639-1 like en; rename the file "
                            "or move it away")  # fmt: skip
        if language in files:
            raise DataError(f"{path}: captions in {language!r}, as {files[language]} has; expected a file a language; "
                            "move one of them away")  # fmt: skip
        files[language] = path
    if not files:
        raise DataError(f"{folder}: no captions; expected XTD10/{_STEM}en.txt … of {ORIGINALS}; get them there")
    if len(set(wanted)) != len(wanted):
        raise DataError(f"xtd10: languages are {', '.join(wanted)}; expected each once; leave one out")
    if missing := [language for language in wanted if language not in files]:
        raise DataError(f"xtd10: languages has {missing[0]!r}, but {folder} has files of {', '.join(sorted(files))}; "
                        "name some of these, or none for all")  # fmt: skip
    return {language: files[language] for language in wanted or sorted(files)}


def _images(path: Path) -> dict[str, int]:
    """Image id → its line in the list from 1, in the order of the list."""
    if not path.is_file():
        raise DataError(f"{path}: no such file; expected the images' file names, one a line; get it from {ORIGINALS}")
    names = read_list(path, {})
    for number, name in enumerate(names, 1):
        if not _IMAGE.fullmatch(name):
            raise DataError(f"{path}:{number}: {name!r}, expected a file name of COCO 2014 like "
                            f"COCO_val2014_000000391895.jpg; get the file again from {ORIGINALS}")  # fmt: skip
    return {name.removesuffix(".jpg"): number for number, name in enumerate(names, 1)}


def _captions(path: Path, images: Mapping[str, int], listed: Path) -> list[str]:
    """The captions of one language, a line an image."""
    lines = [line.strip() for line in read_lines(path, "captions, one a line")]
    if len(lines) != len(images):
        raise DataError(f"{path}: {len(lines)} lines, expected {len(images)}, one for each image of {listed}; get the "
                        f"file again from {ORIGINALS}")  # fmt: skip
    for number, line in enumerate(lines, 1):
        if not line:
            raise DataError(f"{path}:{number}: empty line, expected the caption of line {number} of {listed}; get the "
                            f"file again from {ORIGINALS}")  # fmt: skip
    return lines


def _require_regions(folder: Path, images: Mapping[str, int]) -> None:
    store = RegionStore(folder, check_values=False)
    if missing := [name for name in images if name not in store]:
        raise DataError(f"{folder}: {len(missing)} of {len(images)} images have no regions, first {missing[0]!r}; "
                        "expected a store of all of them; add them to it")  # fmt: skip


def _pictures(folder: Path, images: Mapping[str, int], listed: Path) -> dict[str, Path]:
    """Image id → its picture, in `folder` or in `train2014` and `val2014` below it."""
    names = {name: [f"{name.split('_')[1]}/{name}.jpg", f"{name}.jpg"] for name in images}
    found = named_pictures(folder, names, "COCO's train2014 and val2014; set corpus.pictures to their folder")
    if missing := [name for name in images if name not in found]:
        raise DataError(f"{listed}:{images[missing[0]]}: no picture {names[missing[0]][0]!r} in {folder} (missing in "
                        f"all: {len(missing)} of {len(images)}); get it from https://cocodataset.org and put it "
                        "there")  # fmt: skip
    return found
