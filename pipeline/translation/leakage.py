"""A check against what is borrowed and was trained on this corpus's validation or test images."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from data.captions import TRAINING_SPLITS, read_captions, read_pairs
from data.pictures import name_of
from pipeline.engine.console import info
from pipeline.engine.job import Job
from pipeline.errors import RecipeError


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
    if not lenders:  # most have none: no table is read
        return
    read = [_images(folder, table, training=True) for folder in lenders for table in tables]
    learned = {name_of(image_id) for images in read for image_id in images}
    training, held_out = (
        {name_of(image): image for table in ("captions", "pairs") for image in _images(inputs["corpus"], table, split)}
        for split in (True, False)
    )
    if seen := learned & held_out.keys():
        raise RecipeError(
            f"{what} learned from sentences about {len(seen)} val or test images of this corpus, first "
            f"{min(held_out[name] for name in seen)!r}; borrow from a recipe whose split leaves them out"
        )
    if learned and not learned & training.keys():
        info(f"no image of {what} ({min(learned)} …) has a name of this corpus; if they are the same "
            "images under other names, held-out images cannot be found among them", colour="yellow")  # fmt: skip


def _images(corpus: Path, table: str, training: bool) -> set[str]:
    """The images that a table of a prepared corpus has in training splits, or in the others."""
    rows = (read_pairs if table == "pairs" else read_captions)(corpus / f"{table}.parquet")
    of_rows = zip(rows["image_id"][:], rows["split"][:], strict=True)
    return {image_id for image_id, split in of_rows if image_id and (split in TRAINING_SPLITS) == training}
