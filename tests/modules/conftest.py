"""What the tests of models share."""

import pytest

from tests.modules.small import Corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Corpus:
    return Corpus(tmp_path_factory.mktemp("corpus"))
