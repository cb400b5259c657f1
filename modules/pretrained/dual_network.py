"""Dual encoders of `transformers`: a tower for pictures and one for text, whose vectors share a space."""

import json
from collections.abc import Iterator
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.nn import functional as F

from modules.errors import ModelError, one_line
from modules.layers.recurrent import widen
from modules.pretrained.adapters import add_adapters, merge_adapters
from modules.pretrained.quiet import auto_model, quiet, require_weights

Tower = Literal["frozen", "head", "lora", "full"]
"""What of a tower is trained: nothing, what projects its pooled state, adapters of low rank in its attention, all."""
Towers = Literal["both", "text", "image"]
_BLOCK = 32  # pictures that are read together without a gradient: bounds memory
_NOT_OF_THE_NETWORK = ("_name_or_path", "architectures", "dtype", "transformers_version")
_HEADS = ("text_projection", "text_model.head", "text_model.transformation", "text_model.pre_LN",
          "visual_projection", "vision_model.head")  # fmt: skip
_NEEDED = ("get_text_features", "get_image_features", "logit_scale")  # ALIGN and X-CLIP have others
_PADDED = ("siglip", "siglip2")  # trained with texts of one length, whose padding is read as words are


class DualNetwork(nn.Module):
    """CLIP, SigLIP, SigLIP 2, MetaCLIP 2, AltCLIP, Chinese-CLIP: a network with text and image features of one size.

    Args:
        config: of the network, plain values; its weights are random until they are loaded.
        pixels: how it reads pictures, and `text`: how it reads words, as `dual_network_arguments` gives them.
        text: see there.
        towers: which of the two are made.

    Attributes:
        dim: H, size of a vector.
        has_bias: was it trained with the sigmoid loss (SigLIP), which adds a bias to the scores?

    Raises:
        ModelError: there is no such network.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(
        self, config: dict[str, Any], pixels: dict[str, Any], text: dict[str, Any], towers: Towers = "both"
    ) -> None:
        from transformers import AutoConfig, AutoModel  # takes seconds to import

        super().__init__()
        kind = config.get("model_type")
        try:
            with quiet():
                network = AutoModel.from_config(AutoConfig.for_model(**config), trust_remote_code=False)
        except Exception as error:  # of another version, or damaged
            raise ModelError(f"vse.pretrained: no network {kind!r} can be made ({one_line(error)})") from None
        if lacking := [part for part in _NEEDED if not hasattr(network, part)]:
            raise ModelError(f"vse.pretrained: a network {kind!r} has no {lacking[0]}; expected a dual encoder like "
                             "SigLIP 2 or CLIP")  # fmt: skip
        for name, _ in list(network.named_children()):
            if not is_of(name, towers):
                setattr(network, name, None)
        self.network, self.pixels, self.words, self.towers = network, pixels, text, towers
        self.has_bias = hasattr(network, "logit_bias")
        for name in ("mean", "deviation"):  # on the network's device, so that no step waits for a copy
            self.register_buffer(name, torch.tensor(pixels[name]), persistent=False)
        self._trained: dict[str, Tower] = {}
        self.dim = int(_size(config))
        self.requires_grad_(False)

    def train_towers(self, text: Tower, image: Tower, rank: int) -> None:
        """Choose what of each tower is trained, once weights are loaded; adapters of low rank start as zero.

        Raises:
            ModelError: `peft`, which adapters need, is missing, or a tower has no attention that they fit.
        """
        self._trained = {tower: how for tower, how in (("text", text), ("image", image)) if self._parts(tower)}
        adapted = [tower for tower, how in self._trained.items() if how == "lora"]
        if adapted:
            add_adapters(self.network, [f"{part}." for tower in adapted for part, _ in self._parts(tower)], rank)
        for tower, how in self._trained.items():
            for name, parameter in self._weights(tower):
                at_head = name.startswith(_HEADS)
                adapter = ".lora_" in name
                parameter.requires_grad_(how == "full" or (how == "head" and at_head) or (how == "lora" and adapter))
        self.train(self.training)

    def merge(self) -> None:
        """Add the adapters to the weights that they adapt, and take them out; frozen weights stay bit for bit."""
        merge_adapters(self.network)

    def keep_scale(self, scale: float | None, bias: float | None) -> None:
        """Keep the logarithm of the factor of its scores, and their bias, as a training ends with them; None: as is."""
        with torch.no_grad():
            if scale is not None:
                self.network.logit_scale.fill_(scale)
            if bias is not None and self.has_bias:
                self.network.logit_bias.fill_(bias)

    def train(self, mode: bool = True) -> "DualNetwork":
        """Set the training mode; in towers without trained layers nothing is dropped."""
        super().train(mode)
        for tower in ("text", "image"):
            if self._trained.get(tower, "frozen") in ("frozen", "head"):
                for _, part in self._parts(tower):
                    part.train(False)
        return self

    def load(self, name: str) -> dict[str, float]:
        """Load the weights of a folder, or of a name on the Hugging Face hub.

        Returns:
            `scale` of the whole network, of which this may be a part.

        Raises:
            ModelError: there is no such network, or its weights are not whole.
        """
        network, missing = auto_model(name, _not_found)
        require_weights(missing, f"vse.pretrained {name!r}")
        given, own = network.state_dict(), self.network.state_dict()
        try:
            self.network.load_state_dict({key: given[key] for key in own})
        except (KeyError, RuntimeError) as error:
            raise _not_found(name, error) from None
        return self.scale()

    def scale(self) -> dict[str, float]:
        """The logarithm of the factor of its scores, `log_scale`, and their `bias` if they have one."""
        scale = {"log_scale": self.network.logit_scale.item()}
        return scale | ({"bias": self.network.logit_bias.item()} if self.has_bias else {})

    def encode_text(self, tokens: Tensor) -> Tensor:
        """Return unit vectors (C, H) of tokens (C, L): the network's numbers plus 1, and 0 for padding at the end."""
        numbers, mask = self._numbers(tokens)
        more = {"attention_mask": mask.long()} if self.words["mask"] else {}
        vectors: Tensor = self.network.get_text_features(input_ids=numbers, **more).pooler_output
        return F.normalize(widen(vectors), dim=-1)

    def encode_pictures(self, pictures: Tensor) -> Tensor:
        """Return unit vectors (B, H) of pictures (B, N), as `data.pictures.network_pixels` reads them."""
        if torch.is_grad_enabled() and any(parameter.requires_grad for _, parameter in self._weights("image")):
            return self._pictures(pictures)
        with torch.no_grad():
            return torch.cat([self._pictures(some) for some in pictures.split(_BLOCK)])

    def _numbers(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Token numbers (C, L) as the network counts and pads them, and which are words."""
        if (length := self.words["length"]) is not None:
            tokens = F.pad(tokens[:, :length], (0, max(0, length - tokens.shape[1])))
        if self.words["left"]:
            places = torch.arange(tokens.shape[1], device=tokens.device)
            places = places - (tokens == 0).sum(1, keepdim=True)
            tokens = tokens.gather(1, places.clamp(min=0)).masked_fill(places < 0, 0)
        mask = tokens > 0
        return torch.where(mask, tokens - 1, self.words["pad"]), mask

    def _pictures(self, pictures: Tensor) -> Tensor:
        read, mean, deviation = self.pixels, self.mean, self.deviation
        if read["patches"] is None:
            values = widen(pictures).unflatten(1, (3, read["height"], read["width"])) * read["factor"]
            inputs = {"pixel_values": (values - mean[:, None, None]) / deviation[:, None, None]}
        else:  # patches of pictures in their own shape, which stands in the last two numbers
            sizes = pictures[:, -2:].long()
            mask = torch.arange(read["patches"], device=pictures.device) < sizes.prod(1, keepdim=True)
            values = widen(pictures[:, :-2]).unflatten(1, (read["patches"], -1, 3)) * read["factor"]
            values = ((values - mean) / deviation).flatten(2) * mask[..., None]
            inputs = {"pixel_values": values, "pixel_attention_mask": mask.long(), "spatial_shapes": sizes}
        vectors: Tensor = self.network.get_image_features(**inputs).pooler_output
        return F.normalize(widen(vectors), dim=-1)

    def _parts(self, tower: str) -> list[tuple[str, nn.Module]]:
        """The modules of a tower, by name; none where it is not made."""
        return [(name, part) for name, part in self.network.named_children()
                if name.startswith("vis") == (tower == "image")]  # fmt: skip

    def _weights(self, tower: str) -> Iterator[tuple[str, nn.Parameter]]:
        for name, part in self._parts(tower):
            yield from ((f"{name}.{inner}", parameter) for inner, parameter in part.named_parameters())


def is_of(part: str, towers: Towers) -> bool:
    """Whether a part of a network, by its name, belongs to these towers."""
    return towers == "both" or part.startswith("vis") == (towers == "image")


def dual_network_arguments(name: str) -> dict[str, Any]:
    """Return the arguments of a `DualNetwork`, but `towers`, as plain values.

    `pixels`: `height` and `width` of a picture or, for a network that reads patches in the picture's own shape, how
    many `patches` at most; `factor`, `mean` and `deviation` of red, green and blue. `text`: number of
    the padding (`pad`), the `length` that texts are padded to (null: the longest of a batch), whether padding stands
    `left`, whether it is masked (`mask`), the `longest` text that is read, in sub-words, and whether texts are read
    `lower`-cased.

    Args:
        name: of the network, a folder or a name on the Hugging Face hub.

    Raises:
        ModelError: there is no such network, it has no two towers, or no tokenizer.
    """
    from transformers import AutoConfig, AutoImageProcessor, AutoTokenizer

    try:
        with quiet():
            config = AutoConfig.from_pretrained(name, trust_remote_code=False)
    except Exception as error:  # a damaged configuration can raise anything
        raise _not_found(name, error) from None
    for part, tower in (("text_config", "text"), ("vision_config", "image")):
        if not hasattr(config, part):
            raise ModelError(
                f"vse.pretrained {name!r}: a network {config.model_type!r} without {tower} tower; expected a dual "
                "encoder (SigLIP 2, CLIP …)"
            )
    if not (config.model_type in _PADDED or hasattr(config, "projection_dim")):
        raise ModelError(
            f"vse.pretrained {name!r}: a network {config.model_type!r} without one space for pictures and texts; "
            "expected a dual encoder (SigLIP 2, CLIP …)"
        )
    try:
        with quiet():
            reader = AutoImageProcessor.from_pretrained(name, backend="pil", trust_remote_code=False)
            tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except Exception as error:
        raise _not_found(name, error) from None
    if len(tokenizer) <= len(tokenizer.all_special_ids):  # transformers returns an empty tokenizer
        raise ModelError(f"vse.pretrained {name!r}: no tokenizer there (it knows no words); copy that of the network")
    plain = json.loads(config.to_json_string(use_diff=False))
    kept = {key: value for key, value in plain.items() if key not in _NOT_OF_THE_NETWORK}
    arguments: dict[str, Any] = {
        "config": kept,
        "pixels": _pixels(name, reader),
        "text": _text(name, config, tokenizer),
    }
    with torch.device("meta"):  # shapes alone
        DualNetwork(**arguments)
    return arguments


def _pixels(name: str, reader: Any) -> dict[str, Any]:
    mean, deviation = ([float(number) for number in values] for values in (reader.image_mean, reader.image_std))
    if len(mean) != 3 or getattr(reader, "do_flip_channel_order", False):
        raise ModelError(f"vse.pretrained {name!r}: does not read red, green and blue; take another network")
    if not reader.do_normalize:
        mean, deviation = [0.0] * 3, [1.0] * 3
    factor = float(reader.rescale_factor) if reader.do_rescale else 1.0
    plain = {"factor": factor, "mean": mean, "deviation": deviation}
    if (patches := getattr(reader, "max_num_patches", None)) is not None:
        return plain | {"patches": int(patches)}
    crop = reader.crop_size if getattr(reader, "do_center_crop", None) else reader.size
    if not (getattr(crop, "height", None) and getattr(crop, "width", None)):
        raise ModelError(f"vse.pretrained {name!r}: reads pictures of no fixed size; take another network")
    return plain | {"patches": None, "height": int(crop.height), "width": int(crop.width)}


def _text(name: str, config: Any, tokenizer: Any) -> dict[str, Any]:
    padded, places = config.model_type in _PADDED, config.text_config.max_position_embeddings
    if tokenizer.pad_token_id is None:
        raise ModelError(f"vse.pretrained {name!r}: its tokenizer has no padding; set its pad_token")
    if config.model_type == "altclip":  # its places count from the number of the padding
        places -= config.text_config.pad_token_id + 1
    if len(tokenizer) > (known := config.text_config.vocab_size):
        raise ModelError(
            f"vse.pretrained {name!r}: its tokenizer has {len(tokenizer)} entries, but the network {known}; use the "
            "tokenizer of this network"
        )
    return {
        "pad": int(tokenizer.pad_token_id), "length": places if padded else None,
        "left": tokenizer.padding_side == "left", "mask": not padded,
        "longest": min(places, int(min(tokenizer.model_max_length, places))),
        "lower": bool(getattr(tokenizer, "init_kwargs", {}).get("do_lower_case", False)),
    }  # fmt: skip


def _size(config: dict[str, Any]) -> int:
    """H: that of the projections, or of SigLIP's text tower."""
    text = config["text_config"]
    return int(text.get("projection_size") or text["hidden_size"] if config["model_type"] in _PADDED
               else config["projection_dim"])  # fmt: skip


def _not_found(name: str, error: Exception) -> ModelError:
    if isinstance(error, SafetensorError):
        why = one_line(error)
        return ModelError(f"vse.pretrained {name!r}: its weights are damaged or cut short ({why}); get them again")
    return ModelError(
        f"vse.pretrained {name!r}: no dual encoder of transformers there ({one_line(error)}); expected a folder, or a "
        "name on the hub; without internet, copy it into a folder (`hf download NAME --local-dir FOLDER`) and name that"
    )
