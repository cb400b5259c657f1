"""A device that stands in for a GPU in tests: real values, computed by the CPU, and a GPU's rules.

Its tensors say `is_cuda`, so they take the forms of code that are for GPUs. An operation on tensors of two devices
fails as it does on a GPU, and so does `numpy()`. Torch has no such device, so it is called "meta", on which torch by
itself keeps no values.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.optim.optimizer as optimizer  # it is no attribute of torch.optim
from pytorch_lightning.accelerators import CPUAccelerator
from pytorch_lightning.strategies import SingleDeviceStrategy
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map_only

DEVICE = "meta"
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")
_aten = torch.ops.aten
_OF_ANY_DEVICES = {_aten.copy_.default, _aten._to_copy.default, _aten._pack_padded_sequence.default}
_BY_INDICES = {_aten.index.Tensor, _aten.index_put.default, _aten.index_put_.default, _aten._index_put_impl_.default,
               _aten._unsafe_index_put.default}  # fmt: skip


class OnDevice(Tensor):
    """A tensor of the stand-in.

    Attributes:
        values: the tensor of the CPU that it stands for.
    """

    values: Tensor
    is_cuda = True

    @staticmethod
    def __new__(cls, values: Tensor) -> "OnDevice":
        """Put a tensor of the CPU onto the stand-in."""
        made = torch.Tensor._make_wrapper_subclass(
            cls, values.shape, strides=values.stride(), storage_offset=values.storage_offset(), dtype=values.dtype,
            device=DEVICE,
        )  # fmt: skip
        made.values = values
        return made

    def tolist(self) -> Any:
        """The values as numbers of Python."""
        return self.cpu().tolist()

    def new_tensor(self, data: Any, *, dtype: torch.dtype | None = None, **more: Any) -> Tensor:
        """Make a tensor beside this one."""
        return torch.tensor(data, dtype=dtype or self.dtype, device=DEVICE, **more)

    def __getitem__(self, key: Any) -> Tensor:
        """Take a part; lists of numbers become tensors on the way."""
        return super().__getitem__(_tensors(key))

    def __setitem__(self, key: Any, value: Any) -> None:
        """Write a part."""
        super().__setitem__(_tensors(key), value)

    def numpy(self, *, force: bool = False) -> Any:
        """Fail, as a tensor of a GPU does."""
        raise TypeError("can't convert a GPU's tensor to numpy; copy it to the CPU first")

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Be written to a file as a tensor of the CPU."""
        return self.values.__reduce_ex__(protocol)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        """Show the values and where they are."""
        return f"OnDevice({self.values!r})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation of which a tensor is on the stand-in."""
        return _run(func, args, kwargs or {})


def _tensors(key: Any) -> Any:
    """A key of which lists are tensors of the CPU."""
    if isinstance(key, tuple):
        return tuple(torch.tensor(part) if isinstance(part, list) else part for part in key)
    return torch.tensor(key) if isinstance(key, list) else key


class _Mode(TorchDispatchMode):
    """Sends tensors that are made for the stand-in, or copied to it, there."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


def _run(func: Any, args: Any, kwargs: Any) -> Any:
    """Compute an operation on the CPU; its tensors come out on the device on which a GPU's would be."""
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    lost = [tensor for tensor in tensors if tensor.device.type == DEVICE and not isinstance(tensor, OnDevice)]
    assert not lost, f"{func}: a tensor of the stand-in that has no values"
    device = next((leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.device)), None)
    away = device.type == DEVICE if device else _away(func, args, tensors)
    values = tree_map_only(OnDevice, lambda tensor: tensor.values, (args, dict(kwargs)))
    values = tree_map_only(torch.device, lambda _: torch.device("cpu"), values)
    out = func(*values[0], **values[1])
    if func is _aten._pack_padded_sequence.default:
        out = OnDevice(out[0]) if away else out[0], out[1]  # numbers of rows stay on the CPU
    elif away:
        out = tree_map_only(Tensor, OnDevice, out)
    stayed = away and tensors and isinstance(tensors[0], OnDevice)
    return return_and_correct_aliasing(func, args, kwargs, out) if stayed else out


def _away(func: Any, args: Any, tensors: list[Tensor]) -> bool:
    """Whether results of an operation are on the stand-in.

    Raises:
        RuntimeError: its tensors are on two devices.
    """
    away = [isinstance(tensor, OnDevice) for tensor in tensors]
    if func in _OF_ANY_DEVICES:
        return away[0]
    if func in _BY_INDICES and away[0]:
        return True
    if any(away) and not all(is_away or not tensor.dim() for tensor, is_away in zip(tensors, away, strict=True)):
        shapes = [
            f"{list(one.shape)} {'GPU' if is_away else 'CPU'}" for one, is_away in zip(tensors, away, strict=True)
        ]
        raise RuntimeError(f"{func}: expected all tensors to be on the same device: {', '.join(shapes)}")
    return any(away)


@contextmanager
def stand_in() -> Iterator[str]:
    """Make tensors of the stand-in possible, and give its name."""
    tensor = torch.tensor

    def tensor_on(data: Any, *, device: Any = None, **more: Any) -> Tensor:
        return tensor(data, **more).to(device)

    with ExitStack() as stack:
        for name in ("autocast", "is_autocast_enabled", "get_autocast_dtype"):
            stack.enter_context(patch.object(torch, name, _of_cpu(getattr(torch, name))))
        stack.enter_context(patch.object(torch, "tensor", tensor_on))
        stack.enter_context(patch.object(optimizer, "_get_fused_kernels_supported_devices", lambda: [DEVICE, "cpu"]))
        stack.enter_context(_Mode())
        yield DEVICE


def _of_cpu(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of a device's type that takes the stand-in for the CPU."""
    return lambda device, *args, **more: function("cpu" if device == DEVICE else device, *args, **more)


class _Accelerator(CPUAccelerator):
    """Lightning's view of the stand-in."""

    def setup_device(self, device: torch.device) -> None:
        """Take any device."""


def on_stand_in() -> dict[str, Any]:
    """Settings of a trainer that trains on the stand-in."""
    return {"accelerator": _Accelerator(), "strategy": SingleDeviceStrategy(torch.device(DEVICE))}
