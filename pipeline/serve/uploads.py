"""Pictures that were uploaded, as files while they are read."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from data.errors import DataError


@contextmanager
def uploaded_file(content: bytes, name: str) -> Iterator[Path]:
    """A file with what was uploaded; it is deleted afterwards.

    Args:
        content: of the picture.
        name: as who uploaded it calls it, and as errors name it. No file is opened by it.

    Raises:
        DataError: what is raised inside, with that name.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "uploaded"
        path.write_bytes(content)
        try:
            yield path
        except DataError as error:
            raise DataError(str(error).replace(str(path), name)) from None
