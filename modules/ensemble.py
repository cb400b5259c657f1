"""Several translators in one search: the mean of their probabilities word by word."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from modules.errors import ModelError


@dataclass
class EnsembleMemory:
    """What the members' encoders leave.

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
    """Translators that share a vocabulary, searched as one; those that look are shown the regions, the others not.

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
        """How the first member that looks reads regions; None if none looks."""
        return next((member.regions for member in self.members if member.regions is not None), None)  # type: ignore[return-value]

    def encode(self, source: Tensor, lengths: Tensor, regions: Tensor | None = None) -> EnsembleMemory:
        """Encode sentences by every member; arguments are those of one."""
        return EnsembleMemory([
            member.encode(source, lengths, regions if member.regions is not None else None)  # type: ignore[operator]
            for member in self.members
        ])  # fmt: skip

    def start(self, memory: EnsembleMemory) -> tuple[Tensor, ...]:
        """The members' states before the first word, one after the other."""
        return tuple(tensor for state in self._starts(memory) for tensor in state)

    def step(
        self, memory: EnsembleMemory, token: Tensor, state: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """One decoding step: log of the mean probability (B, S, V), and the members' new states."""
        logs, states, place = [], [], 0
        for member, part, first in zip(self.members, memory.parts, self._starts(memory), strict=True):
            log, new = member.step(part, token, state[place : place + len(first)])  # type: ignore[operator]
            place += len(first)
            logs.append(log)
            states.extend(new)
        return torch.stack(logs).logsumexp(0) - math.log(len(logs)), tuple(states)

    def _starts(self, memory: EnsembleMemory) -> list[tuple[Tensor, ...]]:
        return [member.start(part) for member, part in zip(self.members, memory.parts, strict=True)]  # type: ignore[operator]
