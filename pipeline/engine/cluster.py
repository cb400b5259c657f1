"""Jobs on a Dask cluster: its workers perform them, each in a process of its own, in the same folders as here.

`python -m pipeline.engine.cluster` is that process. It reads a pickled call from its input, and ends when its input
does, so it never outlives the worker.
"""

import logging
import os
import pickle
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from data.errors import one_line
from pipeline.engine.executors import JobExecutor, be_quiet, may_use_gpus, own_modules
from pipeline.errors import RecipeError
from pipeline.recipes.settings import Recipe

PATIENCE = 60.0  # seconds without a worker: one that has died is often started again
_CONNECT = 10  # seconds
_LOOK = 0.5  # seconds between a worker's looks at its process
_OF_RANKS = ("SLURM_", "PMI", "RANK", "LOCAL_RANK", "WORLD_SIZE", "TORCHELASTIC_")
_GPU = "GPU"  # the resource that workers declare
_OF_LOGGERS = ("WANDB_MODE", "WANDB_PROJECT")  # what the documentation lets a person set; no key is sent


class Cluster(JobExecutor):
    """The workers of a Dask cluster; a job of one that is lost begins again on another one, at its checkpoint.

    Args:
        address: of the scheduler, `tcp://host:8786`.
        recipe: whose jobs. If they may use a GPU and workers declare the resource GPU, each job takes one.

    Raises:
        RecipeError: `distributed` is not installed, or no scheduler answers.
    """

    remote = True

    def __init__(self, address: str, recipe: Recipe) -> None:
        try:
            from distributed import Client
        except ImportError:
            raise RecipeError(
                "--cluster needs the package distributed, which is not installed; `make setup EXTRA=cluster`, or "
                "pip install -e '.[cluster]', adds it"
            ) from None
        for name in ("distributed.client", "distributed.core", "distributed.comm", "tornado.application"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # what they tell is said in one line
        self._address, self._seen = address, time.monotonic()
        try:
            _require_listener(address)
            self._client = Client(address, timeout=_CONNECT, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:
            reason = one_line(error)
            raise RecipeError(
                f"--cluster: no Dask scheduler answers at {address!r} ({reason}); expected the address that `dask "
                "scheduler` prints, tcp://HOST:8786"
            ) from None
        declared = [worker["resources"] for worker in self._workers()]
        self._on_gpu = may_use_gpus(recipe) and any(_GPU in resources for resources in declared)
        self._executor = self._client.get_executor(pure=False, **({"resources": {_GPU: 1}} if self._on_gpu else {}))
        self.at_once = max(1, sum(self._places(worker) for worker in self._workers()))

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Perform a call on a worker, in this folder and with this shell's settings of Bildwort and its loggers."""
        named = {
            name: value for name, value in os.environ.items() if name.startswith("BILDWORT_") or name in _OF_LOGGERS
        }
        call = pickle.dumps(partial(fn, *args, **kwargs))
        return self._executor.submit(perform_apart, call, str(Path.cwd()), named)

    def check(self) -> None:
        """See whether a worker is left that can perform jobs.

        Raises:
            RecipeError: none has been for `PATIENCE` seconds, or the scheduler has gone.
        """
        now = time.monotonic()
        if any(self._places(worker) for worker in self._workers()):
            self._seen = now
        elif now - self._seen > PATIENCE:
            kind = "worker with the resource GPU" if self._on_gpu else "worker"
            raise RecipeError(
                f"--cluster: no {kind} is left at {self._address}; start some, then the same command continues from "
                "the last checkpoints"
            )

    def stop(self) -> None:
        """Cancel all jobs; their processes end within seconds."""
        if self._client.status == "running":
            self._executor.shutdown(wait=False)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leave the cluster, which goes on."""
        if cancel_futures:
            self.stop()
        if self._client.status == "running":
            self._executor.shutdown(wait=wait)
        self._client.close(timeout=_CONNECT)

    def lost(self, error: BaseException) -> str | None:
        """A line about workers that have died, or that are not set up for these jobs."""
        from distributed import KilledWorker

        if isinstance(error, KilledWorker):
            return (
                f"--cluster: {error.allowed_failures + 1} workers died while they performed a job, the last "
                f"{error.last_worker.address}; their logs say why. The same command continues from the last checkpoints"
            )
        if isinstance(error, CancelledError):
            return self._gone()
        if isinstance(error, ModuleNotFoundError) or "deserialization" in str(error):
            return (
                "--cluster: the scheduler or a worker runs in another environment than this command; start them from "
                f"this one ({sys.prefix}), which all must share"
            )
        return None

    def _workers(self) -> list[dict[str, Any]]:
        """What the scheduler says of its workers.

        Raises:
            RecipeError: it does not answer.
        """
        try:
            return list(self._client.scheduler_info(n_workers=-1)["workers"].values())
        except (OSError, ValueError, AttributeError):
            raise RecipeError(self._gone()) from None

    def _places(self, worker: Mapping[str, Any]) -> int:
        """How many jobs a worker performs at once."""
        return min(worker["nthreads"], int(worker["resources"].get(_GPU, 0))) if self._on_gpu else worker["nthreads"]

    def _gone(self) -> str:
        return (
            f"--cluster: the scheduler at {self._address} no longer answers; when it runs again, the same command "
            "continues from the last checkpoints"
        )


def _require_listener(address: str) -> None:
    """Refuse an address where nothing listens; Dask itself tries it for long.

    Raises:
        OSError, ValueError: nothing does, or there is no port.
    """
    place = urlsplit(address if "://" in address else f"tcp://{address}")
    if place.scheme in ("tcp", "tls"):
        if place.port is None:
            raise ValueError("it names no port")
        socket.create_connection((place.hostname or "", place.port), _CONNECT).close()


def perform_apart(call: bytes, folder: str, named: Mapping[str, str]) -> Any:
    """On a worker: perform a pickled call in a process of its own, which ends if the call is cancelled.

    Variables by which a distributed run is recognised are kept from it: it is one process, whatever started the worker.

    Args:
        call: pickled, without arguments.
        folder: where it works.
        named: variables of its environment.

    Returns:
        what the call returns; None if it is cancelled.

    Raises:
        RecipeError: the worker does not see the folder, the process was killed, or what the call has raised.
    """
    from distributed import get_worker

    worker = get_worker()
    key = worker.get_current_task()
    own = {name: value for name, value in os.environ.items() if not name.startswith(_OF_RANKS)}
    environment = {"OMP_WAIT_POLICY": "PASSIVE", "TOKENIZERS_PARALLELISM": "false"} | own | dict(named) | own_modules()
    command = [sys.executable, "-m", "pipeline.engine.cluster"]
    with tempfile.TemporaryFile() as answer:
        try:
            child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=answer, cwd=folder, env=environment)
        except OSError as error:
            raise RecipeError(
                f"the worker {worker.address} cannot work in {folder} ({error.strerror}); workers and this command "
                "must see the same folders under the same paths"
            ) from None
        assert child.stdin is not None
        try:
            with suppress(BrokenPipeError):  # it has ended at once: said below
                child.stdin.write(call)  # and left open
                child.stdin.flush()
            while child.poll() is None:
                time.sleep(_LOOK)
                task = worker.state.tasks.get(key)
                if task is None or task.state == "cancelled":
                    return None
        finally:
            child.kill()
            child.wait()
            with suppress(BrokenPipeError):
                child.stdin.close()
        answer.seek(0)
        content = answer.read()
    if not content:
        raise RecipeError(
            f"a process of the worker {worker.address} has ended ({child.returncode}); its log says why. The same "
            "command continues from the last checkpoints"
        )
    raised, result = pickle.loads(content)
    if raised is not None:
        raise raised
    return result


def main() -> None:
    """Perform the call that the input holds; the output is a pickled pair: the error that it raised, its result."""
    with os.fdopen(os.dup(1), "wb") as answer:
        os.dup2(2, 1)  # what is printed goes to the worker's log
        be_quiet()
        try:
            call = pickle.load(sys.stdin.buffer)
            threading.Thread(target=_end_with_the_input, daemon=True).start()
            content = pickle.dumps((None, call()))
        except Exception as raised:
            traceback.print_exc()
            content = _pickled(raised)
        answer.write(content)


def _end_with_the_input() -> None:
    while os.read(0, 1):  # nothing comes after the call
        pass
    os._exit(1)


def _pickled(error: Exception) -> bytes:
    """An error as bytes, without a result; one that cannot be sent, as a RuntimeError of its text."""
    try:
        content = pickle.dumps((error, None))
        pickle.loads(content)
        return content
    except Exception:
        return pickle.dumps((RuntimeError(f"{type(error).__name__}: {error}"), None))


if __name__ == "__main__":
    main()
