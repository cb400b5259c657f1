"""Log-likelihoods of given translations, and reranking of n-best lists by a noisy channel."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from modules.beam import BeamSettings, Hypothesis
from modules.errors import ModelError
from modules.recurrent import widen

Recode = Callable[[Sequence[Sequence[int]]], Sequence[Sequence[int]]]


class NoisyChannel(nn.Module):
    """A translator whose n-best lists are reranked by a translator of the opposite direction (the channel).

    score(y) = log p(y|x) / |y|^α + λ · log p(x|y) / |x|, including the end token in both lengths (Yee et al. 2019,
    without their language model). The direct translator makes the n-best list; the channel p(x|y) scores it.

    Args:
        direct: the translator, or an ensemble.
        channel: text-only translator of the opposite direction. Its vocabulary may differ, except the ids of padding,
            begin and end.
        recode_source: converts sentences x from token ids of `direct` to those of `channel`; none may be empty.
        recode_target: the same for translations y.
        weight: λ.
        beam_size: minimum beam size; all hypotheses are reranked.
    """

    def __init__(
        self, direct: nn.Module, channel: nn.Module, recode_source: Recode, recode_target: Recode, weight: float,
        beam_size: int,
    ) -> None:  # fmt: skip
        super().__init__()
        self.direct, self.channel = direct, channel
        self.recode_source, self.recode_target = recode_source, recode_target
        self.weight, self.beam_size = weight, beam_size

    @property
    def regions(self) -> nn.Linear | None:
        """The region projection of the direct translator; None if it is text-only."""
        return self.direct.regions  # type: ignore[return-value]

    def widened(self, search: Any) -> BeamSettings:
        """Return the search settings of the direct translator, with at least `beam_size` hypotheses.

        Raises:
            ModelError: the search is sampling or diverse beam search, whose lists are not ordered by score alone.
        """
        if not isinstance(search, BeamSettings) or search.groups > 1:
            raise ModelError(f"a noisy channel reranks the output of plain beam search, not of {search}; leave one out")
        return replace(search, beam_size=max(search.beam_size, self.beam_size))

    def rerank(
        self, batch: Mapping[str, Tensor], found: Sequence[Sequence[Hypothesis]], begin: int, end: int
    ) -> list[list[Hypothesis]]:
        """Rerank the hypotheses of each sentence of a batch (`source`, `source_lengths`) and return them, best first.

        The channel scores the best hypotheses of all sentences as one batch, then the second ones, and so on, so no
        batch is larger than the translated one.
        """
        rows, lengths = batch["source"].tolist(), batch["source_lengths"].tolist()
        source = self.recode_source([row[:length] for row, length in zip(rows, lengths, strict=True)])
        reranked: list[list[Hypothesis]] = [[] for _ in found]
        for rank in range(max(map(len, found))):
            sentences = [sentence for sentence, best in enumerate(found) if rank < len(best)]
            texts = self.recode_target([found[sentence][rank].tokens for sentence in sentences])
            back = _pairs(texts, [source[sentence] for sentence in sentences], begin, end, batch["source"].device)
            likelihoods = (log_likelihoods(self.channel, back).cpu() / back["target_lengths"]).tolist()
            for sentence, log_likelihood in zip(sentences, likelihoods, strict=True):
                one = found[sentence][rank]
                reranked[sentence].append(Hypothesis(one.tokens, one.score + self.weight * log_likelihood))
        return [sorted(best, key=lambda one: -one.score) for best in reranked]


def log_likelihoods(translator: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    """Return log-probabilities (B,) of given translations, summed over words and including the end token.

    Args:
        translator: a single translator, not an ensemble.
        batch: from `data.translation.SentenceBatches`, with `target`, `labels` and `target_lengths`.
    """
    network: Any = translator
    with torch.no_grad():
        memory = network.encode(batch["source"], batch["source_lengths"], batch.get("regions"))
        logits, where = network(memory, batch["target"], batch["target_lengths"])
        logs = widen(logits).log_softmax(-1).gather(1, batch["labels"].flatten()[where][:, None])[:, 0]
        return logs.new_zeros(len(batch["source"])).index_add(0, where // batch["labels"].shape[1], logs)


def _pairs(
    source: Sequence[Sequence[int]], target: Sequence[Sequence[int]], begin: int, end: int, device: torch.device
) -> dict[str, Tensor]:
    """Return sentences and their translations as a batch; lengths stay on the CPU."""

    def padded(sentences: list[list[int]]) -> Tensor:
        """Return token ids (B, N), padded with 0 at the end."""
        return pad_sequence([torch.tensor(one) for one in sentences], batch_first=True).to(device)

    return {
        "source": padded([list(one) for one in source]),
        "source_lengths": torch.tensor([len(one) for one in source]),
        "target": padded([[begin, *one] for one in target]),
        "labels": padded([[*one, end] for one in target]),
        "target_lengths": torch.tensor([len(one) + 1 for one in target]),
    }
