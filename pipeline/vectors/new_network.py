"""A small dual encoder of `transformers` with random weights, to be trained from nothing."""

from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from data.captions import HUMAN, read_captions
from modules.pretrained.quiet import quiet
from pipeline.corpus.prepare import corpus_job
from pipeline.engine.console import info
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.recipes.settings import Recipe

_BEGIN, _END = "<|startoftext|>", "<|endoftext|>"
_LONGEST, _HEAD = 96, 32  # sub-words of a text, numbers of an attention head


def network_of_corpus(
    recipe: Recipe, workspace: Workspace, folder: Path, languages: Sequence[str], side: int, patch: int, width: int,
    layers: int, vocabulary: int,
) -> None:  # fmt: skip
    """`write_network` with a vocabulary of the human training captions of a recipe's corpus in some languages, and the
    recipe's seed.

    Raises:
        RecipeError: the corpus is not prepared, or has no captions in these languages; or as `write_network`.
    """
    corpus = workspace.require(corpus_job(recipe, workspace))
    rows = read_captions(corpus / "captions.parquet").to_list()
    texts = [
        row["text"] for row in rows
        if row["split"] == "train" and row["source"] == HUMAN and row["language"] in languages
    ]  # fmt: skip
    if not texts:
        raise RecipeError(
            f"--languages {','.join(languages)}: the corpus has no training captions in these; name others"
        )
    count = write_network(folder, texts, side, patch, width, layers, vocabulary, recipe.seed)
    info(f"{folder}: a CLIP of {count:,} parameters with random weights; train it as vse.pretrained={folder}")


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
        RecipeError: the folder holds something, or sizes do not fit.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RecipeError(f"{folder}: holds something; name a folder that is not there")
    if side % patch or width % _HEAD or not texts:
        raise RecipeError(f"--side {side}, --patch {patch}, --width {width}: expected a patch that divides the side, "
                          f"and a width of {_HEAD}, {2 * _HEAD} …")  # fmt: skip
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
