"""Text models of transformers, of the real architectures but tiny, with random weights."""

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import Unigram, WordLevel
from tokenizers.pre_tokenizers import Metaspace, Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast, XLMRobertaConfig, XLMRobertaModel

WORDS = ["ein", "roter", "hund", "a", "red", "dog", "house"]
SIZES = {
    "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16,
    "max_position_embeddings": 110,
}  # fmt: skip


def save(kind: str, folder: Path, words: Sequence[str] = WORDS) -> Path:
    """A model that knows these words, and its tokenizer; XLM-R's padding is 1, its places depend on what is padding."""
    if kind == "bert":
        marks = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
        tokenizer = Tokenizer(WordLevel({word: n for n, word in enumerate([*marks, *words])}, unk_token="[UNK]"))
        tokenizer.pre_tokenizer = Whitespace()
        pad, unknown, begin, end = marks
        model = BertModel(BertConfig(vocab_size=len(words) + 4, **SIZES))
    else:
        marks = ["<s>", "<pad>", "</s>", "<unk>"]
        tokenizer = Tokenizer(Unigram([*((m, 0.0) for m in marks), *((f"▁{w}", -1.0) for w in words)], unk_id=3))
        tokenizer.pre_tokenizer = Metaspace()
        begin, pad, end, unknown = marks
        model = XLMRobertaModel(XLMRobertaConfig(vocab_size=len(words) + 4, pad_token_id=1, **SIZES))
    ends = [(mark, marks.index(mark)) for mark in (begin, end)]
    tokenizer.post_processor = TemplateProcessing(single=f"{begin} $A {end}", special_tokens=ends)
    names = {"unk_token": unknown, "pad_token": pad, "cls_token": begin, "sep_token": end}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    model.save_pretrained(folder)
    return folder
