"""A translator whose n-best lists are put in another order, by a weighted sum of features of each translation."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from modules.errors import ModelError
from modules.retrieval_models.base import RetrievalModel
from modules.search.encodings import Encoding, Encodings
from modules.translators.beam import BeamSettings, Hypothesis
from modules.translators.noisy_channel import Channel

Batch = Mapping[str, Tensor]
Found = Sequence[Sequence[Hypothesis]]
Values = list[list[float]]
Read = Callable[[Sequence[int]], Sequence[int]]
_KEPT = 50_000  # encoded translations that are kept
_BLOCK = 256  # translations encoded at once


class LogProbability(nn.Module):
    """The score of the search: the length-normalised log-probability log p(y|x) / |y|^α."""

    def forward(self, batch: Batch, found: Found) -> Values:
        """Return the value of each hypothesis."""
        return [[hypothesis.score for hypothesis in best] for best in found]


class Length(nn.Module):
    """The number of words of a translation.

    Args:
        words: counts those of token ids.
    """

    def __init__(self, words: Callable[[Sequence[int]], int]) -> None:
        super().__init__()
        self.words = words

    def forward(self, batch: Batch, found: Found) -> Values:
        """Return the value of each hypothesis."""
        return [[float(self.words(hypothesis.tokens)) for hypothesis in best] for best in found]


class Similarity(nn.Module):
    """The similarity of a translation to a picture, s(target, image), or to its source, s(target, source).

    A sentence without a picture (all regions zero) has 0 for all of its translations, so that the feature does not
    affect their order. Each distinct translation is encoded once.

    Args:
        model: a trained retrieval model.
        subject: which tensor of a batch: `regions` (the sentence's own picture), `other_regions` (another one, as a
            control), or `source`.
        read: converts a translation from the translator's token ids to the model's.
        language: of the translations.
        read_source: the same for a source sentence; only for `source`.
        source: language of the source sentences.

    Raises:
        ModelError: the model does not know a language.
    """

    def __init__(
        self, model: RetrievalModel, subject: str, read: Read, language: str, read_source: Read | None = None,
        source: str = "",
    ) -> None:  # fmt: skip
        super().__init__()
        for name in (language, *([source] if subject == "source" else [])):
            if name not in model.languages:
                raise ModelError(f"a retrieval model of {', '.join(model.languages)} scores translations in {name!r}; "
                                 "expected one of its languages")  # fmt: skip
        self.model, self.subject, self.read, self.language = model, subject, read, language
        self.read_source, self.source = read_source, source
        self._kept: dict[tuple[int, ...], Tensor] = {}

    @torch.no_grad()
    def forward(self, batch: Batch, found: Found) -> Values:
        """Return the value of each hypothesis."""
        with torch.autocast(batch["source"].device.type, enabled=False):
            items, real = self._items(batch)
            values = []
            for number, best in enumerate(found):
                if not best or not real[number]:
                    values.append([0.0] * len(best))
                    continue
                item = (items[0][number : number + 1], items[1][number : number + 1])
                values.append(self._scores(item, self._translations(best))[0].tolist())
            return values

    def _items(self, batch: Batch) -> tuple[Encoding, list[bool]]:
        """Return the encodings of the batch's pictures or source sentences, and which of them there are."""
        if self.subject == "source":
            assert self.read_source is not None
            lengths = batch["source_lengths"].tolist()
            rows = [row[:length] for row, length in zip(batch["source"].tolist(), lengths, strict=True)]
            encoding = self.model.encode_sentences([self.read_source(row) for row in rows], self.source)
            return encoding, [True] * len(rows)
        regions = batch[self.subject].float()
        mask = torch.ones(regions.shape[:2], dtype=torch.bool, device=regions.device)
        return self.model.encode_images(regions, mask), regions.flatten(1).any(1).tolist()

    def _translations(self, best: Sequence[Hypothesis]) -> Encoding:
        """Return the encodings of a sentence's translations."""
        read = [tuple(self.read(hypothesis.tokens)) for hypothesis in best]
        fresh = [tokens for tokens in dict.fromkeys(read) if tokens not in self._kept]
        if len(self._kept) + len(fresh) > _KEPT:
            self._kept.clear()
            fresh = list(dict.fromkeys(read))
        for start in range(0, len(fresh), _BLOCK):
            some = fresh[start : start + _BLOCK]
            encoded = Encodings.of(self.model.encode_sentences(some, self.language)).parts()
            self._kept |= dict(zip(some, encoded, strict=True))
        parts = [self._kept[tokens] for tokens in read]
        lengths = torch.tensor([len(part) for part in parts], device=parts[0].device)
        return Encodings.behind_each_other(torch.cat(parts), lengths)[:]

    def _scores(self, item: Encoding, translations: Encoding) -> Tensor:
        """Return the scores (1, K) of one item with a sentence's translations."""
        if self.subject != "source":
            return self.model.similarity(item, translations)
        if self.model.score == "sets":  # as for pairs of sentences: the mean of both directions
            both = self.model.similarity(item, translations), self.model.similarity(translations, item).t()
            return (both[0] + both[1]) / 2
        return self.model.caption_similarity(item, translations)


Feature = LogProbability | Length | Similarity | Channel


class Reranker(nn.Module):
    """A translator, or an ensemble, whose n-best lists are sorted by a weighted sum of features.

    With the features `LogProbability` and `Channel` it is the noisy channel of Yee et al. 2019, without their language
    model: log p(y|x) / |y|^α + λ · log p(x|y) / |x|, including the end token in both lengths.

    Args:
        direct: makes the lists.
        features: by name.
        weights: of the same names.
        beam_size: least size of the beam; all that it finds is re-ranked.
        length_penalty: α of every search, because the weights belong to the lists and the log-probabilities of one α;
            None: that of each search.
    """

    def __init__(
        self, direct: nn.Module, features: Mapping[str, Feature], weights: Mapping[str, float], beam_size: int,
        length_penalty: float | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.direct, self.features = direct, nn.ModuleDict(features)
        self.weights, self.beam_size = {name: weights[name] for name in features}, beam_size
        self.length_penalty = length_penalty

    @property
    def regions(self) -> Any:
        """A layer whose `in_features` is the size of the regions that the translator or a feature reads; None if
        neither looks at pictures."""
        if self.direct.regions is not None:
            return self.direct.regions
        looks = (
            feature
            for feature in self.features.values()
            if isinstance(feature, Similarity) and feature.subject != "source"
        )
        return next((nn.Linear(feature.model.region_dim, 1, device="meta") for feature in looks), None)

    def widened(self, search: Any) -> BeamSettings:
        """Return the search settings of the direct translator: at least `beam_size` hypotheses, its length penalty.

        Raises:
            ModelError: the search is sampling or diverse beam search, whose lists are not ordered by score alone.
        """
        if not isinstance(search, BeamSettings) or search.groups > 1:
            raise ModelError(f"re-ranking needs the lists of plain beam search, not of {search}; leave one out")
        alpha = search.length_penalty if self.length_penalty is None else self.length_penalty
        return replace(search, beam_size=max(search.beam_size, self.beam_size), length_penalty=alpha)

    def rerank(self, batch: Batch, found: Found) -> list[list[Hypothesis]]:
        """Return the hypotheses of each sentence of a batch with their features, best first.

        Raises:
            ModelError: a feature is not a finite number, so there is no order.
        """
        values = {name: feature(batch, found) for name, feature in self.features.items()}
        for name, of_feature in values.items():
            if wrong := [value for some in of_feature for value in some if not math.isfinite(value)]:
                raise ModelError(f"re-ranking: feature {name!r} of a translation is {wrong[0]}; expected a finite "
                                 "number: train the model that computes it again")  # fmt: skip
        reranked = []
        for sentence, best in enumerate(found):
            some = []
            for rank, hypothesis in enumerate(best):
                own = {name: of_feature[sentence][rank] for name, of_feature in values.items()}
                score = sum(self.weights[name] * value for name, value in own.items())
                some.append(Hypothesis(hypothesis.tokens, score, own))
            reranked.append(sorted(some, key=lambda hypothesis: -hypothesis.score))
        return reranked
