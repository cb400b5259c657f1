"""The encoder with one thread a region, against its plain form: as many passes of `nn.LSTM` over [v_k, x_1 … x_N].

The plain form is timed in two ways, pass by pass and with all threads in one batch; the faster one counts. Values are
compared before anything is timed. On one thread, in turns; machines differ and drift: only ratios count.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from modules.translators.regional import RegionalTranslator
from tests.benchmarks.timing import REGION_DIM, REGIONS, VOCABULARY, medians

pytestmark = pytest.mark.benchmark
SENTENCES, WORDS, DIM, TIMES = 16, 16, 256, 3  # E = H = 256 as in pipeline/configs/multi30k-flickr8k.yaml
Encoded = tuple[Tensor, Tensor, Tensor, Tensor]


def fast(model: RegionalTranslator, source: Tensor, lengths: Tensor, regions: Tensor) -> Encoded:
    memory = model.encode(source, lengths, regions)
    return memory.states, memory.means, memory.hidden, memory.cell


def run(lstm: nn.LSTM, words: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    packed = pack_padded_sequence(words, lengths, batch_first=True, enforce_sorted=False)
    states, (hidden, cell) = lstm(packed)
    return pad_packed_sequence(states, batch_first=True)[0], hidden, cell


def plain(model: RegionalTranslator, source: Tensor, lengths: Tensor, regions: Tensor, at_once: bool) -> Encoded:
    """States (B, K, N + 1, 2H), their means, and the decoder's start from the final states over the words."""
    words, objects = model.words(source) * model.word_scale, model.regions(regions)
    threads = torch.cat([objects[:, :, None], words[:, None].expand(-1, REGIONS, -1, -1)], 2)
    lstm, size = model.encoder.lstm, (len(source), REGIONS)
    if at_once:
        found = run(lstm, threads.flatten(0, 1), (lengths + 1).repeat_interleave(REGIONS))
        states, ahead, ahead_cell = found[0].unflatten(0, size), *(last[0].unflatten(0, size) for last in found[1:])
    else:
        passes = [run(lstm, thread, lengths + 1) for thread in threads.unbind(1)]
        states, ahead, ahead_cell = (
            torch.stack(parts, 1) for parts in zip(*((s, h[0], c[0]) for s, h, c in passes), strict=True)
        )
    _, back, back_cell = run(lstm, words, lengths)  # backwards over the words, before any region
    means = states.sum(2) / (lengths + 1)[:, None, None]
    hidden, cell = (torch.cat([one.mean(1), last[1]], -1) for one, last in ((ahead, back), (ahead_cell, back_cell)))
    return states, means, model.to_hidden(hidden), model.to_cell(cell)


def kept_for_the_gradient(encode: Callable[[], Encoded]) -> float:
    """MB of all tensors that the backward pass reads, weights too."""
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        encoded = encode()
    del encoded
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values()) / 1e6


@pytest.mark.parametrize("bf16", [False, True])
def test_threads(bf16: bool, capsys) -> None:
    torch.manual_seed(0)
    model = RegionalTranslator(VOCABULARY, REGION_DIM, DIM, DIM, dropout=0.0)
    lengths = torch.randint(WORDS // 2, WORDS + 1, (SENTENCES,)).index_fill(0, torch.tensor([0]), WORDS)
    batch = torch.randint(1, VOCABULARY, (SENTENCES, WORDS)), lengths, torch.randn(SENTENCES, REGIONS, REGION_DIM)
    forms = {
        "ours": lambda: fast(model, *batch), "pass by pass": lambda: plain(model, *batch, at_once=False),
        "all passes at once": lambda: plain(model, *batch, at_once=True),
    }  # fmt: skip
    with torch.no_grad():
        encoded = forms["ours"]()
        for form in forms.values():
            for one, other in zip(encoded, form(), strict=True):
                torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
    weights = [torch.randn_like(part) for part in encoded]

    def encode(name: str) -> Encoded:
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            return forms[name]()

    def step(name: str) -> None:
        model.zero_grad()
        torch.stack([(one * weight).sum() for one, weight in zip(encode(name), weights, strict=True)]).sum().backward()

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    seconds = {name: medians(lambda: step("ours"), lambda name=name: step(name), TIMES) for name in list(forms)[1:]}
    torch.set_num_threads(threads)
    name = min(seconds, key=lambda name: seconds[name][1])
    ours, theirs = seconds[name]
    memory = {form: kept_for_the_gradient(lambda form=form: encode(form)) for form in ("ours", name)}
    with capsys.disabled():
        print(f"\nEncoder, {REGIONS} threads, {SENTENCES} sentences of {WORDS // 2} to {WORDS} words, H = {DIM}, "
              f"{'bf16' if bf16 else 'float32'}, forward and backward: plain form "
              f"({', '.join(f'{form} {pair[1]:.2f} s' for form, pair in seconds.items())}), ours {ours:.2f} s: "
              f"{ours / theirs:.2f} of the faster; kept for the gradient {memory[name]:.0f} MB, ours "
              f"{memory['ours']:.0f} MB")  # fmt: skip
    assert ours <= 0.6 * theirs
    assert memory["ours"] <= memory[name]
