"""The jobs that resize the pictures of a corpus, for models that learn from pixels."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from data.pictures.network_pixels import NetworkPixels, reader_settings, write_network_pixels
from data.pictures.pixels import files_of, write_pixels
from data.processes import cores
from pipeline.corpus.prepare import captioned_images, pictures_of
from pipeline.engine.job import Job

VERSION = 1
_Write = Callable[[Path, Mapping[str, Path], Sequence[str]], None]


def pixels_job(corpus: Job, size: int, digest: str | None) -> Job:
    """The job that writes `pixels.npy` and `ids.txt` of all training images, which a generator imitates.

    Args:
        size: height and width of a picture.
        digest: of the pictures (`pictures_digest`).
    """
    write = partial(write_pixels, size=size, otherwise="generate regions (vse.options.target=regions)")
    return _job(f"pixels-{size}", corpus, {"size": size, "pictures": digest}, write, "train")


def pictures_job(corpus: Job, size: int, digest: str | None) -> Job:
    """The job that writes them of all images, which an image encoder reads; arguments as above."""
    write = partial(write_pixels, size=size, otherwise="read its regions (vse.image_encoder=null)")
    return _job(f"pictures-{size}", corpus, {"size": size, "pictures": digest}, write)


def network_pictures_job(name: str, corpus: Job, digest: str | None) -> Job:
    """The job that writes them of all images as a dual encoder reads them (`data.pictures.network_pixels`).

    Args:
        name: of the network, a folder or a name on the hub.
        digest: of its pictures (`pictures_digest`).

    Raises:
        DataError: it has no image processor.
    """

    def write(folder: Path, pictures: Mapping[str, Path], images: Sequence[str]) -> None:
        """Write them."""
        paths = files_of(pictures, images, "freeze the image tower and read regions (vse.model=san)")
        write_network_pixels(folder, NetworkPixels(name), images, paths, cores())

    return _job("pictures-network", corpus, {"reader": reader_settings(name), "pictures": digest}, write)


def _job(name: str, corpus: Job, settings: Mapping[str, Any], write: _Write, split: str | None = None) -> Job:
    """A job that writes the pictures of the captioned images of a split, or of all."""

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Write the pictures; DataError if the corpus lacks one."""
        images = captioned_images(inputs["corpus"], split)
        write(folder, pictures_of(inputs["corpus"]), images)
        return {"pictures": len(images)}

    return Job(
        name, "vse", VERSION, settings, {"corpus": corpus}, run,
        headline=lambda figures: f"{figures['pictures']:,} pictures",
    )  # fmt: skip
