"""Adapters of low rank (LoRA, Hu et al. 2022) in the attention of a pretrained network, by `peft`."""

from collections.abc import Sequence
from importlib.util import find_spec

from torch import nn

from modules.errors import ModelError

_ATTENTION = {"q_proj", "k_proj", "v_proj", "out_proj", "query", "key", "value"}


def require_peft() -> None:
    """Refuse adapters where `peft` is missing, by a ModelError."""
    if find_spec("peft") is None:
        raise ModelError("lora needs the package peft, which is not installed; run `make setup EXTRA=lora`")


def add_adapters(network: nn.Module, parts: Sequence[str], rank: int) -> None:
    """Put an adapter beside each projection of the attention layers in some parts of a network.

    Of attention as in BERT the output projection is left out, as it is called like that of the layer behind it.
    SigLIP's pooling head is left out: its attention is one of torch's own, which reads its weights itself, so an
    adapter beside them would never be read nor trained. All other weights are frozen.

    Args:
        network: gets them, in place.
        parts: beginnings of the names of its modules.
        rank: of the adapters; their product is multiplied by 2.

    Raises:
        ModelError: `peft` is missing, or there is no attention.
    """
    require_peft()
    from peft import LoraConfig, inject_adapter_in_model

    chosen = [
        name for name, module in network.named_modules()
        if isinstance(module, nn.Linear) and name.startswith(tuple(parts)) and name.split(".")[-1] in _ATTENTION
        and ".head." not in name
    ]  # fmt: skip
    if not chosen:
        raise ModelError("lora: the network has no attention whose projections an adapter fits; set `full` or `head`")
    inject_adapter_in_model(LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=chosen), network)


def merge_adapters(network: nn.Module) -> None:
    """Add each adapter's product to the weights beside it, and take the adapters out."""
    if find_spec("peft") is None:
        return
    from peft.tuners.lora import LoraLayer

    for name, module in list(network.named_modules()):
        if isinstance(module, LoraLayer):
            module.merge()
            parent, _, own = name.rpartition(".")
            setattr(network.get_submodule(parent), own, module.get_base_layer())
