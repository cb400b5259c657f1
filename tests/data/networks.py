"""Vision networks of `transformers`, of the real architectures but tiny, with random weights."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers as hf

SIDE, PATCH, DIM, QUERIES = 32, 8, 32, 12


def _sizes(layers: int) -> dict[str, int]:
    return {"hidden_size": DIM, "intermediate_size": 48, "num_hidden_layers": layers, "num_attention_heads": 2}


def _vision(layers: int) -> dict[str, int]:
    return {**_sizes(layers), "image_size": SIDE, "patch_size": PATCH}


def _text() -> dict[str, int]:
    return {
        **_sizes(1), "vocab_size": 99, "max_position_embeddings": 16,
        "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
    }  # fmt: skip


def _clip(layers: int) -> tuple[Any, Any]:
    config = hf.CLIPConfig(text_config=_text(), vision_config=_vision(layers), projection_dim=16)
    crop = {"height": SIDE, "width": SIDE}
    return hf.CLIPModel(config), hf.CLIPImageProcessor(size={"shortest_edge": SIDE}, crop_size=crop)


def _siglip(layers: int) -> tuple[Any, Any]:
    config = hf.SiglipConfig(text_config=_text(), vision_config=_vision(layers))
    return hf.SiglipModel(config), hf.SiglipImageProcessor(size={"height": SIDE, "width": SIDE})


def _dino(layers: int) -> tuple[Any, Any]:
    crop = {"height": SIDE, "width": SIDE}
    read = hf.BitImageProcessor(size={"shortest_edge": SIDE + 4}, crop_size=crop)
    return hf.Dinov2Model(hf.Dinov2Config(**_vision(layers))), read


def _detr(layers: int) -> tuple[Any, Any]:
    backbone = hf.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 8, 8, 16], depths=[1, 1, 1, 1], out_features=["stage4"]
    )
    config = hf.DetrConfig(
        use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, backbone_config=backbone, d_model=DIM,
        encoder_layers=layers, decoder_layers=layers, encoder_attention_heads=2, decoder_attention_heads=2,
        encoder_ffn_dim=32, decoder_ffn_dim=32, num_queries=QUERIES, num_labels=5,
    )  # fmt: skip
    read = hf.DetrImageProcessor(size={"shortest_edge": 64, "longest_edge": 96})
    return hf.DetrForObjectDetection(config), read


def _rtdetr(layers: int) -> tuple[Any, Any]:
    backbone = hf.RTDetrResNetConfig(
        embedding_size=8, hidden_sizes=[8, 8, 16, 16], depths=[1, 1, 1, 1], layer_type="basic",
        out_features=["stage2", "stage3", "stage4"],
    )  # fmt: skip
    config = hf.RTDetrConfig(
        backbone_config=backbone, use_timm_backbone=False, encoder_hidden_dim=32, encoder_in_channels=[8, 16, 16],
        encoder_ffn_dim=32, encoder_attention_heads=2, d_model=DIM, num_queries=QUERIES,
        decoder_in_channels=[32, 32, 32], decoder_ffn_dim=32, decoder_layers=layers, decoder_attention_heads=2,
        num_labels=5,
    )  # fmt: skip
    return hf.RTDetrForObjectDetection(config), hf.RTDetrImageProcessor(size={"height": 64, "width": 64})


def _yolos(layers: int) -> tuple[Any, Any]:
    config = hf.YolosConfig(
        **_sizes(layers), image_size=[64, 64], patch_size=PATCH, num_detection_tokens=QUERIES, num_labels=5
    )
    read = hf.YolosImageProcessor(size={"shortest_edge": 64, "longest_edge": 96})
    return hf.YolosForObjectDetection(config), read


def _bert(layers: int) -> tuple[Any, Any]:
    model = hf.BertModel(hf.BertConfig(**_sizes(layers), vocab_size=99))
    return model, None


def _vit(layers: int) -> tuple[Any, Any]:
    """A classifier: it has no pooler."""
    return hf.ViTForImageClassification(hf.ViTConfig(**_vision(layers))), _square()


def _swin(layers: int) -> tuple[Any, Any]:
    config = hf.SwinConfig(image_size=SIDE, patch_size=4, embed_dim=8, depths=[1, 1], num_heads=[2, 2], window_size=2)
    return hf.SwinModel(config), _square()


def _masked(layers: int) -> tuple[Any, Any]:
    sizes = {"decoder_hidden_size": 16, "decoder_num_hidden_layers": 1, "decoder_num_attention_heads": 2}
    return hf.ViTMAEModel(hf.ViTMAEConfig(**_vision(layers), **sizes, decoder_intermediate_size=16)), _square()


def _headless(layers: int) -> tuple[Any, Any]:
    detector, read = _detr(layers)
    return detector.model, read


def _resnet(layers: int) -> tuple[Any, Any]:
    config = hf.ResNetConfig(embedding_size=4, hidden_sizes=[4, 6, 8, 12], depths=[layers] * 4, layer_type="basic")
    return hf.ResNetModel(config), hf.ConvNextImageProcessorPil(size={"shortest_edge": SIDE})


def _square() -> Any:
    return hf.ViTImageProcessor(size={"height": SIDE, "width": SIDE})


BACKBONES = ("clip", "siglip", "dino")
DETECTORS = ("detr", "rtdetr", "yolos")
_MAKERS: dict[str, Callable[[int], tuple[Any, Any]]] = {
    "clip": _clip, "siglip": _siglip, "dino": _dino, "detr": _detr, "rtdetr": _rtdetr, "yolos": _yolos, "text": _bert,
    "vit": _vit, "swin": _swin, "masked": _masked, "headless": _headless,
    "resnet": _resnet,
}  # fmt: skip


def make_network(name: str, folder: Path, layers: int = 1) -> Path:
    """Write a network with random weights, always the same, and how it reads pictures."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, read = _MAKERS[name](layers)
        with torch.no_grad():
            for parameter in model.parameters():  # some start at zero: every state would be the same
                parameter.add_(0.3 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    if read is not None:
        read.save_pretrained(folder)
    return folder
