"""Which form a training step has: one whose shapes do not depend on values, for GPUs, or one that leaves work out.

In the static form no value of a tensor decides a shape, and none goes to the host, so that a GPU never waits for the
host. Padding, absent languages and duplicates are computed and masked. On a CPU they are left out, which is quicker
there. Both forms give equal values and gradients (`tests/modules/test_static.py`); what a batch does not use has a
gradient of zero in the static form, and none in the other one.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from torch import Tensor

_WANTED: ContextVar[bool | None] = ContextVar("static", default=None)


def is_static(tensor: Tensor) -> bool:
    """Whether what is computed from a tensor has the static form: on a GPU, or where `static_shapes` says so."""
    wanted = _WANTED.get()
    return tensor.is_cuda if wanted is None else wanted


def beside(tensor: Tensor, other: Tensor) -> Tensor:
    """A tensor on the device of another one; a GPU's host does not wait for the copy."""
    return tensor.to(other.device, non_blocking=other.is_cuda)


@contextmanager
def static_shapes(wanted: bool = True) -> Iterator[None]:
    """Choose the form for all devices."""
    token = _WANTED.set(wanted)
    try:
        yield
    finally:
        _WANTED.reset(token)
