"""Translations that a job has made so far, on disk, so that it can go on after a stop."""

import json
import time
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback

from modules.beam import Hypothesis
from modules.translation import Synthesis
from pipeline.errors import RecipeError
from pipeline.jobs.files import write_atomically

EVERY = 60.0  # seconds between two files


class KeptTranslations(Callback):
    """Writes new translations to a file every minute; a line is a sentence's number and its hypotheses.

    Each rank has files of its own, which hold for the same number of ranks alone: they decide which sentences are
    translated together.

    Args:
        folder: where; in a job a folder that is deleted when the job is done.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()  # for ranks above 0 it is a link to that of rank 0, which may not be there yet
        self.prefix = ""
        self._written, self._last = 0, time.monotonic()

    def read(self, rank: int, world_size: int) -> dict[int, list[Hypothesis]]:
        """What a run before has translated, by the sentence's number; later files are this rank's too.

        Raises:
            RecipeError: a file is damaged.
        """
        self.prefix = f"translated-{rank}-of-{world_size}-"
        found: dict[int, list[Hypothesis]] = {}
        for path in sorted(self.folder.glob(f"{self.prefix}*.jsonl")):
            try:
                lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
                found |= {number: [Hypothesis(**one) for one in best] for number, best in lines}
            except (OSError, ValueError, TypeError, RecursionError) as error:
                raise RecipeError(f"{path}: not readable ({error}); delete it and run again") from None
        self._written = len(found)
        return found

    def on_predict_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        """Write what is new, if it is time."""
        assert isinstance(pl_module, Synthesis)
        if time.monotonic() - self._last < EVERY:
            return
        new = islice(pl_module.found.items(), self._written, None)
        lines = [json.dumps([number, [asdict(one) for one in best]]) for number, best in new]
        write_atomically(
            self.folder / f"{self.prefix}{self._written:012d}.jsonl", "".join(f"{line}\n" for line in lines)
        )
        self._written, self._last = len(pl_module.found), time.monotonic()
