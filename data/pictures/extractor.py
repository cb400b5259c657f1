"""Regions of pictures: found in their pixels (`objects`), or by a pretrained network (`vision`)."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from PIL import Image

from data.errors import DataError
from data.pictures.images import open_picture
from data.pictures.objects import Found, find_objects
from data.pictures.regions import write_regions
from data.processes import pool, require_processes
from data.progress import shown

Looked = Any  # regions already, or a picture that the network describes

EXTRACTOR_VERSION = 4  # raised when other regions are found in the same pixels
_CHUNK = 16  # pictures that a process reads at a time


@dataclass
class ExtractorSettings:
    """How regions are found in a picture.

    Attributes:
        regions: R, regions a picture; unless by a detector, the first is the whole picture.
        size: pixels on the longer side that the built-in extractor shrinks a larger picture to.
        model: a detector or vision backbone of `transformers` (folder or hub name); None is the built-in extractor.
    """

    regions: int = field(default=9, metadata={"most": 1000})
    size: int = field(default=256, metadata={"most": 4096})
    model: str | None = None


class Extractor:
    """Finds and describes the regions of pictures.

    Args:
        settings: how.

    Raises:
        DataError: the settings do not fit, or there is no such network.
    """

    def __init__(self, settings: ExtractorSettings) -> None:
        if settings.regions < 1 or settings.size < 8:
            raise DataError(f"regions: regions {settings.regions} and size {settings.size}, expected 1 and 8 or more")
        self._network: Callable[[Sequence[Image.Image]], list[Found]] | None = None
        self._look: Callable[[Path | Image.Image], Looked]
        if settings.model is None:
            self._look = partial(find_objects, count=settings.regions, size=settings.size)
        else:
            from data.pictures.vision import VisionNetwork  # transformers' models take seconds to import

            network = VisionNetwork(settings.model, settings.regions)
            self._network, self._look = network, partial(_open_small, side=network.side)

    def extract(self, picture: Path | Image.Image) -> Found:
        """Regions (R, D) of one picture, and their boxes (R, 4) as x1, y1, x2, y2 in 0…1.

        Raises:
            DataError: the file cannot be read as a picture.
        """
        return self._described([self._look(picture)])[0]

    def extract_readable(self, pictures: Sequence[Path], workers: int) -> Iterator[Found | str]:
        """Regions and boxes of each picture as `extract` gives them, or a line that says why it cannot be read.

        A picture that kills the process that reads it (by taking all memory, or a fault of a decoder) is one of those.
        A network works in this process, on a GPU where there is one.

        Args:
            pictures: files.
            workers: processes; with 0 or 1, and for a few pictures, this one works.
        """
        for looked in _all_looked(pictures, self._look, workers):
            regions = iter(self._described([result for result in looked if not isinstance(result, str)]))
            for result in looked:
                yield result if isinstance(result, str) else next(regions)

    def extract_all(self, pictures: Mapping[str, Path], folder: Path, workers: int) -> None:
        """Write the region store of many pictures, in their order, the same for any number of workers.

        Args:
            pictures: image id → picture file.
            folder: of the region store (`data.pictures.regions`).
            workers: processes; 0 or 1 works in this one.

        Raises:
            DataError: there is no picture, or one cannot be read.
        """
        if not pictures:
            raise DataError(f"{folder}: no pictures to extract regions from")
        regions = _require_all(self.extract_readable(list(pictures.values()), workers))
        write_regions(folder, list(pictures), shown(regions, "extracting", len(pictures)))

    def _described(self, looked: list[Looked]) -> list[Found]:
        return looked if self._network is None or not looked else self._network(looked)


def _open_small(picture: Path | Image.Image, side: int) -> Image.Image:
    image = open_picture(picture)
    image.thumbnail((side, side), Image.Resampling.BICUBIC, reducing_gap=2.0)
    return image


def _require_all(results: Iterable[Found | str]) -> Iterator[Found]:
    for result in results:
        if isinstance(result, str):
            raise DataError(result)
        yield result


def _all_looked(pictures: Sequence[Path], look: Callable[[Path], Looked], workers: int) -> Iterator[list[Looked | str]]:
    """What `look` gives of each picture, or why it cannot be read, a chunk at a time."""
    task = partial(_look_at, look=look)
    chunks = [pictures[start : start + _CHUNK] for start in range(0, len(pictures), _CHUNK)]
    if workers <= 1 or len(chunks) == 1:
        yield from map(task, chunks)
        return
    while chunks:
        with pool(min(workers, len(chunks))) as processes:
            waiting = deque(processes.submit(task, chunk) for chunk in chunks[: 4 * workers])
            try:
                while waiting:
                    yield waiting.popleft().result()
                    del chunks[0]
                    if len(chunks) > len(waiting):
                        waiting.append(processes.submit(task, chunks[len(waiting)]))
                continue
            except BrokenProcessPool:
                require_processes()
        yield [_look_alone(picture, task) for picture in chunks.pop(0)]  # one of these, or one read at the same time


def _look_at(pictures: Sequence[Path], look: Callable[[Path], Looked]) -> list[Looked | str]:
    results: list[Looked | str] = []
    for picture in pictures:
        try:
            results.append(look(picture))
        except DataError as error:
            results.append(str(error))
    return results


def _look_alone(picture: Path, task: Callable[[Sequence[Path]], list[Looked | str]]) -> Looked | str:
    """In a process of its own."""
    with pool(1) as processes:
        try:
            return processes.submit(task, [picture]).result()[0]
        except BrokenProcessPool:
            return f"{picture}: not a readable picture (the process that read it died); replace it or leave it out"
