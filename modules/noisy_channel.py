"""How likely a translator finds a sentence, and n-best lists put in order by whether their source is found again."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from modules.beam import BeamSettings, Hypothesis
from modules.errors import ModelError
from modules.recurrent import widen

Recode = Callable[[Sequence[Sequence[int]]], list[list[int]]]


class NoisyChannel(nn.Module):
    """A translator whose n best translations are put in order with the help of one of the opposite direction.

    score(y) = log p(y|x) / |y|^α + λ · log p(x|y) / |x|, the end mark counted in both lengths (Yee et al. 2019,
    Eq. 4, without its language model). The translator alone is searched; the channel p(x|y) reads what it found.

    Args:
        direct: the translator, or several as one.
        channel: of the opposite direction; needs no picture, and has whatever vocabulary.
        recode_source: sentences x in token numbers of `direct` → those of `channel`.
        recode_target: the same of translations y.
        weight: λ.
        n_best: translations that are put in order; the beam of a search is at least so wide.
    """

    def __init__(
        self, direct: nn.Module, channel: nn.Module, recode_source: Recode, recode_target: Recode, weight: float,
        n_best: int,
    ) -> None:  # fmt: skip
        super().__init__()
        self.direct, self.channel = direct, channel
        self.recode_source, self.recode_target = recode_source, recode_target
        self.weight, self.n_best = weight, n_best

    @property
    def regions(self) -> nn.Linear | None:
        """How the translator reads regions; None if it does not look."""
        return self.direct.regions  # type: ignore[return-value]

    def widened(self, search: Any) -> Any:
        """The search that finds what is put in order.

        Raises:
            ModelError: it draws, or has diverse beams, whose own order is their purpose.
        """
        if not isinstance(search, BeamSettings) or search.groups > 1:
            raise ModelError(f"a channel puts a plain beam in order, not {search}; leave one out")
        return replace(search, beam_size=max(search.beam_size, self.n_best))

    def in_order(
        self, batch: Mapping[str, Tensor], found: Sequence[Sequence[Hypothesis]], begin: int, end: int
    ) -> list[list[Hypothesis]]:
        """The hypotheses of each sentence of a batch (`source`, `source_lengths`), by their new scores, best first.

        The likeliest of all sentences are read back together, then the second, and so on: no batch has more sentences
        than the one that was translated.
        """
        source, lengths = batch["source"].tolist(), batch["source_lengths"].tolist()
        said = self.recode_source([one[:length] for one, length in zip(source, lengths, strict=True)])
        scored: list[list[Hypothesis]] = [[] for _ in found]
        for rank in range(max(map(len, found))):
            rows = [row for row, best in enumerate(found) if rank < len(best)]
            heard = self.recode_target([found[row][rank].tokens for row in rows])
            back = _pairs(heard, [said[row] for row in rows], begin, end, batch["source"].device)
            likely = (log_likelihoods(self.channel, back).cpu() / back["target_lengths"]).tolist()
            for row, log_likelihood in zip(rows, likely, strict=True):
                one = found[row][rank]
                scored[row].append(Hypothesis(one.tokens, one.score + self.weight * log_likelihood))
        return [sorted(best, key=lambda one: -one.score) for best in scored]


def log_likelihoods(translator: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    """Log-probability (B,) of the given translations of a batch, the end mark counted, summed over words."""
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
