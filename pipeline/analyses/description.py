"""An analysis of trained retrieval models: the job that measures, and what its table shows (`reporting.analyses`)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from modules.metrics.intervals import Difference
from pipeline.engine.artifacts import read_arrays
from pipeline.engine.job import Job
from pipeline.retrieval.rows import Trained


def read_values(folder: Path, language: str, file: str, array: str) -> Tensor:
    """An array of `<file>-<language>.npz`, a value or a row an item (N, …), that a finished job left.

    Raises:
        RecipeError: the file is missing or damaged.
    """
    return torch.from_numpy(read_arrays(folder / f"{file}-{language}.npz", [array])[0])


@dataclass(frozen=True)
class Line:
    """Figures of a job that stand in one line of the table.

    Attributes:
        label: what tells it from other lines of the same model.
        metrics: names of the figures, one for each of the first of `Analysis.measures`.
        count: the figure that says of how many items they are.
        read: folder of the finished job and language → value of each item (N,) of the metric that has an interval.
        less: a metric whose figure is subtracted; the results name the difference `<metric>-<last part of less>`.
        ends: folders of the finished jobs of all seeds, language and number of resamples → that interval, where it is
            not one of a mean over items.
        most: the greatest value of an item that `read` gives.
    """

    label: str
    metrics: Sequence[str]
    count: str
    read: Callable[[Path, str], Tensor] | None
    less: str = ""
    ends: Callable[[Sequence[Path], str, int], Difference] | None = None
    most: float = 100.0


@dataclass(frozen=True)
class Analysis:
    """What is measured of a trained model, and how it is shown: a table a language.

    Attributes:
        job: gives the job that analyses a model; None: there is nothing to analyse.
        title: of the table, with places for `system`, `language`, `size` and `corpus`.
        measures: heads of the figures in a line.
        lines: of a job.
        tested: place of the measure that has an interval.
        label: head above the labels of the lines; empty: a model has one line, without label.
        systems: whether the table may have several systems, so that each line names its own.
        optional: whether a model that has nothing to measure gets no line, and a table in which no model was measured
            is left out.
        folds: whether there are figures of folds too, in a table of their own.
        split: of the items.
        items: what intervals are over; in cells its first word.
        baselines: lines below the models, of the job that is the input `baselines`.
        counted: head and metric of a count that stands at the end of a line, summed over seeds.
        compared: labels of two lines whose paired difference is shown, as is that of each line from the first model's.
        beside_recall: whether the table stands below a paper's table of recall too.
        of_second_set: whether its figures are of the data set `vse.forgetting`: there is one table, with a line of each
            language that a model has figures in.
    """

    job: Callable[[Trained], Job | None]
    title: str
    measures: Sequence[str]
    lines: Callable[[Job], Sequence[Line]]
    tested: int = 0
    label: str = ""
    systems: bool = False
    optional: bool = False
    folds: bool = False
    split: str = "test"
    items: str = "images"
    baselines: Sequence[Line] = ()
    counted: tuple[str, str] | None = None
    compared: tuple[str, str] | None = None
    beside_recall: bool = False
    of_second_set: bool = False

    @property
    def heads(self) -> list[str]:
        """Heads of the table's columns."""
        names = ["system", "trained on"] if self.systems else ["trained on"]
        measures = [*self.measures[: self.tested + 1], "95 %", *self.measures[self.tested + 1 :]]
        return [*names, *filter(None, [self.label]), *measures, "seeds", *(self.counted or ())[:1]]
