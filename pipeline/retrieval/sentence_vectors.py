"""The job that computes the sentence vectors of a caption table, once for all rows and seeds that read it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from data.captions import read_captions
from data.sentence_vectors import KnownSentences, compute_vectors
from data.text import PretrainedTokens
from modules.pretrained import SentenceVectors
from pipeline.jobs.job import Job
from pipeline.recipes.settings import TrainerSettings, VseSettings

VERSION = 1
_INPUT = "sentences-"


def sentence_jobs(settings: VseSettings, model_files: str | None, tables: Mapping[str, Job]) -> dict[str, Job]:
    """What a training reads beside its caption tables: a job for each of them; none without sentence vectors.

    Args:
        settings: with `pretrained`.
        model_files: a digest of the text model's files; None for a name on the hub.
        tables: the jobs that leave the caption tables (`captions.parquet`), by the names of a training's inputs.

    Returns:
        input `sentences-<name of the table>` → job.
    """
    if settings.pretrained is None or settings.pretrained_vectors != "sentences":
        return {}
    return {f"{_INPUT}{name}": _vectors_job(settings, model_files, table) for name, table in tables.items()}


def known_sentences(tokens: PretrainedTokens, inputs: Mapping[str, Path]) -> KnownSentences | PretrainedTokens:
    """The text input of a training that looks sentences up; `tokens` itself if there are none to look up.

    Raises:
        DataError: a folder of vectors is damaged.
    """
    folders = [folder for name, folder in inputs.items() if name.startswith(_INPUT)]
    return KnownSentences(tokens, folders) if folders else tokens


def _vectors_job(settings: VseSettings, model_files: str | None, table: Job) -> Job:
    name, layer = str(settings.pretrained), settings.pretrained_layer

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Encode every different sentence, and leave the vectors."""
        texts = read_captions(inputs["captions"] / "captions.parquet")["text"][:]
        tokens, model, device = PretrainedTokens(name), SentenceVectors(name, layer), _device(settings.trainer)

        def encode(batch: torch.Tensor) -> NDArray[np.float32]:
            """Vectors (B, E) of tokens (B, L)."""
            vectors: NDArray[np.float32] = model.encode(batch.to(device)).cpu().numpy()
            return vectors

        count = compute_vectors(texts, tokens, encode, folder, folder / "checkpoints")
        return {"sentences": count, "dim": model.embedding_dim}

    plain = {"pretrained": model_files or name, "layer": layer, "pooling": "mean"}
    return Job(
        f"sentences-{table.name}", "vse", VERSION, plain, {"captions": table}, run,
        headline=lambda figures: f"vectors of {figures['sentences']:,} sentences",
    )  # fmt: skip


def _device(settings: TrainerSettings) -> torch.device:
    """A GPU if the recipe allows one and there is one."""
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    return torch.device("cuda" if settings.accelerator != "cpu" and torch.cuda.is_available() else "cpu")
