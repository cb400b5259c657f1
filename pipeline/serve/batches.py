"""Requests that arrive together are worked on as one batch, in a thread of their own."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Generic, TypeVar

from pipeline.errors import RecipeError

Asked = TypeVar("Asked")
Answered = TypeVar("Answered")
_WINDOW = 0.002  # seconds


class BusyError(RecipeError):
    """So many requests wait that another one would take too much memory."""


class Batches(Generic[Asked, Answered]):
    """Collects requests into batches. While one is worked on, the next one grows.

    Args:
        work: gives an answer to each request of a batch, in their order.
        thread: where it works; one thread, which other `Batches` may share, so that one batch is worked on at a time.
        most: requests of a batch.
        window: seconds that requests wait for others, if none is worked on; again while others arrive, until a batch is
            full.
        most_waiting: requests that may wait at a time; None: any number.
    """

    def __init__(
        self, work: Callable[[Sequence[Asked]], Sequence[Answered]], thread: Executor, most: int,
        window: float = _WINDOW, most_waiting: int | None = None,
    ) -> None:  # fmt: skip
        self._work, self._thread, self._most, self._window = work, thread, most, window
        self._most_waiting = most_waiting
        self._waiting: deque[tuple[Asked, asyncio.Future[Answered]]] = deque()
        self._task: asyncio.Task[None] | None = None

    def require_room(self) -> None:
        """Refuse a further request, by a `BusyError`, where as many wait as may."""
        if self._most_waiting is not None and len(self._waiting) >= self._most_waiting:
            raise BusyError(f"{self._most_waiting} requests with pictures are waiting; ask again in some seconds")

    async def ask(self, request: Asked) -> Answered:
        """The answer to a request; what `work` raises for this request alone is raised here."""
        answer: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, answer))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work_all())
        return await answer

    async def _work_all(self) -> None:
        """Work until nobody waits."""
        arrived = 0
        while arrived < len(self._waiting) < self._most:
            arrived = len(self._waiting)
            await asyncio.sleep(self._window)
        while self._waiting:
            some = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._most))]
            requests = [request for request, _ in some]
            answers = await asyncio.get_running_loop().run_in_executor(self._thread, self._answers, requests)
            for (_, future), answer in zip(some, answers, strict=True):
                if future.done():  # who asked is gone
                    continue
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)

    def _answers(self, requests: Sequence[Asked]) -> Sequence[Answered | Exception]:
        """An answer or an error to each; where a batch fails, each of its requests alone: one spoils no other."""
        try:
            return self._work(requests)
        except Exception as error:
            return [error] if len(requests) == 1 else [self._answers([request])[0] for request in requests]
