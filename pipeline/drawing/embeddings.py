"""TensorBoard's view of the joint space: the embedding projector, and a t-SNE plot, coloured by language."""

from typing import Any, ClassVar

import numpy as np
import pytorch_lightning as pl
import torch
from torch.utils.tensorboard import SummaryWriter

from pipeline.drawing.dashboards import QueryGallery
from pipeline.drawing.plots import as_pixels, scatter

_MOST = 200  # images, and captions of a language
_FEWEST = 50  # points in the plot
IMAGES = "images"


class JointSpace(QueryGallery):
    """After testing, writes vectors of images and captions to TensorBoard; only for models of one vector an item."""

    needs_pictures: ClassVar[bool] = False

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Nothing: the space is drawn once, after testing."""

    def _show(self, board: SummaryWriter, module: Any, step: int) -> None:
        if module.model.score != "inner product":
            return
        groups = {IMAGES: self._encoded_images(module, self.rows[:_MOST])[0][:, 0].float().cpu()}
        labels = [(IMAGES, name) for name in self.image_ids[:_MOST]]
        for language, captions in self.captions.items():
            groups[language] = self._encoded(module, captions[:_MOST])[0][:, 0].float().cpu()
            labels += [(language, one.text) for one in captions[:_MOST]]
        vectors = torch.cat(list(groups.values()))
        if len(vectors) < _FEWEST:
            return
        rows = [[kind, " ".join(text.split())] for kind, text in labels]
        board.add_embedding(vectors, rows, tag="joint space", metadata_header=["language", "text"], global_step=step)
        places, start = t_sne(vectors.numpy()), 0
        shown = {}
        for name, group in groups.items():
            shown[name], start = places[start : start + len(group)], start + len(group)
        plot = as_pixels(scatter("t-SNE of test images and captions", shown))
        board.add_image("joint space/t-SNE", plot, step, dataformats="HWC")


def t_sne(vectors: np.ndarray) -> np.ndarray:
    """t-SNE (van der Maaten and Hinton 2008): positions (N, 2) of vectors (N, H), with a fixed seed."""
    from sklearn.manifold import TSNE

    reduced = TSNE(init="pca", random_state=0, perplexity=min(30.0, (len(vectors) - 1) / 3)).fit_transform(vectors)
    return np.asarray(reduced)
