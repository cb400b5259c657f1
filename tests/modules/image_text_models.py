"""Vision-language models of transformers, of the real architectures but tiny, with random weights."""

from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import (
    CLIPImageProcessorPil,
    Idefics3ImageProcessorPil,
    Idefics3Processor,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PaliGemmaConfig,
    PaliGemmaForConditionalGeneration,
    PaliGemmaProcessor,
    PreTrainedTokenizerFast,
    SiglipImageProcessorPil,
    SmolVLMConfig,
    SmolVLMForConditionalGeneration,
)  # fmt: skip

MARKS = ["<pad>", "<s>", "</s>", "<unk>"]
SPECIAL = ["<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>"]
WORDS = [
    "user", "assistant", "describe", "this", "picture", "in", "one", "sentence", "translate", "from", "to", "english",
    "german", ":", ".", "a", "an", "the", "red", "blue", "small", "big", "ball", "bat", "dog", "man", "house", "on",
    "left", "of", "ein", "eine", "der", "die", "rot", "hund",
]  # fmt: skip
TEMPLATE = (
    "<s>{% for message in messages %}user : {% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image> {% else %}{{ part['text'] }} {% endif %}{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}assistant :{% endif %}"
)
SIZES = {
    "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "initializer_range": 0.5,
}  # fmt: skip
VISION = {"image_size": 16, "patch_size": 8, **SIZES}
ENDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def _tokenizer() -> PreTrainedTokenizerFast:
    known = [*MARKS, *SPECIAL, *WORDS]
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(known)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Whitespace()
    names = dict(zip(("pad_token", "bos_token", "eos_token", "unk_token"), MARKS, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, additional_special_tokens=SPECIAL, **names)


def save_llava(folder: Path, seed: int = 0) -> Path:
    """A model like LLaVA, with a chat template."""
    tokenizer = _tokenizer()
    text = {"model_type": "llama", "vocab_size": len(tokenizer), "num_key_value_heads": 2, **ENDS, **SIZES}
    vision = {"model_type": "clip_vision_model", "projection_dim": 16, **VISION}
    torch.manual_seed(seed)
    config = LlavaConfig(
        vision_config=vision, text_config=text, image_token_index=len(MARKS), vision_feature_layer=-1, **SIZES
    )
    LlavaForConditionalGeneration(config).save_pretrained(folder)
    LlavaProcessor(
        CLIPImageProcessorPil(size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16}), tokenizer,
        patch_size=8, vision_feature_select_strategy="default", num_additional_image_tokens=1, chat_template=TEMPLATE,
    ).save_pretrained(folder)  # fmt: skip
    return folder


def save_paligemma(folder: Path, seed: int = 0) -> Path:
    """A model like PaliGemma, without a chat template; words see all of the prompt."""
    tokenizer = _tokenizer()
    text = {
        "model_type": "gemma", "vocab_size": len(tokenizer) + 1152, "num_key_value_heads": 1, "head_dim": 8, **ENDS,
        **SIZES,
    }  # fmt: skip
    vision = {"model_type": "siglip_vision_model", "vision_use_head": False, **VISION}
    torch.manual_seed(seed)
    config = PaliGemmaConfig(
        vision_config=vision, text_config=text, image_token_index=len(MARKS), projection_dim=16, hidden_size=16
    )
    PaliGemmaForConditionalGeneration(config).save_pretrained(folder)
    images = SiglipImageProcessorPil(size={"height": 16, "width": 16})
    images.image_seq_length = 4
    PaliGemmaProcessor(images, tokenizer).save_pretrained(folder)
    return folder


def save_smolvlm(folder: Path, seed: int = 0) -> Path:
    """A model like SmolVLM with the processor of Idefics3, without a chat template."""
    tokenizer = _tokenizer()
    text = {"model_type": "llama", "vocab_size": len(tokenizer), "num_key_value_heads": 2, **ENDS, **SIZES}
    torch.manual_seed(seed)
    config = SmolVLMConfig(
        vision_config=VISION, text_config=text, image_token_id=len(MARKS), scale_factor=2, pad_token_id=0
    )
    SmolVLMForConditionalGeneration(config).save_pretrained(folder)
    images = Idefics3ImageProcessorPil(
        size={"longest_edge": 16}, max_image_size={"longest_edge": 16}, do_image_splitting=False
    )
    Idefics3Processor(images, tokenizer, image_seq_len=1).save_pretrained(folder)
    return folder


SAVE = {"llava": save_llava, "paligemma": save_paligemma, "smolvlm": save_smolvlm}
