"""LSTMs over sentences of different lengths: packed steps, threads that share their inputs, one weight gradient.

On a CPU, `nn.LSTM` updates the gradient of its recurrent matrix at every time step, and it cannot share input products
between the K threads of a multimodal encoder. `scan` computes this gradient as one product over all steps, and many
threads can read the same input. Parameters, values and gradients are those of `nn.LSTM`
(`tests/modules/layers/test_recurrent.py`).
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from modules.layers.onnx_recurrent import onnx_states
from modules.layers.static import beside, is_static

_SHUT, _ALIGNED = 1e4, 4  # its sigmoid is 1, that of its negative 0; columns for one: GPUs like widths of 4, 8, 12 …
_MOST_ROWS = 2**15  # of an LSTM at once; cuDNN need not take more than 65,535


@dataclass(frozen=True)
class Packing:
    """Layout of the tokens of a batch, step by step: longest sentence first, no padding.

    Attributes:
        order: (B,) sentence indexes from longest to shortest.
        rank: (B,) position of each sentence in that order.
        sizes: number of sentences at each step that have not ended; the sum T is the number of tokens.
        forward: (T,) position in the flattened (B · N) batch of each packed token.
        backward: (T,) the same for sentences read from end to start.
        width: N, the padded length.
    """

    order: Tensor
    rank: Tensor
    sizes: tuple[int, ...]
    forward: Tensor
    backward: Tensor
    width: int

    @classmethod
    def of(cls, lengths: Tensor, width: int) -> "Packing":
        """Return the packing of sentences of `lengths` (B,), each at least 1, padded to `width`."""
        lengths = lengths.to("cpu", torch.int64)
        ordered, order = lengths.sort(descending=True, stable=True)
        step = torch.arange(width)
        running = step[:, None] < ordered[None, :]  # (N, B), sentences in order
        offset = order * width
        forward = (offset[None, :] + step[:, None])[running]
        backward = (offset[None, :] + ordered[None, :] - 1 - step[:, None])[running]
        sizes = tuple(int(size) for size in running.sum(1) if size)
        return cls(order, order.argsort(), sizes, forward, backward, width)

    def to(self, device: torch.device) -> "Packing":
        """Return the same packing with its indexes on `device`."""
        if self.order.device == device:
            return self
        moved = (self.order.to(device), self.rank.to(device))
        return Packing(*moved, self.sizes, self.forward.to(device), self.backward.to(device), self.width)

    def spread(self, packed: Tensor, backward: bool = False) -> Tensor:
        """Convert packed tokens (T, …) to a padded batch (B, N, …), with zeros after the end of a sentence."""
        where = self.backward if backward else self.forward
        batch = packed.new_zeros(len(self.order) * self.width, *packed.shape[1:])
        return batch.index_copy(0, where, packed).unflatten(0, (len(self.order), self.width))

    def last(self, packed: Tensor) -> Tensor:
        """Return the last token's row of each sentence, (T, …) → (B, …), in the order of the batch."""
        starts = torch.tensor([0, *self.sizes]).cumsum(0)[:-1].to(packed.device)
        lengths = (torch.tensor(self.sizes)[:, None] > torch.arange(len(self.order))[None, :]).sum(0)
        rows = starts[lengths.to(packed.device) - 1] + torch.arange(len(self.order), device=packed.device)
        return packed[rows][self.rank]


def matmul_dtype(tensor: Tensor) -> torch.dtype:
    """Return the type of matrix products: the type of autocast if it is on, else the tensor's type."""
    kind = tensor.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else tensor.dtype


def widen(tensor: Tensor) -> Tensor:
    """Return the tensor in float32 or its own wider type; bfloat16 is too coarse for sums and softmaxes."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def scan(
    inputs: Tensor, recurrent: Tensor, hidden: Tensor, cell: Tensor, sizes: tuple[int, ...], threads: int = 1
) -> tuple[Tensor, Tensor]:
    """Run an LSTM over packed tokens.

    Args:
        inputs: (T, 4H) the input part of the gates, W_ih x + b, in nn.LSTM's order i, f, g, o; the same for all
            threads.
        recurrent: (4H, H) W_hh.
        hidden: (B · threads, H) state before the first step, sentences in packed order, threads of a sentence adjacent.
        cell: (B · threads, H) likewise.
        sizes: number of sentences at each step, which never increases.
        threads: number of sequences that read each input.

    Returns:
        hidden states (T · threads, H) and the last cell state of each sequence (B · threads, H).
    """
    dtype = matmul_dtype(inputs)
    with torch.autocast(inputs.device.type, enabled=False):
        return _Scan.apply(inputs, recurrent, widen(hidden), widen(cell), sizes, threads, dtype)


def lstm_cell(gates: Tensor, cell: Tensor | None) -> tuple[Tensor, Tensor]:
    """One LSTM step from complete gates (…, 4H) and the previous cell state (…, H); `None` is a zero state."""
    i, f, g, o = widen(gates).chunk(4, -1)
    fresh = i.sigmoid() * g.tanh()
    cell = fresh if cell is None else f.sigmoid() * cell + fresh
    return o.sigmoid() * cell.tanh(), cell


def input_gates(lstm: nn.LSTM, inputs: Tensor, backward: bool = False) -> Tensor:
    """Return the input part W_ih x + b of an LSTM's gates: (…, E) → (…, 4H)."""
    suffix = "_reverse" if backward else ""
    bias = getattr(lstm, f"bias_ih_l0{suffix}") + getattr(lstm, f"bias_hh_l0{suffix}")
    return F.linear(inputs, getattr(lstm, f"weight_ih_l0{suffix}"), bias)


def recurrent_matrix(lstm: nn.LSTM, backward: bool = False) -> Tensor:
    """Return W_hh (4H, H) of one direction."""
    return getattr(lstm, "weight_hh_l0_reverse" if backward else "weight_hh_l0")


def open_forget_gates(lstm: nn.LSTM, bias: float) -> None:
    """Set the initial bias of an LSTM's forget gates, so that it first keeps its state (Jozefowicz et al. 2015)."""
    width = lstm.hidden_size
    with torch.no_grad():
        for name, parameter in lstm.named_parameters():
            if name.startswith("bias_ih"):
                parameter[width : 2 * width] = bias


def padded_states(
    network: nn.RNNBase, words: Tensor, backward: bool = False, start: tuple[Tensor, Tensor] | None = None
) -> Tensor:
    """Run one direction of an nn.GRU or nn.LSTM of one layer over whole padded rows, by cuDNN on a GPU.

    Args:
        network: what runs, batch first.
        words: (B, N, E).
        backward: with the weights of the second direction; the order of the words stays.
        start: first states and cells (B, H) of an nn.LSTM; None: zeros.

    Returns:
        states (B, N, H); those behind the end of a sentence mean nothing.
    """
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    weights = [getattr(network, f"{name}_l0{'_reverse' if backward else ''}") for name in names]
    zeros = words.new_zeros(1, len(words), network.hidden_size, dtype=weights[0].dtype)
    hidden, cell = (zeros, zeros) if start is None else (state[None].to(zeros.dtype) for state in start)
    states: Tensor
    with torch.autocast(words.device.type, enabled=False):  # else cuDNN runs in float16, in bfloat16's autocast too
        read = words.to(weights[0].dtype)
        if isinstance(network, nn.LSTM):
            states, *_ = torch.lstm(read, [hidden, cell], weights, True, 1, 0.0, network.training, False, True)
        else:
            states, _ = torch.gru(read, hidden, weights, True, 1, 0.0, network.training, False, True)
    return states


def states_to_the_right(lstm: nn.LSTM, words: Tensor, real: Tensor, backward: bool = False) -> tuple[Tensor, ...]:
    """Run one direction of an nn.LSTM over sentences that end at the right, behind their padding.

    Padding closes the input gate and opens the forget gate, so that the state stays zero until a sentence begins. So
    all sentences end in the last step, where their last state and cell are.

    Args:
        lstm: one layer.
        words: (B, N, E).
        real: (B, N) bool, false for padding.
        backward: with the weights of the second direction; the order of the words stays.

    Returns:
        states (B, N, H), zero at padding; last states and last cells (B, H).
    """
    suffix, width = "_reverse" if backward else "", lstm.hidden_size
    weight, *others = (getattr(lstm, f"{name}_l0{suffix}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    of_padding = weight.new_zeros(len(weight), _ALIGNED)
    of_padding[:width, 0], of_padding[width : 2 * width, 0] = -_SHUT, _SHUT
    start = words.new_zeros(1, len(words), width, dtype=weight.dtype)
    with torch.autocast(words.device.type, enabled=False):
        shut = F.pad((~real)[..., None], (0, _ALIGNED - 1)).to(weight.dtype)
        read = torch.cat([words.to(weight.dtype), shut], dim=-1)
        weights = [torch.cat([weight, of_padding], dim=1), *others]
        parts = [
            torch.lstm(some, [begin, begin], weights, True, 1, 0.0, lstm.training, False, True)
            for some, begin in zip(read.split(_MOST_ROWS), start.split(_MOST_ROWS, dim=1), strict=True)
        ]
    states, hidden, cell = parts[0] if len(parts) == 1 else map(torch.cat, zip(*parts, strict=True), (0, 1, 1))
    return states, hidden[0], cell[0]


def both_ways_padded(network: nn.RNNBase, words: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Run both directions of an nn.GRU or nn.LSTM over padded sentences, the second over sentences turned round.

    Args:
        network: one layer, bidirectional, batch first.
        words: (B, N, E).
        lengths: (B,), each at least 1.

    Returns:
        forward and backward states, each (B, N, H), zero after the end of a sentence.
    """
    place = torch.arange(words.shape[1], device=words.device)
    ends = beside(lengths, words)[:, None]
    real = place < ends
    turned = torch.where(real, ends - 1 - place, place)[..., None]  # its own inverse
    forward_states = padded_states(network, words)
    backward_states = padded_states(network, words.gather(1, turned.expand_as(words)), backward=True)
    backward_states = backward_states.gather(1, turned.expand_as(backward_states))
    return forward_states * real[..., None], backward_states * real[..., None]


class BiLSTM(nn.Module):
    """A one-layer bidirectional LSTM over sentences of different lengths (`nn.LSTM`'s parameters).

    Args:
        input_dim: E, size of a word vector.
        hidden_dim: H, size of a state in each direction.
    """

    def __init__(self, input_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(input_dim, hidden_dim, batch_first=True, bidirectional=True)

    def forward(self, words: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Encode sentences.

        Args:
            words: (B, N, E).
            lengths: (B,) on the CPU, each at least 1.

        Returns:
            forward and backward states, each (B, N, H), zero after the end of a sentence.
        """
        if is_static(words):
            return both_ways_padded(self.lstm, words, lengths)
        if torch.compiler.is_exporting():
            forward_states, backward_states = onnx_states(self.lstm, words, lengths)[0]
            return forward_states, backward_states
        packing = Packing.of(lengths, words.shape[1])
        start = words.new_zeros(len(words), self.lstm.hidden_size)
        flat = words.flatten(0, 1)
        states = []
        for backward, where in ((False, packing.forward), (True, packing.backward)):
            inputs = input_gates(self.lstm, flat[where], backward)
            packed_states, _ = scan(inputs, recurrent_matrix(self.lstm, backward), start, start, packing.sizes)
            states.append(packing.spread(packed_states, backward))
        return states[0], states[1]


class _Scan(torch.autograd.Function):
    """`scan` with an explicit gradient, as autograd would store and add much more than necessary."""

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, recurrent: Tensor, hidden: Tensor, cell: Tensor,
        sizes: tuple[int, ...], threads: int, dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Run all steps and save the tensors that the gradient needs."""
        tokens, width = inputs.shape[0] * threads, recurrent.shape[1]
        gates = hidden.new_empty(tokens, 4 * width)
        cells, tanh_cells, states = (hidden.new_empty(tokens, width) for _ in range(3))
        low = torch.empty(tokens, width, dtype=dtype, device=inputs.device)  # states in the type of matrix products
        weight = recurrent.to(dtype).t()
        last = cell.clone()
        h, done = hidden.to(dtype), 0
        for size in sizes:
            rows, now = size * threads, slice(done * threads, (done + size) * threads)
            a = gates[now]
            product = torch.mm(h[:rows], weight).view(size, threads, -1)
            torch.add(product, inputs[done : done + size, None], out=a.view(size, threads, -1))
            a[:, : 2 * width].sigmoid_(), a[:, 2 * width : 3 * width].tanh_(), a[:, 3 * width :].sigmoid_()
            i, f, g, o = a.chunk(4, 1)
            c = torch.mul(f, last[:rows], out=cells[now]).addcmul_(i, g)
            last[:rows] = c
            torch.mul(o, torch.tanh(c, out=tanh_cells[now]), out=states[now])
            h = low[now].copy_(states[now])
            done += size
        ctx.save_for_backward(recurrent, hidden, cell, gates, cells, tanh_cells, low)
        ctx.sizes, ctx.threads, ctx.dtype, ctx.input_dtype = sizes, threads, dtype, inputs.dtype
        return states, last

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Run the steps in reverse, then compute the gradient of the recurrent matrix in one product."""
        recurrent, hidden, cell, gates, cells, tanh_cells, low = ctx.saved_tensors
        grad_states, grad_last = grads
        sizes, threads, width = ctx.sizes, ctx.threads, recurrent.shape[1]
        weight = recurrent.to(ctx.dtype)
        grad_gates = torch.empty(gates.shape, dtype=ctx.dtype, device=gates.device)
        dh, dc = torch.zeros_like(hidden), grad_last.clone()  # a row of dc is first used at its sentence's last step
        end = len(gates)
        for step in range(len(sizes) - 1, -1, -1):
            rows = sizes[step] * threads
            now = slice(end - rows, end)
            i, f, g, o = gates[now].chunk(4, 1)
            before = end - rows - (sizes[step - 1] * threads if step else 0)
            c_before = cells[before : before + rows] if step else cell[:rows]
            tanh_c = tanh_cells[now]
            dh_now = dh[:rows].add_(grad_states[now])
            dc_now = dc[:rows]
            do = dh_now * o
            dc_now.add_(do).addcmul_(do * tanh_c, tanh_c, value=-1)  # d tanh = 1 - tanh²
            a = grad_gates[now]
            a[:, :width] = _through_sigmoid(dc_now * g, i)
            a[:, width : 2 * width] = _through_sigmoid(dc_now * c_before, f)
            di = dc_now * i
            a[:, 2 * width : 3 * width] = di.addcmul_(di * g, g, value=-1)
            a[:, 3 * width :] = _through_sigmoid(dh_now * tanh_c, o)
            dc_now.mul_(f)
            dh[:rows] = torch.mm(a, weight)
            end -= rows
        previous = torch.cat([hidden.to(ctx.dtype)[: sizes[0] * threads], *_shifted(low, sizes, threads)])
        grad_recurrent = torch.mm(grad_gates.t(), previous).to(recurrent.dtype)
        grad_inputs = grad_gates if threads == 1 else widen(grad_gates.unflatten(0, (-1, threads))).sum(1)
        return grad_inputs.to(ctx.input_dtype), grad_recurrent, dh, dc, None, None, None


def _through_sigmoid(grad: Tensor, value: Tensor) -> Tensor:
    grad = grad.mul_(value)
    return grad.addcmul_(grad, value, value=-1)


def _shifted(states: Tensor, sizes: tuple[int, ...], threads: int) -> list[Tensor]:
    """Return, for each step but the first, the previous states of the sequences that continue."""
    starts = torch.tensor([0, *sizes]).cumsum(0).tolist()
    return [
        states[starts[step - 1] * threads : (starts[step - 1] + sizes[step]) * threads] for step in range(1, len(sizes))
    ]
