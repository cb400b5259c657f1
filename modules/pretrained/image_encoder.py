"""Regions of pictures by a vision network of `transformers`, which is a part of a retrieval model."""

import json
import math
from typing import Any

import torch
from torch import Tensor, nn

from modules.errors import ModelError, one_line
from modules.layers.recurrent import widen
from modules.pretrained.quiet import auto_model, require_weights

_BLOCK = 32  # pictures that are read together without a gradient: bounds memory
_NOT_OF_THE_NETWORK = ("_name_or_path", "architectures", "dtype", "id2label", "label2id", "transformers_version")


class ImageEncoder(nn.Module):
    """A CNN (ResNet, RegNet, ConvNeXt …), whose feature map are the regions, or a network of patches with its states.

    It is always in evaluation mode, also when it is trained: batch normalisation keeps the statistics of pre-training,
    and nothing is dropped. So the regions of a picture depend neither on its batch nor on the number of devices.

    Args:
        input_dim: 3·S², the numbers of a picture of S × S pixels.
        config: of the network, plain values; its weights are random until they are loaded.
        mean: of red, green and blue in 0…1, which is subtracted.
        deviation: of them, by which they are divided.

    Attributes:
        width: D, size of a region.

    Raises:
        ModelError: the network does not read such pictures.
    """

    def __init__(self, input_dim: int, config: dict[str, Any], mean: list[float], deviation: list[float]) -> None:
        from transformers import AutoConfig, AutoModel  # takes seconds to import

        super().__init__()
        self.size, kind = math.isqrt(input_dim // 3), config.get("model_type")
        try:
            self.network = AutoModel.from_config(AutoConfig.for_model(**config), trust_remote_code=False)
        except Exception as error:  # of another version, or damaged
            raise ModelError(f"vse.image_encoder: no network {kind!r} can be made ({one_line(error)})") from None
        for name, values in (("mean", mean), ("deviation", deviation)):
            self.register_buffer(name, torch.tensor(values).view(3, 1, 1), persistent=False)
        super().train(False)
        self.width = self._read_blank(kind)

    def forward(self, pictures: Tensor) -> Tensor:
        """Return regions (B, R, D) of pictures (B, 3·S²), numbers in 0…255; with a gradient unless it is frozen."""
        if self.is_trained and torch.is_grad_enabled():
            return self._regions(pictures)
        with torch.no_grad():
            return torch.cat([self._regions(some) for some in pictures.split(_BLOCK)])

    @property
    def is_trained(self) -> bool:
        """Is it trained, or frozen?"""
        return any(parameter.requires_grad for parameter in self.parameters())

    def freeze(self) -> None:
        """Freeze the weights."""
        self.requires_grad_(False)

    def train(self, mode: bool = True) -> "ImageEncoder":
        """Stay in evaluation mode."""
        return super().train(False)

    def load(self, name: str) -> None:
        """Load the weights of a folder, or of a name on the Hugging Face hub.

        Raises:
            ModelError: there is no such network, or its weights are not whole.
        """
        network, missing = auto_model(name, _not_found)
        lacking = (key for key in missing if not key.startswith("pooler."))  # it is not read
        require_weights(lacking, f"vse.image_encoder {name!r}")
        self.network.load_state_dict(network.state_dict())

    def _regions(self, pictures: Tensor) -> Tensor:
        pixels = (pictures.unflatten(1, (3, self.size, self.size)) / 255 - self.mean) / self.deviation
        states: Tensor = self.network(pixel_values=pixels).last_hidden_state
        return widen(states.flatten(2).transpose(1, 2) if states.ndim == 4 else states)

    def _read_blank(self, kind: Any) -> int:
        """Read a blank picture; the width of its regions."""
        try:
            with torch.no_grad():
                regions = self._regions(torch.zeros(1, 3 * self.size**2))
            if regions.ndim != 3:
                raise ValueError(f"its states have {regions.ndim} dimensions")
        except Exception as error:  # each network has its own
            raise ModelError(
                f"vse.image_encoder: a network {kind!r} gives no regions of pictures of {self.size}×{self.size} pixels "
                f"({one_line(error)}); set vse.image_encoder_size to the size that it reads, or take a CNN like ResNet"
            ) from None
        return regions.shape[2]


def image_encoder_arguments(name: str, size: int) -> dict[str, Any]:
    """Return the arguments of an `ImageEncoder`, but `input_dim`, as plain values.

    Args:
        name: of the network, a folder or a name on the Hugging Face hub.
        size: S, height and width of the pictures.

    Raises:
        ModelError: there is no such network, or it does not read such pictures.
    """
    from transformers import AutoConfig, AutoImageProcessor

    try:
        config = AutoConfig.from_pretrained(name, trust_remote_code=False)
        read = AutoImageProcessor.from_pretrained(name, backend="pil", trust_remote_code=False)
        mean, deviation = ([float(number) for number in values] for values in (read.image_mean, read.image_std))
    except Exception as error:  # a damaged configuration can raise anything
        raise _not_found(name, error) from None
    if not read.do_normalize or len(mean) != 3 or getattr(read, "do_flip_channel_order", False):
        raise ModelError(f"vse.image_encoder {name!r}: does not read red, green and blue with mean 0; take another one")
    factor = read.rescale_factor if getattr(read, "do_rescale", None) else 1
    if not math.isclose(factor, 1 / 255, rel_tol=0.01):
        raise ModelError(f"vse.image_encoder {name!r}: multiplies pixels by {factor}; expected 1/255; take another one")
    plain = json.loads(config.to_json_string(use_diff=False))
    kept = {key: value for key, value in plain.items() if key not in _NOT_OF_THE_NETWORK}
    arguments: dict[str, Any] = {"config": kept, "mean": mean, "deviation": deviation}
    with torch.device("meta"):  # shapes alone
        ImageEncoder(3 * size**2, **arguments)
    return arguments


def _not_found(name: str, error: Exception) -> ModelError:
    return ModelError(f"vse.image_encoder {name!r}: no vision model of transformers there ({one_line(error)})")
