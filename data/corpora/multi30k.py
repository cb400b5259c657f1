"""Multi30K (Elliott et al. 2016): Flickr30K pictures with captions and their translations, official repository layout.

Task 1 is one English caption an image, translated; task 2 is five captions an image, written independently in each
language. Figures on one task are not comparable with those on the other, so every result names the task of its
language. English and German of task 2 can stand beside French and Czech of task 1 (Kim et al. 2020, MULE, Table 1).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from data.captions.table import Caption, Pair
from data.corpora import Corpus, require_root
from data.corpora.multi30k_files import (
    ORIGINALS,
    TASKS,
    columns,
    official_images,
    read_list,
    require_same_lists,
    sentences,
)
from data.corpora.parallel import read_parallel
from data.errors import DataError
from data.lines import visible_files
from data.pictures.folder import named_pictures, pictures_in
from data.pictures.regions import RegionStore

__all__ = ["ORIGINALS", "Multi30kSettings", "read", "sources"]


@dataclass
class Multi30kSettings:
    """What is read of Multi30K, and from where. Paths are relative to the data root."""

    text: str = "multi30k"
    """Folder of the text in the official layout: `task1/raw`, `task2/raw`, `task*/image_splits`."""

    languages: list[str] = field(default_factory=lambda: ["en", "de"])
    """Languages of captions and pairs: en, de in both tasks, fr and cs in task 1 only."""

    task: str = "task2"
    """Task that the retrieval captions are from: `task1` (one an image) or `task2` (five an image and language)."""

    tasks: dict[str, str] = field(default_factory=dict)
    """Language → its task, where that is not `task`: `{fr: task1, cs: task1}` beside English and German of task 2."""

    splits: str | None = None
    """Folder with `train.txt`, `val.txt`, `test.txt`, an image file name a line; null is the official split."""

    validation_images: int | None = None
    """This number of images, the first of the official validation split, are for validation, and its others are the
    test, as in papers that had no test split (MLMME: 500 and 514); null: the official split."""

    regions: str | None = None
    """Region store of the images (`data.pictures.regions`); null: regions are extracted from `pictures`."""

    pictures: str | None = None
    """Folder of the pictures, named as in the lists (`1000092795.jpg`); null: no pictures."""

    parallel: str | None = None
    """More parallel text without pictures: a TSV (or .tsv.gz), `english TAB german`; null: none."""

    monolingual: list[str] = field(default_factory=list)
    """Languages whose captions of task 2, those of training images, are added to the parallel table as sentences
    without a translation; `mmt.back_translate` translates them."""

    label: str = "Multi30K"
    """What the corpus is called beside its figures."""

    without_regions: str = "refuse"
    """Images that the region store lacks: `refuse`, or `text`: their captions are left out, their pairs stay."""


def read(settings: Multi30kSettings, root: Path | None, folder: Path) -> Corpus:
    """Read captions and parallel text, and where regions and pictures are.

    An image of a split list may be in any official file: its captions are found wherever they are. Empty captions
    and pairs that lack a side are left out; `Corpus.empty` says where they stand.

    Args:
        settings: what to read.
        root: the data root that the paths of `settings` start from.
        folder: unused; nothing is made.

    Raises:
        DataError: no root, or a setting or a file that does not fit.
    """
    root = require_root(root, "multi30k")
    _check(settings)
    text = root / settings.text
    official = official_images(text, settings.task)
    for task in sorted({*settings.tasks.values()}):
        require_same_lists(text, task, settings.task)
    split_of = {image_id: split for split, images in official.items() for image_id in images}
    if settings.splits is not None:
        split_of = _own_split(root / settings.splits, known=split_of)
    elif settings.validation_images is not None:
        split_of = _cut_validation(official, settings.validation_images)
    empty: list[str] = []
    pictured = split_of if settings.without_regions == "refuse" else _with_regions(settings, root, split_of)
    captions = list(_captions(text, settings, official, pictured, empty))
    pairs = list(_task1_pairs(text, settings, official, split_of, empty))
    pairs += _monolingual_rows(text, settings, split_of, empty)
    if settings.parallel is not None:
        pairs += read_parallel(root / settings.parallel, "de", empty)
    return Corpus(
        captions=captions,
        pairs=pairs,
        pictures=_pictures(root / settings.pictures, split_of) if settings.pictures is not None else {},
        regions=root / settings.regions if settings.regions is not None else None,
        task=settings.task,
        tasks=settings.tasks,
        label=settings.label,
        place=_Places(text, settings, official, root / settings.parallel if settings.parallel is not None else None),
        empty=list(dict.fromkeys(empty)),
    )


def _check(settings: Multi30kSettings) -> None:
    for task in (settings.task, *settings.tasks.values()):
        if task not in TASKS:
            raise DataError(f"multi30k: task {task!r} is unknown; expected {' or '.join(TASKS)}")
    if settings.without_regions not in ("refuse", "text"):
        raise DataError(f"multi30k: without_regions is {settings.without_regions!r}; expected refuse or text")
    if settings.splits is not None and settings.validation_images is not None:
        raise DataError("multi30k: splits and validation_images are both set; leave one out")
    if settings.without_regions == "text" and settings.regions is None:
        raise DataError("multi30k: without_regions is text, but regions names no store; name one or leave it out")
    for language, task in _task_of(settings).items():
        if language not in (allowed := TASKS[task].languages):
            tasks = [name for name, layout in TASKS.items() if language in layout.languages]
            hint = f"; for those of {tasks[0]} set corpus.tasks.{language}={tasks[0]}" if tasks else ""
            raise DataError(f"multi30k: {task} has no captions in {language!r}; it has {', '.join(allowed)}{hint}")
    if len(set(settings.languages)) != len(settings.languages) or not settings.languages:
        raise DataError(f"multi30k: languages {settings.languages} must be one or more, each once")
    if stranger := next((code for code in settings.tasks if code not in settings.languages), None):
        raise DataError(f"multi30k: tasks names {stranger!r}, but languages are {settings.languages}; add it or leave "
                        "it out")  # fmt: skip
    for language in settings.monolingual:
        if language not in settings.languages or language not in TASKS["task2"].languages:
            both = [code for code in TASKS["task2"].languages if code in settings.languages]
            raise DataError(f"multi30k: monolingual has {language!r}; expected some of {', '.join(both) or 'none'}: "
                            "languages of task 2 that `languages` has too")  # fmt: skip
    if settings.parallel is not None and not {"en", "de"} <= set(settings.languages):
        raise DataError(f"multi30k: parallel is English and German, but languages are {settings.languages}")


def _task_of(settings: Multi30kSettings) -> dict[str, str]:
    """Language → the task that its captions are from."""
    return {language: settings.tasks.get(language, settings.task) for language in settings.languages}


def _cut_validation(official: dict[str, list[str]], count: int) -> dict[str, str]:
    """Image → split, with the first `count` official validation images as validation and the others as test."""
    images = official["val"]
    if not 0 < count < len(images):
        raise DataError(
            f"multi30k: validation_images is {count}; expected 1 to {len(images) - 1}, for the official validation "
            f"split has {len(images)} images"
        )
    kept = {"train": official["train"], "val": images[:count], "test": images[count:]}
    return {image_id: split for split, own in kept.items() for image_id in own}


def _own_split(folder: Path, known: dict[str, str]) -> dict[str, str]:
    """Image → split, from `train.txt`, `val.txt` and `test.txt`, whose images must all be `known`."""
    seen: dict[str, str] = {}
    split_of = {}
    for split in ("train", "val", "test"):
        for image_id in read_list(folder / f"{split}.txt", seen):
            if image_id not in known:
                raise DataError(f"{seen[image_id]}: image {image_id!r} is in no official list of Multi30K")
            split_of[image_id] = split
    return split_of


def _with_regions(settings: Multi30kSettings, root: Path, split_of: dict[str, str]) -> dict[str, str]:
    """The images that are in the region store; DataError if none is."""
    stored = RegionStore(root / str(settings.regions), check_values=False)
    found = {image_id: split for image_id, split in split_of.items() if image_id in stored}
    if not found:
        raise DataError(f"{stored.folder}: no image of the lists, first {next(iter(split_of))!r}; the first in the "
                        f"store is {stored.ids[0]!r}")  # fmt: skip
    return found


class _Places:
    """Where sentences stand, worked out from their ids: it costs memory an image, not a sentence."""

    def __init__(
        self, text: Path, settings: Multi30kSettings, official: dict[str, list[str]], parallel: Path | None
    ) -> None:
        self._text, self._task_of, self._parallel = text, _task_of(settings), parallel
        self._line = {
            image_id: (split, line) for split, images in official.items() for line, image_id in enumerate(images, 1)
        }

    def __call__(self, item: Caption | Pair, language: str) -> str:
        """`file:line` of a caption, or of one side of a pair."""
        if item.image_id is None:
            return f"{self._parallel}:{item.pair_id.rpartition('#')[2]}"
        split, line = self._line[item.image_id]
        if isinstance(item, Pair):
            task, name = item.origin, item.pair_id
        else:
            task, name = self._task_of[language], item.caption_id
        number = name.rpartition(f"#{language}")[2] if task == "task2" else 1
        return f"{TASKS[task].raw(self._text, split, language, int(number))}:{line}"


def _captions(
    text: Path, settings: Multi30kSettings, official: dict[str, list[str]], split_of: dict[str, str], empty: list[str]
) -> Iterator[Caption]:
    for image_id, language, number, line in sentences(text, _task_of(settings), official, split_of, empty):
        yield Caption(image_id, f"{image_id}#{language}{number}", language, line, split_of[image_id])


def _task1_pairs(
    text: Path,
    settings: Multi30kSettings,
    official: dict[str, list[str]],
    split_of: dict[str, str],
    empty: list[str],
) -> Iterator[Pair]:
    """Task 1 lines that are whole in all languages.

    A line about an image of no list is text to train on if it is officially for training. Official val and test
    lines in no list are nobody's: not trained on, for then no figure on the official test would hold any more.
    """
    if len(settings.languages) < 2:
        return
    require_same_lists(text, "task1", settings.task)
    for split, images in official.items():
        captions = columns(text, dict.fromkeys(settings.languages, "task1"), split, len(images))
        for row, image_id in enumerate(images):
            own = split_of.get(image_id, "train" if split == "train" else None)
            texts = {language: lines[row] for (language, _), lines in captions.items()}
            if own is not None and all(texts.values()):
                yield Pair(f"task1#{image_id}", image_id, own, "task1", texts)
            elif own is not None:
                missing = [language for language, sentence in texts.items() if not sentence]
                empty += [f"{TASKS['task1'].raw(text, split, language)}:{row + 1}" for language in missing]


def _monolingual_rows(
    text: Path, settings: Multi30kSettings, split_of: dict[str, str], empty: list[str]
) -> Iterator[Pair]:
    """Task 2's captions about training images, those of no list among them if they are officially for training."""
    if not settings.monolingual:
        return
    official = official_images(text, "task2")
    train = {image for split, images in official.items() for image in images if split_of.get(image, split) == "train"}
    of_task2 = dict.fromkeys(settings.monolingual, "task2")
    for image_id, language, number, line in sentences(text, of_task2, official, train, empty):
        yield Pair(f"task2#{image_id}#{language}{number}", image_id, "train", "task2", {language: line})


def _pictures(folder: Path, image_ids: dict[str, str]) -> dict[str, Path]:
    names = {image_id: [image_id] for image_id in image_ids}
    return named_pictures(folder, names, "the pictures of Multi30K, named as in its lists")


def sources(settings: Multi30kSettings, root: Path | None) -> list[Path]:
    """The files that decide what `read` returns: text, lists, and the region store or, if there is none, the pictures.

    Raises:
        DataError: no root.
    """
    root = require_root(root, "multi30k")
    folders = [root / settings.text]
    folders += [root / name for name in (settings.splits, settings.regions) if name is not None]
    files = [path for folder in folders for path in visible_files(folder)]
    if settings.regions is None and settings.pictures is not None:
        files += pictures_in(root / settings.pictures)[0].values()
    return sorted(files + ([root / settings.parallel] if settings.parallel is not None else []))
