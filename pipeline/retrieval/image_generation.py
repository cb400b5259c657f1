"""Pictures that a trained retrieval model with a generator draws of sentences."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from data.padding import pad
from data.text import TextInput
from modules.retrieval_models import RetrievalModel

_BATCH = 256  # sentences


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
    device, found = next(model.parameters()).device, list[NDArray[np.uint8]]()
    for start in range(0, len(sentences), _BATCH):
        some = sentences[start : start + _BATCH]
        numbers = [text.encode(*one) for one in some]
        languages = torch.tensor([model.languages.index(language) for _, language in some])
        lengths = torch.tensor([len(one) for one in numbers])
        drawn = model.draw_images(pad(numbers).to(device), lengths, languages.to(device), seed + start // _BATCH)
        found.append(((drawn.cpu().numpy() + 1) * 127.5).round().clip(0, 255).astype(np.uint8))
    return np.concatenate(found)
