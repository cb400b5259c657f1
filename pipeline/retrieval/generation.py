"""What a trained retrieval model generates: captions by its decoder, pictures by its generator."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from data.padding import pad
from data.regions import RegionStore
from data.text_inputs import TextInput, WordVocabulary
from modules.retrieval_models import RetrievalModel
from modules.translators.beam import BeamSettings
from pipeline.recipes.trainer_settings import TrainerSettings
from pipeline.training.model_files import device_of, load_model

_BATCH = 256  # images, or sentences


def written_captions(
    model: RetrievalModel, text: TextInput, regions: NDArray[np.floating], language: str, search: BeamSettings
) -> list[str]:
    """The caption of each image, a surface sentence, which may be empty.

    Args:
        model: has a decoder.
        text: what it reads words with.
        regions: (N, R, D), or pictures (N, 1, 3·S²), as the model is given them.
        language: of the captions, one of the model's.
        search: how words are chosen.

    Raises:
        ModelError: the model has no decoder.
    """
    device, captions = next(model.parameters()).device, list[str]()
    for start in range(0, len(regions), _BATCH):
        some = torch.from_numpy(regions[start : start + _BATCH].astype(np.float32)).to(device)
        languages = torch.full((len(some),), model.languages.index(language), device=device)
        with torch.no_grad():
            tokens = model.write_captions(*model.see(some, some.new_ones(some.shape[:2]).bool()), languages, search)
        assert isinstance(text, WordVocabulary)  # a decoder has word vectors
        captions += [text.decode(sentence, language) for sentence in tokens]
    return captions


def captions_of_corpus(
    folder: Path, store: RegionStore, images: Sequence[str], languages: Sequence[str], search: BeamSettings,
    trainer: TrainerSettings,
) -> dict[str, dict[str, str]]:  # fmt: skip
    """Language → image id → the caption that a trained model writes, which may be empty.

    Args:
        folder: of the job that trained the model.
        store: what the model reads of images (`images_in`).
        images: their ids; those without regions are left out.
        languages: of the captions.
        search: how words are chosen.
        trainer: whether a GPU may be used.

    Raises:
        RecipeError: the folder holds no model.
    """
    model, text = load_model(folder)
    model, kept = model.to(device_of(trainer)), [image for image in images if image in store]
    written: dict[str, dict[str, str]] = {language: {} for language in languages}
    for start in range(0, len(kept), _BATCH):
        some = kept[start : start + _BATCH]
        regions = store.take(store.rows(some))
        for language, captions in written.items():
            captions.update(zip(some, written_captions(model, text, regions, language, search), strict=True))
    return written


def drawn_pictures(
    model: RetrievalModel, text: TextInput, sentences: Sequence[tuple[str, str]], seed: int
) -> NDArray[np.uint8]:
    """The picture of each sentence, (N, 3, S, S).

    Args:
        model: has a generator of pictures.
        text: what it reads words with.
        sentences: one or more, each a text and its language, one of the model's.
        seed: of the noise; each picture has its own.

    Raises:
        ModelError: the model draws no pictures.
    """
    device, pictures = next(model.parameters()).device, list[NDArray[np.uint8]]()
    for start in range(0, len(sentences), _BATCH):
        some = sentences[start : start + _BATCH]
        numbers = [text.encode(*sentence) for sentence in some]
        languages = torch.tensor([model.languages.index(language) for _, language in some])
        lengths = torch.tensor([len(tokens) for tokens in numbers])
        drawn = model.draw_images(pad(numbers).to(device), lengths, languages.to(device), seed + start // _BATCH)
        pictures.append(((drawn.cpu().numpy() + 1) * 127.5).round().clip(0, 255).astype(np.uint8))
    return np.concatenate(pictures)
