"""Scores of generated captions against all captions of their image, and of floors, which need no decoder."""

from pathlib import Path

import numpy as np
import torch
from datasets import Dataset as Table
from torch import Tensor

from data.captions import read_captions
from data.regions import RegionStore
from modules.caption_metrics import CaptionScores, caption_scores, most_frequent_caption, nearest_images
from modules.cider import CiderD, document_frequencies
from pipeline.errors import RecipeError
from pipeline.retrieval.references import references_of

NEAREST, FREQUENT = "caption of the nearest training image", "most frequent training caption"
_BLOCK = 1024


def caption_floors(corpus: Path, language: str, split: str = "test") -> dict[str, CaptionScores]:
    """Score two floors as `generated_scores` scores generated captions.

    The nearest training image is that of the highest cosine of the mean regions, and its caption is its first one. The
    most frequent caption is the same for every image.

    Args:
        corpus: folder of the job that prepared it.
        language: of the captions.
        split: whose images get a caption.

    Returns:
        `NEAREST` and `FREQUENT` → scores, images in the order of the caption table.

    Raises:
        RecipeError: the language has no human caption in training, or in the split.
    """
    captions, store = read_captions(corpus / "captions.parquet"), RegionStore(corpus / "regions", check_values=False)
    training, tested = (_require(references_of(captions, language, one), language, one) for one in ("train", split))
    images = list(tested)
    rows = nearest_images(_mean_regions(store, images), _mean_regions(store, list(training)))
    known = list(training.values())
    frequent = most_frequent_caption(words for of_image in known for words in of_image)
    written = {NEAREST: [known[row][0] for row in rows.tolist()], FREQUENT: [frequent] * len(images)}
    return {
        name: generated_scores(captions, language, dict(zip(images, found, strict=True)), split)
        for name, found in written.items()
    }


def generated_scores(
    captions: Table, language: str, generated: dict[str, list[str]], split: str = "test"
) -> CaptionScores:
    """Score a generated caption of each image against all human captions of the image.

    Args:
        captions: the caption table.
        language: of the captions.
        generated: image id → words, as `data.text.plain_words` has them; an empty caption scores 0.
        split: of the images.

    Raises:
        RecipeError: the language has no human training caption, or an image no human caption of it in the split.
    """
    references = references_of(captions, language, split)
    if lacking := [image_id for image_id in generated if image_id not in references]:
        raise RecipeError(
            f"{len(lacking)} images with a generated caption have no human {language!r} caption in {split}, first "
            f"{lacking[0]!r}; leave them out"
        )
    documents = _require(references_of(captions, language, "train"), language, "train")
    metric = CiderD([references[image_id] for image_id in generated], document_frequencies(documents.values()))
    return caption_scores(list(generated.values()), metric, range(len(generated)))


def _require(found: dict[str, list[list[str]]], language: str, split: str) -> dict[str, list[list[str]]]:
    """The captions by image, if there are any."""
    if not found:
        raise RecipeError(
            f"no human caption in {language!r} in {split} to compare generated captions with; take another language"
        )
    return found


def _mean_regions(store: RegionStore, images: list[str]) -> Tensor:
    """The mean of each image's regions, (I, D)."""
    rows = store.rows(images)
    blocks = np.split(rows, range(_BLOCK, len(rows), _BLOCK))
    return torch.cat([torch.from_numpy(store.take(block).astype(np.float32)).mean(dim=1) for block in blocks])
