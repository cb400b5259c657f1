"""Batch normalisation with the statistics of the whole batch, on however many processes."""

import torch
import torch.distributed as dist
from torch import Tensor, nn

from modules.distributed import gather_rows
from modules.layers.recurrent import widen


class GlobalBatchNorm(nn.BatchNorm1d):
    """Batch normalisation (Ioffe and Szegedy 2015) whose mean and variance are of the rows on all processes.

    torch's own synchronised form needs GPUs. A row that is on two processes counts twice. In evaluation it uses the
    running statistics, so that a vector does not depend on the rest of its batch.
    """

    def forward(self, rows: Tensor) -> Tensor:
        """Normalise rows (B, D), in float32 or wider."""
        rows = widen(rows)
        if not self.training:
            return super().forward(rows)
        world_size = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
        count = rows.new_full((1, 1), len(rows))
        total = gather_rows(torch.cat([rows.sum(0, keepdim=True), count], 1), world_size).sum(0)
        mean, count = total[:-1] / total[-1], total[-1]
        deviations = rows - mean
        variance = gather_rows(deviations.square().sum(0, keepdim=True), world_size).sum(0) / count
        with torch.no_grad():
            self._update(mean, variance * count / (count - 1).clamp(min=1))
        return deviations / (variance + self.eps).sqrt() * self.weight + self.bias

    def _update(self, mean: Tensor, variance: Tensor) -> None:
        """Move the running statistics towards those of a batch, as torch does."""
        for running, now in ((self.running_mean, mean), (self.running_var, variance)):
            assert running is not None
            running.lerp_(now.to(running.dtype), self.momentum or 0.0)
        assert self.num_batches_tracked is not None
        self.num_batches_tracked += 1
