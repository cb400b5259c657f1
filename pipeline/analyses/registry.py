"""What is told of a trained model beside its recall: an analysis is a file, and a line here."""

from collections.abc import Mapping

from pipeline.analyses.description import Analysis
from pipeline.analyses.forgetting import FORGETTING
from pipeline.analyses.generated import GENERATED_CAPTIONS
from pipeline.analyses.object_recognition import RECOGNISED
from pipeline.analyses.retrieved import RETRIEVED
from pipeline.analyses.senses import SENSES
from pipeline.engine.job import Job
from pipeline.retrieval.rows import Trained

ANALYSES: Mapping[str, Analysis] = {
    "retrieved": RETRIEVED,
    "generated": GENERATED_CAPTIONS,
    "recognised": RECOGNISED,
    "senses": SENSES,
    "forgetting": FORGETTING,
}
"""By name, in the order of their tables."""


def analyses_of(trained: Trained) -> dict[str, Job]:
    """The jobs of the analyses that suit a trained model, by name."""
    jobs = {name: analysis.job(trained) for name, analysis in ANALYSES.items()}
    return {name: job for name, job in jobs.items() if job is not None}
