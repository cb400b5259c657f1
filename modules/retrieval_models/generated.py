"""What a trained retrieval model generates: captions by its decoder, pictures by its generator."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from modules.retrieval_models.base import RetrievalModel
from modules.retrieval_models.encoded import Encode, device_of
from modules.translators.beam import BeamSettings

_BATCH = 256  # images, or sentences


def written_tokens(
    model: RetrievalModel, regions: NDArray[np.floating], language: str, search: BeamSettings
) -> list[list[int]]:
    """Return the caption of each image as token numbers.

    Args:
        model: has a decoder.
        regions: (N, R, D), or pictures (N, 1, 3·S²), as the model is given them.
        language: of the captions, one of the model's.
        search: how words are chosen.

    Raises:
        ModelError: the model has no decoder.
    """
    captions: list[list[int]] = []
    for start in range(0, len(regions), _BATCH):
        some = torch.from_numpy(regions[start : start + _BATCH].astype(np.float32)).to(device_of(model))
        languages = torch.full((len(some),), model.languages.index(language), device=some.device)
        with torch.no_grad():
            seen = model.see(some, some.new_ones(some.shape[:2]).bool())
            captions += model.write_captions(*seen, languages, search)
    return captions


def drawn_pictures(
    model: RetrievalModel, encode: Encode, sentences: Sequence[tuple[str, str]], seed: int
) -> NDArray[np.uint8]:
    """Return the picture of each sentence, (N, 3, S, S).

    Args:
        model: has a generator of pictures.
        encode: of what it reads words with.
        sentences: one or more, each a text and its language, one of the model's.
        seed: of the noise; each picture has its own.

    Raises:
        ModelError: the model draws no pictures.
    """
    pictures: list[NDArray[np.uint8]] = []
    for start in range(0, len(sentences), _BATCH):
        some = sentences[start : start + _BATCH]
        read = [encode(*sentence) for sentence in some]
        tokens, lengths, languages = model.tensors_of(read, [language for _, language in some])
        drawn = model.draw_images(tokens, lengths, languages, seed + start // _BATCH)
        pictures.append(((drawn.cpu().numpy() + 1) * 127.5).round().clip(0, 255).astype(np.uint8))
    return np.concatenate(pictures)
