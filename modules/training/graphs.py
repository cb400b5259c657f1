"""Training steps as CUDA graphs: the host gives a GPU a whole forward or backward pass in one call.

Kernel by kernel, a step of a small network takes a GPU less time than it takes Python to ask for it.
"""

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor, nn

from modules.errors import ModelError

Batch = dict[str, Tensor]
Step = Callable[[Batch], tuple[Tensor, Batch]]
"""From a batch, its loss with a gradient, and figures without one."""

_SEEN, _MOST = 2, 64  # times that a shape was seen before it gets a graph; graphs
_LATER = 100  # steps until it is asked again whether there is room for a graph
_ROOM = 0.4  # share of a GPU's memory that this process may have taken; graphs can take as much again


class StepGraphs:
    """The graphs of a module's step: one for each kind of batch, that is, for the shapes of its tensors.

    A kind that comes for the first times is computed without a graph, so rare ones never have one; nor has one that the
    GPU's memory has no room for. Weights are read where they are, so an optimizer changes them as ever. The random
    numbers of dropout go on as they do without a graph. Losses and gradients are overwritten by the next step, so they
    cannot be added up over steps; figures are copied.

    Args:
        module: whose parameters get gradients.

    Examples:
        >>> graphs = StepGraphs(nn.Linear(2, 1))
        >>> graphs.kind({"tokens": torch.zeros(3, 8)}, ("warm-up",))
        (('warm-up',), ('tokens', torch.Size([3, 8]), torch.float32))
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self._seen: dict[Hashable, int] = {}
        self._graphs: dict[Hashable, Callable[..., Any]] = {}
        self._memory: Any = None

    def kind(self, batch: Batch, state: Hashable) -> tuple[Hashable, ...]:
        """What a graph is made for: the state of the training, and names, shapes and types of a batch's tensors."""
        return (state, *((name, tensor.shape, tensor.dtype) for name, tensor in batch.items()))

    def __call__(self, step: Step, batch: Batch, state: Hashable = ()) -> tuple[Tensor, Batch]:
        """Compute a step.

        Args:
            step: what is computed; with `state`, it must do the same for all batches of one kind. It may read nothing
                that changes between steps but the batch, weights and buffers.
            batch: tensors, of which those on the host are copied to the GPU.
            state: whatever decides what `step` does.

        Raises:
            ModelError: a GPU cannot make a graph of it.
        """
        device = next(self.module.parameters()).device
        batch = {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}
        kind = self.kind(batch, state)
        seen = self._seen[kind] = self._seen.get(kind, 0) + 1
        if kind not in self._graphs:
            if seen <= _SEEN or (seen - _SEEN) % _LATER != 1 or len(self._graphs) >= _MOST or not _has_room(device):
                return step(batch)
            self._graphs[kind] = self._made(step, batch)
        loss, figures = self._graphs[kind](*batch.values())
        return loss, {name: figure.detach().clone() for name, figure in figures.items()}

    def _made(self, step: Step, batch: Batch) -> Callable[..., Any]:
        """Make a graph; the passes that warm up leave buffers and random numbers as they were."""
        device = next(self.module.parameters()).device
        buffers = [buffer.clone() for buffer in self.module.buffers()]
        self._memory = self._memory or torch.cuda.graph_pool_handle()
        low = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None
        of_tensors = _OfTensors(self.module, step, tuple(batch), low)
        tensors = tuple(tensor.clone() for tensor in batch.values())
        try:
            with torch.random.fork_rng([device]), torch.autocast("cuda", enabled=False):  # none in the backward pass
                made: Callable[..., Any] = torch.cuda.make_graphed_callables(
                    of_tensors, tensors, allow_unused_input=True, pool=self._memory
                )
        except RuntimeError as error:
            while isinstance(error.__context__, RuntimeError):  # what ended it, not what came of that
                error = error.__context__
            reason = str(error).partition("\n")[0]
            raise ModelError(f"a step cannot be a CUDA graph ({reason}); run again with trainer.graph=never") from error
        of_tensors.forget_loss()
        for buffer, before in zip(self.module.buffers(), buffers, strict=True):
            buffer.copy_(before)
        return made


def _has_room(device: torch.device) -> bool:
    """Whether this process has taken little of its part of a GPU's memory."""
    if device.type != "cuda":
        return True
    part = torch.cuda.get_per_process_memory_fraction(device) * torch.cuda.get_device_properties(device).total_memory
    return torch.cuda.memory_reserved(device) <= _ROOM * part


class _OfTensors(nn.Module):
    """A step as a function of the tensors of a batch, in the order of their names; with a type, under its autocast."""

    def __init__(self, module: nn.Module, step: Step, names: tuple[str, ...], low: torch.dtype | None) -> None:
        super().__init__()
        self.module, self.step, self.names, self.low = module, step, names, low
        self._loss: Tensor | None = None

    def forward(self, *tensors: Tensor) -> tuple[Tensor, Batch]:
        """The loss and the figures."""
        with torch.autocast(tensors[0].device.type, self.low, self.low is not None, cache_enabled=False):
            self._loss, figures = self.step(dict(zip(self.names, tensors, strict=True)))
            return self._loss, figures

    def forget_loss(self) -> None:
        """Let go of what the last loss was computed by.

        Else what adds gradients to weights stays on the stream that the graph was made on, and each later step waits
        for that stream.
        """
        if self._loss is not None and not self._loss._is_view():
            self._loss.detach_()
        self._loss = None
