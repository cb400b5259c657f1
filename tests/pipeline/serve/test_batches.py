"""Micro-batches: who is answered together, in which order, and what an error of one request does to others."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pipeline.serve.batches import Batches


class Work:
    """Doubles numbers, and keeps the batches; waits before the first one until it is told to begin."""

    def __init__(self) -> None:
        self.begin = threading.Event()
        self.batches: list[list[int]] = []

    def __call__(self, numbers: Sequence[int]) -> list[int]:
        self.begin.wait(10)
        self.batches.append(list(numbers))
        if -1 in numbers:
            raise ValueError("negative")
        return [2 * number for number in numbers]


def asked(numbers: Sequence[int], work: Callable[..., Any], most: int, after: Callable[[], None]) -> list[Any]:
    """The answers to numbers that are asked for at once; `after` is called when all have been asked for."""

    async def run() -> list[Any]:
        with ThreadPoolExecutor(1) as thread:
            batches = Batches(work, thread, most)
            answers = [asyncio.create_task(batches.ask(number)) for number in numbers]
            await asyncio.sleep(0.05)
            after()
            return await asyncio.gather(*answers, return_exceptions=True)

    return asyncio.run(run())


def test_requests_that_arrive_together_are_one_batch() -> None:
    work = Work()
    assert asked(range(50), work, 64, work.begin.set) == [2 * number for number in range(50)]
    assert work.batches == [[*range(50)]]


def test_a_batch_has_no_more_than_it_may_have() -> None:
    work = Work()
    assert asked(range(50), work, 20, work.begin.set) == [2 * number for number in range(50)]
    assert work.batches == [[*range(20)], [*range(20, 40)], [*range(40, 50)]]


def test_an_error_is_of_its_own_request_alone() -> None:
    work = Work()
    answers = asked([1, -1, 3], work, 64, work.begin.set)
    assert answers[::2] == [2, 6]
    with pytest.raises(ValueError, match="negative"):
        raise answers[1]
    assert work.batches == [[1, -1, 3], [1], [-1], [3]]


def test_who_is_gone_is_no_fault_to_the_others() -> None:
    work = Work()

    async def run() -> int:
        with ThreadPoolExecutor(1) as thread:
            batches = Batches(work, thread, 64)
            gone, stays = (asyncio.create_task(batches.ask(number)) for number in (1, 2))
            await asyncio.sleep(0.05)
            gone.cancel()
            work.begin.set()
            return await stays

    assert asyncio.run(run()) == 4


def test_requests_after_a_pause_are_answered_too() -> None:
    work = Work()
    work.begin.set()

    async def run() -> list[int]:
        with ThreadPoolExecutor(1) as thread:
            batches = Batches(work, thread, 64)
            first = await batches.ask(1)
            await asyncio.sleep(0.05)
            return [first, await batches.ask(2)]

    assert asyncio.run(run()) == [2, 4]


def test_a_batch_begins_when_no_more_requests_arrive() -> None:
    work = Work()
    work.begin.set()

    async def run() -> None:
        with ThreadPoolExecutor(1) as thread:
            batches = Batches(work, thread, 64, window=0.5)
            answers = []
            for number in range(4):  # 0.75 s, longer than the window
                answers.append(asyncio.create_task(batches.ask(number)))
                await asyncio.sleep(0.25)
            await asyncio.gather(*answers)

    asyncio.run(run())
    assert work.batches == [[0, 1, 2, 3]]
