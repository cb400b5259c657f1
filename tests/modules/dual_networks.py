"""Dual encoders of transformers, of the real architectures but tiny, with random weights."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers as hf
from tokenizers import Tokenizer, normalizers
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

KINDS = ("clip", "siglip", "siglip2", "metaclip2", "altclip", "chinese-clip")
SIDE, PATCH, DIM = 16, 8, 8
WORDS = ("ein", "roter", "hund", "a", "red", "dog", "house", "der", "läuft", "runs")
_MARKS = ("<s>", "<pad>", "</s>", "<unk>")
_OF_TOKENIZERS: dict[str, Any] = {
    "unk_token": "<unk>", "pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "model_max_length": 12,
    "padding_side": "right",
}  # fmt: skip
_SQUARE = {"height": SIDE, "width": SIDE}
_SIZES = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}


def save(kind: str, folder: Path, words: Sequence[str] = WORDS, seed: int = 0, dropout: float = 0.0) -> Path:
    """A network of one of `KINDS` that knows these words, its tokenizer and its image processor."""
    torch.manual_seed(seed)
    tokenizer = (_sub_words if kind == "siglip2" else _tokenizer)(kind, words)
    model, reader = _NETWORKS[kind](len(tokenizer), dropout)
    for name, parameter in model.named_parameters():  # random weights of transformers are too small to tell texts apart
        if parameter.ndim > 1 and not name.startswith("logit"):
            torch.nn.init.normal_(parameter, std=0.2)
    with torch.no_grad():
        model.logit_scale.fill_(2.0)
        if hasattr(model, "logit_bias"):
            model.logit_bias.fill_(-3.0)
    model.save_pretrained(folder)
    reader.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _tokenizer(kind: str, words: Sequence[str]) -> Any:
    tokenizer = Tokenizer(WordLevel({word: n for n, word in enumerate([*_MARKS, *words])}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Whitespace()
    begin = "" if kind.startswith("siglip") else "<s> "
    ends = [(mark, _MARKS.index(mark)) for mark in ("<s>", "</s>")]
    tokenizer.post_processor = TemplateProcessing(single=f"{begin}$A </s>", special_tokens=ends)
    if kind == "chinese-clip":
        tokenizer.normalizer = normalizers.Lowercase()
    names = ["input_ids"] if kind == "siglip" else ["input_ids", "attention_mask"]
    return hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_input_names=names, **_OF_TOKENIZERS)


def _sub_words(kind: str, words: Sequence[str]) -> Any:
    """SigLIP 2's tokenizer reads Gemma's sub-words: a word, and the space behind it, are one of them."""
    spelled = [word.lower() for word in words]
    merges = [(word[:end], word[end]) for word in spelled for end in range(1, len(word))]
    merges += [(word, "▁") for word in spelled]
    entries = [*_MARKS, "▁", *(letter for word in spelled for letter in word), *("".join(pair) for pair in merges)]
    vocabulary = {entry: number for number, entry in enumerate(dict.fromkeys(entries))}
    tokenizer = hf.Siglip2Tokenizer(
        vocab=vocabulary, merges=list(dict.fromkeys(merges)), do_lower_case=True, model_input_names=["input_ids"],
        **_OF_TOKENIZERS,
    )  # fmt: skip
    tokenizer._tokenizer.post_processor = TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    return tokenizer


def _text(vocabulary: int, **more: Any) -> dict[str, Any]:
    marks = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}
    return {**_SIZES, "vocab_size": vocabulary, "max_position_embeddings": 12, **marks, **more}


def _vision() -> dict[str, Any]:
    return {**_SIZES, "image_size": SIDE, "patch_size": PATCH}


def _crop() -> Any:
    return hf.CLIPImageProcessorPil(size={"shortest_edge": SIDE}, crop_size=_SQUARE)


def _clip(vocabulary: int, dropout: float) -> tuple[Any, Any]:
    text = _text(vocabulary, attention_dropout=dropout)
    return hf.CLIPModel(hf.CLIPConfig(text_config=text, vision_config=_vision(), projection_dim=DIM)), _crop()


def _metaclip2(vocabulary: int, dropout: float) -> tuple[Any, Any]:
    text = _text(vocabulary, attention_dropout=dropout)
    return hf.MetaClip2Model(hf.MetaClip2Config(text_config=text, vision_config=_vision(), projection_dim=DIM)), _crop()


def _siglip(vocabulary: int, dropout: float) -> tuple[Any, Any]:
    text = _text(vocabulary, attention_dropout=dropout, projection_size=16)
    config = hf.SiglipConfig(text_config=text, vision_config=_vision())
    return hf.SiglipModel(config), hf.SiglipImageProcessorPil(size=_SQUARE)


def _siglip2(vocabulary: int, dropout: float) -> tuple[Any, Any]:
    text = _text(vocabulary, attention_dropout=dropout, projection_size=16)
    config = hf.Siglip2Config(text_config=text, vision_config={**_SIZES, "num_patches": 9, "patch_size": PATCH})
    return hf.Siglip2Model(config), hf.Siglip2ImageProcessorPil(patch_size=PATCH, max_num_patches=6)


def _altclip(vocabulary: int, dropout: float) -> tuple[Any, Any]:
    text = _text(vocabulary, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout, project_dim=16)
    text["max_position_embeddings"] = 14  # places count from the number of the padding plus 1
    return hf.AltCLIPModel(hf.AltCLIPConfig(text_config=text, vision_config=_vision(), projection_dim=DIM)), _crop()


def _chinese_clip(vocabulary: int, dropout: float) -> tuple[Any, Any]:
    text = _text(vocabulary, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    config = hf.ChineseCLIPConfig(text_config=text, vision_config=_vision(), projection_dim=DIM)
    return hf.ChineseCLIPModel(config), hf.ChineseCLIPImageProcessorPil(size=_SQUARE, crop_size=_SQUARE)


_NETWORKS = {
    "clip": _clip, "siglip": _siglip, "siglip2": _siglip2, "metaclip2": _metaclip2, "altclip": _altclip,
    "chinese-clip": _chinese_clip,
}  # fmt: skip
