"""Translators of transformers, of the real architectures but tiny, with random weights and tokenizers of their own."""

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import Metaspace
from tokenizers.trainers import BpeTrainer
from transformers import (
    M2M100Config,
    M2M100ForConditionalGeneration,
    MarianConfig,
    MarianMTModel,
    NllbTokenizer,
    PreTrainedTokenizerBase,
)  # fmt: skip

from data.text.language_codes import NLLB
from data.translators.translator_tokens import TranslatorTokens

SENTENCES = [
    "A man in a blue shirt stands on a ladder.", "Two dogs play in the snow.", "a red bat and a small ball",
    "Ein Mann in einem blauen Hemd steht auf einer Leiter.", "Zwei Hunde spielen im Schnee.", "ein roter Ball links",
]  # fmt: skip
SIZES = {
    "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "max_position_embeddings": 200,
    "init_std": 0.3, "dropout": 0.0,
}  # fmt: skip


def save_nllb(folder: Path, sentences: Sequence[str] = SENTENCES) -> Path:
    """A model like NLLB; its tokenizer needs no package."""
    marks = ["<s>", "<pad>", "</s>", "<unk>"]
    trained = Tokenizer(BPE(unk_token="<unk>"))
    trained.pre_tokenizer = Metaspace()
    trained.train_from_iterator(sentences, BpeTrainer(vocab_size=120, special_tokens=marks, show_progress=False))
    model = json.loads(trained.to_str())["model"]
    tokenizer = NllbTokenizer(vocab=model["vocab"], merges=[tuple(pair) for pair in model["merges"]])
    tokenizer.save_pretrained(folder)
    return _save_m2m(folder, len(tokenizer))


def save_m2m(folder: Path, sentences: Sequence[str] = SENTENCES) -> Path:
    """A model like M2M100."""
    from transformers import M2M100Tokenizer

    pieces = _train_pieces(folder / "sentencepiece.bpe.model", sentences)
    numbers = {piece: n for n, piece in enumerate(["<s>", "<pad>", "</s>", "<unk>", *pieces])}
    (folder / "vocab.json").write_text(json.dumps(numbers))
    tokenizer = M2M100Tokenizer(str(folder / "vocab.json"), str(folder / "sentencepiece.bpe.model"))
    tokenizer.save_pretrained(folder)
    return _save_m2m(folder, len(numbers) + 108)


def save_marian(
    folder: Path, pair: str | None = "en-de", codes: Sequence[str] = (), sentences: Sequence[str] = SENTENCES
) -> Path:
    """A model like OPUS-MT of two languages, or with `codes` (`>>deu<<`) of several targets."""
    tokenizer = save_marian_tokenizer(folder, sentences, pair, codes)
    pad = tokenizer.pad_token_id
    torch.manual_seed(0)
    config = MarianConfig(
        vocab_size=len(tokenizer), pad_token_id=pad, decoder_start_token_id=pad, eos_token_id=0, forced_eos_token_id=0,
        **SIZES,
    )  # fmt: skip
    model = MarianMTModel(config)
    model.generation_config.update(bad_words_ids=[[pad]], num_beams=4, max_length=60)
    model.save_pretrained(folder)
    return folder


def save_marian_tokenizer(
    folder: Path, sentences: Sequence[str], pair: str | None, codes: Sequence[str] = (), size: int = 120
) -> PreTrainedTokenizerBase:
    """The files of an OPUS-MT tokenizer, of at most `size` joint sub-words and the marks."""
    from transformers import MarianTokenizer

    pieces = _train_pieces(folder / "source.spm", sentences, size)
    (folder / "target.spm").write_bytes((folder / "source.spm").read_bytes())
    numbers = {piece: n for n, piece in enumerate(["</s>", "<unk>", *codes, *pieces, "<pad>"])}
    (folder / "vocab.json").write_text(json.dumps(numbers))
    source, target = (pair or "-").split("-")
    files = [str(folder / name) for name in ("source.spm", "target.spm", "vocab.json")]
    tokenizer = MarianTokenizer(*files, source_lang=source or None, target_lang=target or None)
    tokenizer.save_pretrained(folder)
    return tokenizer


def teach(folder: Path, pairs: Sequence[tuple[str, str]], direction: str = "en-de", steps: int = 60) -> None:
    """Train a model like NLLB until it knows some translations by heart."""
    tokens = TranslatorTokens(str(folder), direction)
    tokens.tokenizer.tgt_lang = NLLB[direction.partition("-")[2]]
    model = M2M100ForConditionalGeneration.from_pretrained(folder).train()
    read = tokens.tokenizer([s for s, _ in pairs], text_target=[t for _, t in pairs], return_tensors="pt", padding=True)
    read["labels"][read["labels"] == 1] = -100
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        model(**read).loss.backward()
        optimizer.step()
    model.save_pretrained(folder)


def _save_m2m(folder: Path, size: int) -> Path:
    torch.manual_seed(0)
    config = M2M100Config(
        vocab_size=size, pad_token_id=1, bos_token_id=0, eos_token_id=2, decoder_start_token_id=2, **SIZES
    )
    M2M100ForConditionalGeneration(config).save_pretrained(folder)
    return folder


SAVE = {"nllb": save_nllb, "m2m": save_m2m, "marian": save_marian}
NEEDS_PACKAGE = ("m2m", "marian")


def _train_pieces(path: Path, sentences: Sequence[str], size: int = 120) -> list[str]:
    """Train sentencepiece, write its model, and return its pieces without marks."""
    import sentencepiece

    path.parent.mkdir(parents=True, exist_ok=True)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences), model_prefix=str(path.with_suffix("")), vocab_size=size, model_type="bpe",
        hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    if (made := path.with_suffix(".model")) != path:
        made.rename(path)
    processor = sentencepiece.SentencePieceProcessor(str(path))
    pieces = [processor.id_to_piece(n) for n in range(processor.get_piece_size())]
    return [piece for piece in pieces if piece not in ("<s>", "</s>", "<unk>")]
