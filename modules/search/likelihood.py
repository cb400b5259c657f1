"""Ranks by log p(caption | image): a model's own decoder reorders the first results of the model."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from modules.metrics.retrieval import RetrievalRanks, require_finite
from modules.retrieval_models.base import RetrievalModel
from modules.search.reranking import FirstLists, listed_scores, ranks_in_lists

EQUAL = 5e-5
"""Scores of the same caption and image differ by less, with the other captions of their batch."""


class CaptionLikelihood:
    """log p(caption | image) of sentences in one language, by a model that writes captions.

    Args:
        model: has a decoder.
        take: numbers of images (B,) on the CPU → what the model is given of them, (B, R, D).
        sentences: the captions as token numbers.
        language: theirs, one of the model's.
        block: pairs at a time, which limits memory to block · (longest caption) · V numbers.
    """

    def __init__(
        self, model: RetrievalModel, take: Callable[[Tensor], Tensor], sentences: Sequence[Sequence[int]],
        language: str, block: int = 512,
    ) -> None:  # fmt: skip
        self.model, self.take, self.sentences, self.language, self.block = model, take, sentences, language, block

    @torch.no_grad()
    def of_pairs(self, images: Tensor, captions: Tensor) -> Tensor:
        """Return log p (P,) of pairs: numbers of images (P,) and rows of captions (P,).

        Images are read once for each block that they stand in, so give pairs in the order of images.

        Raises:
            ModelError: one is not finite, or the model has no decoder.
        """
        likelihoods, device = [], next(self.model.parameters()).device
        for some, rows in zip(images.cpu().split(self.block), captions.cpu().split(self.block), strict=True):
            keys, index = some.unique(return_inverse=True)
            given = self.take(keys).to(device)
            seen = self.model.see(given, given.new_ones(given.shape[:2]).bool())
            tensors = self.model.tensors_of([self.sentences[row] for row in rows.tolist()], self.language)
            scores = self.model.caption_likelihoods(*seen, index.to(device), *tensors)
            if len(wrong := (~scores.isfinite()).nonzero()):
                place = wrong[0].cpu()
                require_finite(scores[place][None], some[place], rows[place])
            likelihoods.append(scores)
        return torch.cat(likelihoods)

    def of_captions(self, images: Tensor) -> Tensor:
        """Return log p (C,) of each caption: of its mean probability given these images (N,)."""
        count = len(self.sentences)
        rows = torch.arange(count).repeat(len(images))
        scores = self.of_pairs(images.repeat_interleave(count), rows).view(len(images), count)
        return scores.double().logsumexp(0) - math.log(len(images))


def likelihood_ranks(
    likelihood: CaptionLikelihood, first: FirstLists, images: Tensor, sample: Tensor
) -> RetrievalRanks:
    """Rank the first k results by log p(c | i) / p(c); whatever is not among them keeps its rank.

    log p(c | i) alone would give every image the captions that are likely of any image. So it is compared with p(c),
    the mean of p(c | i) over some training images, as m-RNN does (Mao et al. 2015). For the images of one caption that
    is the order of log p(c | i).

    Args:
        likelihood: of the captions of the lists.
        first: the lists, of I images and C captions.
        images: (I,) numbers of the lists' images, by which `likelihood` takes them.
        sample: (N,) numbers of the training images.

    Raises:
        ModelError: a likelihood is not finite.
    """
    usual = likelihood.of_captions(sample).cpu()

    def score(rows: Tensor, columns: Tensor) -> Tensor:
        """Of listed pairs."""
        return likelihood.of_pairs(images[rows], columns).double().cpu() - usual[columns]

    return ranks_in_lists(first, *listed_scores(score, first, torch.device("cpu")), EQUAL)
