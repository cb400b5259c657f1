"""What the tests of the pipeline share."""

from pathlib import Path

import pytest

from pipeline.jobs import Workspace
from tests.pipeline.tiny import Tiny


@pytest.fixture(scope="session")
def tiny(tmp_path_factory) -> Tiny:
    """All stages once; several tests read what they left."""
    made = Tiny(tmp_path_factory.mktemp("tiny"))
    for stage in ("prepare", "mmt", "augment", "vse"):
        assert made.main(stage) == 0
    return made


@pytest.fixture
def fresh(tmp_path: Path) -> Tiny:
    """The recipe, and nothing done yet."""
    return Tiny(tmp_path)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """Empty."""
    return Workspace(tmp_path / "artifacts")
