"""The jobs that resize the pictures of a corpus, for models that learn from pixels."""

from pathlib import Path
from typing import Any

from data.network_pixels import NetworkPixels, reader_settings, write_network_pixels
from data.pixels import files_of, write_pixels
from data.processes import cores
from pipeline.corpus.prepare import captioned_images, pictures_of
from pipeline.engine.job import Job

VERSION = 1


def pixels_job(corpus: Job, size: int, digest: str | None) -> Job:
    """The job that writes `pixels.npy` and `ids.txt` of all training images, which a generator imitates.

    Args:
        corpus: the job that prepares the corpus.
        size: height and width of a picture.
        digest: of the pictures (`pictures_digest`).
    """
    return _job(f"pixels-{size}", corpus, size, digest, "train", "generate regions (vse.options.target=regions)")


def pictures_job(corpus: Job, size: int, digest: str | None) -> Job:
    """The job that writes them of all images, which an image encoder reads; arguments as above."""
    return _job(f"pictures-{size}", corpus, size, digest, None, "read its regions (vse.image_encoder=null)")


def network_pictures_job(name: str, corpus: Job, pictures: str | None) -> Job:
    """The job that writes them of all images as a dual encoder reads them (`data.network_pixels`).

    Args:
        name: of the network, a folder or a name on the hub.
        corpus: the job that prepares the corpus.
        pictures: a digest of its pictures (`pictures_digest`).

    Raises:
        DataError: it has no image processor.
    """

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Write the pictures; DataError if the corpus lacks one."""
        wanted = captioned_images(inputs["corpus"])
        otherwise = "freeze the image tower and read regions (vse.model=san)"
        paths = files_of(pictures_of(inputs["corpus"]), wanted, otherwise)
        write_network_pixels(folder, NetworkPixels(name), wanted, paths, cores())
        return {"pictures": len(wanted)}

    settings = {"reader": reader_settings(name), "pictures": pictures}
    return Job(
        "pictures-network", "vse", VERSION, settings, {"corpus": corpus}, run,
        headline=lambda figures: f"{figures['pictures']:,} pictures",
    )  # fmt: skip


def _job(name: str, corpus: Job, size: int, digest: str | None, of: str | None, otherwise: str) -> Job:
    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Write the pictures; DataError if the corpus lacks one."""
        wanted = captioned_images(inputs["corpus"], of)
        write_pixels(folder, pictures_of(inputs["corpus"]), wanted, size, otherwise)
        return {"pictures": len(wanted)}

    return Job(
        name, "vse", VERSION, {"size": size, "pictures": digest}, {"corpus": corpus}, run,
        headline=lambda figures: f"{figures['pictures']:,} pictures",
    )  # fmt: skip
