"""TensorBoard's view of the joint space: the embedding projector."""

from contextlib import redirect_stdout
from typing import Any, ClassVar

import pytorch_lightning as pl
import torch
from torch.utils.tensorboard import SummaryWriter

from pipeline.visualization.dashboards import QueryGallery

_MOST = 200  # images, and captions of a language
_FEWEST = 50  # points
IMAGES = "images"


class JointSpace(QueryGallery):
    """After testing, writes vectors of images and captions to TensorBoard; only for models of one vector an item."""

    needs_pictures: ClassVar[bool] = False

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Nothing: the space is shown once, after testing."""

    def _show(self, board: SummaryWriter, module: Any, step: int) -> None:
        if module.model.score != "inner product":
            return
        vectors = [self._encoded_images(module, self.rows[:_MOST])[0][:, 0].float().cpu()]
        labels = [(IMAGES, name) for name in self.image_ids[:_MOST]]
        for language, captions in self.captions.items():
            vectors.append(self._encoded(module, captions[:_MOST])[0][:, 0].float().cpu())
            labels += [(language, caption.text) for caption in captions[:_MOST]]
        if len(labels) < _FEWEST:
            return
        rows = [[kind, " ".join(text.split())] for kind, text in labels]
        heads = ["language", "text"]
        with redirect_stdout(None):  # torch warns there of a folder of an earlier run, which it replaces
            board.add_embedding(torch.cat(vectors), rows, tag="joint space", metadata_header=heads, global_step=step)
