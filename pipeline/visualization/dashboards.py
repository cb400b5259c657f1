"""A page of examples, and what TensorBoard shows: galleries of translations and queries, the joint space."""

import io
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytorch_lightning as pl
import torch
from datasets import Dataset as Table
from numpy.typing import NDArray
from PIL import Image
from pytorch_lightning.loggers import TensorBoardLogger
from pytorch_lightning.utilities import rank_zero_only
from pytorch_lightning.utilities.seed import isolate_rng
from tensorboard.compat.proto.summary_pb2 import Summary
from torch.utils.tensorboard import SummaryWriter

from data.captions.table import human_cells
from data.pictures.regions import RegionStore
from modules.retrieval_models.encoded import encoded_captions, encoded_images
from modules.training.base import batches_of
from pipeline.visualization.pages import render
from pipeline.visualization.pictures import (
    BLACK,
    GREEN,
    GREY,
    Line,
    ShownPicture,
    embedded,
    hit_sheet,
    picture_sheet,
    read_thumbnail,
)

_BLOCK, _QUALITY = 128, 90
_EVERY = 5  # epochs between two drawings; the last epoch is drawn too
_TOP, _BEST, _IMAGES = 5, 2, 4  # images a query shows, captions an image shows, images that show some
_MOST, _FEWEST = 200, 50  # of the joint space: images, and captions of a language; points
_MARKS = r"\`*_[]()!<>&|~#$:"


def plain(text: str) -> str:
    """A text escaped for TensorBoard's Markdown, also in a cell of a table."""
    return "".join(f"&#{ord(char)};" if char in _MARKS else char for char in " ".join(text.split()))


class Example(NamedTuple):
    """A synthetic caption beside the human one that it came from."""

    image_id: str
    picture: Path | None
    human: str
    synthetic: str
    score: float | None = None


def examples_html(path: Path, title: str, rows: Sequence[Example], languages: tuple[str, str] = ("", "")) -> None:
    """Write one page, its pictures inside it, human captions beside synthetic ones, in these `languages`."""
    shown = [(row, embedded(read_thumbnail(row.picture, 176))) for row in rows]
    page = render("examples.html", title=title, source=languages[0], target=languages[1], rows=shown)
    path.write_text(page, encoding="utf-8")


def log_picture(board: SummaryWriter, tag: str, picture: Image.Image, step: int | None = None) -> None:
    """Show a picture in TensorBoard, as JPEG: PNG by `add_image` takes several times as long."""
    picture.save(buffer := io.BytesIO(), "JPEG", quality=_QUALITY)
    size = {"width": picture.width, "height": picture.height, "colorspace": len(picture.getbands())}
    shown = Summary.Image(**size, encoded_image_string=buffer.getvalue())
    writer: Any = board.file_writer
    writer.add_summary(Summary(value=[Summary.Value(tag=tag, image=shown)]), step)


@rank_zero_only
def log_translations(
    log_dir: Path, rows: Sequence[dict[str, Any]], pictures: Mapping[str, Path], count: int = 12
) -> None:
    """Show some test translations in TensorBoard, as text and as a sheet (grey source, green reference, hypothesis).

    The rows are those of `pipeline.translation.evaluation.read_translations`; the same ones are drawn whenever as many
    are given.
    """
    if not rows:
        return
    chosen = random.Random(0).sample(rows, min(count, len(rows)))
    names = ("source", "reference", "hypothesis")
    lines = ["| " + " | ".join(names) + " |", "|---|---|---|"]
    lines += ["| " + " | ".join(plain(row[name]) for name in names) + " |" for row in chosen]
    with SummaryWriter(str(log_dir)) as board:
        board.add_text("translations/test", "\n".join(lines))
        if pictures:
            sheet = picture_sheet([
                ([pictures.get(row["image_id"])], [(row["source"], GREY), (row["reference"], GREEN), row["hypothesis"]])
                for row in chosen
            ])  # fmt: skip
            log_picture(board, "translations/test", sheet)


@rank_zero_only
def log_pictures(log_dir: Path, pictures: Mapping[str, NDArray[np.uint8]]) -> None:
    """Show pictures, pixels (height, width, 3), in TensorBoard, by tag."""
    with SummaryWriter(str(log_dir)) as board:
        for tag, pixels in pictures.items():
            log_picture(board, tag, Image.fromarray(pixels))


class GalleryQuery(NamedTuple):
    """Words, their language, and the image that they are about."""

    text: str
    language: str
    image_id: str


class QueryGallery(pl.Callback):
    """Shows in TensorBoard which images a few fixed queries find, and which captions a few fixed images find.

    After testing it also writes vectors of images and captions, if the model has one vector an item. It works on
    rank 0, if there is a TensorBoard logger, with the model as Lightning validates it (in evaluation mode, without
    gradients); random numbers stay as they are.

    Args:
        queries: what is searched with; their images are in the gallery.
        captions: what the images are searched for, in each language.
        image_ids: the gallery; its first ones are those that captions are found for.
        encode: the text input's.
        pictures: image id → file; without any there are vectors alone.
        tag: what the names in TensorBoard start with.
    """

    def __init__(
        self, queries: Sequence[GalleryQuery], captions: Sequence[GalleryQuery], image_ids: Sequence[str],
        encode: Callable[[str, str], list[int]], store: RegionStore, pictures: Mapping[str, Path],
        tag: str,
    ) -> None:  # fmt: skip
        self.queries, self.captions = list(queries), _by_language(captions)
        self.image_ids, self.rows = list(image_ids), store.rows(image_ids)
        self.encode, self.store, self.pictures = encode, store, pictures
        self.tag, self._drawn = tag, -1

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Draw, if it is the epoch's turn."""
        epoch = trainer.current_epoch
        due = epoch % _EVERY == 0 or epoch + 1 == trainer.max_epochs
        if due and epoch != self._drawn and not trainer.sanity_checking:
            self._drawn = epoch
            self._draw(trainer, pl_module)

    def on_test_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Draw, and write the vectors."""
        self._draw(trainer, pl_module, vectors=True)

    def _draw(self, trainer: pl.Trainer, module: Any, vectors: bool = False) -> None:
        boards = [logger.experiment for logger in trainer.loggers if isinstance(logger, TensorBoardLogger)]
        if not (boards and trainer.is_global_zero):
            return
        with isolate_rng(include_cuda=module.device.type == "cuda"), trainer.precision_plugin.val_step_context():
            if self.pictures:
                sheets = self._found_images(module) | {"image_to_text": self._found_captions(module)}
                for name, sheet in sheets.items():
                    log_picture(boards[0], f"{self.tag}/{name}", sheet, batches_of(trainer))
            if vectors and module.model.score == "inner product":
                self._write_vectors(boards[0], module, batches_of(trainer))

    def _found_images(self, module: Any) -> dict[str, Image.Image]:
        words = self._encoded(module, self.queries)
        blocks = (module.model.similarity(self._encoded_images(module, rows), words) for rows in _parts(self.rows))
        scores = torch.cat([block.float().cpu() for block in blocks])
        shown: dict[str, list[tuple[Line, list[ShownPicture]]]] = {}
        for query, column in zip(self.queries, scores.t(), strict=True):
            own = self.image_ids.index(query.image_id)
            hits = [
                (self.pictures.get(self.image_ids[place]), f"{score:.3f}", place == own)
                for score, place in _best(column, _TOP)
            ]
            line = f"{query.text}  (rank {int((column >= column[own]).sum())} of {len(column)})"
            shown.setdefault(query.language, []).append((line, hits))
        return {language: hit_sheet(queries) for language, queries in shown.items()}

    def _found_captions(self, module: Any) -> Image.Image:
        images = self._encoded_images(module, self.rows[:_IMAGES])
        lines: list[list[Line]] = [[] for _ in self.image_ids[:_IMAGES]]
        for language, captions in self.captions.items():
            blocks = (module.model.similarity(images, self._encoded(module, part)) for part in _parts(captions))
            scores = torch.cat([block.float().cpu() for block in blocks], dim=1)
            for row, image_id in enumerate(self.image_ids[:_IMAGES]):
                for score, place in _best(scores[row], _BEST):
                    colour = GREEN if captions[place].image_id == image_id else BLACK
                    lines[row].append((f"{language} {score:.3f}  {captions[place].text}", colour))
        return picture_sheet([([self.pictures.get(i)], text) for i, text in zip(self.image_ids, lines, strict=False)])

    def _write_vectors(self, board: SummaryWriter, module: Any, step: int) -> None:
        vectors = [self._encoded_images(module, self.rows[:_MOST])[0][:, 0].float().cpu()]
        labels = [("images", name) for name in self.image_ids[:_MOST]]
        for language, captions in self.captions.items():
            vectors.append(self._encoded(module, captions[:_MOST])[0][:, 0].float().cpu())
            labels += [(language, caption.text) for caption in captions[:_MOST]]
        if len(labels) < _FEWEST:
            return
        rows = [[kind, " ".join(text.split())] for kind, text in labels]
        heads = ["language", "text"]
        with redirect_stdout(None):  # torch warns there of a folder of an earlier run, which it replaces
            board.add_embedding(torch.cat(vectors), rows, tag="joint space", metadata_header=heads, global_step=step)

    def _encoded_images(self, module: Any, rows: np.ndarray) -> Any:
        return encoded_images(module.model, self.store.regions[rows])

    def _encoded(self, module: Any, sentences: Sequence[GalleryQuery]) -> Any:
        return encoded_captions(module.model, self.encode, [(query.text, query.language) for query in sentences])


def query_galleries(
    captions: Table, languages: Sequence[str], encode: Callable[[str, str], list[int]], store: RegionStore,
    pictures: Mapping[str, Path], split: str = "val", queries: int = 3, most: int = 500,
) -> list[pl.Callback]:  # fmt: skip
    """A `QueryGallery` of a split: so many `queries` a language, `most` images, always the same; [] if it has none."""
    choices: dict[tuple[str, str], GalleryQuery] = {}
    for text, language, image_id in human_cells(captions, split, "text", "language", "image_id"):
        if language in languages:
            choices.setdefault((image_id, language), GalleryQuery(text, language, image_id))
    seen = sorted({name for name, _ in choices if name in store})
    seen = [name for name in seen if name in pictures] or seen
    image_ids = random.Random(0).sample(seen, min(most, len(seen)))
    shown_pictures = {name: pictures[name] for name in image_ids if name in pictures}
    pool = [choices[name, language] for language in languages for name in image_ids if (name, language) in choices]
    shown = [query for of_language in _by_language(pool).values() for query in of_language[:queries]]
    tag = "gallery" if split == "val" else f"gallery/{split}"
    return [QueryGallery(shown, pool, image_ids, encode, store, shown_pictures, tag=tag)] if image_ids else []


def _by_language(queries: Sequence[GalleryQuery]) -> dict[str, list[GalleryQuery]]:
    languages = dict.fromkeys(query.language for query in queries)
    return {language: [query for query in queries if query.language == language] for language in languages}


def _best(scores: torch.Tensor, count: int) -> list[tuple[float, int]]:
    """The highest of some scores (N,), each with its place; best first."""
    best = scores.topk(min(count, len(scores)))
    return list(zip(best.values.tolist(), best.indices.tolist(), strict=True))


def _parts(items: Any) -> Iterator[Any]:
    return (items[start : start + _BLOCK] for start in range(0, len(items), _BLOCK))
