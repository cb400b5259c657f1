"""What a job runs on: the machine and the libraries, as manifests have them."""

import platform
from importlib.metadata import version
from typing import Any

_LIBRARIES = ("torch", "pytorch-lightning", "numpy", "tokenizers", "sacremoses", "sacrebleu", "faiss-cpu", "faiss-gpu")


def this_machine() -> dict[str, Any]:
    """The properties of the machine that may change the last digits of a figure."""
    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {"processor": platform.machine(), "instructions": torch.backends.cpu.get_cpu_capability(),
            "threads": torch.get_num_threads(), "gpu": gpu}  # fmt: skip


def same_machine(one: Any, other: Any) -> bool:
    """Are two machines of manifests alike, but for torch's threads, which a recipe sets after a job has begun?"""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return False
    return one | {"threads": None} == other | {"threads": None}


def library_versions() -> dict[str, str]:
    """The installed versions of the libraries that may change a figure."""
    found = {}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except ImportError:
            continue
    return found
