"""Several translators in one search: the mean of their probabilities word by word."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from modules.errors import ModelError
from modules.recurrent import widen


@dataclass
class EnsembleMemory:
    """What the members' encoders return.

    Attributes:
        parts: each member's memory.
    """

    parts: list[Any]

    @property
    def mask(self) -> Tensor:
        """(B, J) bool, the first member's; the search counts sentences and finds the device by it."""
        mask: Tensor = self.parts[0].mask
        return mask

    def select(self, sentences: Tensor) -> "EnsembleMemory":
        """The memory of some of the sentences, by index."""
        return EnsembleMemory([part.select(sentences) for part in self.parts])


class Ensemble(nn.Module):
    """Translators that share a vocabulary, searched as one; regions go to the members that read them.

    Args:
        members: two or more, of any kind.

    Raises:
        ModelError: there are fewer, or their vocabularies differ in size.
    """

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        sizes = {len(member.words.weight) for member in members}  # type: ignore[arg-type, union-attr]
        if len(members) < 2 or len(sizes) > 1:
            raise ModelError(f"an ensemble of {len(members)} translators with vocabularies of {sorted(sizes)} words; "
                             "expected two or more with one vocabulary")  # fmt: skip
        self.members = nn.ModuleList(members)

    @property
    def regions(self) -> nn.Linear | None:
        """The region projection of the first member that reads regions; None if none does."""
        return next((member.regions for member in self.members if member.regions is not None), None)  # type: ignore[return-value]

    def encode(self, source: Tensor, lengths: Tensor, regions: Tensor | None = None) -> EnsembleMemory:
        """Encode sentences by every member; arguments are those of one."""
        return EnsembleMemory([
            member.encode(source, lengths, regions if member.regions is not None else None)  # type: ignore[operator]
            for member in self.members
        ])  # fmt: skip

    def start(self, memory: EnsembleMemory) -> tuple[Tensor, ...]:
        """The members' states before the first word, one after the other."""
        states = [member.start(part) for member, part in zip(self.members, memory.parts, strict=True)]  # type: ignore[operator]
        self._parts = [len(state) for state in states]
        return tuple(tensor for state in states for tensor in state)

    def step(
        self, memory: EnsembleMemory, token: Tensor, state: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """One decoding step: what the members' `predict` read, side by side (B, S, ΣE), and their new states."""
        states, kept = [], []
        for member, part, own in zip(self.members, memory.parts, self._own(state), strict=True):
            seen, new = member.step(part, token, own)  # type: ignore[operator]
            states.append(widen(seen))
            kept.extend(new)
        return torch.cat(states, -1), tuple(kept)

    def predict(self, states: Tensor) -> Tensor:
        """Log of the members' mean probability (…, V)."""
        sizes = [member.words.weight.shape[1] for member in self.members]  # type: ignore[union-attr, index]
        logs = [member.predict(part) for member, part in zip(self.members, states.split(sizes, -1), strict=True)]  # type: ignore[operator]
        return torch.stack(logs).logsumexp(0) - math.log(len(logs))

    @property
    def vocabulary_size(self) -> int:
        """V."""
        return self.members[0].vocabulary_size  # type: ignore[return-value]

    def follow(self, state: tuple[Tensor, ...], beam: Tensor) -> tuple[Tensor, ...]:
        """The state of the hypotheses (B, S) that go on, by the number of the one that each continues."""
        return tuple(
            tensor
            for member, own in zip(self.members, self._own(state), strict=True)
            for tensor in member.follow(own, beam)  # type: ignore[operator]
        )

    def _own(self, state: tuple[Tensor, ...]) -> list[tuple[Tensor, ...]]:
        """Each member's part of a state."""
        ends = list(itertools.accumulate(self._parts, initial=0))
        return [state[first:last] for first, last in itertools.pairwise(ends)]
