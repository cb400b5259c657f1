"""How long the service takes to answer: one client, and fifty that ask at the same moment."""

import asyncio
import json
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest

from tests.pipeline.tiny import ROOT, Tiny

THINGS = ("bat", "ball", "box", "nut", "crane", "seal", "bow")
QUERIES = [f"a {size} {colour} {thing} on the {side}" for size in ("small", "large") for colour in ("red", "blue")
           for thing in THINGS for side in ("left", "right")]  # fmt: skip
CLIENTS, ROUNDS, WARM = 50, 30, 5
MOST = 25.0  # times the latency of one client; without batches it would be about half the number of clients


@contextmanager
def served(gallery: Path) -> Iterator[int]:
    """The service in a process of its own; its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "pipeline", "serve", str(gallery), f"--port={port}"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 120
        while socket.socket().connect_ex(("127.0.0.1", port)) or not _healthy(port):
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.2)
        yield port
    finally:
        process.kill()
        process.wait()


def _healthy(port: int) -> bool:
    """It listens before it has opened the gallery."""
    return asyncio.run(_rounds(port, 1, 1, "/health"))[0] > 0


async def _rounds(
    port: int, clients: int, rounds: int, path: str = "/search?top=10&q=", pause: float = 0.0
) -> list[float]:
    """Seconds of each answer, when clients ask again and again, each on its own connection.

    All ask at the same moment, or each after a random pause (uniform, in seconds, of this mean).
    """
    lines = [await asyncio.open_connection("127.0.0.1", port) for _ in range(clients)]

    async def ask(number: int, place: int) -> float:
        reader, writer = lines[number]
        words = QUERIES[(place * clients + number) % len(QUERIES)].split()
        query = " ".join(random.sample(words, len(words))) if "q=" in path else ""  # no two are the same sentence
        await asyncio.sleep(random.uniform(0, 2 * pause))
        start = time.perf_counter()
        writer.write(f"GET {path}{quote(query)} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
        spent = time.perf_counter() - start
        assert head.startswith(b"HTTP/1.1 200")
        assert not query or json.loads(body)["query"] == query
        return spent

    async def ask_all(number: int) -> list[float]:
        """One client's seconds."""
        return [await ask(number, place) for place in range(rounds)]

    if pause:
        taken = await asyncio.gather(*(ask_all(number) for number in range(clients)))
    else:
        taken = [await asyncio.gather(*(ask(number, place) for number in range(clients))) for place in range(rounds)]
    for _, writer in lines:
        writer.close()
    return [seconds for some in taken for seconds in some]


@pytest.mark.benchmark
def test_fifty_clients_beside_one(tmp_path: Path, capsys) -> None:
    made = Tiny(tmp_path)
    more = ["--corpus.train=3000", "--vse.only=[human]", "--vse.rows={human: [en/human]}", "--vse.epochs=1",
            "--augment.paths=[]"]  # fmt: skip
    for stage in ("prepare", "vse", "index"):
        assert made.main(stage, *more) == 0
    times: dict[int, list[float]] = {1: [], CLIENTS: []}
    with served(made.workspace.root / "tiny" / "gallery") as port:
        asyncio.run(_rounds(port, CLIENTS, WARM))
        for _ in range(5):  # in turns
            for clients in times:
                times[clients] += asyncio.run(_rounds(port, clients, ROUNDS))
        paused = 1000 * np.percentile(asyncio.run(_rounds(port, CLIENTS, ROUNDS, pause=1.0)), (50, 95))
        empty = 1000 * np.median(asyncio.run(_rounds(port, CLIENTS, ROUNDS, "/health")))
    (one, one_95), (all_, all_95) = (1000 * np.percentile(times[clients], (50, 95)) for clients in times)
    with capsys.disabled():
        print(f"\none client: p50 {one:.1f} ms, p95 {one_95:.1f} ms; {CLIENTS} at once: p50 {all_:.1f} ms, "
              f"p95 {all_95:.1f} ms; p50 {all_ / one:.1f}×, p95 {all_95 / one_95:.1f}×; {CLIENTS} answers without a "
              f"model (/health): p50 {empty:.1f} ms; {CLIENTS} that each ask once a second: p50 {paused[0]:.1f} ms, "
              f"p95 {paused[1]:.1f} ms, p50 {paused[0] / one:.1f}×")  # fmt: skip
    assert all_ < MOST * one
