"""Multi30K (Elliott et al. 2016): Flickr30K pictures with captions and their translations, official repository layout.

Task 1 is one English caption an image, translated; task 2 is five captions an image, written independently in each
language. Figures on one task are not comparable with those on the other, so every result names its task.
"""

from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from data.captions import Caption, Pair
from data.corpora import Corpus
from data.errors import DataError
from data.lines import read_lines, visible_files
from data.regions import RegionStore
from data.settings import added

ORIGINALS = "https://github.com/multi30k/dataset"


@dataclass
class Multi30kSettings:
    """What is read of Multi30K, and from where. Paths are relative to the data root."""

    text: str = "multi30k"
    """Folder of the text in the official layout: `task1/raw`, `task2/raw`, `task*/image_splits`."""

    languages: list[str] = field(default_factory=lambda: ["en", "de"])
    """Languages of captions and pairs: en, de in both tasks, fr and cs in task 1 only."""

    task: str = "task2"
    """Task that the retrieval captions are from: `task1` (one an image) or `task2` (five an image and language)."""

    splits: str | None = None
    """Folder with `train.txt`, `val.txt`, `test.txt`, an image file name a line; null is the official split."""

    regions: str | None = None
    """Region store of the images (`data.regions`); null: regions are extracted from `pictures`."""

    pictures: str | None = None
    """Folder of the pictures, named as in the lists (`1000092795.jpg`); null: no pictures."""

    parallel: str | None = None
    """More parallel text without pictures: a TSV (or .tsv.gz), `english TAB german`; null: none."""

    monolingual: list[str] = added([])
    """Languages of which task 2's captions of training images join the parallel table, as rows of that side alone;
    `mmt.back_translate` gives them the other."""

    label: str = "Multi30K"
    """What the corpus is called beside its figures."""

    without_regions: str = added("refuse")
    """Images that the region store lacks: `refuse`, or `text`: their captions are left out, their pairs stay."""


@dataclass(frozen=True)
class _Task:
    """Where one task keeps its files: split → list of images, split → stem of the raw files, captions an image."""

    name: str
    lists: dict[str, str]
    stems: dict[str, str]
    numbers: tuple[int, ...]
    languages: tuple[str, ...]

    def images(self, text: Path, split: str) -> Path:
        """The list of a split's images."""
        return text / self.name / "image_splits" / self.lists[split]

    def raw(self, text: Path, split: str, language: str, number: int = 1) -> Path:
        """The sentences of a split in one language."""
        middle = f".{number}" if len(self.numbers) > 1 else ""
        return text / self.name / "raw" / f"{self.stems[split]}{middle}.{language}.gz"


_TASKS = {
    "task1": _Task(
        name="task1",
        lists={"train": "train.txt", "val": "val.txt", "test": "test_2016_flickr.txt"},
        stems={"train": "train", "val": "val", "test": "test_2016_flickr"},
        numbers=(1,),
        languages=("en", "de", "fr", "cs"),
    ),
    "task2": _Task(
        name="task2",
        lists={"train": "train_images.txt", "val": "val_images.txt", "test": "test_2016_images.txt"},
        stems={"train": "train", "val": "val", "test": "test_2016"},
        numbers=(1, 2, 3, 4, 5),
        languages=("en", "de"),
    ),
}


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
    root = _require(root)
    _check(settings)
    text = root / settings.text
    official = _official_images(text, settings.task)
    split_of = {image_id: split for split, images in official.items() for image_id in images}
    if settings.splits is not None:
        split_of = _own_split(root / settings.splits, known=split_of)
    empty: list[str] = []
    pictured = split_of if settings.without_regions == "refuse" else _with_regions(settings, root, split_of)
    captions = list(_captions(text, settings, official, pictured, empty))
    pairs = list(_task1_pairs(text, settings, official, split_of, empty))
    pairs += _monolingual_rows(text, settings, split_of, empty)
    if settings.parallel is not None:
        pairs += _parallel_pairs(root / settings.parallel, empty)
    return Corpus(
        captions=captions,
        pairs=pairs,
        pictures=_pictures(root / settings.pictures, split_of) if settings.pictures is not None else {},
        regions=root / settings.regions if settings.regions is not None else None,
        task=settings.task,
        label=settings.label,
        place=_Places(text, settings, official, root / settings.parallel if settings.parallel is not None else None),
        empty=list(dict.fromkeys(empty)),
    )


def _require(root: Path | None) -> Path:
    if root is None:
        raise DataError("multi30k: no data root; set BILDWORT_DATA=FOLDER or pass --corpus.root=FOLDER")
    return root


def _check(settings: Multi30kSettings) -> None:
    if settings.task not in _TASKS:
        raise DataError(f"multi30k: task {settings.task!r} is unknown; expected {' or '.join(_TASKS)}")
    if settings.without_regions not in ("refuse", "text"):
        raise DataError(f"multi30k: without_regions is {settings.without_regions!r}; expected refuse or text")
    if settings.without_regions == "text" and settings.regions is None:
        raise DataError("multi30k: without_regions is text, but regions names no store; name one or leave it out")
    allowed = _TASKS[settings.task].languages
    for language in settings.languages:
        if language not in allowed:
            raise DataError(f"multi30k: {settings.task} has no captions in {language!r}; it has {', '.join(allowed)}")
    if len(set(settings.languages)) != len(settings.languages) or not settings.languages:
        raise DataError(f"multi30k: languages {settings.languages} must be one or more, each once")
    for language in settings.monolingual:
        if language not in settings.languages or language not in _TASKS["task2"].languages:
            both = [one for one in _TASKS["task2"].languages if one in settings.languages]
            raise DataError(f"multi30k: monolingual has {language!r}; expected some of {', '.join(both) or 'none'}: "
                            "languages of task 2 that `languages` has too")  # fmt: skip
    if settings.parallel is not None and not {"en", "de"} <= set(settings.languages):
        raise DataError(f"multi30k: parallel is English and German, but languages are {settings.languages}")


def _official_images(text: Path, task: str) -> dict[str, list[str]]:
    """Official split → the image of each line."""
    seen: dict[str, str] = {}
    return {split: _read_list(_TASKS[task].images(text, split), seen) for split in _TASKS[task].lists}


def _own_split(folder: Path, known: dict[str, str]) -> dict[str, str]:
    """Image → split, from `train.txt`, `val.txt` and `test.txt`, whose images must all be `known`."""
    seen: dict[str, str] = {}
    split_of = {}
    for split in ("train", "val", "test"):
        for image_id in _read_list(folder / f"{split}.txt", seen):
            if image_id not in known:
                raise DataError(f"{seen[image_id]}: image {image_id!r} is in no official list of Multi30K")
            split_of[image_id] = split
    return split_of


def _with_regions(settings: Multi30kSettings, root: Path, split_of: dict[str, str]) -> dict[str, str]:
    """The images that are in the region store."""
    stored = RegionStore(root / str(settings.regions), check_values=False)
    return {image_id: split for image_id, split in split_of.items() if image_id in stored}


class _Places:
    """Where sentences stand, worked out from their ids: it costs memory an image, not a sentence."""

    def __init__(
        self, text: Path, settings: Multi30kSettings, official: dict[str, list[str]], parallel: Path | None
    ) -> None:
        self._text, self._task, self._parallel = text, settings.task, parallel
        self._line = {
            image_id: (split, line) for split, images in official.items() for line, image_id in enumerate(images, 1)
        }

    def __call__(self, item: Caption | Pair, language: str) -> str:
        """`file:line` of a caption, or of one side of a pair."""
        if item.image_id is None:
            return f"{self._parallel}:{item.pair_id.rpartition('#')[2]}"
        split, line = self._line[item.image_id]
        task, name = (item.origin, item.pair_id) if isinstance(item, Pair) else (self._task, item.caption_id)
        number = name.rpartition(f"#{language}")[2] if task == "task2" else 1
        return f"{_TASKS[task].raw(self._text, split, language, int(number))}:{line}"


def _captions(
    text: Path, settings: Multi30kSettings, official: dict[str, list[str]], split_of: dict[str, str], empty: list[str]
) -> Iterator[Caption]:
    for image_id, language, number, line in _lines(text, settings.task, settings.languages, official, split_of, empty):
        yield Caption(image_id, f"{image_id}#{language}{number}", language, line, split_of[image_id])


def _lines(
    text: Path, task: str, languages: list[str], official: dict[str, list[str]], wanted: Container[str],
    empty: list[str],
) -> Iterator[tuple[str, str, int, str]]:  # fmt: skip
    """Image, language, number and text of each sentence of a task about the images that are wanted."""
    for split, images in official.items():
        columns = _columns(text, task, split, languages, len(images))
        for row, image_id in enumerate(images):
            if image_id not in wanted:
                continue
            for (language, number), lines in columns.items():
                if lines[row]:
                    yield image_id, language, number, lines[row]
                else:
                    empty.append(f"{_TASKS[task].raw(text, split, language, number)}:{row + 1}")


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
    images_of = _official_images(text, "task1")
    _require_same_lists(text, settings.task, official, images_of)
    for split, images in images_of.items():
        columns = _columns(text, "task1", split, settings.languages, len(images))
        for row, image_id in enumerate(images):
            own = split_of.get(image_id, "train" if split == "train" else None)
            texts = {language: lines[row] for (language, _), lines in columns.items()}
            if own is not None and all(texts.values()):
                yield Pair(f"task1#{image_id}", image_id, own, "task1", texts)
            elif own is not None:
                missing = [language for language, sentence in texts.items() if not sentence]
                empty += [f"{_TASKS['task1'].raw(text, split, language)}:{row + 1}" for language in missing]


def _monolingual_rows(
    text: Path, settings: Multi30kSettings, split_of: dict[str, str], empty: list[str]
) -> Iterator[Pair]:
    """Task 2's captions about training images, those of no list among them if they are officially for training."""
    if not settings.monolingual:
        return
    official = _official_images(text, "task2")
    train = {image for split, images in official.items() for image in images if split_of.get(image, split) == "train"}
    for image_id, language, number, line in _lines(text, "task2", settings.monolingual, official, train, empty):
        yield Pair(f"task2#{image_id}#{language}{number}", image_id, "train", "task2", {language: line})


def _require_same_lists(text: Path, task: str, official: dict[str, list[str]], task1: dict[str, list[str]]) -> None:
    """Refuse lists of the two tasks that differ: a line would belong to another image, perhaps one for testing."""
    for split, images in task1.items():
        paths = [_TASKS[one].images(text, split) for one in ("task1", task)]
        if len(images) != len(official[split]):
            raise DataError(f"{paths[0]}: {len(images)} images, but {len(official[split])} in {paths[1]}")
        for line, (image_id, other) in enumerate(zip(images, official[split], strict=True), 1):
            if image_id != other:
                raise DataError(f"{paths[0]}:{line}: image {image_id!r}, but {other!r} in {paths[1]}; get both again")


def _parallel_pairs(path: Path, empty: list[str]) -> Iterator[Pair]:
    """Pairs about no image; their origin is the name of the file's folder (`tatoeba/deu-eng.tsv.gz`: `tatoeba`)."""
    origin = path.parent.name
    for number, line in enumerate(read_lines(path, "a TSV of English and German sentences"), 1):
        english, tab, rest = line.partition("\t")
        german = rest.partition("\t")[0].strip()  # newer exports name the authors in a third column
        if not tab:
            raise DataError(f"{path}:{number}: no TAB, expected `english TAB german`")
        if english.strip() and german:
            yield Pair(f"{origin}#{number}", None, "train", origin, {"en": english.strip(), "de": german})
        else:
            empty.append(f"{path}:{number}")


def _pictures(folder: Path, image_ids: dict[str, str]) -> dict[str, Path]:
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; expected the pictures of Multi30K, named as in its lists")
    on_disk = {path.name for path in folder.iterdir()}
    found = {image_id: folder / image_id for image_id in image_ids if image_id in on_disk}
    if not found:
        raise DataError(f"{folder}: none of the {len(image_ids)} pictures, expected {next(iter(image_ids), '')!r} …")
    return found


def _columns(text: Path, task: str, split: str, languages: list[str], count: int) -> dict[tuple[str, int], list[str]]:
    """The raw files of one official split: (language, caption number) → a caption for each of `count` images."""
    layout = _TASKS[task]
    columns = {}
    for language in languages:
        for number in layout.numbers:
            path = layout.raw(text, split, language, number)
            lines = [line.strip() for line in read_lines(path, f"Multi30K's text; it is at {ORIGINALS}")]
            if len(lines) != count:
                raise DataError(f"{path}: {len(lines)} lines for {count} images in image_splits/{layout.lists[split]}")
            columns[language, number] = lines
    return columns


def _read_list(path: Path, seen: dict[str, str]) -> list[str]:
    """Image names, one a line; `seen` remembers over several lists where each name stands (file:line)."""
    names = [line.strip() for line in read_lines(path, "a list of image file names")]
    for number, name in enumerate(names, 1):
        if not name:
            raise DataError(f"{path}:{number}: empty line, expected an image file name")
        if name in seen:
            raise DataError(f"{path}:{number}: image {name!r} stands twice, first in {seen[name]}")
        seen[name] = f"{path}:{number}"
    if not names:
        raise DataError(f"{path}: no lines, expected a list of image file names")
    return names


def sources(settings: Multi30kSettings, root: Path | None) -> list[Path]:
    """The files that decide what `read` returns: text, lists, and the region store or, if there is none, the pictures.

    Raises:
        DataError: no root.
    """
    root = _require(root)
    folders = [root / settings.text]
    folders += [root / name for name in (settings.splits, settings.regions or settings.pictures) if name is not None]
    files = [path for folder in folders for path in visible_files(folder)]
    return sorted(files + ([root / settings.parallel] if settings.parallel is not None else []))
