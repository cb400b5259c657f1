"""What people look at: that letters are drawn, pages are safe, and a gallery leaves training as it was."""

import io
import random
from pathlib import Path

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from datasets import Dataset
from PIL import Image, ImageFont
from pytorch_lightning.loggers import TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn
from torch.utils.data import DataLoader

from data.pictures.regions import RegionStore, write_regions
from modules.retrieval_models import RetrievalModel
from pipeline.visualization import dashboards
from pipeline.visualization import pictures as drawing
from pipeline.visualization.dashboards import Example, QueryGallery, examples_html, log_translations, query_galleries
from pipeline.visualization.pictures import BLACK, GREEN, hit_sheet, picture_sheet, read_thumbnail

GREEN_RGB = tuple(int(GREEN[place : place + 2], 16) for place in (1, 3, 5))


@pytest.fixture
def pictures(tmp_path: Path) -> dict[str, Path]:
    paths = {f"i{number}": tmp_path / f"i{number}.png" for number in range(6)}
    for number, path in enumerate(paths.values()):
        Image.new("RGB", (60 + 20 * number, 80), (40 * number, 90, 200)).save(path)
    return paths


def drawn(letter: str) -> np.ndarray:
    return np.asarray(picture_sheet([([None], [letter])]))[:, 148:]


def test_letters_of_our_languages_are_drawn_each_in_its_own_way() -> None:
    letters = "aouseczryniuäöüßéœçčřžýňíůěďťÄŘŒ„“–…"
    seen = {drawn(letter).tobytes() for letter in letters}
    assert len(seen) == len(set(letters))
    assert drawing._glyph("\ue123")[0] == "?"  # no font has it
    assert (drawn("u\u0308") == drawn("ü")).all()


def test_without_other_fonts_letters_lose_their_accents(monkeypatch: pytest.MonkeyPatch) -> None:
    fonts = [ImageFont.load_default(15)]
    monkeypatch.setattr(drawing, "_fonts", lambda size: fonts)
    drawing._glyph.cache_clear()
    try:
        assert [run for run, _ in drawing._runs("Straße, křič é 犬")] == ["Strasse, kric e ?"]
    finally:
        drawing._glyph.cache_clear()


def test_pictures_that_cannot_be_read_are_grey_boxes(tmp_path: Path, pictures: dict[str, Path]) -> None:
    broken = tmp_path / "broken.png"
    broken.write_bytes(pictures["i1"].read_bytes()[:40])
    (tmp_path / "text.jpg").write_text("no picture")
    for path in (None, broken, tmp_path / "missing.png", tmp_path / "text.jpg", tmp_path):
        assert read_thumbnail(path) is None
        assert picture_sheet([([path], [])]).getpixel((70, 70)) == (0xD8, 0xDE, 0xE4)
    assert read_thumbnail(pictures["i5"], 176).size == (176, 88)


def test_long_lines_are_wrapped_and_make_a_sheet_higher() -> None:
    short, long = picture_sheet([([None], ["Ein Hund"])]), picture_sheet([([None], ["Ein Hund läuft. " * 80])])
    assert short.width == long.width == 760
    assert long.height > short.height
    assert (np.asarray(long)[:, -drawing._GAP :] == 255).all()
    assert drawing.wrap(("", GREEN), 100) == [("", GREEN)]
    assert drawing.wrap("Donaudampfschifffahrt ab", 20) == [("Donaudampfschifffahrt", BLACK), ("ab", BLACK)]
    two = picture_sheet([([None, None], ["Ein Hund"]), ([None], ["Ein Hund"])])
    assert two.width == short.width + 138
    assert two.getpixel((208, 70)) == (0xD8, 0xDE, 0xE4)
    assert two.getpixel((208, 208)) == (255, 255, 255)
    assert picture_sheet([]).height == hit_sheet([]).height == drawing._GAP


def test_only_the_right_hit_is_framed_green(pictures: dict[str, Path]) -> None:
    def frames(rights: list[bool]) -> np.ndarray:
        sheet = np.asarray(hit_sheet([("Ein Hund", [(pictures["i1"], "0.5", right) for right in rights])]))
        return (sheet == GREEN_RGB).all(-1).sum(0) > 100

    assert not frames([False, False]).any()
    assert np.flatnonzero(frames([False, True])).min() == drawing._GAP + 138 - 4


def test_a_page_escapes_text_and_carries_its_pictures(tmp_path: Path, pictures: dict[str, Path]) -> None:
    rows = [
        Example("<i>1</i>", pictures["i1"], "<script>x</script>", 'größer & "kleiner" {0}', -0.254),
        Example("i9", None, "no picture", "kein Bild"),
    ]
    examples_html(tmp_path / "page.html", "a <b> & {c}", rows, ("en", "de"))
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<script>" not in page
    assert "<i>" not in page
    assert "<b>" not in page
    for text in (
        "&lt;script&gt;x&lt;/script&gt;",
        "größer &amp; &#34;kleiner&#34; {0}",
        "-0.25<",
        "<td>–</td>",
        "{c}",
    ):
        assert text in page
    assert page.count("data:image/jpeg;base64,") == 2  # the second is a grey box
    assert page.count('lang="de"') == 2
    assert "http://" not in page
    assert "https://" not in page


def tags(folder: Path) -> dict[str, dict[str, list[int]]]:
    board = EventAccumulator(str(folder), size_guidance={"images": 0})
    board.Reload()
    shown = {tag: board.Images(tag) for tag in board.Tags()["images"]}
    for event in (event for events in shown.values() for event in events):
        assert Image.open(io.BytesIO(event.encoded_image_string)).size == (event.width, event.height)
    found = {tag: [event.step for event in events] for tag, events in shown.items()}
    return {"images": found, "texts": board.Tags()["tensors"], "scalars": board.Tags()["scalars"]}


def test_translations_are_shown_as_text_and_with_pictures(tmp_path: Path, pictures: dict[str, Path]) -> None:
    rows = [{"image_id": f"i{n}", "source": f"a | {n}", "reference": "größer", "hypothesis": "<b>"} for n in range(9)]
    log_translations(tmp_path / "with", rows, pictures, 4)
    log_translations(tmp_path / "without", rows, {})
    log_translations(tmp_path / "nothing", [], pictures)
    assert tags(tmp_path / "with")["images"] == {"translations/test": [0]}
    assert tags(tmp_path / "with")["texts"] == ["translations/test/text_summary"]
    assert tags(tmp_path / "without")["images"] == {}
    assert tags(tmp_path / "without")["texts"]
    assert not (tmp_path / "nothing").exists()


class Letters(nn.Module):
    """Finds image n by the word n; with dropout and a frozen part, to see that neither is disturbed."""

    languages = ("de", "en")
    score = "inner product"

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding.from_pretrained(torch.eye(8)[:, :6], freeze=False)
        self.dropout = nn.Dropout(0.5)
        self.seen: list[int] = []

    def see(self, images: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return images, mask

    def encode_images(self, regions: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        assert not self.dropout.training
        assert regions.dtype == torch.float32
        self.seen.append(len(regions))
        torch.rand(3)  # a model that draws in evaluation
        return regions.mean(1, keepdim=True), mask[:, :1]

    def encode_captions(self, tokens: torch.Tensor, lengths: torch.Tensor, languages: torch.Tensor) -> tuple:
        assert lengths.device.type == "cpu"
        vectors = self.dropout(self.words(tokens)).sum(1, keepdim=True)
        return vectors, torch.ones(len(tokens), 1, dtype=torch.bool)

    tensors_of, encode_sentences = RetrievalModel.tensors_of, RetrievalModel.encode_sentences

    def similarity(self, images: tuple, captions: tuple) -> torch.Tensor:
        return images[0][:, 0] @ captions[0][:, 0].t()


class Module(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = Letters()

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        return self.model.dropout(self.model.words.weight).sum() + torch.rand(())

    def validation_step(self, batch: torch.Tensor, batch_idx: int) -> None:
        pass

    test_step = validation_step

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


@pytest.fixture
def store(tmp_path: Path) -> RegionStore:
    vectors = [(np.eye(6)[[n, n]], np.tile(np.array([0, 0, 1, 1.0]), (2, 1))) for n in range(6)]
    write_regions(tmp_path / "regions", [f"i{n}" for n in range(6)], iter(vectors))
    return RegionStore(tmp_path / "regions")


def galleries(store: RegionStore, pictures: dict[str, Path], split: str = "val") -> list:
    rows = [
        {"image_id": f"i{n}", "language": language, "text": str(n), "split": split, "source": source}
        for n in range(7) for language in ("de", "en", "fr") for source in ("human", "mt:en-de")
    ]  # fmt: skip
    return query_galleries(
        Dataset.from_list(rows), ["de", "en"], lambda text, _: [int(text)], store, pictures, split, queries=2
    )


def trainer(folder: Path, callbacks: list, logger: bool = True, epochs: int = 8) -> pl.Trainer:
    return pl.Trainer(
        accelerator="cpu", max_epochs=epochs, callbacks=callbacks, default_root_dir=folder, num_sanity_val_steps=1,
        logger=TensorBoardLogger(str(folder), "log", version="") if logger else False, enable_progress_bar=False,
        enable_model_summary=False, enable_checkpointing=False,
    )  # fmt: skip


def test_a_gallery_finds_the_right_pictures(
    store: RegionStore, pictures: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    del pictures["i3"]
    (gallery,) = galleries(store, pictures)
    assert "i3" not in gallery.image_ids
    assert [query.language for query in gallery.queries] == ["de", "de", "en", "en"]
    assert gallery.queries[0].image_id == gallery.queries[2].image_id == gallery.image_ids[0]
    monkeypatch.setattr(dashboards, "_BLOCK", 2)
    shown: list = []
    monkeypatch.setattr(dashboards, "hit_sheet", lambda queries: shown.extend(queries) or Image.new("RGB", (9, 9)))
    monkeypatch.setattr(dashboards, "picture_sheet", lambda rows: shown.extend(rows) or Image.new("RGB", (9, 9)))
    module = Module()
    trainer(tmp_path, [gallery]).validate(module, DataLoader(range(1)), verbose=False)
    assert module.model.seen == [2, 2, 1, 4]
    for query, (line, hits) in zip(gallery.queries, shown, strict=False):
        assert line == f"{query.text}  (rank 1 of 5)"
        assert hits[0] == (pictures[query.image_id], "1.000", True)
        assert [right for _, _, right in hits] == [True, False, False, False, False]
    for image_id, (paths, lines) in zip(gallery.image_ids, shown[4:], strict=False):
        assert paths == [pictures[image_id]]
        assert [line for line in lines if line[1] == GREEN] == [
            (f"{language} 1.000  {image_id[1:]}", GREEN) for language in ("de", "en")
        ]


def test_a_gallery_is_drawn_every_few_epochs_and_leaves_training_as_it_was(
    store: RegionStore, pictures: dict[str, Path], tmp_path: Path
) -> None:
    weights, after = [], []
    for callbacks in ([], galleries(store, pictures)):
        pl.seed_everything(1, verbose=False)
        module = Module()
        trainer(tmp_path / str(len(callbacks)), callbacks).fit(module, DataLoader(range(2)), DataLoader(range(1)))
        weights.append(module.model.words.weight.detach().clone())
        after.append((random.random(), np.random.random(), float(torch.rand(()))))  # noqa: NPY002
    assert torch.equal(*weights)
    assert after[0] == after[1]
    steps = [2, 12, 16]  # epochs 0, 5 and the last
    assert tags(tmp_path / "1" / "log")["images"] == {
        f"gallery/{name}": steps for name in ("de", "en", "image_to_text")
    }


def test_a_test_has_its_own_gallery_and_without_pictures_or_logger_nothing_is_drawn(
    store: RegionStore, pictures: dict[str, Path], tmp_path: Path
) -> None:
    trainer(tmp_path / "none", galleries(store, {}, "test")).test(Module(), DataLoader(range(1)), verbose=False)
    assert tags(tmp_path / "none" / "log")["images"] == {}
    callbacks = galleries(store, pictures, "test")
    trainer(tmp_path, callbacks).test(Module(), DataLoader(range(1)), verbose=False)
    assert set(tags(tmp_path / "log")["images"]) == {f"gallery/test/{name}" for name in ("de", "en", "image_to_text")}
    module = Module()
    trainer(tmp_path, callbacks, logger=False).test(module, DataLoader(range(1)), verbose=False)
    assert module.model.seen == []
    assert isinstance(callbacks[0], QueryGallery)


def test_a_split_without_pictures_has_vectors_alone(store: RegionStore, pictures: dict[str, Path]) -> None:
    (gallery,) = galleries(store, {"of training": pictures["i0"]}, "test")
    assert (len(gallery.image_ids), gallery.pictures) == (6, {})
