"""What the service says besides its answers: notes about sentences, what is wrong, and whether it is ready."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from pipeline.export.exported_model import ExportedModel
from pipeline.gallery.generation import POINTER
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
    with TestClient(create_app(Answers(folder), LOCAL, 100_000), "http://localhost") as made:
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


FILE, JSON = {"picture": b"x"}, "the body is 'application/json'; expected a form (`curl -F NAME=VALUE`, see /docs)"
WRONG = [
    ("/describe", {"data": {"picture": "dog.jpg"}}, 422, "picture: expected a file (`-F picture=@FILE`)"),
    ("/embed", {"data": {"picture": "dog.jpg"}}, 422, "picture: expected a file (`-F picture=@FILE`)"),
    ("/embed", {"files": {"sentences": b"a"}}, 422, "sentences: expected text, not a file (`-F sentences=TEXT`)"),
    ("/embed", {"files": {"language": b"en"}}, 422, "language: expected text, not a file (`-F language=TEXT`)"),
    ("/embed", {"json": {"sentences": ["a"]}}, 422, f"embed: {JSON}"),
    ("/describe", {"json": {"picture": "a"}}, 422, f"describe: {JSON}"),
    ("/embed", {"files": {"picture": b"x" * 200_000}}, 413, "Content Too Large"),
    ("/embed", {"content": b"x" * 200_000}, 413, "Content Too Large"),
    ("/embed", {"files": FILE, "headers": {"Host": "evil.example"}}, 400, "Invalid host header"),
    ("/embed", {"files": FILE, "headers": {"Host": ""}}, 400, "Invalid host header"),
]


@pytest.mark.parametrize(("path", "options", "status", "said"), WRONG)
def test_each_error_is_a_detail_that_says_what_is_expected(client: TestClient, path, options, status, said) -> None:
    told = client.post(path, **options)
    assert (told.status_code, told.json()) == (status, {"detail": said})
