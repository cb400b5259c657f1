"""A small dual encoder of `transformers` with random weights, to be trained from nothing."""

from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from modules.errors import ModelError
from modules.pretrained.quiet import quiet

_BEGIN, _END = "<|startoftext|>", "<|endoftext|>"
_LONGEST, _HEAD = 96, 32  # sub-words of a text, numbers of an attention head


def write_network(
    folder: Path, texts: Sequence[str], side: int, patch: int, width: int, layers: int, vocabulary: int, seed: int
) -> int:  # fmt: skip
    """Write a CLIP (Radford et al. 2021) of a small ViT and a small text Transformer, as `transformers` reads it.

    Its tokenizer is a byte-level BPE of some sentences, so that it reads any language, in pieces where it knows none.

    Args:
        folder: made; it must not exist, or be empty.
        texts: sentences that the vocabulary is made of.
        side: height and width of a picture in pixels.
        patch: height and width of a patch in pixels, which divides `side`.
        width: H, of both towers and of the vectors.
        layers: of each tower.
        vocabulary: entries of the tokenizer.
        seed: of the weights.

    Returns:
        how many parameters it has.

    Raises:
        ModelError: the folder holds something, or sizes do not fit.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ModelError(f"{folder}: holds something; name a folder that is not there")
    if side % patch or width % _HEAD or not texts:
        raise ModelError(f"side {side}, patch {patch}, width {width}: expected a patch that divides the side, and "
                         f"a width of {_HEAD}, {2 * _HEAD} …")  # fmt: skip
    from transformers import CLIPConfig, CLIPImageProcessorPil, CLIPModel, PreTrainedTokenizerFast

    tokenizer = _tokenizer(texts, vocabulary)
    marks = {name: tokenizer.token_to_id(mark) for name, mark in
             (("bos_token_id", _BEGIN), ("eos_token_id", _END), ("pad_token_id", _END))}  # fmt: skip
    sizes = {
        "hidden_size": width, "intermediate_size": 4 * width, "num_hidden_layers": layers,
        "num_attention_heads": width // _HEAD,
    }  # fmt: skip
    config = CLIPConfig(
        text_config={**sizes, **marks, "vocab_size": tokenizer.get_vocab_size(), "max_position_embeddings": _LONGEST},
        vision_config={**sizes, "image_size": side, "patch_size": patch}, projection_dim=width,
    )  # fmt: skip
    torch.manual_seed(seed)
    network = CLIPModel(config)
    folder.mkdir(parents=True, exist_ok=True)
    with quiet():
        network.save_pretrained(folder)
    square = {"height": side, "width": side}
    CLIPImageProcessorPil(size=square, crop_size=square, do_center_crop=False).save_pretrained(folder)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=_BEGIN, eos_token=_END, pad_token=_END, unk_token=_END,
        model_max_length=_LONGEST, padding_side="right",
    ).save_pretrained(folder)  # fmt: skip
    return sum(parameter.numel() for parameter in network.parameters())


def _tokenizer(texts: Sequence[str], vocabulary: int) -> Tokenizer:
    """A byte-level BPE of these texts."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=[_BEGIN, _END], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    ends = [(mark, tokenizer.token_to_id(mark)) for mark in (_BEGIN, _END)]
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{_BEGIN} $A {_END}", special_tokens=ends)
    return tokenizer
