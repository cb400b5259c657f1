"""What the tests of models share."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.modules.small import Corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Corpus:
    return Corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="session")
def networks(tmp_path_factory) -> Callable[[str], Path]:
    """Tiny dual encoders by kind, each made when it is first asked for."""
    from tests.modules.dual_networks import save  # transformers takes seconds to import

    return cache(lambda kind: save(kind, tmp_path_factory.mktemp("networks") / kind))
