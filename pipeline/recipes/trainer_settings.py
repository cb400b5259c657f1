"""Where and how training runs."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from pipeline.recipes.typed import number


@dataclass
class TrainerSettings:
    """Where and how training runs; `<stage>.trainer` overlays the recipe's top-level `trainer`."""

    accelerator: str = "auto"
    """`auto`, `cpu` or `gpu` (Lightning's names)."""
    devices: int | Literal["auto"] = number(1, 1, 1024, hint=", or auto")
    """How many devices on each machine, or `auto` for all; more than one trains by DDP."""
    num_nodes: int = number(1, 1, 10**5)
    """How many machines (started by torchrun or SLURM)."""
    strategy: str = "auto"
    """Lightning's strategy; `auto` is right unless you know better."""
    precision: Literal["auto", "32-true", "tf32", "bf16-mixed"] = "auto"
    """`32-true`; `tf32`, in which NVIDIA GPUs multiply the matrices of training steps in TensorFloat-32; `bf16-mixed`,
    products in bfloat16. `auto`: `bf16-mixed` where the device is fast at it, else `tf32` on such GPUs, else `32-true`.
    A job's key has the precision that `auto` has chosen."""
    threads: int | None = number(None, 1, 1024, hint=", or null")
    """CPU threads a process; null leaves the choice to torch."""
    workers: int = number(0, 0, 1024)
    """Processes that prepare batches; 0 prepares them in the training process."""
    regions: Literal["auto", "device", "host"] = "auto"
    """Where regions are kept in training: `device`, all of them in the device's memory; `host`, in each batch from the
    host; `auto`: on a GPU if they take at most half of its free memory, else as `host`."""
    graph: Literal["auto", "never"] = "auto"
    """Whether a training step is a CUDA graph, so that the GPU does not wait for Python: `auto`, on one GPU, for every
    model of ours that can; it takes some GPU memory."""
    progress: bool = True
    """Show progress bars."""
    loggers: list[Literal["csv", "wandb"]] = field(default_factory=list)
    """Where training curves go beside TensorBoard: `csv` (`csv/version_0/metrics.csv` in TensorBoard's folder of the
    run), `wandb` (Weights & Biases, which must be installed)."""


def job_settings(settings: Any) -> dict[str, Any]:
    """The settings of a section that name a job's result: all but where and how fast it runs."""
    plain = asdict(settings)
    if "trainer" in plain:
        plain["trainer"] = {"precision": settings.trainer.precision}
    return plain
