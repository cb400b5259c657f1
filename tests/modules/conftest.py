"""What the tests of models share."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.modules.small import Corpus
from tests.stand_in import on_gpu, stand_in


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Corpus:
    return Corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="session")
def networks(tmp_path_factory) -> Callable[[str], Path]:
    """Tiny dual encoders by kind, each made when it is first asked for."""
    from tests.modules.dual_networks import save  # transformers takes seconds to import

    return cache(lambda kind: save(kind, tmp_path_factory.mktemp("networks") / kind))


@pytest.fixture(params=["stand-in", pytest.param("cuda", marks=on_gpu)])
def gpu(request) -> Iterator[str]:
    """A device beside the CPU: the stand-in, and a GPU where there is one."""
    if request.param == "cuda":
        yield "cuda"
    else:
        with stand_in() as name:
            yield name
