"""Log-likelihoods of given translations, and the noisy channel as a feature of n-best lists."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from modules.layers.recurrent import widen
from modules.translators.beam import Hypothesis

Recode = Callable[[Sequence[Sequence[int]]], Sequence[Sequence[int]]]


class Channel(nn.Module):
    """The noisy channel, a feature of translations: log p(x|y) / |x|, the end token included in the length.

    Args:
        channel: text-only translator of the opposite direction. Its vocabulary may differ, except the ids of padding,
            begin and end.
        recode_source: converts sentences x from token ids of the direct translator to those of `channel`; none may be
            empty.
        recode_target: the same for translations y.
        begin: id of the begin-of-sentence token.
        end: id of the end-of-sentence token.
    """

    def __init__(self, channel: nn.Module, recode_source: Recode, recode_target: Recode, begin: int, end: int) -> None:
        super().__init__()
        self.channel = channel
        self.recode_source, self.recode_target = recode_source, recode_target
        self.begin, self.end = begin, end

    def forward(self, batch: Mapping[str, Tensor], found: Sequence[Sequence[Hypothesis]]) -> list[list[float]]:
        """Return the value of each hypothesis of the sentences of a batch (`source`, `source_lengths`).

        The channel scores the best hypotheses of all sentences as one batch, then the second ones, and so on, so no
        batch is larger than the translated one.
        """
        rows, lengths = batch["source"].tolist(), batch["source_lengths"].tolist()
        source = self.recode_source([row[:length] for row, length in zip(rows, lengths, strict=True)])
        values: list[list[float]] = [[] for _ in found]
        for rank in range(max(map(len, found))):
            sentences = [sentence for sentence, best in enumerate(found) if rank < len(best)]
            texts = self.recode_target([found[sentence][rank].tokens for sentence in sentences])
            back = _pairs(
                texts, [source[sentence] for sentence in sentences], self.begin, self.end, batch["source"].device
            )
            likelihoods = (log_likelihoods(self.channel, back).cpu() / back["target_lengths"]).tolist()
            for sentence, log_likelihood in zip(sentences, likelihoods, strict=True):
                values[sentence].append(log_likelihood)
        return values


def log_likelihoods(translator: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    """Return log-probabilities (B,) of given translations, summed over words and including the end token.

    Args:
        translator: a single translator, not an ensemble.
        batch: from `data.batches.translation.SentenceBatches`, with `target`, `labels` and `target_lengths`.
    """
    network: Any = translator
    with torch.no_grad():
        memory = network.encode(batch["source"], batch["source_lengths"], batch.get("regions"))
        logits, where = network(memory, batch["target"], batch["target_lengths"])
        labels = batch["labels"].flatten()[where][:, None]
        nothing = labels == (network.words.padding_idx or 0)  # a GPU computes it all the same
        logs = widen(logits).log_softmax(-1).gather(1, labels).masked_fill(nothing, 0)[:, 0]
        return logs.new_zeros(len(batch["source"])).index_add(0, where // batch["labels"].shape[1], logs)


def _pairs(
    source: Sequence[Sequence[int]], target: Sequence[Sequence[int]], begin: int, end: int, device: torch.device
) -> dict[str, Tensor]:
    """Return sentences and their translations as a batch; lengths stay on the CPU."""

    def padded(sentences: list[list[int]]) -> Tensor:
        """Return token ids (B, N), padded with 0 at the end."""
        return pad_sequence([torch.tensor(sentence) for sentence in sentences], batch_first=True).to(device)

    return {
        "source": padded([list(sentence) for sentence in source]),
        "source_lengths": torch.tensor([len(sentence) for sentence in source]),
        "target": padded([[begin, *sentence] for sentence in target]),
        "labels": padded([[*sentence, end] for sentence in target]),
        "target_lengths": torch.tensor([len(sentence) + 1 for sentence in target]),
    }
