"""How well each branch of a model tells the two senses of twin pictures apart: the table of `senses_job`."""

from collections.abc import Sequence
from functools import partial

from pipeline.analyses.description import Analysis, Line
from pipeline.engine.job import Job
from pipeline.retrieval.probes import read_senses, senses_job


def _lines(job: Job) -> Sequence[Line]:
    """A line for each kind of vectors."""
    parts = job.settings["parts"]
    return [Line(part, [f"senses_{part}"], "senses_pairs", partial(read_senses, part=part)) for part in parts]


SENSES = Analysis(
    senses_job,
    "Senses of twins, {language}, {corpus}: how often a caption is nearer to its own picture than to its twin's",
    ["own picture nearer %"],
    _lines,
    label="vectors",
    systems=True,
    optional=True,
    split="twins",
    items="pairs of twins",
    compared=("grounded", "abstract"),
    beside_recall=True,
)
