"""A check against what is borrowed and was trained on this corpus's validation or test images."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from data.evaluation.lent import seen_images
from pipeline.engine.console import info
from pipeline.engine.job import Job


def lenders_of(borrowed: Sequence[Job], corpus: Job) -> dict[str, Job]:
    """The other corpora that translators, or what wrote captions, learned from, themselves or through one that
    back-translated for them.

    What a pretrained translator learned from is not known.

    Returns:
        inputs `lender`, `lender2` … for `refuse_seen_images`; none if they have read this corpus alone.
    """
    by_job = [_corpora(job) for job in borrowed]
    lenders = {key: job for corpora in by_job for key, job in corpora.items() if key != corpus.key}
    return {f"lender{number if number > 1 else ''}": job for number, job in enumerate(lenders.values(), 1)}


def _corpora(job: Job) -> dict[str, Job]:
    if "pretrained" in job.settings and job.stage == "mmt":
        return {}  # it is tested on the corpus
    corpora = {job.key: job} if job.name == "corpus" else {}
    for input_job in job.inputs.values():
        corpora |= _corpora(input_job)
    return corpora


def refuse_seen_images(
    inputs: Mapping[str, Path], what: str = "the borrowed translators", tables: Sequence[str] = ("pairs",)
) -> None:
    """Refuse what learned from another corpus's sentences about validation or test images of this one.

    Args:
        inputs: of a job: `corpus`, and `lenders_of` what it borrows.
        what: learned from them.
        tables: of those corpora that it reads.
    """
    lenders = [folder for name, folder in inputs.items() if name.startswith("lender")]
    if lenders and (doubt := seen_images(lenders, inputs["corpus"], what, tables)):  # most have none: no table is read
        info(doubt, colour="yellow")
