"""An ensemble of translators: the mean of their word probabilities in one search."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from modules.errors import ModelError
from modules.layers.recurrent import widen


@dataclass
class EnsembleMemory:
    """The encoder memories of all members.

    Attributes:
        parts: each member's memory.
    """

    parts: list[Any]

    @property
    def mask(self) -> Tensor:
        """The first member's mask (B, J), from which the search takes the number of sentences and the device."""
        mask: Tensor = self.parts[0].mask
        return mask

    def select(self, sentences: Tensor) -> "EnsembleMemory":
        """Return the memory of some of the sentences, by index."""
        return EnsembleMemory([part.select(sentences) for part in self.parts])


class Ensemble(nn.Module):
    """Translators with a common vocabulary that are searched as one; only multimodal members receive the regions.

    Args:
        members: two or more translators, of any network.

    Raises:
        ModelError: there are fewer than two, or their vocabularies differ in size.
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
        """The region projection of the first multimodal member; None if all members are text-only."""
        return next((member.regions for member in self.members if member.regions is not None), None)  # type: ignore[return-value]

    def encode(self, source: Tensor, lengths: Tensor, regions: Tensor | None = None) -> EnsembleMemory:
        """Encode sentences by every member; the arguments are those of a single translator."""
        return EnsembleMemory([
            member.encode(source, lengths, regions if member.regions is not None else None)  # type: ignore[operator]
            for member in self.members
        ])  # fmt: skip

    def start(self, memory: EnsembleMemory) -> tuple[Tensor, ...]:
        """Return the members' decoder states before the first word, one after the other."""
        states = [member.start(part) for member, part in zip(self.members, memory.parts, strict=True)]  # type: ignore[operator]
        self._parts = [len(state) for state in states]
        return tuple(tensor for state in states for tensor in state)

    def step(
        self, memory: EnsembleMemory, token: Tensor, state: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """One decoding step: the concatenated inputs (B, S, ΣE) of the members' `predict`, and their new states."""
        states, new_state = [], []
        for member, part, own in zip(self.members, memory.parts, self._own(state), strict=True):
            output, new = member.step(part, token, own)  # type: ignore[operator]
            states.append(widen(output))
            new_state.extend(new)
        return torch.cat(states, -1), tuple(new_state)

    def predict(self, states: Tensor) -> Tensor:
        """Return the log of the members' mean probability (…, V)."""
        sizes = [member.words.weight.shape[1] for member in self.members]  # type: ignore[union-attr, index]
        logs = [member.predict(part) for member, part in zip(self.members, states.split(sizes, -1), strict=True)]  # type: ignore[operator]
        return torch.stack(logs).logsumexp(0) - math.log(len(logs))

    @property
    def vocabulary_size(self) -> int:
        """V, size of the vocabulary."""
        return self.members[0].vocabulary_size  # type: ignore[return-value]

    def follow(self, state: tuple[Tensor, ...], beam: Tensor) -> tuple[Tensor, ...]:
        """Return the state of the new hypotheses; `beam` (B, S) is the index of the hypothesis that each continues."""
        return tuple(
            tensor
            for member, own in zip(self.members, self._own(state), strict=True)
            for tensor in member.follow(own, beam)  # type: ignore[operator]
        )

    def _own(self, state: tuple[Tensor, ...]) -> list[tuple[Tensor, ...]]:
        """Split a state into the states of the members."""
        ends = list(itertools.accumulate(self._parts, initial=0))
        return [state[first:last] for first, last in itertools.pairwise(ends)]
