"""Two processes that talk by gloo: a test file runs itself as their script, once for all its tests.

The script imports, then forks: a second import would cost more than the tests.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[2]


def two_processes(script: str, folder: Path) -> list[dict[str, Any]]:
    """Run a script that calls `both` with the folder as its argument; what each rank left there as `<rank>.pt`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, script, str(folder)], env=os.environ | shared, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    try:
        said = process.communicate(timeout=180)[0]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, said
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


def both(work: Callable[[int, Path], None]) -> None:
    """In the script: do the work of both ranks, and fail if either does."""
    child = os.fork()
    rank = 0 if child else 1
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    try:
        work(rank, Path(sys.argv[1]))
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    if child and os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        os._exit(1)
    sys.stdout.flush()
    os._exit(0)
