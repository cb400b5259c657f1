"""Multi30K's text in the official layout: where each task keeps its lists and sentences, and reading them."""

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from data.errors import DataError
from data.lines import read_lines

ORIGINALS = "https://github.com/multi30k/dataset"
_EXPECTED = f"Multi30K's text; it is at {ORIGINALS}"


@dataclass(frozen=True)
class Task:
    """Where one task keeps its files.

    Attributes:
        name: of the task and of its folder.
        lists: split → list of images.
        stems: split → stem of the raw files.
        numbers: of the captions of an image.
        languages: that it has captions in.
    """

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


TASKS = {
    "task1": Task(
        name="task1",
        lists={"train": "train.txt", "val": "val.txt", "test": "test_2016_flickr.txt"},
        stems={"train": "train", "val": "val", "test": "test_2016_flickr"},
        numbers=(1,),
        languages=("en", "de", "fr", "cs"),
    ),
    "task2": Task(
        name="task2",
        lists={"train": "train_images.txt", "val": "val_images.txt", "test": "test_2016_images.txt"},
        stems={"train": "train", "val": "val", "test": "test_2016"},
        numbers=(1, 2, 3, 4, 5),
        languages=("en", "de"),
    ),
}


def official_images(text: Path, task: str) -> dict[str, list[str]]:
    """Official split → the image of each line, of a task whose folder is in `text`.

    Raises:
        DataError: a list is missing or empty, or names an image twice.
    """
    seen: dict[str, str] = {}
    return {split: read_list(TASKS[task].images(text, split), seen, _EXPECTED) for split in TASKS[task].lists}


def sentences(
    text: Path, task_of: Mapping[str, str], official: Mapping[str, list[str]], wanted: Container[str],
    empty: list[str],
) -> Iterator[tuple[str, str, int, str]]:  # fmt: skip
    """Image, language, number and text of each sentence about the images that are wanted, image by image.

    Args:
        text: the folder of the text.
        task_of: language → the task that its sentences are from.
        official: official split → the image of each line, the same in these tasks (`require_same_lists`).
        wanted: the images.
        empty: where lines without text stand (`file:line`) is added to it.

    Raises:
        DataError: a file is missing or damaged, or has another number of lines than there are images.
    """
    for split, images in official.items():
        captions = columns(text, task_of, split, len(images))
        for row, image_id in enumerate(images):
            if image_id not in wanted:
                continue
            for (language, number), lines in captions.items():
                if lines[row]:
                    yield image_id, language, number, lines[row]
                else:
                    empty.append(f"{TASKS[task_of[language]].raw(text, split, language, number)}:{row + 1}")


def columns(text: Path, task_of: Mapping[str, str], split: str, count: int) -> dict[tuple[str, int], list[str]]:
    """The raw files of one official split: (language, caption number) → a caption for each of `count` images.

    Raises:
        DataError: as `sentences` does.
    """
    captions = {}
    for language, task in task_of.items():
        layout = TASKS[task]
        for number in layout.numbers:
            path = layout.raw(text, split, language, number)
            lines = [line.strip() for line in read_lines(path, _EXPECTED)]
            if len(lines) != count:
                raise DataError(f"{path}: {len(lines)} lines for {count} images in image_splits/{layout.lists[split]}")
            captions[language, number] = lines
    return captions


def require_same_lists(text: Path, first: str, second: str) -> None:
    """Refuse lists of two tasks that differ: a line would belong to another image, perhaps one for testing.

    Raises:
        DataError: they do; it names the first line that differs.
    """
    if first == second:
        return
    ours, theirs = official_images(text, first), official_images(text, second)
    for split, images in ours.items():
        paths = [TASKS[task].images(text, split) for task in (first, second)]
        if len(images) != len(theirs[split]):
            raise DataError(f"{paths[0]}: {len(images)} images, but {len(theirs[split])} in {paths[1]}")
        for line, (image_id, other) in enumerate(zip(images, theirs[split], strict=True), 1):
            if image_id != other:
                raise DataError(f"{paths[0]}:{line}: image {image_id!r}, but {other!r} in {paths[1]}; get both again")


def read_list(path: Path, seen: dict[str, str], expected: str = "a list of image file names") -> list[str]:
    """Image names, one a line.

    Args:
        path: the list.
        seen: remembers over several lists where each name stands (`file:line`).
        expected: what it should be, for the error.

    Raises:
        DataError: it is missing, has no lines or an empty one, or a name stands twice.
    """
    names = [line.strip() for line in read_lines(path, expected)]
    for number, name in enumerate(names, 1):
        if not name:
            raise DataError(f"{path}:{number}: empty line, expected an image file name")
        if name in seen:
            raise DataError(f"{path}:{number}: image {name!r} stands twice, first in {seen[name]}")
        seen[name] = f"{path}:{number}"
    if not names:
        raise DataError(f"{path}: no lines, expected {expected}")
    return names
