"""Networks that are built for their shapes alone."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_FILLING = {"normal_", "uniform_"}
_RANDOM = (torch.rand, torch.randn)


@contextmanager
def shapes_alone() -> Iterator[None]:
    """Build networks whose parameters have shapes, but no values: nothing is drawn, and the system lends no memory.

    Torch's device `meta` does that too, but imports torch's compiler first, which takes seconds.

    Examples:
        >>> before = torch.get_rng_state()
        >>> with shapes_alone():
        ...     layer = torch.nn.Linear(10_000, 10_000)  # 400 MB that are never touched
        >>> layer.weight.shape, torch.equal(torch.get_rng_state(), before)
        (torch.Size([10000, 10000]), True)
    """
    with _Unfilled():
        yield


class _Unfilled(TorchFunctionMode):
    """Leaves tensors as they are where `torch.nn.init`, or a method, would fill them."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        """Call the function, but for those that fill a tensor: its first argument."""
        kwargs, func = kwargs or {}, torch.empty if func in _RANDOM else func
        if getattr(func, "__module__", "") == "torch.nn.init" or getattr(func, "__name__", "") in _FILLING:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)
