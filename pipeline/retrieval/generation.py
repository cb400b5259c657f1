"""The captions that a trained retrieval model with a decoder writes."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from data.pictures.regions import RegionStore
from data.text.text_inputs import TextInput, WordVocabulary
from modules.retrieval_models import RetrievalModel
from modules.retrieval_models.generated import written_tokens
from modules.translators.beam import BeamSettings
from pipeline.recipes.trainer_settings import TrainerSettings
from pipeline.training.model_files import device_of, load_model

_READ = 256  # images at a time


def written_captions(
    model: RetrievalModel, text: TextInput, regions: NDArray[np.floating], language: str, search: BeamSettings
) -> list[str]:
    """The caption of each image, a surface sentence, which may be empty; `text` is what the model reads words with.

    Raises:
        ModelError: the model has no decoder.
    """
    captions = written_tokens(model, regions, language, search)
    assert isinstance(text, WordVocabulary)  # a decoder has word vectors
    return [text.decode(tokens, language) for tokens in captions]


def captions_of_corpus(
    folder: Path, store: RegionStore, images: Sequence[str], languages: Sequence[str], search: BeamSettings,
    trainer: TrainerSettings,
) -> dict[str, dict[str, str]]:  # fmt: skip
    """Language → image id → the caption that a trained model writes, which may be empty.

    Args:
        folder: of the job that trained the model.
        store: what the model reads of images (`images_in`).
        images: their ids; those without regions are left out.
        trainer: whether a GPU may be used.

    Raises:
        RecipeError: the folder holds no model.
    """
    model, text = load_model(folder)
    model, kept = model.to(device_of(trainer)), [image for image in images if image in store]
    written: dict[str, dict[str, str]] = {language: {} for language in languages}
    for start in range(0, len(kept), _READ):
        some = kept[start : start + _READ]
        regions = store.take(store.rows(some))
        for language, captions in written.items():
            captions.update(zip(some, written_captions(model, text, regions, language, search), strict=True))
    return written
