"""What is told of a trained model beside its recall: a job for each analysis that suits the model and the corpus."""

from collections.abc import Mapping

from pipeline.analyses.generated import generated_job
from pipeline.analyses.object_recognition import recognised_job
from pipeline.analyses.retrieved import retrieved_job
from pipeline.engine.job import Job
from pipeline.retrieval.probes import senses_job
from pipeline.retrieval.rows import Analysis, Trained

ANALYSES: Mapping[str, Analysis] = {
    "retrieved": retrieved_job,
    "generated": generated_job,
    "recognised": recognised_job,
    "senses": senses_job,
}
"""By name; the tables of each are in `pipeline.reporting.analyses`."""


def analyses_of(trained: Trained) -> dict[str, Job]:
    """The jobs of the analyses that suit a trained model, by name."""
    found = {name: analysis(trained) for name, analysis in ANALYSES.items()}
    return {name: job for name, job in found.items() if job is not None}
