"""What people look at: contact sheets, a page of examples, and TensorBoard galleries of translations and queries."""

import base64
import io
import random
import re
import unicodedata
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from html import escape
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytorch_lightning as pl
import torch
from datasets import Dataset as Table
from PIL import Image, ImageDraw, ImageFont, ImageOps
from pytorch_lightning.loggers import TensorBoardLogger
from pytorch_lightning.utilities import rank_zero_only
from pytorch_lightning.utilities.seed import isolate_rng
from torch import nn
from torch.utils.tensorboard import SummaryWriter

from data.captions import HUMAN
from data.regions import RegionStore
from data.translation import pad

Line = str | tuple[str, str]  # text on a sheet; black, or with its colour
Hit = tuple[Path | None, str, bool]  # a picture that was found, what is written below it, whether it is the right one
GREEN, GREY, BLACK = "#1a7f37", "#6e7781", "#1f2328"
_SIZE, _LINE, _THUMBNAIL, _GAP, _BLOCK = 15, 20, 128, 10, 128


def read_thumbnail(path: Path | None, size: int = _THUMBNAIL) -> Image.Image | None:
    """A picture fitted into a square of `size`; None where there is none or it cannot be read."""
    if path is None:
        return None
    try:
        with Image.open(path) as picture:
            picture.draft("RGB", (size, size))
            return ImageOps.contain(ImageOps.exif_transpose(picture).convert("RGB"), (size, size))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):  # what Pillow raises for broken files
        return None


def picture_sheet(rows: Sequence[tuple[Path | None, Sequence[Line]]], width: int = 760) -> Image.Image:
    """A contact sheet: pictures below each other, a grey box where there is none; beside each its lines, wrapped."""
    left = _THUMBNAIL + 2 * _GAP
    wrapped = [[piece for line in lines for piece in _wrap(line, width - left - _GAP)] for _, lines in rows]
    heights = [max(_THUMBNAIL, len(lines) * _LINE) + _GAP for lines in wrapped]
    sheet = Image.new("RGB", (width, sum(heights) + _GAP), "white")
    top = _GAP
    for (path, _), lines, step in zip(rows, wrapped, heights, strict=True):
        _paste(sheet, path, _GAP, top)
        for number, line in enumerate(lines):
            _write(sheet, (left, top + number * _LINE), *line)
        top += step
    return sheet


def hit_sheet(queries: Sequence[tuple[Line, Sequence[Hit]]]) -> Image.Image:
    """For each query its words and, in a row below them, the pictures that were found; right ones framed green."""
    columns = max(5, *(len(hits) for _, hits in queries), 0)
    width, strip = columns * (_THUMBNAIL + _GAP) + _GAP, _THUMBNAIL + _LINE + 2 * _GAP
    wrapped = [_wrap(words, width - 2 * _GAP) for words, _ in queries]
    sheet = Image.new("RGB", (width, sum(len(lines) * _LINE + strip for lines in wrapped) + _GAP), "white")
    top = _GAP
    for (_, hits), lines in zip(queries, wrapped, strict=True):
        for line in lines:
            _write(sheet, (_GAP, top), *line)
            top += _LINE
        for column, (picture, label, right) in enumerate(hits):
            left = _GAP + column * (_THUMBNAIL + _GAP)
            if right:
                corners = (left - 4, top, left + _THUMBNAIL + 3, top + _THUMBNAIL + 7)
                ImageDraw.Draw(sheet).rectangle(corners, outline=GREEN, width=4)
            _paste(sheet, picture, left, top + 4)
            _write(sheet, (left, top + _THUMBNAIL + 8), label, GREEN if right else GREY)
        top += strip
    return sheet


class Example(NamedTuple):
    """A synthetic caption beside the human one that it came from."""

    image_id: str
    picture: Path | None
    human: str
    synthetic: str
    score: float | None = None


def examples_html(path: Path, title: str, rows: Sequence[Example], languages: tuple[str, str] = ("", "")) -> None:
    """Write one page, its pictures inside it, human captions beside synthetic ones, in these `languages`."""
    spoken, target = (escape(language) for language in languages)
    body = "\n".join(
        f"<tr><td>{embedded(read_thumbnail(one.picture, 176))}<small>{escape(one.image_id)}</small></td>"
        f'<td lang="{spoken}">{escape(one.human)}</td><td lang="{target}">{escape(one.synthetic)}</td>'
        f"<td>{'–' if one.score is None else format(one.score, '.2f')}</td></tr>"
        for one in rows
    )
    about = {"title": escape(title), "count": len(rows), "spoken": spoken, "target": target}
    path.write_text(_PAGE.format(**about, body=body), encoding="utf-8")


_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<style>
body {{ margin: 2rem auto; max-width: 60rem; padding: 0 1rem; font: 16px/1.5 system-ui, sans-serif; color: #1f2328; }}
table {{ border-collapse: collapse; width: 100%; }}
th, td {{ padding: .6rem .8rem; text-align: left; vertical-align: top; border-bottom: 1px solid #d8dee4; }}
td:first-child {{ width: 176px; overflow-wrap: anywhere; }} img {{ display: block; }} small, p {{ color: #59636e; }}
</style></head><body><h1>{title}</h1>
<p>{count} examples, drawn by lot. Score: mean log-probability of a token; nearer 0 is surer.</p><table>
<thead><tr><th>picture</th><th>human {spoken}</th><th>synthetic {target}</th><th>score</th></tr></thead>
<tbody>{body}</tbody></table></body></html>
"""


@rank_zero_only
def log_translations(
    log_dir: Path, rows: Sequence[dict[str, Any]], pictures: Mapping[str, Path], count: int = 12
) -> None:
    """Show some test translations in TensorBoard, as text and as a sheet (grey source, green reference, hypothesis).

    The rows are `pipeline.mmt.read_translations`'; the same ones are drawn whenever as many are given.
    """
    if not rows:
        return
    chosen = random.Random(0).sample(rows, min(count, len(rows)))
    names = ("source", "reference", "hypothesis")
    lines = ["| " + " | ".join(names) + " |", "|---|---|---|"]
    lines += ["| " + " | ".join(escape(row[name]).replace("|", "&#124;") for name in names) + " |" for row in chosen]
    with SummaryWriter(str(log_dir)) as board:
        board.add_text("translations/test", "\n".join(lines))
        if pictures:
            sheet = picture_sheet([
                (pictures.get(row["image_id"]), [(row["source"], GREY), (row["reference"], GREEN), row["hypothesis"]])
                for row in chosen
            ])  # fmt: skip
            board.add_image("translations/test", np.asarray(sheet), dataformats="HWC")


class Query(NamedTuple):
    """Words, their language, and the image that they are about."""

    text: str
    language: str
    image_id: str


class QueryGallery(pl.Callback):
    """Shows in TensorBoard which images a few fixed queries find, and which captions a few fixed images find.

    It draws on rank 0, if there is a TensorBoard logger; weights, modes and random numbers stay as they are.

    Args:
        queries: what is searched with; their images are in the gallery.
        captions: what the images are searched for, in each language.
        image_ids: the gallery; its first `images` are the ones that captions are found for.
        encode: the text input's.
        store: regions of the gallery.
        pictures: image id → file.
        top: how many images a query shows.
        every: epochs between two drawings; the last epoch is drawn too.
        images: how many images show their captions.
        tag: what the names in TensorBoard start with.
    """

    def __init__(
        self, queries: Sequence[Query], captions: Sequence[Query], image_ids: Sequence[str],
        encode: Callable[[str, str], list[int]], store: RegionStore, pictures: Mapping[str, Path],
        top: int = 5, every: int = 5, images: int = 4, tag: str = "gallery",
    ) -> None:  # fmt: skip
        self.queries, self.captions = list(queries), _by_language(captions)
        self.image_ids, self.rows = list(image_ids), store.rows(image_ids)
        self.encode, self.store, self.pictures = encode, store, pictures
        self.top, self.every, self.images, self.tag = top, every, images, tag
        self._drawn = -1

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Draw, if it is the epoch's turn."""
        epoch = trainer.current_epoch
        due = epoch % self.every == 0 or epoch + 1 == trainer.max_epochs
        if due and epoch != self._drawn and not trainer.sanity_checking:
            self._drawn = epoch
            self._draw(trainer, pl_module)

    def on_test_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Draw."""
        self._draw(trainer, pl_module)

    def _draw(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        boards = [logger.experiment for logger in trainer.loggers if isinstance(logger, TensorBoardLogger)]
        if not (boards and trainer.is_global_zero and self.pictures and self.queries):
            return
        with (
            isolate_rng(include_cuda=module.device.type == "cuda"),
            torch.no_grad(),
            trainer.precision_plugin.val_step_context(),
            _evaluating(module),
        ):
            self._show(boards[0], module, trainer.global_step)

    def _show(self, board: SummaryWriter, module: Any, step: int) -> None:
        sheets = self._found_images(module) | {"image_to_text": self._found_captions(module)}
        for name, sheet in sheets.items():
            board.add_image(f"{self.tag}/{name}", np.asarray(sheet), step, dataformats="HWC")

    def _found_images(self, module: Any) -> dict[str, Image.Image]:
        words = self._encoded(module, self.queries)
        blocks = (module.model.similarity(self._encoded_images(module, rows), words) for rows in _parts(self.rows))
        scores = torch.cat([block.float().cpu() for block in blocks])
        shown: dict[str, list[tuple[Line, list[Hit]]]] = {}
        for query, column in zip(self.queries, scores.t(), strict=True):
            own = self.image_ids.index(query.image_id)
            hits = [
                (self.pictures.get(self.image_ids[place]), f"{score:.3f}", place == own)
                for score, place in zip(
                    *(part.tolist() for part in column.topk(min(self.top, len(column)))), strict=True
                )
            ]
            line = f"{query.text}  (rank {int((column >= column[own]).sum())} of {len(column)})"
            shown.setdefault(query.language, []).append((line, hits))
        return {language: hit_sheet(queries) for language, queries in shown.items()}

    def _found_captions(self, module: Any, best: int = 2) -> Image.Image:
        images = self._encoded_images(module, self.rows[: self.images])
        lines: list[list[Line]] = [[] for _ in self.image_ids[: self.images]]
        for language, captions in self.captions.items():
            blocks = (module.model.similarity(images, self._encoded(module, part)) for part in _parts(captions))
            scores = torch.cat([block.float().cpu() for block in blocks], dim=1)
            for row, image_id in enumerate(self.image_ids[: self.images]):
                found = scores[row].topk(min(best, len(captions)))
                for score, place in zip(*(part.tolist() for part in found), strict=True):
                    colour = GREEN if captions[place].image_id == image_id else BLACK
                    lines[row].append((f"{language} {score:.3f}  {captions[place].text}", colour))
        return picture_sheet([(self.pictures.get(i), text) for i, text in zip(self.image_ids, lines, strict=False)])

    def _encoded_images(self, module: Any, rows: np.ndarray) -> Any:
        regions = torch.from_numpy(self.store.regions[rows]).to(module.device).float()
        return module.model.encode_images(regions, regions.new_ones(regions.shape[:2], dtype=torch.bool))

    def _encoded(self, module: Any, sentences: Sequence[Query]) -> Any:
        tokens = [self.encode(one.text, one.language) for one in sentences]
        lengths = torch.tensor([len(sentence) for sentence in tokens])
        languages = torch.tensor([module.model.languages.index(one.language) for one in sentences])
        return module.model.encode_captions(pad(tokens).to(module.device), lengths, languages.to(module.device))


def query_galleries(
    captions: Table, languages: Sequence[str], encode: Callable[[str, str], list[int]], store: RegionStore,
    pictures: Mapping[str, Path], split: str = "val", queries: int = 3, most: int = 500,
    kind: type[QueryGallery] = QueryGallery,
) -> list[pl.Callback]:  # fmt: skip
    """A `QueryGallery` of a split: so many `queries` a language, `most` images, always the same; else []."""
    found: dict[tuple[str, str], Query] = {}
    for row in captions.to_list():
        image_id, language = row["image_id"], row["language"]
        if row["split"] == split and row["source"] == HUMAN and language in languages:
            found.setdefault((image_id, language), Query(row["text"], language, image_id))
    seen = sorted({image_id for image_id, _ in found if image_id in pictures and image_id in store})
    image_ids = random.Random(0).sample(seen, min(most, len(seen)))
    pool = [found[name, language] for language in languages for name in image_ids if (name, language) in found]
    shown = [query for of_language in _by_language(pool).values() for query in of_language[:queries]]
    tag = "gallery" if split == "val" else f"gallery/{split}"
    return [kind(shown, pool, image_ids, encode, store, pictures, tag=tag)] if image_ids else []


def _by_language(queries: Sequence[Query]) -> dict[str, list[Query]]:
    languages = dict.fromkeys(query.language for query in queries)
    return {language: [query for query in queries if query.language == language] for language in languages}


def _parts(items: Any) -> Iterator[Any]:
    return (items[start : start + _BLOCK] for start in range(0, len(items), _BLOCK))


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode inside, and after it for each part the mode that it had."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


def embedded(picture: Image.Image | None) -> str:
    """A picture inside a page, a grey box where there is none."""
    (picture := picture or Image.new("RGB", (176, 112), "#d8dee4")).save(buffer := io.BytesIO(), "JPEG", quality=80)
    data = base64.b64encode(buffer.getvalue()).decode()
    return f'<img alt="" width="{picture.width}" height="{picture.height}" src="data:image/jpeg;base64,{data}">'


def _paste(sheet: Image.Image, path: Path | None, left: int, top: int) -> None:
    """Put a picture into the middle of its square, or a grey box."""
    picture = read_thumbnail(path) or Image.new("RGB", (_THUMBNAIL, _THUMBNAIL), "#d8dee4")
    sheet.paste(picture, (left + (_THUMBNAIL - picture.width) // 2, top + (_THUMBNAIL - picture.height) // 2))


def _wrap(line: Line, width: int) -> list[tuple[str, str]]:
    text, colour = (line, BLACK) if isinstance(line, str) else line
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and sum(font.getlength(run) for run, font in _runs(longer)) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return [(text, colour) for text in lines]


def _write(sheet: Image.Image, at: tuple[float, float], text: str, colour: str) -> None:
    draw, (left, top) = ImageDraw.Draw(sheet), at
    for run, font in _runs(text):
        draw.text((left, top + _SIZE), run, colour, font, "ls")
        left += font.getlength(run)


def _runs(text: str) -> list[tuple[str, Any]]:
    """Text in pieces, each with a font that has all its letters."""
    glyphs = (_glyph(letter) for letter in unicodedata.normalize("NFC", text))
    return [("".join(glyph for glyph, _ in run), font) for font, run in groupby(glyphs, key=lambda glyph: glyph[1])]


@lru_cache(maxsize=4096)
def _glyph(letter: str) -> tuple[str, Any]:
    """A letter and the first font that has it; a letter that none has loses its accents, or is a question mark."""
    for font in _fonts():
        if bytes(font.getmask(letter)) != bytes(font.getmask("\ue123")):  # what stands for any missing letter
            return letter, font
    plain = unicodedata.normalize("NFKD", letter).encode("ascii", "ignore").decode()
    return plain or {"ß": "ss", "œ": "oe", "→": "->"}.get(letter, "?"), _fonts()[-1]


@lru_cache(maxsize=1)
def _fonts() -> list[Any]:
    """Roboto as TensorBoard ships it for its pages, a file a script, as Pillow's own font has only ASCII; then that."""
    fonts: list[Any] = []
    ours = str(files("tensorboard") / "webfiles.zip")
    with suppress(OSError, KeyError, zipfile.BadZipFile), zipfile.ZipFile(ours) as web:
        page = web.read("font-roboto/roboto.html").decode()
        for face in re.findall(r"'Roboto';\s+font-style: normal;\s+font-weight: 400;.*?url\(/(.*?)\)", page, re.S):
            fonts.append(ImageFont.truetype(io.BytesIO(web.read(face)), _SIZE, layout_engine=ImageFont.Layout.BASIC))
    return [*fonts, ImageFont.load_default(_SIZE)]
