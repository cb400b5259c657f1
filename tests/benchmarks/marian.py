"""A MarianMT of `transformers` in the form of OPUS-MT, trained on the sentence pairs of a recipe's own translators.

It has the size, the steps and the batches of the recipe's NMT, so that a translator of another library can stand beside
ours (`mmt.pretrained`):

    python -m tests.benchmarks.marian FOLDER en-de multi30k-flickr8k --mmt.pretrain.steps=2500
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from transformers import MarianMTModel, PreTrainedTokenizerBase

from data.batches.translation import TokenBatches
from data.captions.table import read_pairs
from modules.training.translation import rate_factor
from pipeline.corpus.prepare import corpus_job
from pipeline.engine.workspace import Workspace
from pipeline.recipes.loading import load_recipe
from pipeline.recipes.translator_settings import MmtSettings
from tests.benchmarks.learners import LONGEST, marian
from tests.benchmarks.timing import BF16
from tests.modules.translation_models import save_marian_tokenizer

_SMALL = 0.1


def main(folder: Path, direction: str, recipe_name: str, *overrides: str) -> None:
    """Train it and write it into a folder."""
    recipe = load_recipe(recipe_name, list(overrides))
    workspace = Workspace()
    corpus = workspace.folder(corpus_job(recipe, workspace))
    source, target = _texts(corpus, direction, recipe.mmt.repeat)
    mmt, texts = recipe.mmt, list(dict.fromkeys(source + target))
    tokenizer = save_marian_tokenizer(folder, texts, direction, size=mmt.vocabulary)
    pad, end = tokenizer.pad_token_id, tokenizer.eos_token_id
    torch.manual_seed(recipe.seed)
    network = marian(len(tokenizer), mmt.embedding_dim, mmt.hidden_dim, mmt.dropout, pad, pad, end)
    _start_small(network)
    network.generation_config.update(bad_words_ids=[[pad]], num_beams=mmt.beam_size, max_length=LONGEST)
    _train(network, tokenizer, source, target, mmt, recipe.seed)
    network.save_pretrained(folder)
    print(f"{folder}: MarianMT {direction}, {mmt.pretrain.steps:,} steps on {len(source):,} pairs")


def _start_small(network: MarianMTModel) -> None:
    """Scale down what each sub-layer first adds to its input: without it, post-norm layers hardly learn in few steps.

    Similar to the initialisation by depth of Zhang et al. 2019 ("Improving Deep Transformer …").
    """
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if name.endswith(("out_proj.weight", "fc2.weight")):
                weight *= _SMALL


def _texts(corpus: Path, direction: str, repeat: dict[str, int]) -> tuple[list[str], list[str]]:
    """Source and target sentences to learn from."""
    one, other = direction.split("-")
    rows = [row for row in read_pairs(corpus / "pairs.parquet").to_list() if row["split"] == "train"]
    rows = [row for row in rows if row[one] and row[other] for _ in range(repeat.get(row["origin"], 1))]
    return [row[one] for row in rows], [row[other] for row in rows]


def _train(
    network: MarianMTModel, tokenizer: PreTrainedTokenizerBase, source: list[str], target: list[str], mmt: MmtSettings,
    seed: int,
) -> None:  # fmt: skip
    """Adam, with the learning rates of our NMT, on batches of sentences of like length."""
    read = {"truncation": True, "max_length": LONGEST}
    inputs, labels = tokenizer(source, **read)["input_ids"], tokenizer(text_target=target, **read)["input_ids"]
    lengths = np.array([max(len(one), len(other)) for one, other in zip(inputs, labels, strict=True)])
    phase = mmt.pretrain
    optimizer = torch.optim.Adam(network.parameters(), lr=phase.learning_rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate_factor(step, phase.warmup, phase.steps))
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


def _loss(network: MarianMTModel, inputs: torch.Tensor, labels: torch.Tensor, pad: int, smoothing: float) -> Any:
    ignored = labels.masked_fill(labels == pad, -100)
    with torch.autocast("cpu", torch.bfloat16, enabled=BF16):
        scores = network(input_ids=inputs, attention_mask=(inputs != pad).long(), labels=ignored).logits
    return cross_entropy(scores.float().flatten(0, 1), ignored.flatten(), label_smoothing=smoothing)


def _padded(sentences: list[list[int]], tokenizer: PreTrainedTokenizerBase) -> torch.Tensor:
    return tokenizer.pad({"input_ids": sentences}, return_tensors="pt")["input_ids"]


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
