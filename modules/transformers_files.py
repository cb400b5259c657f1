"""A dual encoder as a network of `transformers`."""

from pathlib import Path

import torch

from modules.errors import ModelError
from modules.pretrained.quiet import quiet
from modules.retrieval_models.base import RetrievalModel
from modules.retrieval_models.dual_encoder import DualEncoder


def write_dual_encoder(model: RetrievalModel, text: Path, vision: Path, target: Path) -> int:
    """Write the weights of both towers, the tokenizer and the image processor to a folder.

    Args:
        model: a dual encoder; its images may be encoded by another one.
        text: the folder of its configuration and tokenizer.
        vision: the folder of its image processor.
        target: the folder that is written.

    Returns:
        how many parameters it has.

    Raises:
        ModelError: it is no dual encoder, or its images are those of another kind of network.
    """
    side = model.image_side if isinstance(model, DualEncoder) else None
    if not isinstance(model, DualEncoder) or not isinstance(side, DualEncoder | None) or model.network is None:
        raise ModelError("this model is no dual encoder; expected one of vse.model=dual-encoder")
    from transformers import AutoConfig, AutoImageProcessor, AutoModel, AutoTokenizer

    weights, config = model.network.network.state_dict(), AutoConfig.from_pretrained(text)
    if side is not None:
        assert side.network is not None
        weights, of_images = side.network.network.state_dict() | weights, side.network.network.config
        if of_images.model_type != config.model_type:
            raise ModelError(f"its text tower is of {config.model_type}, its image tower of {of_images.model_type}; "
                             "transformers has no such model")  # fmt: skip
        config.vision_config = of_images.vision_config
    network = AutoModel.from_config(config, dtype=torch.float32, trust_remote_code=False)  # as they were trained
    network.load_state_dict(weights)
    with quiet():
        network.save_pretrained(target)
    AutoTokenizer.from_pretrained(text).save_pretrained(target)
    AutoImageProcessor.from_pretrained(vision, backend="pil").save_pretrained(target)
    return sum(parameter.numel() for parameter in network.parameters())
