"""The Transformer translator against torch's own layers, and step by step against all at once."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from modules.errors import ModelError
from modules.layers.transformer import DecoderLayer, EncoderLayer, drop, fused, plain, softmax
from modules.translators.registry import build_translator, network_options
from modules.translators.transformer import TransformerTranslator

B, N, K, D, V, E, HIDDEN, HEADS = 3, 5, 4, 6, 11, 8, 10, 2
LENGTHS, TARGETS = torch.tensor([4, 5, 1]), torch.tensor([3, 2, 4])


def make(look: str | None) -> TransformerTranslator:
    torch.manual_seed(1)
    options = {} if look is None else {"look": look}
    model = build_translator(
        "transformer", vocabulary_size=V, region_dim=None if look is None else D, embedding_dim=E, hidden_dim=HIDDEN,
        dropout=0.0, layers=2, heads=HEADS, **options,
    )  # fmt: skip
    nn.init.normal_(model.output_bias)
    return model.double()


@pytest.fixture(params=[None, "gate", "tokens"])
def model(request) -> TransformerTranslator:
    return make(request.param)


@pytest.fixture
def batch(model) -> tuple[Tensor, Tensor | None, Tensor]:
    torch.manual_seed(2)
    regions = torch.randn(B, K, D, dtype=torch.float64) if model.regions is not None else None
    return torch.randint(1, V, (B, N)), regions, torch.randint(1, V, (B, 4))


def given(layer: nn.Module, own: nn.Module, attentions: dict[str, str], norms: dict[str, str]) -> nn.Module:
    """torch's layer with the weights of ours."""
    state = {}
    for theirs, ours in attentions.items():
        part = getattr(own, ours)
        for kind in ("weight", "bias"):
            state[f"{theirs}.in_proj_{kind}"] = torch.cat([getattr(p, kind) for p in (part.query, part.key_value)])
            state[f"{theirs}.out_proj.{kind}"] = getattr(part.out, kind)
    for theirs, ours in {**norms, "linear1": "feed_forward.0", "linear2": "feed_forward.3"}.items():
        for kind in ("weight", "bias"):
            state[f"{theirs}.{kind}"] = own.get_parameter(f"{ours}.{kind}")
    layer.load_state_dict(state)
    return layer


def test_layers_are_torch_s_own_value_and_gradient() -> None:
    torch.manual_seed(0)
    encoder, decoder = EncoderLayer(E, HIDDEN, HEADS, 0.0).double(), DecoderLayer(E, HIDDEN, HEADS, 0.0).double()
    settings = {"dropout": 0.0, "batch_first": True, "norm_first": True, "dtype": torch.float64}
    norms = {"norm1": "norm_within", "norm2": "norm_forward"}
    plain = given(nn.TransformerEncoderLayer(E, HEADS, HIDDEN, **settings), encoder, {"self_attn": "within"}, norms)
    states, target = (torch.randn(B, n, E, dtype=torch.float64, requires_grad=True) for n in (N, 4))
    mask = torch.arange(N) < LENGTHS[:, None]
    pairs = [(encoder(states, mask)[mask], plain(states, src_key_padding_mask=~mask)[mask])]
    norms = {"norm1": "norm_within", "norm2": "norm_across", "norm3": "norm_forward"}
    attentions = {"self_attn": "within", "multihead_attn": "across"}
    plain = given(nn.TransformerDecoderLayer(E, HEADS, HIDDEN, **settings), decoder, attentions, norms)
    later = nn.Transformer.generate_square_subsequent_mask(4, dtype=torch.float64)
    theirs = plain(target, states, tgt_mask=later, memory_key_padding_mask=~mask)
    pairs.append((decoder(target, decoder.source(states), mask), theirs))
    for one, other in pairs:
        torch.testing.assert_close(one, other)
        weight = torch.randn_like(one)
        for side in (states, target):
            found = [torch.autograd.grad((x * weight).sum(), side, retain_graph=True, allow_unused=True)[0]
                     for x in (one, other)]  # fmt: skip
            assert (found[0] is None) == (found[1] is None)
            if found[0] is not None:
                torch.testing.assert_close(*found)


@pytest.mark.parametrize("length", [1, 5, 15, 16, 40])
def test_softmax_is_torch_s_value_and_gradient(length: int) -> None:
    torch.manual_seed(0)
    scores = torch.randn(3, 4, length, dtype=torch.float64, requires_grad=True)
    masked = scores.masked_fill(torch.arange(length) > 11, -torch.inf)
    pair = softmax(masked), masked.softmax(-1)
    torch.testing.assert_close(*pair)
    weight = torch.randn_like(scores)
    torch.testing.assert_close(*(torch.autograd.grad((x * weight).sum(), scores, retain_graph=True)[0] for x in pair))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_keeps_its_share_and_the_mean(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    ones = torch.ones(333, 331, dtype=dtype, requires_grad=True)
    for share in (0.1, 0.5):
        dropped = drop(ones, share, training=True)
        assert dropped.dtype == dtype
        assert (dropped == 0).float().mean().item() == pytest.approx(share, abs=0.005)
        assert dropped.float().mean().item() == pytest.approx(1, abs=0.01)
        assert torch.equal(torch.autograd.grad(dropped.sum(), ones)[0], dropped)
    assert torch.equal(drop(ones, 0.5, training=False), ones)


def test_step_by_step_is_all_at_once(model, batch) -> None:
    source, regions, target = batch
    memory = model.encode(source, LENGTHS, regions)
    logits, where = model(memory, target, TARGETS)
    state, logs = model.start(memory), []
    for i in range(4):
        states, state = model.step(memory, target[:, i : i + 1], state)
        logs.append(model.predict(states)[:, 0])
    apart = torch.stack(logs, 1).flatten(0, 1)[where]
    torch.testing.assert_close(logits.log_softmax(-1), apart)


def test_a_sentence_alone_is_the_sentence_in_a_batch(model, batch) -> None:
    source, regions, target = batch
    logits, where = model(model.encode(source, LENGTHS, regions), target, TARGETS)
    for b in range(B):
        one = slice(b, b + 1)
        memory = model.encode(source[one, : LENGTHS[b]], LENGTHS[one], None if regions is None else regions[one])
        alone, _ = model(memory, target[one, : TARGETS[b]], TARGETS[one])
        torch.testing.assert_close(alone, logits[where // 4 == b])


def test_the_order_of_regions_is_nothing_and_what_they_show_is_something() -> None:
    for look in ("gate", "tokens"):
        model = make(look)
        torch.manual_seed(3)
        source, target = torch.randint(1, V, (B, N)), torch.randint(1, V, (B, 4))
        regions = torch.randn(B, K, D, dtype=torch.float64)
        logits, permuted, other = (
            model(model.encode(source, LENGTHS, seen), target, TARGETS)[0]
            for seen in (regions, regions[:, [2, 0, 3, 1]], regions.roll(1, 0))
        )
        torch.testing.assert_close(logits, permuted)
        assert (logits - other).abs().max() > 1e-3


def test_the_gate_lets_in_what_each_word_sees() -> None:
    """h + σ(W [h; c]) ⊙ c, written out: c is each word's attention over all regions."""
    model = make("gate")
    torch.manual_seed(3)
    source, regions = torch.randint(1, V, (B, N)), torch.randn(B, K, D, dtype=torch.float64)
    states, objects, _ = model._read_source(source, LENGTHS, regions)
    attended, _ = F.multi_head_attention_forward(
        states.transpose(0, 1), objects.transpose(0, 1), objects.transpose(0, 1), E, HEADS,
        torch.cat([model.glance.query.weight, model.glance.key_value.weight]),
        torch.cat([model.glance.query.bias, model.glance.key_value.bias]),
        None, None, False, 0.0, model.glance.out.weight, model.glance.out.bias,
    )  # fmt: skip
    seen = attended.transpose(0, 1)
    opened = 1 / (1 + torch.exp(-(torch.cat([states, seen], -1) @ model.gate.weight.T + model.gate.bias)))
    expected = states + opened * seen
    memory = model.encode(source, LENGTHS, regions)
    for layer, part in zip(model.decoder, memory.parts, strict=True):
        for found, wanted in zip(part, layer.source(expected), strict=True):
            torch.testing.assert_close(found, wanted)


def test_a_word_does_not_see_those_after_it(model, batch) -> None:
    source, regions, target = batch
    memory = model.encode(source, LENGTHS, regions)
    logits, where = model(memory, target, TARGETS)
    changed = target.clone()
    changed[:, 2] = (changed[:, 2] + 1) % V
    others, _ = model(memory, changed, TARGETS)
    same = where % 4 < 2
    torch.testing.assert_close(logits[same], others[same])
    assert (logits[where % 4 == 2] - others[where % 4 == 2]).abs().max() > 1e-6


def test_a_gate_that_starts_shut_lets_little_of_the_picture_through() -> None:
    torch.manual_seed(3)
    source, one, other = torch.randint(1, V, (B, N)), torch.randn(B, K, D), torch.randn(B, K, D)

    def change(bias: float | None) -> float:
        """How much another picture changes the encoded sentence."""
        torch.manual_seed(1)
        model = TransformerTranslator(V, D, embedding_dim=E, heads=HEADS, dropout=0.0, layers=1, gate_bias=bias)
        states = [model.encode(source, LENGTHS, regions).parts[0][1] for regions in (one, other)]
        return float((states[0] - states[1]).abs().mean())

    assert 0 < change(-3.0) < 0.25 * change(None)


def test_what_does_not_fit_is_one_clear_line() -> None:
    with pytest.raises(ModelError, match="not divisible by twice the heads"):
        TransformerTranslator(V, embedding_dim=9, heads=2)
    with pytest.raises(ModelError, match="expected gate or tokens"):
        TransformerTranslator(V, D, look="sideways")  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="choose mt or mmt"):
        make("gate").encode(torch.ones(1, 2, dtype=torch.long), torch.tensor([2]))
    with pytest.raises(ModelError, match="layers is 0 and heads 4; expected 1 or more"):
        TransformerTranslator(V, layers=0)
    with pytest.raises(ModelError, match="layers is 4 and heads 0; expected 1 or more"):
        TransformerTranslator(V, heads=0)
    assert network_options("transformer") == {"layers": 4, "heads": 4, "look": "gate", "gate_bias": None}
    assert network_options("bilstm") == {}


@pytest.mark.parametrize("case", ["all", "masked", "causal"])
def test_torchs_kernel_and_ours_are_one_attention(case):
    generator = torch.Generator().manual_seed(0)
    query, keys, values = (torch.randn(2, 3, 4, 5, generator=generator, dtype=torch.float64) for _ in range(3))
    mask = torch.tensor([[[True, True, False, False]], [[True, True, True, True]]]) if case == "masked" else None
    ours, theirs = (attend(query, keys, values, mask, case == "causal") for attend in (plain, fused))
    assert torch.allclose(ours, theirs, atol=1e-12)
    if case == "masked":
        changed = values.clone()
        changed[0, :, 2:] = 9.0
        assert torch.equal(plain(query, keys, changed, mask, False), ours)


def test_torchs_kernel_is_never_cudnns(monkeypatch):
    seen, attend = [], F.scaled_dot_product_attention
    before = torch.backends.cuda.cudnn_sdp_enabled()

    def looked(*args, **kwargs):
        seen.append(torch.backends.cuda.cudnn_sdp_enabled())
        return attend(*args, **kwargs)

    monkeypatch.setattr(F, "scaled_dot_product_attention", looked)
    fused(*torch.randn(3, 2, 3, 4, 5), None, False)
    assert seen == [False]
    assert before
    assert torch.backends.cuda.cudnn_sdp_enabled()


@pytest.mark.parametrize(("network", "look"), [("bilstm", None), ("transformer", "gate"), ("transformer", "tokens")])
def test_look_weights_are_shares_of_attention_and_no_other_sentence_changes_them(network, look):
    torch.manual_seed(0)
    options = {} if look is None else {"look": look}
    model = build_translator(
        network, vocabulary_size=9, region_dim=6, embedding_dim=8, hidden_dim=4, dropout=0.0, **options
    ).eval()
    batch = {
        "source": torch.tensor([[3, 4, 5], [6, 7, 0]]), "lengths": torch.tensor([3, 2]),
        "regions": torch.randn(2, 4, 6), "target": torch.tensor([[1, 5, 6, 7], [1, 8, 0, 0]]),
        "target_lengths": torch.tensor([4, 2]),
    }  # fmt: skip
    weights = model.look_weights(**batch)
    lengths = batch["lengths"] if model.looks_at == "source" else batch["target_lengths"]
    assert weights.shape == (2, int(lengths.max()), 4)
    for row, length in enumerate(lengths.tolist()):
        total = weights[row, :length].sum(-1)
        assert (total <= 1 + 1e-6).all()
        assert look == "tokens" or torch.allclose(total, torch.ones(length), atol=1e-6)
        alone = {name: part[row : row + 1] for name, part in batch.items()}
        alone["source"], alone["target"] = (
            alone["source"][:, : batch["lengths"][row]],
            alone["target"][:, : batch["target_lengths"][row]],
        )
        assert torch.allclose(model.look_weights(**alone)[0][:length], weights[row, :length], atol=1e-6)
