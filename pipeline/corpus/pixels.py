"""The job that resizes the training pictures of a corpus, for models that learn from pixels."""

from pathlib import Path
from typing import Any

from data.captions import read_captions
from data.pixels import write_pixels
from pipeline.corpus.prepare import pictures_of
from pipeline.jobs.job import Job

VERSION = 1


def pixels_job(corpus: Job, size: int) -> Job:
    """The job that writes `pixels.npy` and `ids.txt` of all training images.

    Args:
        corpus: the job that prepares the corpus.
        size: height and width of a picture.
    """

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Write the pictures; DataError if the corpus lacks one."""
        captions = read_captions(inputs["corpus"] / "captions.parquet")
        rows = zip(captions["image_id"][:], captions["split"][:], strict=True)
        wanted = list(dict.fromkeys(image_id for image_id, split in rows if split == "train"))
        write_pixels(folder, pictures_of(inputs["corpus"]), wanted, size)
        return {"pictures": len(wanted)}

    return Job(
        f"pixels-{size}", "vse", VERSION, {"size": size}, {"corpus": corpus}, run,
        headline=lambda figures: f"{figures['pictures']:,} pictures",
    )  # fmt: skip
