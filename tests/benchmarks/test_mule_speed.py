"""How fast MULE trains in four languages, against a padded call for each language and layers word by word, in turns."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from modules.layers.encoders import masked_mean, real_words
from modules.retrieval_models import model_class
from modules.retrieval_models.base import Batch, one_vector
from modules.training.mule import MuleTraining
from tests.benchmarks.timing import BATCH, BF16, PRECISION, REGION_DIM, medians
from tests.modules.small import make_trainer

pytestmark = pytest.mark.benchmark
LANGUAGES, CAPTIONS = ["en", "de", "fr", "cs"], (2, 2, 1, 1)  # of an image, as in the paper
VOCABULARY, WORD_DIM, DIM, STATE_DIM = 20_000, 300, 512, 1024
MEDIAN, SPREAD, LONGEST = 10, 0.39, 40  # words of a caption: 95 % have at most 19, as Multi30K's German captions


def make_training(pretrain_epochs: int) -> MuleTraining:
    """MULE at the paper's sizes."""
    torch.manual_seed(0)
    arguments = {
        "region_dim": REGION_DIM, "vocabulary_size": VOCABULARY, "languages": LANGUAGES, "dim": DIM,
        "word_dim": WORD_DIM, "state_dim": STATE_DIM, "pretrain_epochs": pretrain_epochs,
    }  # fmt: skip
    kind = model_class("mule").module()
    module = kind("mule", arguments, None, 0.05, None, 0, 1e-4, 1, 0.794, LANGUAGES, LANGUAGES)
    module.trainer = make_trainer(1)
    return module


def make_batch() -> Batch:
    """128 images with six captions each in four languages; some words are much more frequent than others."""
    torch.manual_seed(1)
    languages = torch.arange(len(LANGUAGES)).repeat_interleave(torch.tensor(CAPTIONS) * BATCH)
    count = len(languages)
    lengths = ((SPREAD * torch.randn(count)).exp() * MEDIAN).round().clamp(3, LONGEST).long()
    width, own = int(lengths.max()), VOCABULARY // len(LANGUAGES)
    words = (own ** torch.rand(count, width)).long() + own * languages[:, None]  # Zipf's law
    images = torch.arange(BATCH).repeat(sum(CAPTIONS))
    return {
        "regions": torch.randn(BATCH, 1, REGION_DIM), "region_mask": torch.ones(BATCH, 1).bool(),
        "tokens": words * (torch.arange(width) < lengths[:, None]), "lengths": lengths, "language": languages,
        "image_key": torch.arange(BATCH), "image_index": images, "type": torch.zeros(count, dtype=torch.long),
        "sentence": torch.arange(count), "image_sentences": torch.empty(0, 2, dtype=torch.long),
    }  # fmt: skip


def plain_parts(module: MuleTraining, batch: Batch, learn_words: bool):
    """Of each language its rows, universal words (C, L, U), tokens and lengths; all words go through the layer."""
    for number, language in enumerate(LANGUAGES):
        rows = (batch["language"] == number).nonzero()[:, 0]
        lengths = batch["lengths"][rows]
        tokens = batch["tokens"][rows, : lengths.max()]
        words = module.model.words(tokens) if learn_words else module.model.words(tokens).detach()
        yield rows, module.model.to_universal.of[language](words, lengths), tokens, lengths


def plain_pretraining(module: MuleTraining, batch: Batch) -> dict[str, Tensor]:
    """The losses of pre-training."""
    parts = list(plain_parts(module, batch, learn_words=False))
    means = torch.cat([masked_mean(words, real_words(tokens, lengths)) for _, words, tokens, lengths in parts])
    return module.losses_of_pretraining(batch, means[torch.cat([part[0] for part in parts]).argsort()])


def plain_training(module: MuleTraining, batch: Batch) -> dict[str, Tensor]:
    """The losses of training, with a padded call of `nn.LSTM` for each language."""
    branch, means, vectors, rows = module.model.captions, [], [], []
    for own, words, tokens, lengths in plain_parts(module, batch, learn_words=True):
        states = branch.states.lstm(words)[0]
        last = states[torch.arange(len(own)), lengths - 1]
        means.append(masked_mean(words, real_words(tokens, lengths)))
        vectors.append(F.normalize(branch.out(last), dim=-1))
        rows.append(own)
    back = torch.cat(rows).argsort()
    images = module.model.encode_images(batch["regions"], batch["region_mask"])
    captions = one_vector(torch.cat(vectors)[back])
    return module.losses_of_training(batch, images, captions, torch.cat(means)[back])


def total(losses: dict[str, Tensor]) -> Tensor:
    return torch.stack(list(losses.values())).sum()


def compare(module: MuleTraining, plain, batch: Batch, times: int) -> tuple[float, float]:
    """Both forms have the same losses and gradients in float32; then the median seconds of a step of each."""
    one, other = module.losses(batch), plain(module, batch)
    assert one.keys() == other.keys()
    for name, loss in one.items():
        torch.testing.assert_close(loss, other[name], rtol=1e-5, atol=1e-5)
    learned = [p for p in module.parameters() if p.requires_grad]
    grads = [torch.autograd.grad(total(losses), learned, allow_unused=True) for losses in (one, other)]
    for ours, theirs in zip(*grads, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5 * max(1.0, theirs.abs().max().item()))
    optimizer = torch.optim.Adam(learned, lr=1e-4, fused=True)

    def step(losses, bf16: bool) -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = total(losses(batch))
        optimizer.zero_grad()
        loss.backward()
        module.on_before_optimizer_step(optimizer)
        optimizer.step()

    runs = [lambda: step(module.losses, BF16), lambda: step(lambda batch: plain(module, batch), False)]
    runs[0](), runs[1]()
    return medians(*runs, times)


def test_a_training_step_in_four_languages(capsys) -> None:
    fast, slow = compare(make_training(0), plain_training, make_batch(), 3)
    with capsys.disabled():
        print(f"\nA step of MULE, {BATCH} images with {sum(CAPTIONS) * BATCH} captions in four languages, LSTM of "
              f"{STATE_DIM}: a padded call for each language {slow:.2f} s (float32), ours {fast:.2f} s ({PRECISION}), "
              f"{slow / fast:.1f} times as fast")  # fmt: skip
    assert slow > 3 * fast


def test_a_step_of_pre_training(capsys) -> None:
    fast, slow = compare(make_training(1), plain_pretraining, make_batch(), 15)
    with capsys.disabled():
        print(f"\nA step of MULE's pre-training, {sum(CAPTIONS) * BATCH} captions: each word through the layer "
              f"{1000 * slow:.0f} ms (float32), ours on mean words {1000 * fast:.0f} ms ({PRECISION}), "
              f"{slow / fast:.1f} times as fast")  # fmt: skip
    assert slow > 5 * fast
