"""What the service says besides its answers: notes about sentences, what is wrong, and whether it is ready."""

import errno
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from pipeline.export.exported_model import ExportedModel
from pipeline.gallery.gallery import Gallery
from pipeline.gallery.generation import POINTER
from pipeline.gallery.vector_cache import VectorCache
from pipeline.serve.answers import Answers
from pipeline.serve.hosts import LOCAL
from pipeline.serve.service import create_app
from tests.pipeline.tiny import Tiny

LONG = "a " * 150


@pytest.fixture(scope="module")
def folder(used: Tiny, tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("notes") / "gallery"
    return Path(shutil.copytree(used.workspace.root / "tiny" / "gallery", made))


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[TestClient]:
    with TestClient(create_app(Answers(folder), LOCAL, 104_858), "http://localhost") as made:
        yield made


def test_vectors_of_unknown_words_and_of_cut_sentences_are_told(client: TestClient, exported: ExportedModel) -> None:
    sentences = ["a red bat", "qwertz uiop", LONG]
    told = client.post("/embed", data={"sentences": sentences}).json()
    assert len(told["vectors"]) == 3
    assert told["notes"] == [
        "sentence 2: 2 of 2 words unknown: qwertz, uiop; this model reads English; none of the words is known, so the "
        "vector is arbitrary",
        "sentence 3: this is too long: the model reads only its beginning",
    ]
    assert client.post("/embed", data={"sentences": ["a red bat"]}).json()["notes"] == []


def test_a_sentence_that_is_cut_is_told_with_its_translation(client: TestClient, exported: ExportedModel) -> None:
    note = "this is too long: the translator reads only its beginning"
    told = client.get("/translate", params={"sentence": LONG, "direction": "en-de"}).json()
    assert told["notes"] == [note]
    assert exported.translators.translate(LONG, "mt", "en", "de").reading.note == note
    told = client.get("/translate", params={"sentence": "a red bat", "direction": "en-de"}).json()
    assert told["notes"] == []


def test_health_is_that_of_the_gallery(client: TestClient, folder: Path) -> None:
    assert (client.get("/health").json()["status"], client.head("/health").status_code) == ("ok", 200)
    pointer = folder / POINTER
    content = pointer.read_bytes()
    for spoil, said in ((pointer.unlink, "no gallery here"), (lambda: pointer.write_text("{}"), "not readable")):
        spoil()
        told = client.get("/health")
        assert (told.status_code, said in told.json()["detail"]) == (503, True)
        assert client.head("/health").status_code == client.get("/search?q=a").status_code == 503
    pointer.write_bytes(content)
    assert client.get("/health").status_code == client.get("/search?q=a").status_code == 200


def test_a_gallery_that_could_not_be_opened_is_not_healthy(client: TestClient, folder: Path) -> None:
    pointer = folder / POINTER
    content = pointer.read_text()
    pointer.write_text(json.dumps(json.loads(content) | {"generation": "gone"}))
    told = client.get("/search?q=a")
    assert (told.status_code, client.get("/health").json()) == (503, told.json())
    pointer.write_text(content)
    assert client.get("/search?q=a").status_code == client.get("/health").status_code == 200


def test_a_full_disk_under_an_uploaded_picture_is_no_fault_of_the_request(client: TestClient, monkeypatch) -> None:
    def full(*arguments, **more):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("starlette.formparsers.SpooledTemporaryFile", full)
    told = client.post("/describe", files=FILE)
    assert (told.status_code, told.json()["detail"].partition(";")[0]) == (
        503, "a file or the output: No space left on device"
    )  # fmt: skip


def test_too_little_memory_is_no_fault_of_the_request(client: TestClient, monkeypatch) -> None:
    def too_much(*arguments, **more):
        raise MemoryError

    monkeypatch.setattr(ExportedModel, "encode_captions", too_much)
    told = client.get("/search?q=a")
    assert (told.status_code, told.json()["detail"].partition(";")[0]) == (
        503, "this machine has too little memory for this"
    )  # fmt: skip


NAMELESS = "this service does not answer to this name; start it with --hosts NAME"
FILE, JSON = {"picture": b"x"}, "the body is 'application/json'; expected a form (`curl -F NAME=VALUE`, see /docs)"
WRONG = [
    ("/describe", {"data": {"picture": "dog.jpg"}}, 422, "picture: expected a file (`-F picture=@FILE`)"),
    ("/embed", {"data": {"picture": "dog.jpg"}}, 422, "picture: expected a file (`-F picture=@FILE`)"),
    ("/embed", {"files": {"sentences": b"a"}}, 422, "sentences: expected text, not a file (`-F sentences=TEXT`)"),
    ("/embed", {"files": {"language": b"en"}}, 422, "language: expected text, not a file (`-F language=TEXT`)"),
    ("/embed", {"json": {"sentences": ["a"]}}, 422, f"embed: {JSON}"),
    ("/describe", {"json": {"picture": "a"}}, 422, f"describe: {JSON}"),
    ("/embed", {"files": {"picture": b"x" * 200_000}}, 413, "the body is larger than 0.1 MB"),
    ("/embed", {"content": b"x" * 200_000}, 413, "the body is larger than 0.1 MB"),
    ("/embed", {"files": FILE, "headers": {"Host": "evil.example"}}, 400, NAMELESS),
    ("/embed", {"files": FILE, "headers": {"Host": ""}}, 400, NAMELESS),
]


@pytest.mark.parametrize(("path", "options", "status", "said"), WRONG)
def test_each_error_is_a_detail_that_says_what_is_expected(client: TestClient, path, options, status, said) -> None:
    told = client.post(path, **options)
    assert (told.status_code, told.json()) == (status, {"detail": said})


def test_a_gallery_that_was_mended_is_well_again(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "gallery"))
    client = TestClient(create_app(Answers(copy), LOCAL), "http://localhost")
    pictures = copy / "generations" / json.loads((copy / POINTER).read_text())["generation"] / "pictures.parquet"
    pictures.rename(copy / "away")
    (copy / POINTER).touch()
    assert [client.get(path).status_code for path in ("/search?q=a", "/health")] == [503, 503]
    (copy / "away").rename(pictures)
    assert [client.get(path).status_code for path in ("/search?q=a", "/health")] == [200, 200]


def test_of_vectors_that_are_gone_while_it_serves_the_gallery_is_told(folder: Path, monkeypatch) -> None:
    client = TestClient(create_app(Answers(folder), LOCAL), "http://localhost")
    parts = VectorCache(folder / "parts" / "gone" / "pictures")
    monkeypatch.setattr(Gallery, "search_all", lambda *_: parts.take(["digest"], "regions"))
    told = client.get("/search?q=a")
    assert (told.status_code, f"--gallery {folder}`" in told.json()["detail"]) == (503, True)


def test_a_sentence_without_a_word_is_not_translated(client: TestClient) -> None:
    told = client.get("/translate", params={"sentence": "\x01", "direction": "en-de"}).json()
    assert (told["translation"], told["notes"]) == ("", ["there is no word to translate"])
