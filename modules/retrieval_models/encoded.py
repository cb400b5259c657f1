"""Images by their regions, and sentences by their texts, as a retrieval model encodes them."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from modules.retrieval_models.base import RetrievalModel
from modules.search.encodings import Encoding, Encodings

_BATCH = 128
Encode = Callable[[str, str], list[int]]
"""A text input's: a sentence and its language -> token numbers."""


def encoded_images(model: RetrievalModel, regions: NDArray[np.floating]) -> Encoding:
    """Images by their regions (N, R, D), all of which are real, or by pictures (N, 1, 3·S²)."""
    seen = torch.from_numpy(regions).to(device_of(model)).float()
    return model.encode_images(*model.see(seen, seen.new_ones(seen.shape[:2], dtype=torch.bool)))


def all_images(model: RetrievalModel, regions: NDArray[np.floating], batch: int = _BATCH) -> Encodings:
    """Images as above, a batch at a time, on the CPU."""
    with torch.no_grad():
        starts = range(0, len(regions), batch)
        encoded = (encoded_images(model, regions[start : start + batch].astype(np.float32)) for start in starts)
        return Encodings.joined([Encodings.of((vectors.cpu(), mask.cpu())) for vectors, mask in encoded])


def encoded_captions(model: RetrievalModel, encode: Encode, sentences: Sequence[tuple[str, str]]) -> Encoding:
    """Sentences, each a text and its language."""
    return model.encode_sentences([encode(*sentence) for sentence in sentences], [one for _, one in sentences])


def sorted_captions(model: RetrievalModel, encode: Encode, sentences: Sequence[tuple[str, str]]) -> Encodings:
    """Sentences as above, in batches of similar length and on the CPU; in the order that they are given in."""
    tokens = {sentence: encode(*sentence) for sentence in dict.fromkeys(sentences)}
    order = sorted(range(len(sentences)), key=lambda place: len(tokens[sentences[place]]))
    parts: list[Encodings] = []
    with torch.no_grad():
        for start in range(0, len(order), _BATCH):
            some = [sentences[place] for place in order[start : start + _BATCH]]
            vectors, mask = encoded_captions(model, lambda *sentence: tokens[sentence], some)
            parts.append(Encodings.of((vectors.cpu(), mask.cpu())))
        return Encodings.joined(parts).select(torch.tensor(order, dtype=torch.long).argsort())


def one_vector_each(encoding: Encoding) -> NDArray[np.floating]:
    """Vectors (N, H): the mean of an item's vectors, where it has several."""
    vectors, mask = encoding
    shares = mask / mask.sum(1, keepdim=True)
    mean: Tensor = (vectors.detach().float() * shares[..., None]).sum(1)
    return mean.cpu().numpy()


def device_of(model: RetrievalModel) -> torch.device:
    """Where a model's weights are."""
    return next(model.parameters()).device
