"""A small ResNet of `transformers`, pre-trained to find the words of training captions in the pictures of a recipe.

It stands for the networks that others pre-train, which cannot be loaded everywhere (`vse.image_encoder`):

    python -m tests.benchmarks.resnet FOLDER scenes-gxn
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits
from transformers import ConvNextImageProcessorPil, ResNetConfig, ResNetModel

from data.captions.table import read_captions, references_of
from data.pictures.pixels import PixelStore, write_pixels
from pipeline.corpus.prepare import corpus_job, pictures_of
from pipeline.engine.workspace import Workspace
from pipeline.recipes.loading import load_recipe

SIZE, BATCH, EPOCHS, RATE, LEAST = 128, 64, 12, 2e-3, 50
"""Pixels, pictures of a step, epochs, Adam's highest learning rate, images that a word must be said of."""


def main(folder: Path, recipe_name: str, *overrides: str) -> None:
    """Train it and write it into a folder."""
    recipe = load_recipe(recipe_name, list(overrides))
    workspace = Workspace()
    corpus = workspace.folder(corpus_job(recipe, workspace))
    labels = _words(corpus, recipe.vse.select[0])
    torch.manual_seed(recipe.seed)
    network = ResNetModel(ResNetConfig(embedding_size=32, hidden_sizes=[32, 64, 96, 128], depths=[1] * 4,
                                       layer_type="basic"))  # fmt: skip
    with tempfile.TemporaryDirectory() as pictures:
        write_pixels(Path(pictures), pictures_of(corpus), list(labels), SIZE, "name another recipe")
        loss = _train(network, PixelStore(Path(pictures)), labels, recipe.seed)
    network.save_pretrained(folder)
    ConvNextImageProcessorPil(size={"shortest_edge": SIZE}).save_pretrained(folder)
    print(f"{folder}: ResNet, {len(labels):,} pictures, {len(next(iter(labels.values())))} words, last loss {loss:.3f}")


def _words(corpus: Path, language: str) -> dict[str, Tensor]:
    """Training image → which of the frequent words its human captions have (W,), as 0 or 1."""
    captions = references_of(read_captions(corpus / "captions.parquet"), language, "train")
    said = {image: {word for caption in several for word in caption} for image, several in captions.items()}
    words, counts = np.unique([word for one in said.values() for word in one], return_counts=True)
    kept = words[(counts >= LEAST) & (counts < 0.9 * len(said))].tolist()
    return {image: torch.tensor([float(word in one) for word in kept]) for image, one in said.items()}


def _train(network: ResNetModel, pictures: PixelStore, labels: dict[str, Tensor], seed: int) -> float:
    """Learn with a linear layer on the mean of the feature map; the mean loss of the last epoch."""
    images, order = list(labels), torch.Generator().manual_seed(seed)
    known = torch.stack(list(labels.values()))
    head = torch.nn.Linear(network.config.hidden_sizes[-1], known.shape[1])
    optimizer = torch.optim.Adam([*network.parameters(), *head.parameters()], lr=RATE)
    steps = len(images) // BATCH
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, EPOCHS * steps)
    read = ConvNextImageProcessorPil()
    mean, deviation = (torch.tensor(one).view(3, 1, 1) for one in (read.image_mean, read.image_std))
    network.train()
    for epoch in range(EPOCHS):
        losses = []
        for rows in torch.randperm(len(images), generator=order)[: steps * BATCH].split(BATCH):
            pixels = torch.from_numpy(pictures.pixels_of([images[row] for row in rows.tolist()])) / 255
            states = network(pixel_values=(pixels - mean) / deviation).last_hidden_state.mean((2, 3))
            loss = binary_cross_entropy_with_logits(head(states), known[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(float(loss.detach()))
        print(f"epoch {epoch + 1} of {EPOCHS}, loss {np.mean(losses):.3f}", flush=True)
    return float(np.mean(losses))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
