"""What a training writes to TensorBoard when it is finished: its settings and its results."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytorch_lightning.utilities import rank_zero_only
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from tensorboard.plugins.hparams.summary_v2 import HParam, Metric, hparams_config_pb, hparams_pb
from torch.utils.tensorboard import SummaryWriter

_SETTINGS = ("model", "trained on", "seed", "learning_rate", "dropout", "dim", "batch_size", "batch_tokens", "epochs",
             "steps", "loss", "margin")  # fmt: skip
_FIRST = ("model", "trained on", "seed", "learning_rate", "dim")  # the five that TensorBoard shows at first
_RESULTS = ("BLEU", "ambiguous words %", "val rsum")


def _columns(languages: Sequence[str]) -> Summary:
    """The columns of the tab HParams, all of them: TensorBoard takes those of all runs from one of them."""
    names = [*_RESULTS, *(f"mean recall, {language}" for language in languages)]
    results = [Metric(f"result/{name}", display_name=name) for name in names]
    summary = hparams_config_pb([HParam(name) for name in _SETTINGS], results)
    kept = summary.value[0].metadata.plugin_data
    content = HParamsPluginData.FromString(kept.content)
    for column in content.experiment.hparam_infos:
        column.differs = column.name in _FIRST
    kept.content = content.SerializeToString()
    return summary


@rank_zero_only
def log_result(
    log_dir: Path, languages: Sequence[str], settings: Mapping[str, Any], results: Mapping[str, float]
) -> None:
    """Write a finished run's settings and results for the tab HParams; results are scalars `result/…` too.

    Args:
        languages: that retrieval is tested in.
        settings: values of some of `_SETTINGS`; those that are None are left out.
        results: values of some of `_RESULTS` and of `mean recall, <language>`.
    """
    known = {name: value for name, value in settings.items() if value is not None}
    with SummaryWriter(str(log_dir)) as board:
        board.file_writer.add_summary(_columns(languages))
        board.file_writer.add_summary(hparams_pb(known, trial_id=f"{log_dir.parent.name}/{log_dir.name}"))
        for name, value in results.items():
            board.add_scalar(f"result/{name}", value)
