"""Two processes that talk by gloo: a test file runs itself as their script, once for all its tests."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[2]


def two_processes(script: str, folder: Path) -> list[dict[str, Any]]:
    """Run a script twice with the folder as its argument; what each rank left there as `<rank>.pt`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "PYTHONPATH": str(ROOT)}
    processes = [
        subprocess.Popen(
            [sys.executable, script, str(folder)],
            env=os.environ | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        said = [process.communicate(timeout=120)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], "\n".join(said)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]
