"""Log-likelihoods of given translations, and n-best lists reranked by a noisy channel."""

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
    """A translator whose n-best lists are reranked with the help of one of the opposite direction.

    score(y) = log p(y|x) / |y|^α + λ · log p(x|y) / |x|, the end mark counted in both lengths (Yee et al. 2019,
    without their language model). The translator alone is searched; the channel p(x|y) reads what it found.

    Args:
        direct: the translator, or several as one.
        channel: of the opposite direction; needs no picture. Its vocabulary may be another one, with the same numbers
            for padding, begin and end.
        recode_source: sentences x in token numbers of `direct` → those of `channel`, none empty.
        recode_target: the same of translations y.
        weight: λ.
        beam_size: least width of the beam; all that it finds is reranked.
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
        """The region projection of the translator; None if it reads no regions."""
        return self.direct.regions  # type: ignore[return-value]

    def widened(self, search: Any) -> BeamSettings:
        """The search whose lists are reranked.

        Raises:
            ModelError: it samples, or has diverse beams, whose order must stay.
        """
        if not isinstance(search, BeamSettings) or search.groups > 1:
            raise ModelError(f"a channel reranks what a plain beam finds, not {search}; leave one out")
        return replace(search, beam_size=max(search.beam_size, self.beam_size))

    def rerank(
        self, batch: Mapping[str, Tensor], found: Sequence[Sequence[Hypothesis]], begin: int, end: int
    ) -> list[list[Hypothesis]]:
        """The hypotheses of each sentence of a batch (`source`, `source_lengths`) by their new scores, best first.

        The likeliest of all sentences are read back together, then the second, and so on: no batch has more sentences
        than the one that was translated.
        """
        rows, lengths = batch["source"].tolist(), batch["source_lengths"].tolist()
        source = self.recode_source([row[:length] for row, length in zip(rows, lengths, strict=True)])
        reranked: list[list[Hypothesis]] = [[] for _ in found]
        for rank in range(max(map(len, found))):
            places = [place for place, best in enumerate(found) if rank < len(best)]
            hypotheses = self.recode_target([found[place][rank].tokens for place in places])
            back = _pairs(hypotheses, [source[place] for place in places], begin, end, batch["source"].device)
            likely = (log_likelihoods(self.channel, back).cpu() / back["target_lengths"]).tolist()
            for place, log_likelihood in zip(places, likely, strict=True):
                one = found[place][rank]
                reranked[place].append(Hypothesis(one.tokens, one.score + self.weight * log_likelihood))
        return [sorted(best, key=lambda one: -one.score) for best in reranked]


def log_likelihoods(translator: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    """Log-probability (B,) of given translations, the end mark counted, summed over words.

    Args:
        translator: any but an ensemble.
        batch: as `data.translation.SentenceBatches` gives it, with `target`, `labels` and `target_lengths`.
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
    """Sentences and their translations as a batch; lengths stay on the CPU."""

    def padded(sentences: list[list[int]]) -> Tensor:
        """(B, N), padding (0) behind."""
        return pad_sequence([torch.tensor(one) for one in sentences], batch_first=True).to(device)

    return {
        "source": padded([list(one) for one in source]),
        "source_lengths": torch.tensor([len(one) for one in source]),
        "target": padded([[begin, *one] for one in target]),
        "labels": padded([[*one, end] for one in target]),
        "target_lengths": torch.tensor([len(one) + 1 for one in target]),
    }
