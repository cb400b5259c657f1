"""Several queries in one batch are answered as each alone, in the order of a second model too."""

import pytest

from modules.search import reranking
from pipeline.export.exported_model import ExportedModel
from pipeline.gallery.gallery import Gallery
from pipeline.gallery.hits import Query
from tests.pipeline.tiny import Tiny

QUERIES = [Query("a red bat", None, 2), Query("a small blue ball on the left", "en", 7), Query("two boxes", None, 1)]


@pytest.fixture
def gallery(used: Tiny, exported: ExportedModel) -> Gallery:
    return Gallery.open(used.workspace.root / "tiny" / "gallery", exported)


@pytest.mark.parametrize("at_once", [8192, 9, 1])
@pytest.mark.parametrize("first", [0, 6])
def test_a_batch_of_queries(gallery: Gallery, exported, first: int, at_once: int, monkeypatch) -> None:
    alone = [gallery.search(query.text, query.top, query.language, exported, first) for query in QUERIES]
    monkeypatch.setattr(reranking, "_AT_ONCE", at_once)
    found = gallery.search_all(QUERIES, exported, first)
    assert [len(hits) for hits in found] == [2, 7, 1]
    for hits, expected in zip(found, alone, strict=True):
        assert {hit.name: hit.score for hit in hits} == pytest.approx(
            {hit.name: hit.score for hit in expected}, abs=1e-5
        )


def test_each_picture_of_a_batch_is_read_once(gallery: Gallery, exported: ExportedModel, monkeypatch) -> None:
    read: list[int] = []
    real = Gallery._regions_at
    monkeypatch.setattr(Gallery, "_regions_at", lambda self, places: read.extend(places) or real(self, places))
    gallery.search_all(QUERIES, exported, len(gallery))
    assert sorted(read) == [*range(len(gallery))]


def test_pictures_of_a_batch_are_described_as_each_alone(gallery: Gallery) -> None:
    regions = gallery._regions_at([0, 1, 2])
    for place, told in enumerate(gallery.captions_near(regions, [3, 1, 5])):
        (alone,) = gallery.captions_near(regions[place, None], [(3, 1, 5)[place]])
        assert {hit.name: hit.score for hit in told["en"]} == pytest.approx(
            {hit.name: hit.score for hit in alone["en"]}, abs=1e-5
        )
        assert len(told["en"]) == (3, 1, 5)[place]
