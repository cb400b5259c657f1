"""The service beside clients that mean no good: half-open requests, pages of others, very many pictures."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace

import pytest
import uvicorn
from starlette.testclient import TestClient

from pipeline.serve import protocol
from pipeline.serve.batches import Batches, BusyError
from pipeline.serve.hosts import names_of
from pipeline.serve.protocol import InTime
from pipeline.serve.service import create_app

HEALTH = {"status": "ok", "model": "none", "languages": [], "pictures": 0, "captions": [], "translators": []}


class Healthy(SimpleNamespace):
    """Answers nothing but `/health`."""

    search = translate = describe = embed_sentences = embed_pictures = staticmethod(lambda asked: [{}] * len(asked))

    def health(self) -> dict:
        return HEALTH


@pytest.fixture
def app():
    return create_app(Healthy(), names_of("127.0.0.1", ["*.photos.example"]))


@pytest.fixture
def port(app, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(protocol, "PATIENCE", 0.4)
    server = uvicorn.Server(uvicorn.Config(app, http=InTime, log_level="error", limit_concurrency=6))
    with socket.create_server(("127.0.0.1", 0)) as place:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [place]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield place.getsockname()[1]
        server.should_exit = True
        thread.join()


def sent(port: int, text: str) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port), timeout=10)
    made.sendall(text.replace("\n", "\r\n").encode())
    return made


def answered(client: socket.socket) -> bytes:
    """The first bytes that a connection gets; none where it was closed."""
    try:
        return client.recv(12)
    except ConnectionResetError:
        return b""


@contextmanager
def closing_all(connections: Iterable[socket.socket]) -> Iterator[list[socket.socket]]:
    """All of them, closed at the end."""
    with ExitStack() as stack:
        yield [stack.enter_context(one) for one in connections]


ASK = "GET /health HTTP/1.1\nHost: localhost\n"


def test_half_open_requests_do_not_keep_others_out(port: int) -> None:
    heads = [sent(port, ASK) for _ in range(4)]
    body = sent(port, "POST /describe HTTP/1.1\nHost: localhost\nContent-Type: multipart/form-data; boundary=x\n"
                      "Content-Length: 1000000\n\n--x")  # fmt: skip
    time.sleep(0.1)
    with sent(port, f"{ASK}\n") as other:
        assert answered(other) == b"HTTP/1.1 503"
    assert [answered(one) for one in (*heads, body)] == [b""] * 5
    with sent(port, f"{ASK}\n") as other:
        assert answered(other) == b"HTTP/1.1 200"


def test_more_connections_than_a_process_can_hold_are_closed(port: int, monkeypatch) -> None:
    monkeypatch.setattr(protocol, "MOST_CONNECTIONS", 3)
    monkeypatch.setattr(protocol, "PATIENCE", 60)
    with closing_all(sent(port, ASK) for _ in range(3)) as held:
        with sent(port, f"{ASK}\n") as other:
            assert answered(other) == b""
        held[0].sendall(b"\r\n")
        assert answered(held[0]) == b"HTTP/1.1 200"


def test_who_waits_when_the_service_is_stopped_is_told_so(caplog) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def search(asked: list) -> list[dict]:
        begun.set()
        go_on.wait(10)
        return [{}]

    app = create_app(Healthy(search=search), names_of("127.0.0.1", []))
    settings = uvicorn.Config(app, http=InTime, lifespan="off", log_level="error", timeout_graceful_shutdown=1)
    server = uvicorn.Server(settings)
    with socket.create_server(("127.0.0.1", 0)) as place:
        (thread := threading.Thread(target=server.run, kwargs={"sockets": [place]})).start()
        while not server.started:
            time.sleep(0.01)
        with sent(place.getsockname()[1], "GET /search?q=a HTTP/1.1\nHost: localhost\n\n") as client:
            assert begun.wait(10)
            server.should_exit = True
            told = b""
            while not told.endswith(b"}"):
                told += client.recv(4096)
        go_on.set()
        thread.join()
    assert told.startswith(b"HTTP/1.1 503")
    assert b"the service is being stopped; ask again when it runs" in told
    assert "Traceback" not in caplog.text


def test_a_connection_that_asks_again_and_again_stays(port: int) -> None:
    with sent(port, f"{ASK}\n") as client:
        for _ in range(6):
            told = b""
            while not told.endswith(b"}"):
                told += client.recv(4096)
            assert told.startswith(b"HTTP/1.1 200")
            time.sleep(0.2)
            client.sendall(f"{ASK}\n".replace("\n", "\r\n").encode())


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        (None, 200), ("http://localhost:8000", 200), ("http://127.0.0.1", 200), ("https://my.photos.example", 200),
        ("http://[::1]:8000", 200), ("https://evil.example", 403), ("https://photos.example.evil.example", 403),
        ("null", 403), ("https://evil.example/localhost", 403),
    ],
)  # fmt: skip
def test_what_the_pages_of_others_send_is_refused(app, origin: str | None, status: int) -> None:
    told = TestClient(app, "http://localhost").get("/health", headers={} if origin is None else {"Origin": origin})
    assert told.status_code == status
    assert told.headers["X-Content-Type-Options"] == "nosniff"
    assert told.json() == HEALTH if status == 200 else "which this service is not for" in told.json()["detail"]


def test_any_name_is_any_page(app) -> None:
    told = TestClient(create_app(Healthy(), ["*"])).get("/health", headers={"Origin": "https://evil.example"})
    assert told.status_code == 200


def test_no_more_requests_wait_than_there_is_room_for() -> None:
    async def run() -> list[int]:
        begun, go_on = threading.Event(), threading.Event()

        def work(asked: list[int]) -> list[int]:
            begun.set()
            go_on.wait()
            return asked

        batches = Batches(work, None, 1, most_waiting=2)
        batches.require_room()
        first = asyncio.create_task(batches.ask(0))
        await asyncio.to_thread(begun.wait)
        others = [asyncio.create_task(batches.ask(number)) for number in (1, 2)]
        await asyncio.sleep(0)
        with pytest.raises(BusyError, match="2 requests with pictures are waiting; ask again in some seconds"):
            batches.require_room()
        go_on.set()
        done = await asyncio.gather(first, *others)
        batches.require_room()
        return done

    assert asyncio.run(run()) == [0, 1, 2]


@pytest.mark.parametrize(("address", "form", "said"), [
    ("/search?q=a&lang=de", None, "search: no parameter 'lang' in the address, which takes q, top, language"),
    ("/search?q=a&top=2&top=3", None, "search: top is given 2 times; give one"),
    ("/translate?sentence=a&direction=en-de&top=2", None, "translate: no parameter 'top' in the address"),
    ("/embed?language=de", {"sentences": "a"}, "embed: no parameter 'language' in the address, which takes none"),
    ("/embed", {"sentences": ["a", "b"], "language": ["en", "de"]}, "embed: language is given 2 times; give one"),
    ("/describe", {"top": "2"}, "describe: no parameter 'top' in the form, which takes picture"),
])  # fmt: skip
def test_a_parameter_that_would_be_left_out_is_refused(app, address: str, form: dict | None, said: str) -> None:
    with TestClient(app, "http://localhost") as client:
        told = client.post(address, data=form) if form else client.get(address)
        assert (told.status_code, told.json()["detail"].startswith(said)) == (422, True), told.text


def test_a_second_picture_is_refused(app) -> None:
    with TestClient(app, "http://localhost") as client:
        for name in ("embed", "describe"):
            told = client.post(f"/{name}", files=[("picture", b"one"), ("picture", b"two")])
            assert told.json() == {"detail": f"{name}: picture is given 2 times; give one"}
