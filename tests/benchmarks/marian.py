"""A MarianMT of `transformers` in the form of OPUS-MT, trained on the sentence pairs of a recipe's own translators.

It has the size, the steps and the batches of the recipe's NMT, so that a translator of another library can stand beside
ours (`mmt.pretrained`):

    python -m tests.benchmarks.marian FOLDER en-de multi30k-flickr8k --mmt.pretrain.steps=2500
"""

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from transformers import MarianConfig, MarianMTModel, MarianTokenizer

from data.captions import read_pairs
from data.translation import TokenBatches
from pipeline.corpus.prepare import corpus_job
from pipeline.jobs.workspace import Workspace
from pipeline.recipes.loading import load_recipe
from pipeline.recipes.settings import MmtSettings
from pipeline.recipes.translator_settings import Phase
from tests.benchmarks.timing import BF16
from tests.modules.translation_models import write_pieces

LAYERS, HEADS, LONGEST = 4, 4, 128


def main(folder: Path, direction: str, recipe_name: str, *overrides: str) -> None:
    """Train it and write it into a folder."""
    recipe = load_recipe(recipe_name, list(overrides))
    workspace = Workspace()
    corpus = workspace.folder(corpus_job(recipe, workspace))
    source, target = _texts(corpus, direction, recipe.mmt.repeat)
    tokenizer = _tokenizer(folder, [*set(source), *set(target)], direction, recipe.mmt.vocabulary)
    network = _network(recipe.mmt, tokenizer)
    _train(network, tokenizer, source, target, recipe.mmt, recipe.seed)
    network.save_pretrained(folder)
    print(f"{folder}: MarianMT {direction}, {recipe.mmt.pretrain.steps:,} steps on {len(source):,} pairs")


def _texts(corpus: Path, direction: str, repeat: dict[str, int]) -> tuple[list[str], list[str]]:
    """Source and target sentences to learn from."""
    one, other = direction.split("-")
    rows = [row for row in read_pairs(corpus / "pairs.parquet").to_list() if row["split"] == "train"]
    rows = [row for row in rows if row[one] and row[other] for _ in range(repeat.get(row["origin"], 1))]
    return [row[one] for row in rows], [row[other] for row in rows]


def _tokenizer(folder: Path, texts: list[str], direction: str, size: int) -> MarianTokenizer:
    """Of joint sub-words, in the files that OPUS-MT has."""
    pieces = write_pieces(folder / "source.spm", texts, size)
    (folder / "target.spm").write_bytes((folder / "source.spm").read_bytes())
    numbers = {piece: number for number, piece in enumerate(["</s>", "<unk>", *pieces, "<pad>"])}
    (folder / "vocab.json").write_text(json.dumps(numbers))
    files = [str(folder / name) for name in ("source.spm", "target.spm", "vocab.json")]
    tokenizer = MarianTokenizer(*files, **dict(zip(("source_lang", "target_lang"), direction.split("-"), strict=True)))
    tokenizer.save_pretrained(folder)
    return tokenizer


def _network(mmt: MmtSettings, tokenizer: MarianTokenizer) -> MarianMTModel:
    pad, end = tokenizer.pad_token_id, tokenizer.eos_token_id
    sizes = {f"{side}_{what}": size for side in ("encoder", "decoder") for what, size in
             {"layers": LAYERS, "attention_heads": HEADS, "ffn_dim": mmt.hidden_dim}.items()}  # fmt: skip
    config = MarianConfig(
        vocab_size=len(tokenizer.get_vocab()), d_model=mmt.embedding_dim, **sizes, dropout=mmt.dropout,
        activation_dropout=mmt.dropout, activation_function="relu", init_std=mmt.embedding_dim**-0.5,
        max_position_embeddings=LONGEST, scale_embedding=True, pad_token_id=pad, decoder_start_token_id=pad,
        eos_token_id=end, forced_eos_token_id=end,
    )  # fmt: skip
    network = MarianMTModel(config)
    network.generation_config.update(bad_words_ids=[[pad]], num_beams=mmt.beam_size, max_length=LONGEST)
    return network


def _train(
    network: MarianMTModel, tokenizer: MarianTokenizer, source: list[str], target: list[str], mmt: MmtSettings,
    seed: int,
) -> None:  # fmt: skip
    """Adam, with the learning rates of our NMT, on batches of sentences of like length."""
    read = {"truncation": True, "max_length": LONGEST}
    inputs, labels = tokenizer(source, **read)["input_ids"], tokenizer(text_target=target, **read)["input_ids"]
    lengths = np.array([max(len(one), len(other)) for one, other in zip(inputs, labels, strict=True)])
    phase = mmt.pretrain
    optimizer = torch.optim.Adam(network.parameters(), lr=phase.learning_rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, phase))
    network.train()
    for step, numbers in enumerate(TokenBatches(lengths, mmt.batch_tokens, phase.steps, seed)):
        batch = _padded([inputs[n] for n in numbers], tokenizer), _padded([labels[n] for n in numbers], tokenizer)
        loss = _loss(network, *batch, tokenizer.pad_token_id, mmt.label_smoothing)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), mmt.clip)
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(f"step {step:,} of {phase.steps:,}, loss {float(loss.detach()):.3f}", flush=True)


def _rate(step: int, phase: Phase) -> float:
    """Linear warm-up and cosine decay to a twentieth."""
    progress = step / phase.steps
    return min(1.0, (step + 1) / phase.warmup) * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * progress)))


def _loss(network: MarianMTModel, inputs: torch.Tensor, labels: torch.Tensor, pad: int, smoothing: float) -> Any:
    ignored = labels.masked_fill(labels == pad, -100)
    with torch.autocast("cpu", torch.bfloat16, enabled=BF16):
        scores = network(input_ids=inputs, attention_mask=(inputs != pad).long(), labels=ignored).logits
    return cross_entropy(scores.float().flatten(0, 1), ignored.flatten(), label_smoothing=smoothing)


def _padded(sentences: list[list[int]], tokenizer: MarianTokenizer) -> torch.Tensor:
    return tokenizer.pad({"input_ids": sentences}, return_tensors="pt")["input_ids"]


if __name__ == "__main__":
    torch.manual_seed(0)
    main(Path(sys.argv[1]), *sys.argv[2:])
