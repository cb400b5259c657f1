"""Regions by a pretrained network of `transformers`: boxes of a detector, or the patches of a vision backbone."""

import math
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from huggingface_hub.utils import are_progress_bars_disabled, enable_progress_bars
from PIL import Image
from torch import Tensor
from torch.nn import functional as F
from transformers import AutoConfig, AutoImageProcessor, AutoModel, AutoModelForObjectDetection
from transformers.models.auto.modeling_auto import MODEL_FOR_OBJECT_DETECTION_MAPPING
from transformers.utils import logging
from transformers.utils.peft_utils import find_adapter_config_file

from data.errors import DataError, lacks_processor, one_line
from data.pictures.objects import Found

_LEADING = 16  # states before those of the patches, at most: the class's, registers
_BOXES, _GRID = 36, 7  # where nobody chooses R
_BATCH = 16  # pictures of one shape that a network reads together
_NARROWEST = 4  # a picture with a larger aspect ratio is widened: processors would round its short side to zero


class VisionNetwork:
    """A frozen network that finds and describes regions.

    A detector (DETR, RT-DETR, YOLOS …) gives the R boxes of highest confidence, each described by the last state of its
    query (Carion et al. 2020); none is left out for overlapping another. A backbone of patches (CLIP, SigLIP, DINOv2,
    ViT …) gives the whole picture by its pooled output, and with R = 1 + G² a grid of G×G means of its patches; the
    picture is squeezed to the square that the network reads, so that no edge is cut off.

    Args:
        name: a folder, or a name on the hub.
        count: R; None: 36 boxes of a detector, or the whole picture and a grid of 7×7, or as many as there are.

    Raises:
        DataError: there is no such network, it is neither, or it cannot give R regions.
    """

    def __init__(self, name: str, count: int | None) -> None:
        config, self._read, network = _load(name)
        network = network.eval().requires_grad_(False)
        self._detects = type(config) in MODEL_FOR_OBJECT_DETECTION_MAPPING
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._size: dict[str, int] = dict(self._read.size)
        if self._detects:
            known = getattr(config, "num_queries", getattr(config, "num_detection_tokens", count or _BOXES))
            queries = int(known)
            count = min(_BOXES, queries) if count is None else count
            if count > queries:
                raise DataError(f"regions.regions: {name!r} finds {queries} boxes a picture; expected so many at most")
        else:
            network = getattr(network, "vision_model", network)
            side, patch = _geometry(name, network)
            self._patches = side // patch
            count = 1 + min(_GRID, self._patches) ** 2 if count is None else count
            self._grid = math.isqrt(count - 1)
            self._size = {"height": side, "width": side}
            if self._grid**2 != count - 1 or self._grid > self._patches:
                fit = ", ".join(str(1 + grid**2) for grid in range(self._patches + 1))
                raise DataError(f"regions.regions: {count} regions by {name!r}; expected one of {fit} (the whole "
                                "picture and a grid)")  # fmt: skip
            _require_grid(name, network, side, self._patches**2)
        self.count = count
        self.side = self._size.get("longest_edge") or 2 * max(self._size.values())
        self._network = network.to(self._device)
        if self._detects:
            self._require_boxes(name)

    def __call__(self, images: Sequence[Image.Image]) -> list[Found]:
        """Regions (R, D) and boxes (R, 4), x1, y1, x2, y2 in 0…1, of RGB pictures of any size."""
        read = [self._pixels(image) for image in images]  # one by one: padding must not change those that share a batch
        shapes = [tuple(tensor.shape) for tensor in read]
        order = sorted(range(len(images)), key=lambda place: shapes[place])
        results: dict[int, Found] = {}
        for _, alike in groupby(order, lambda place: shapes[place]):
            places = list(alike)
            for start in range(0, len(places), _BATCH):
                some = places[start : start + _BATCH]
                pixels = torch.cat([read[place] for place in some]).to(self._device)
                with torch.inference_mode():
                    regions, boxes = self._boxes(pixels) if self._detects else self._cells(pixels)
                results |= zip(some, zip(regions.float().cpu().numpy(), boxes.float().cpu().numpy(), strict=True),
                               strict=True)  # fmt: skip
        return [results[place] for place in range(len(images))]

    def _pixels(self, image: Image.Image) -> Tensor:
        """A picture as the network reads it, (1, 3, height, width)."""
        least = math.ceil(max(image.size) / _NARROWEST)
        if min(image.size) < least:
            image = image.resize((max(image.width, least), max(image.height, least)))
        options: dict[str, Any] = {} if self._detects else {"do_center_crop": False}
        inputs = self._read(
            np.asarray(image), return_tensors="pt", input_data_format="channels_last", size=self._size, **options
        )
        pixels: Tensor = inputs["pixel_values"]
        return pixels

    def _boxes(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """The most confident boxes of a detector: states (N, R, D) and boxes (N, R, 4)."""
        seen = self._network(pixel_values=pixels)
        without_class = seen.logits.shape[2] == self._network.config.num_labels + 1  # DETR: the last says "nothing"
        sure = seen.logits.softmax(2)[..., :-1] if without_class else seen.logits.sigmoid()
        best = sure.amax(2).topk(self.count).indices[..., None]
        states = seen.last_hidden_state[:, -seen.logits.shape[1] :]  # YOLOS has its patches before them
        x, y, width, height = seen.pred_boxes.gather(1, best.expand(-1, -1, 4)).unbind(2)
        corners = torch.stack([x - width / 2, y - height / 2, x + width / 2, y + height / 2], 2)
        return states.gather(1, best.expand(-1, -1, states.shape[2])), corners.clamp(0, 1)

    def _require_boxes(self, name: str) -> None:
        """Refuse a detector of another kind (of lines of text …), or one whose processor gives it other pictures."""
        try:
            self([Image.new("RGB", (64, 64))])
        except Exception as error:  # each network has its own
            raise DataError(f"regions.model {name!r}: gives no boxes of a picture ({one_line(error)}); expected a "
                            "detector like DETR, RT-DETR or YOLOS, with its own image processor") from None  # fmt: skip

    def _cells(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """The whole picture and a grid of patches: states (N, R, D) and boxes (N, R, 4)."""
        seen = self._network(pixel_values=pixels)
        patches = seen.last_hidden_state[:, -(self._patches**2) :]  # class and register tokens stand before them
        pooled = getattr(seen, "pooler_output", None)
        whole = patches.mean(1) if pooled is None else pooled
        states, corners = [whole[:, None]], [(0.0, 0.0, 1.0, 1.0)]
        if grid := self._grid:
            square = patches.transpose(1, 2).unflatten(2, (self._patches, self._patches))
            states.append(F.adaptive_avg_pool2d(square, grid).flatten(2).transpose(1, 2))
            corners += [
                (column / grid, row / grid, (column + 1) / grid, (row + 1) / grid)
                for row in range(grid) for column in range(grid)
            ]  # fmt: skip
        return torch.cat(states, 1), torch.tensor(corners).expand(len(pixels), -1, -1)


def copy_network(name: str, folder: Path) -> None:
    """Write a network and how it reads pictures to a folder, weights as safetensors.

    Raises:
        DataError: there is no such network.
    """
    _, read, network = _load(name)
    read.save_pretrained(folder)
    network.save_pretrained(folder)


def _load(name: str) -> tuple[Any, Any, Any]:
    """Configuration, image processor and network; what is missing is told here, not by the library."""
    level = logging.get_verbosity()
    logging.set_verbosity_error()
    downloads = not are_progress_bars_disabled()
    logging.disable_progress_bar()  # of loading weights, which takes seconds
    if downloads:
        enable_progress_bars()  # they take minutes
    try:
        config = AutoConfig.from_pretrained(name, trust_remote_code=False)
        if find_adapter_config_file(name):  # read only where peft is installed
            raise ValueError("adapters are beside its weights; merge them by `merge_and_unload` of peft")
        kind = AutoModelForObjectDetection if type(config) in MODEL_FOR_OBJECT_DETECTION_MAPPING else AutoModel
        # By Pillow, so that regions do not depend on whether torchvision is there.
        read = AutoImageProcessor.from_pretrained(name, backend="pil", trust_remote_code=False)
        network, loading_info = kind.from_pretrained(
            name, config=config, dtype=torch.float32, trust_remote_code=False, output_loading_info=True
        )
    except Exception as error:  # a damaged configuration or file can raise anything
        raise DataError(_not_found(name, error)) from None
    finally:
        logging.set_verbosity(level)
    missing = sorted(loading_info["missing_keys"])
    if missing and all(key.startswith("pooler.") for key in missing):
        network.pooler = None  # a classifier's: the mean of patches stands for the picture
    elif missing:  # they would be random
        raise DataError(f"regions.model {name!r}: its weights lack {missing[0]}; get one that is whole")
    return config, read, network


def _not_found(name: str, error: Exception) -> str:
    """Why a network cannot be read, and what to do."""
    reason, advice = one_line(error), lacks_processor(name)
    if not Path(name).is_dir():
        advice = ("; expected a folder, or a name on the hub; without internet, copy the network into a folder (`hf "
                  "download NAME --local-dir FOLDER`) and name that")  # fmt: skip
    return f"regions.model {name!r}: no vision model of transformers there ({reason}){advice}"


def _require_grid(name: str, network: Any, side: int, patches: int) -> None:
    """Refuse a backbone without a state for each patch (Swin) or with random ones (a masked autoencoder)."""
    blank = torch.zeros(1, 3, side, side)
    try:
        with torch.inference_mode():
            first, second = (network(pixel_values=blank).last_hidden_state for _ in range(2))
        whole = first.ndim == 3 and 0 <= first.shape[1] - patches <= _LEADING and bool(torch.equal(first, second))
    except Exception:
        whole = False
    if not whole:
        raise DataError(f"regions.model {name!r}: gives no state for each of its {patches} patches; expected one like "
                        "CLIP, SigLIP, DINOv2 or ViT, or a detector")  # fmt: skip


def _geometry(name: str, network: Any) -> tuple[int, int]:
    """Pixels of the square that a backbone reads, and of a patch."""
    side, patch = (getattr(network.config, key, None) for key in ("image_size", "patch_size"))
    if not (isinstance(side, int) and isinstance(patch, int) and hasattr(network, "get_input_embeddings")
            and getattr(network, "main_input_name", "") == "pixel_values"):  # fmt: skip
        raise DataError(f"regions.model {name!r}: neither a detector nor a backbone of patches; expected one like "
                        "DETR, RT-DETR, CLIP, SigLIP, DINOv2 or ViT")  # fmt: skip
    return side, patch
