"""Work that processes share."""

import os
import time
from collections.abc import Callable, Sequence

import pytest

from data.processes import cores, in_parallel


def doubled(numbers: Sequence[int]) -> list[int]:
    return [2 * number for number in numbers]


def numbered(numbers: Sequence[int]) -> list[tuple[int, int]]:
    return [(number, os.getpid()) for number in numbers]


def killed(numbers: Sequence[int]) -> list[int]:
    """Dies in a worker, and works here."""
    if os.environ.get("BILDWORT_TEST_PARENT") != str(os.getpid()):
        os._exit(1)
    return doubled(numbers)


def killed_later(numbers: Sequence[int]) -> list[int]:
    """Dies in a worker when some results have come."""
    if 8 in numbers:
        time.sleep(0.5)
        return killed(numbers)
    return doubled(numbers)


def test_few_items_are_done_here_and_many_elsewhere_in_order() -> None:
    assert list(in_parallel(doubled, [], 3)) == []
    assert list(in_parallel(doubled, range(10), 3, workers=1)) == doubled(range(10))
    found = list(in_parallel(numbered, range(10), 3, workers=2))
    assert [number for number, _ in found] == list(range(10))
    assert os.getpid() not in {process for _, process in found}
    assert list(in_parallel(numbered, range(3), 3, workers=2)) == numbered(range(3))


@pytest.mark.parametrize("work", [killed, killed_later])
def test_where_a_process_is_killed_the_rest_is_done_here(
    work: Callable[[Sequence[int]], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BILDWORT_TEST_PARENT", str(os.getpid()))
    assert list(in_parallel(work, range(9), 3, workers=2)) == doubled(range(9))


def test_cores_are_those_that_the_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 1 <= cores() <= (os.cpu_count() or 1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "sched_getaffinity", lambda _: {5}, raising=False)
        assert cores() == 1
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")  # joblib's own limit stands for a container's
    assert cores() == 1
