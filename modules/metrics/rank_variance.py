"""How unequally a picture is found in different languages: the variance of its rank across them."""

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from modules.metrics.intervals import Interval, mean_interval
from modules.metrics.retrieval import RetrievalRanks


def rank_variances(ranks: Mapping[str, RetrievalRanks]) -> Tensor:
    """Return, for each image, the variance over languages of the rank at which its captions find it.

    The mean rank variance of Nie et al. (2024, CCRK) is its mean over images. An image's rank in a language is that of
    its first caption in that language, so that languages with more captions have no steadier ranks; the variance is
    that of the K languages themselves (divided by K).

    Args:
        ranks: language → ranks of the same gallery of images.

    Returns:
        (N,) of the N images that have a caption in every language, in float64; 0 where it is found equally well.

    Examples:
        >>> first = torch.tensor([1, 1])
        >>> found = {"en": torch.tensor([1, 4]), "de": torch.tensor([3, 4])}
        >>> ranks = {language: RetrievalRanks(rank, first, torch.arange(2)) for language, rank in found.items()}
        >>> rank_variances(ranks).tolist(), tuple(mean_rank_variance([ranks]))  # the mean and its interval
        ([1.0, 0.0], (0.5, 0.0, 1.0))
    """
    first = []
    for results in ranks.values():
        images, captions = len(results.image_to_text), len(results.caption_image)
        place = torch.full((images,), captions)  # of an image's first caption; behind all of them: it has none
        place.scatter_reduce_(0, results.caption_image, torch.arange(captions), "amin")
        first.append(F.pad(results.text_to_image.double(), (0, 1))[place])  # 0: no caption
    together = torch.stack(first)
    return together[:, (together > 0).all(0)].var(0, correction=0)


def mean_rank_variance(
    runs: Sequence[Mapping[str, RetrievalRanks]], resamples: int = 1000, seed: int = 0
) -> Interval | None:
    """Return the mean rank variance over images and runs, with its 95 % interval as `mean_interval` computes it.

    Args:
        runs: of each seed, language → ranks; the same images in each.
        resamples: of the images.
        seed: of the resampling.

    Returns:
        None where no image has a caption in every language.
    """
    values = [rank_variances(ranks) for ranks in runs]
    return mean_interval(values, resamples, seed=seed, least=0) if len(values[0]) else None
