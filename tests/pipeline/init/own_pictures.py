"""Somebody's pictures with English captions, in each form that `init` reads, and small networks for them."""

import json
import random
from pathlib import Path

import torch
from PIL import Image
from torch import nn
from transformers import ViTConfig, ViTImageProcessor, ViTModel

from data.captions.table import Caption
from data.corpora.scenes.corpus import ScenesSettings, read
from pipeline.cli import main
from pipeline.recipes.loading import load_recipe
from pipeline.recipes.settings import Recipe
from tests.data.layouts import sentence
from tests.pipeline.tiny import at

SIDE = 48  # pixels of the small ViT
COUNT = 30  # pictures of most tests


def run(work: Path, *words: str) -> int:
    """A command in a folder."""
    work.mkdir(exist_ok=True)
    with at(work):
        return main(list(words))


def made(work: Path, *words: str) -> Recipe:
    """The recipe that `init` writes, and whose corpus is prepared."""
    assert run(work, "init", *words, "--output", "made.yaml") == 0
    assert run(work, "prepare", "./made.yaml") == 0
    with at(work):
        return load_recipe("./made.yaml")


def captions_of(work: Path) -> dict:
    """Figures of the prepared corpus."""
    (found,) = (work / "artifacts" / "jobs" / "corpus").glob("*/manifest.json")
    return json.loads(found.read_text())["metrics"]


def refused(work: Path, capsys, *words: str) -> str:
    """The one line that `init` says."""
    capsys.readouterr()
    assert run(work, "init", *words) == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("error: ")
    assert not list(work.glob("*.yaml"))
    return line


def draw_pictures(folder: Path, count: int) -> dict[str, str]:
    """Coloured pictures; name → an English caption."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        image = Image.new("RGB", (40 + number % 3, 30), (6 * number % 256, 90, (250 - 6 * number) % 256))
        image.paste((250, 250, 6 * number % 256), (number % 20, 5, number % 20 + 10, 20))
        image.save(folder / f"{number}.png")
    return {f"{number}.png": sentence(str(number), 1) for number in range(count)}


def write_tsv(path: Path, captions: dict[str, str], *columns: str) -> None:
    """Lines `picture TAB caption`, with further columns behind."""
    path.write_text("".join("\t".join([*one, *columns]) + "\n" for one in captions.items()), encoding="utf-8")


def write_coco(path: Path, captions: dict[str, str]) -> None:
    """COCO's form: two captions an image."""
    images = [{"id": 7 + number, "file_name": name} for number, name in enumerate(captions)]
    annotations = [
        {"id": 2 * place + k, "image_id": 7 + place, "caption": f"{text}{' again' * k}"}
        for place, text in enumerate(captions.values()) for k in (0, 1)
    ]  # fmt: skip
    path.write_text(json.dumps({"info": {}, "images": images, "annotations": annotations}), encoding="utf-8")


def write_karpathy_form(path: Path, captions: dict[str, str]) -> None:
    """Karpathy's form; of ten images one is for validation and one for the test."""
    splits = ["val", "test", *["train"] * 8]
    images = [{"filename": name, "split": splits[place % 10], "imgid": place, "sentences": [{"raw": text}]}
              for place, (name, text) in enumerate(captions.items())]  # fmt: skip
    path.write_text(json.dumps({"images": images, "dataset": "mine"}), encoding="utf-8")


def write_scenes(folder: Path, count: int) -> list[Caption]:
    """Rendered scenes in `folder/pictures` and their English captions in `folder/captions.tsv`."""
    settings = ScenesSettings(train=count, retrieval=count, validation=1, test=1, twins=0, text_pairs=0)
    corpus = read(settings, None, folder)
    found = [one for one in corpus.captions if one.split == "train" and one.language == "en"]
    lines = [f"{corpus.pictures[one.image_id].name}\t{one.text}\n" for one in found]
    (folder / "captions.tsv").write_text("".join(lines), encoding="utf-8")
    return found


def trained_backbone(folder: Path, scenes: Path, captions: list[Caption], steps: int) -> Path:
    """A small ViT that has learned which words the captions of pictures have, saved with its image processor."""
    random.seed(0)
    torch.manual_seed(0)
    read_picture = ViTImageProcessor(size={"height": SIDE, "width": SIDE})
    names = sorted({one.image_id for one in captions})
    places = {path.stem: path for path in scenes.rglob("*.png")}
    pictures = [Image.open(places[name]).convert("RGB") for name in names]
    pixels = read_picture(pictures, return_tensors="pt")["pixel_values"]
    words = sorted({word for one in captions for word in one.text.split()})
    wanted = torch.zeros(len(names), len(words))
    for one in captions:
        for word in one.text.split():
            wanted[names.index(one.image_id), words.index(word)] = 1
    config = ViTConfig(hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=2,
                       image_size=SIDE, patch_size=8)  # fmt: skip
    model, head = ViTModel(config, add_pooling_layer=False), nn.Linear(48, len(words))
    optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], lr=2e-3)
    for _ in range(steps):
        some = torch.randint(len(names), (32,))
        logits = head(model(pixel_values=pixels[some]).last_hidden_state[:, 1:].amax(1))
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(logits, wanted[some]).backward()
        optimizer.step()
    model.save_pretrained(folder)
    read_picture.save_pretrained(folder)
    return folder
