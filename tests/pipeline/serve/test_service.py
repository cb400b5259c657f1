"""The service: what it answers is what the shell prints, to one client and to fifty; what it refuses; its names."""

import asyncio
import json
import re
import shlex
import shutil
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from pipeline.errors import RecipeError
from pipeline.export.exported_model import ExportedModel
from pipeline.gallery.gallery import Gallery
from pipeline.gallery.generation import POINTER
from pipeline.gallery.indexing import update_gallery
from pipeline.gallery.picture_sources import PictureFolder
from pipeline.serve.answers import Answers
from pipeline.serve.hosts import LOCAL, names_of
from pipeline.serve.service import MOST_SENTENCES, create_app
from tests.pipeline.tiny import ROOT, Tiny

THINGS = ("bat", "ball", "box", "nut", "crane", "seal", "bow")
QUERIES = [f"a {size} {colour} {thing} on the {side}" for size in ("small", "large") for colour in ("red", "blue")
           for thing in THINGS for side in ("left", "right")][:50]  # fmt: skip
LARGEST = 100_000


@pytest.fixture(scope="module")
def folder(used: Tiny) -> Path:
    return used.workspace.root / "tiny" / "gallery"


@pytest.fixture(scope="module")
def answers(folder: Path) -> Answers:
    return Answers(folder)


@pytest.fixture(scope="module")
def app(answers: Answers) -> FastAPI:
    return create_app(answers, names_of("127.0.0.1", ["photos.example"]), LARGEST)


@pytest.fixture(scope="module")
def client(app: FastAPI) -> Iterator[TestClient]:
    with TestClient(app, "http://localhost:8000") as made:
        yield made


@pytest.fixture(scope="module")
def picture(folder: Path) -> Path:
    return Path(Gallery.open(folder).rows([0])[0]["path"])


def together(app: FastAPI, *requests: tuple[str, str, dict[str, Any]]) -> list[httpx2.Response]:
    """What clients get that ask at once: method, path and options of each."""

    async def run() -> list[httpx2.Response]:
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
            return await asyncio.gather(*(client.request(way, path, **options) for way, path, options in requests))

    return asyncio.run(run())


def printed(used: Tiny, capsys, *arguments: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert used.main(*arguments, "--json") == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_it_answers_what_the_shell_prints(used: Tiny, client: TestClient, picture: Path, capsys) -> None:
    found = client.get("/search", params={"q": "a red bat", "top": 3})
    assert [found.json()] == printed(used, capsys, "search", "a red bat", "--top", "3")
    assert client.get("/search?q=a+red+bat&language=en").json() == client.get("/search?q=a+red+bat").json()
    with picture.open("rb") as file:
        described = client.post("/describe?top=2", files={"picture": file}).json()
    assert described == [
        one | {"picture": picture.name} for one in printed(used, capsys, "describe", str(picture), "--top", "2")
    ]


def test_vectors_are_those_of_the_model(client: TestClient, exported: ExportedModel, picture: Path) -> None:
    told = client.post("/embed", data={"sentences": QUERIES[:3], "language": "en"}).json()
    np.testing.assert_allclose(told["vectors"], exported.encode(QUERIES[:3], "en"), atol=1e-6)
    assert told["model"] == f"{exported.name} {exported.fingerprint}"
    told = client.post("/embed", files={"picture": picture.read_bytes()}).json()
    np.testing.assert_allclose(told["vectors"], exported.encode([picture]), atol=1e-6)


def test_a_sentence_is_translated(client: TestClient, exported: ExportedModel) -> None:
    told = client.get("/translate", params={"sentence": "a red bat", "direction": "en-de"}).json()
    expected = exported.translators.translate("a red bat", "mt", "en", "de")
    assert told == {
        "sentence": "a red bat", "system": "mt", "direction": "en-de", "translation": expected, "unknown": [],
        "notes": [],
    }  # fmt: skip
    told = client.get("/translate", params={"sentence": "qwertz", "direction": "en-de"}).json()
    assert (told["translation"], told["unknown"]) == ("", ["qwertz"])
    assert told["notes"] == ["1 of 1 words unknown: qwertz; this translator reads English"]


def test_unknown_words_of_a_query_are_told(client: TestClient) -> None:
    told = client.get("/search", params={"q": "red qwertz", "language": "en"}).json()
    assert (told["words"], told["unknown"]) == (2, ["qwertz"])
    assert told["notes"][0].startswith("1 of 2 words unknown: qwertz; this model reads ")


def test_fifty_clients_at_once_get_what_each_gets_alone(app, client: TestClient, answers: Answers, monkeypatch) -> None:
    """Another query, picture number and endpoint each; batches are larger than one."""
    sizes = []
    for name in ("search_all", "captions_near"):
        real = getattr(Gallery, name)
        monkeypatch.setattr(Gallery, name, lambda self, some, *more, real=real: sizes.append(len(some)) or real(
            self, some, *more))  # fmt: skip
    asked = [("GET", "/search", {"params": {"q": query, "top": 1 + place % 20}}) for place, query in enumerate(QUERIES)]
    assert len(set(QUERIES)) == 50
    for request, got in zip(asked, together(app, *asked), strict=True):
        alone, query = client.request(*request[:2], **request[2]).json(), request[2]["params"]
        assert (got.json()["query"], got.json()["language"]) == (query["q"], alone["language"])
        hits = [(hit["name"], hit["score"]) for hit in got.json()["hits"]]
        assert len(hits) == min(query["top"], len(answers._opened))
        assert [score for _, score in hits] == pytest.approx([hit["score"] for hit in alone["hits"]], abs=2e-5)
        whole = client.get("/search", params={"q": query["q"], "top": 1000}).json()["hits"]
        assert dict(hits) == pytest.approx({hit["name"]: hit["score"] for hit in whole if hit["name"] in dict(hits)},
                                           abs=2e-5)  # fmt: skip
    assert max(sizes) >= 40


def test_vectors_of_fifty_clients_at_once_are_those_of_each_alone(app, exported: ExportedModel) -> None:
    some = [QUERIES[place : place + 1 + place % 3] for place in range(50)]
    told = together(app, *(("POST", "/embed", {"data": {"sentences": texts}}) for texts in some))
    for texts, got in zip(some, told, strict=True):
        np.testing.assert_allclose(got.json()["vectors"], exported.encode(texts), atol=1e-5)


def test_pictures_and_translations_of_several_clients_are_not_mixed(app, client, exported, folder: Path) -> None:
    paths = [Path(row["path"]) for row in Gallery.open(folder).rows()][:8]
    asked = [("POST", f"/describe?top={1 + place % 3}", {"files": {"picture": path.read_bytes()}})
             for place, path in enumerate(paths)]  # fmt: skip
    asked += [("POST", "/embed", {"files": {"picture": path.read_bytes()}}) for path in paths]
    asked += [("GET", "/translate", {"params": {"sentence": query, "direction": direction}})
              for query in QUERIES[:6] for direction in ("en-de", "de-en")]  # fmt: skip
    for (way, path, options), got in zip(asked, together(app, *asked), strict=True):
        alone = client.request(way, path, **options).json()
        if path == "/embed":
            np.testing.assert_allclose(got.json()["vectors"], alone["vectors"], atol=1e-5)
        elif path == "/translate":
            assert got.json() == alone
        else:
            scores, expected = ([hit["score"] for one in told for hit in one["hits"]] for told in (got.json(), alone))
            assert scores == pytest.approx(expected, abs=2e-5)


BAD = [
    ("GET", "/search", {}, "q: Field required"), ("GET", "/search?q=", {}, "search: the query is empty"),
    ("GET", "/search?q=%20", {}, "search: the query is empty"), ("GET", "/search?q=a&top=0", {}, "top: "),
    ("GET", "/search?q=a&top=1001", {}, "top: "), ("GET", "/search?q=a&top=many", {}, "top: "),
    ("GET", f"/search?q={'a' * 1001}", {}, "q: "), ("GET", "/search?q=a&language=xx", {}, "was trained on en; choose"),
    ("POST", "/describe", {}, "picture: Field required"),
    ("POST", "/describe", {"files": {"picture": ("holiday.png", b"no picture")}}, "holiday.png: not a readable"),
    ("POST", "/describe", {"files": {"picture": ("../../../etc/passwd", b"")}}, "not a readable picture"),
    ("POST", "/describe?top=0", {"files": {"picture": b""}}, "top: "),
    ("POST", "/embed", {}, "embed: give sentences or a picture, one of the two"),
    ("POST", "/embed", {"files": {"picture": b"x"}, "data": {"sentences": "a"}}, "one of the two"),
    ("POST", "/embed", {"files": {"picture": b"x"}}, "not a readable picture"),
    ("POST", "/embed", {"files": {"picture": b"x"}, "data": {"language": "en"}}, "embed: language is for sentences"),
    ("POST", "/embed", {"data": {"sentences": ["a", " "]}}, "embed: sentence 2 is empty"),
    ("POST", "/embed", {"data": {"sentences": ["a" * 1001]}}, "embed: sentence 1 has 1001 characters"),
    ("POST", "/embed", {"data": {"sentences": ["a"] * (MOST_SENTENCES + 1)}}, "embed: 65 sentences"),
    ("GET", "/translate?sentence=a&direction=en-xx", {}, "translate: no mt-en-xx in the model; it has"),
    ("GET", "/translate?sentence=a&direction=en", {}, "translate: no mt-en in the model"),
    ("GET", "/translate?sentence=a&direction=de&system=mt-en", {}, "translate: no mt-en of de in the model"),
    ("GET", "/translate?sentence=a&direction=en-de&system=../mt", {}, "translate: no ../mt-en-de in the model"),
    ("GET", "/translate?sentence=a&direction=en-de&system=mmt", {}, "mmt-en-de reads a picture"),
    ("GET", "/translate?sentence=%20&direction=en-de", {}, "translate: the sentence is empty"),
]  # fmt: skip


@pytest.mark.parametrize(("way", "path", "options", "said"), BAD)
def test_a_wrong_request_is_told_in_one_line(client: TestClient, way: str, path: str, options, said: str) -> None:
    told = client.request(way, path, **options)
    assert told.status_code == 422
    assert said in told.json()["detail"]
    assert "\n" not in told.json()["detail"]
    assert "/tmp" not in told.json()["detail"] or "language" in path


def test_a_wrong_request_among_others_spoils_none(app: FastAPI) -> None:
    good, wrong = (("GET", "/search", {"params": {"q": query}}) for query in ("a red bat", " "))
    unknown = ("GET", "/search?q=a&language=xx", {})
    told = together(app, good, wrong, good, unknown, good)
    assert [one.status_code for one in told] == [200, 422, 200, 422, 200]


def test_what_is_too_large_is_refused_while_it_arrives(app: FastAPI) -> None:
    """A body that says its length, and one that does not; neither is read to its end."""
    sent = []

    async def body() -> AsyncIterator[bytes]:
        yield b'--x\r\nContent-Disposition: form-data; name="picture"; filename="a.png"\r\n\r\n'
        for _ in range(1000):
            sent.append(10_000)
            yield bytes(10_000)

    kind = {"Content-Type": "multipart/form-data; boundary=x"}
    for path in ("/describe", "/embed"):
        (told,) = together(app, ("POST", path, {"content": body(), "headers": kind}))
        assert (told.status_code, "the body is larger than" in told.text) == (413, True)
        assert sum(sent) <= LARGEST + 10_000
        sent.clear()
        (told,) = together(app, ("POST", path, {"content": body(), "headers": kind | {"Content-Length": "10000081"}}))
        assert (told.status_code, sent) == (413, [])


@pytest.mark.parametrize(
    ("name", "status"),
    [("localhost", 200), ("localhost:8000", 200), ("127.0.0.1:1", 200), ("[::1]:8000", 200), ("PHOTOS.example", 200),
     ("evil.example", 400), ("localhost.evil.example", 400), ("", 400), ("photos.example@evil.example", 400)],
)  # fmt: skip
def test_by_a_foreign_name_nothing_is_answered(client: TestClient, name: str, status: int) -> None:
    for path in ("/health", "/search?q=a", "/docs", "/openapi.json"):
        assert client.get(path, headers={"Host": name}).status_code == status


def test_names_of_a_server() -> None:
    assert names_of("127.0.0.1", []) == [*LOCAL]
    assert names_of("10.1.2.3", ["a.example", "*.b"]) == [*LOCAL, "10.1.2.3", "a.example", "*.b"]
    assert "xn--bcher-kva.example" in names_of("10.1.2.3", ["bücher.example"])  # as browsers send it
    assert {*LOCAL, "0.0.0.0", socket.gethostname()} <= {*names_of("0.0.0.0", [])}
    for name in ("a b", "http://a", "a/b", "a*b", ""):
        with pytest.raises(RecipeError, match="not the name of a host"):
            names_of("127.0.0.1", [name])


def test_the_page_is_served_by_the_same_names(used: Tiny, folder: Path, tmp_path: Path, monkeypatch) -> None:
    given: list[str] = []
    monkeypatch.setattr("streamlit.web.cli.main", lambda words, **more: given.extend(words))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert used.main("app", "--address", "localhost", "--hosts", "a.example b", "--port", str(port)) == 0
    start = "--server.allowedHosts="
    names = [word.removeprefix(start) for word in given if word.startswith(start)]
    assert names == names_of("localhost", ["a.example", "b"])
    assert {"--server.address=localhost", f"--server.port={port}"} < {*given}
    assert Path(given[-1]).resolve() == folder.resolve()
    (tmp_path / "gallery.json").touch()
    assert used.main("app", str(tmp_path), "--port=0") == 0
    assert given[-1] == str(tmp_path)


def test_it_answers_while_the_model_works(app: FastAPI, monkeypatch) -> None:
    """Searching stands still until the health has been told."""
    told, search_all = threading.Event(), Gallery.search_all
    monkeypatch.setattr(Gallery, "search_all", lambda *given: told.wait(20) and search_all(*given))

    async def run() -> None:
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
            search = asyncio.create_task(client.get("/search?q=a"))
            await asyncio.sleep(0.1)
            health = await client.get("/health")
            assert not search.done()
            told.set()
            assert (health.json()["status"], (await search).status_code) == ("ok", 200)

    asyncio.run(run())


def test_an_updated_gallery_is_opened_and_one_that_is_gone_is_told(folder: Path, own: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "gallery"))
    answers = Answers(copy)
    client, before = TestClient(create_app(answers, LOCAL), "http://localhost"), answers._opened.exported
    assert client.get("/health").json()["pictures"] > 6
    update_gallery(copy, before, PictureFolder(own), {})
    assert {hit["name"] for hit in client.get("/search?q=a&top=9").json()["hits"]} == {f"{n}.png" for n in range(6)}
    assert client.get("/health").json()["pictures"] == 6
    assert answers._opened.exported is before
    (copy / POINTER).rename(copy / "gone")
    told = client.get("/search?q=a")
    assert (told.status_code, "no gallery here; run `bildwort index`" in told.json()["detail"]) == (503, True)
    (copy / POINTER).write_text("{}")
    assert client.get("/search?q=a").status_code == 503
    (copy / "gone").replace(copy / POINTER)
    assert client.get("/search?q=a").status_code == 200


def test_a_server_that_cannot_start_is_one_line(used: Tiny, tmp_path: Path, capsys) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for words, said in (
            (("gone", "--port=0"), "gone: no gallery here; run `bildwort index`"),
            ((f"--port={port}",), "choose another address or port"),
            (("--address=no.such.address.invalid", "--port=0"), "choose another address"),
            (("--hosts=http://a",), "not the name of a host"),
            (("--hosts=10.0.0.5:8080",), "such as photos.example, without a port"),
        ):
            capsys.readouterr()
            assert used.main("serve", *words) == 1
            assert said in " ".join(capsys.readouterr().err.split())


def test_its_documentation_names_all_that_it_answers(client: TestClient) -> None:
    described = client.get("/openapi.json").json()
    assert set(described["paths"]) == {"/search", "/describe", "/embed", "/translate", "/health"}
    page = client.get("/docs").text
    parts = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert any("swagger" in part for part in parts)
    for part in parts:  # nothing is loaded from another server
        assert part.startswith("/")
        assert client.get(part).status_code == 200


def test_the_commands_of_the_readme_are_answered(client: TestClient, picture: Path) -> None:
    """What curl would send, of each endpoint."""
    lines = re.findall(r"^curl .*$", (ROOT / ".docs" / "pages" / "search.md").read_text(encoding="utf-8"), re.M)
    for line in lines:
        words = shlex.split(line)[1:]
        (address,) = (word for word in words if word.startswith("http://127.0.0.1:8000/"))
        typed = [
            (flag, *value.split("=", 1)) for flag, value in pairwise(words) if flag in ("-d", "-F", "--data-urlencode")
        ]
        fields = [(name, value) for _, name, value in typed if not value.startswith("@")]
        files = {name: picture.read_bytes() for _, name, value in typed if value.startswith("@")}
        parameters = httpx2.QueryParams(fields) if "-G" in words else None
        data = {} if "-G" in words else {name: [value for one, value in fields if one == name] for name, _ in fields}
        way = "POST" if "-F" in words else "GET"
        told = client.request(way, address, params=parameters, data=data, files=files)
        assert told.status_code == 200, (line, told.text)
    assert {line.split("8000")[1].split("?")[0].split()[0].strip('"') for line in lines} == {
        "/search", "/describe", "/embed", "/translate", "/health"
    }  # fmt: skip
