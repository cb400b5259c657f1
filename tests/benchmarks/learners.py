"""Translators side by side on one small corpus: ours, and MarianMT of `transformers`, of the same size."""

import random
import statistics
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from sacrebleu.metrics.bleu import BLEU
from torch import Tensor, nn
from transformers import MarianConfig, MarianMTModel

from data.batches.translation import InOrder, SentenceBatches, Sentences, TokenBatches
from data.corpora.scenes.corpus import draw_things
from data.corpora.scenes.grammar import sentences
from data.text.tokenisation import BEGIN, END, PADDING, JointBPE, tokenize
from modules.training.base import BatchModule
from modules.training.graphs import StepGraphs
from modules.training.translation import Translation
from modules.translators.beam import BeamSettings
from modules.translators.registry import translate
from tests.benchmarks.timing import BF16

VOCABULARY, DIM, HIDDEN, LAYERS, HEADS, DROPOUT = 8000, 128, 256, 4, 4, 0.1
TRAIN, TEST, WARMUP, CLIP, BEAM = 6000, 400, 50, 1.0, 5
LONGEST = 128  # tokens that MarianMT has places for
FORMS = tuple((attention, bf16) for attention in ("sdpa", "eager") for bf16 in (False, True))
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
Batch = dict[str, Tensor]


class Corpus:
    """French and German sentences about one to four things, of 6 to 27 sub-words, no two alike.

    The matrices have 8,000 rows, as for real text; 376 of them are used.
    """

    def __init__(self) -> None:
        rng, drawn = random.Random(0), {}
        while len(drawn) < TRAIN + TEST:
            texts = sentences(draw_things(rng, rng.randint(1, 4)), rng)
            drawn[texts["fr"]] = texts["de"]
        french, german = list(drawn), list(drawn.values())
        said = [*(tokenize(text, "fr") for text in french), *(tokenize(text, "de") for text in german)]
        self.bpe = JointBPE.train(said, VOCABULARY)
        self.bpe.tokenizer.add_tokens([f"<unused {number}>" for number in range(VOCABULARY - len(self.bpe))])
        self.source, self.target = self.bpe.encode_all(french, "fr"), self.bpe.encode_all(german, "de")
        self.references = german[TRAIN:]

    def train(self, batch_tokens: int, steps: int, few_shapes: bool = False) -> Iterator[Batch]:
        """Batches to learn from, as they are or as a GPU gets them in the pipeline."""
        pairs = Sentences(self.source[:TRAIN], self.target[:TRAIN], [None] * TRAIN)
        lengths = np.array([max(len(s), len(t) + 1) for s, t in zip(self.source[:TRAIN], self.target, strict=False)])
        data = SentenceBatches(pairs, None)
        data.few_shapes = few_shapes
        return (on_device(data[numbers]) for numbers in TokenBatches(lengths, batch_tokens, steps, seed=0))

    def bleu(self, translations: dict[int, list[int]]) -> float:
        """Of translations of all test sentences, by number."""
        texts = [self.bpe.decode(translations[number], "de") for number in range(TEST)]
        return BLEU(lowercase=True).corpus_score(texts, [self.references]).score

    def test(self, batch_tokens: int) -> list[Batch]:
        """All sentences to translate."""
        source = self.source[TRAIN:]
        data = SentenceBatches(Sentences(source, None, [None] * TEST), None)
        return [on_device(data[some]) for some in InOrder(np.array([len(one) for one in source]), batch_tokens)]


def on_device(batch: Batch) -> Batch:
    """The batch as training has it: lengths stay on the CPU."""
    moved: Batch = BatchModule().transfer_batch_to_device(batch, torch.device(DEVICE), 0)
    return moved


class Learner:
    """A translator and how it is trained: Adam at a rate that rises for some steps and falls to nothing.

    Args:
        module: the translator.
        rate: the highest learning rate.
        steps: of training, in all.
    """

    bf16 = False

    def __init__(self, module: nn.Module, rate: float, steps: int) -> None:
        self.module = module.train().to(DEVICE)
        self.optimizer = torch.optim.AdamW(module.parameters(), lr=rate, weight_decay=0.0, fused=True)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: min((step + 1) / WARMUP, 1.0, max(0.0, 1.05 - step / steps))
        )

    @property
    def weights(self) -> float:
        """How many there are to learn, in millions."""
        return sum(parameter.numel() for parameter in self.module.parameters() if parameter.requires_grad) / 1e6

    @property
    def precision(self) -> str:
        """Of matrix products."""
        return "bf16" if self.bf16 else "float32"

    def loss(self, batch: Batch) -> Tensor:
        """Mean cross-entropy over the target words."""
        raise NotImplementedError

    def search(self, batch: Batch) -> list[list[int]]:
        """The best translation of each sentence, found with a beam of 5."""
        raise NotImplementedError

    def step(self, batch: Batch) -> None:
        """Learn from a batch: forward, backward, clipping, Adam."""
        loss = self.loss(batch)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.module.parameters(), CLIP)
        self.optimizer.step()
        self.schedule.step()


class Ours(Learner):
    """One of our translators.

    Args:
        rate: the highest learning rate.
        steps: of training.
        bf16: products in bfloat16.
        network: what `build_translator` is told.
    """

    def __init__(self, rate: float, steps: int, bf16: bool = BF16, **network: Any) -> None:
        torch.manual_seed(0)
        network |= {"vocabulary_size": VOCABULARY, "dropout": DROPOUT, "padding": PADDING}
        self.network, self.bf16 = network, bf16
        super().__init__(Translation(network, rate, WARMUP, steps, 0.0, BEGIN, END), rate, steps)
        self.graphs = StepGraphs(self.module) if DEVICE == "cuda" else None

    @classmethod
    def transformer(cls, rate: float = 2e-3, steps: int = 1, bf16: bool = BF16) -> "Ours":
        """Of the size of the peer."""
        sizes = {"embedding_dim": DIM, "hidden_dim": HIDDEN, "layers": LAYERS, "heads": HEADS}
        return cls(rate, steps, bf16, network="transformer", **sizes)

    def loss(self, batch: Batch) -> Tensor:
        with torch.autocast(DEVICE, torch.bfloat16, enabled=self.bf16):
            step = self.module._loss_and_words
            loss, figures = step(batch) if self.graphs is None else self.graphs(step, batch)
        return loss / figures["words"]

    def search(self, batch: Batch) -> list[list[int]]:
        with torch.autocast(DEVICE, torch.bfloat16, enabled=self.bf16):
            found = translate(self.module.translator, batch, BeamSettings(BEAM), BEGIN, END)
        return [best[0].tokens for best in found]


def marian(vocabulary: int, dim: int, hidden: int, dropout: float, padding: int, begin: int, end: int) -> MarianMTModel:
    """A MarianMT of the size of our Transformer; sentences begin with `begin`."""
    sizes = {f"{side}_{what}": size for side in ("encoder", "decoder") for what, size in
             {"layers": LAYERS, "attention_heads": HEADS, "ffn_dim": hidden}.items()}  # fmt: skip
    config = MarianConfig(
        vocab_size=vocabulary, d_model=dim, **sizes, dropout=dropout, activation_dropout=dropout,
        activation_function="relu", init_std=dim**-0.5, max_position_embeddings=LONGEST, scale_embedding=True,
        pad_token_id=padding, bos_token_id=begin, decoder_start_token_id=begin, eos_token_id=end,
        forced_eos_token_id=None,
    )  # fmt: skip
    return MarianMTModel(config)


class Marian(Learner):
    """MarianMT, trained on labels with -100 and searched by `generate`, in one of `FORMS`.

    A form is how attention is computed (`sdpa` is what `transformers` chooses) and whether autocast is on. Sentences
    end as ours do: when as many hypotheses as the beam holds have ended, or at 1.5 times the source and 10.

    Args:
        rate: the highest learning rate.
        steps: of training.
    """

    def __init__(self, rate: float = 1e-3, steps: int = 1) -> None:
        torch.manual_seed(0)
        super().__init__(marian(VOCABULARY, DIM, HIDDEN, DROPOUT, PADDING, BEGIN, END), rate, steps)
        self.bf16 = False

    def take(self, form: tuple[str, bool]) -> None:
        """Go on in this form, with the same weights."""
        attention, self.bf16 = form
        self.module.set_attn_implementation(attention)

    def loss(self, batch: Batch) -> Tensor:
        labels = batch["labels"].masked_fill(batch["labels"] == PADDING, -100)
        with torch.autocast(DEVICE, torch.bfloat16, enabled=self.bf16):
            loss: Tensor = self.module(**self._source(batch), labels=labels).loss
        return loss

    def search(self, batch: Batch) -> list[list[int]]:
        longest = int(BeamSettings().max_ratio * batch["source_lengths"].max()) + 10
        with torch.autocast(DEVICE, torch.bfloat16, enabled=self.bf16):
            found = self.module.generate(
                **self._source(batch), num_beams=BEAM, do_sample=False, early_stopping=True, length_penalty=1.0,
                max_new_tokens=longest,
            )  # fmt: skip
        return [[token for token in one if token not in (PADDING, BEGIN, END)] for one in found.tolist()]

    def _source(self, batch: Batch) -> Batch:
        return {"input_ids": batch["source"], "attention_mask": (batch["source"] != PADDING).long()}


class Rates:
    """How fast several things are that take turns: amounts a second by name, and the medians of their ratios."""

    def __init__(self) -> None:
        self.all: dict[str, list[float]] = {}

    def time(self, name: str, amount: float, run: Any, *arguments: Any) -> Any:
        """Run once; remember `amount` over the seconds it took; give back what came of it."""
        start = time.perf_counter()
        found = run(*arguments)
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        self.all.setdefault(name, []).append(amount / (time.perf_counter() - start))
        return found

    def median(self, name: str) -> float:
        return statistics.median(self.all[name])

    def ratio(self, one: str, other: str) -> float:
        return statistics.median(a / b for a, b in zip(self.all[one], self.all[other], strict=True))

    def fastest(self, names: list[str]) -> str:
        return max(names, key=self.median)


def describe(form: tuple[str, bool]) -> str:
    """A form of the peer, as it is printed."""
    return f"{form[0]} attention, {'bf16' if form[1] else 'float32'}"
