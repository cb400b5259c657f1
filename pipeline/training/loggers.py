"""Lightning's loggers of a training: TensorBoard always, CSV and Weights & Biases where the settings name them."""

import os
import re
from collections.abc import Collection
from pathlib import Path

from pytorch_lightning.loggers import CSVLogger, Logger, TensorBoardLogger, WandbLogger
from pytorch_lightning.utilities import rank_zero_only

from data.errors import one_line
from pipeline.errors import RecipeError
from pipeline.recipes.networks import require_loggers

CSV, WANDB = "csv", "wandb"
_NOT_IN_AN_ID = r"[:;,#?/']"  # of a run of Weights & Biases; a recipe's or a row's name may have them


def loggers_of(names: Collection[str], log_dir: Path) -> list[Logger]:
    """TensorBoard's logger, then those that are named.

    TensorBoard and Weights & Biases go on in the same run when a training is resumed; CSV begins another folder,
    `csv/version_1`, and so does the test.

    Args:
        names: `csv`, `wandb`.
        log_dir: TensorBoard's folder of the run, `lightning_logs/<recipe>/<job>/<key>`.

    Raises:
        RecipeError: Weights & Biases is not installed, or refuses to begin.
    """
    # version="" keeps one folder, so that a resumed run goes on in the same plots
    loggers: list[Logger] = [TensorBoardLogger(str(log_dir.parent), log_dir.name, version="", default_hp_metric=False)]
    if CSV in names:
        loggers.append(CSVLogger(str(log_dir), CSV))
    if WANDB in names:
        loggers.append(_wandb(log_dir))
    return loggers


class _Run(WandbLogger):
    """Ends its run with the training; else Lightning would write the next training into it."""

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """End it."""
        super().finalize(status)
        self.experiment.finish()


def _wandb(log_dir: Path) -> WandbLogger:
    """A logger whose run has begun."""
    require_loggers([WANDB])
    from wandb.errors import Error

    run, project = log_dir.parts[-3:], os.environ.get("WANDB_PROJECT", "bildwort")
    log_dir.mkdir(parents=True, exist_ok=True)
    logger = _Run("/".join(run), log_dir, project=project, id=re.sub(_NOT_IN_AN_ID, "_", "-".join(run)))
    try:
        _ = logger.experiment
    except Error as error:
        reason = one_line(error)
        raise RecipeError(f"trainer.loggers: wandb does not begin ({reason}); log in with `.venv/bin/wandb login`, set "
                          "WANDB_MODE=offline, or leave it out") from None  # fmt: skip
    return logger
