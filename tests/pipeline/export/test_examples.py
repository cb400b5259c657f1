"""Examples drawn from a gallery: sentences in its languages, and one whose translation depends on the picture."""

import pytest

from pipeline.export.exported_model import ExportedModel
from pipeline.export.exported_translators import ExportedTranslators
from pipeline.gallery.examples import ambiguous_example, example_queries
from pipeline.gallery.gallery import Gallery
from tests.pipeline.tiny import Tiny


@pytest.fixture(scope="module")
def gallery(used: Tiny, exported: ExportedModel) -> Gallery:
    return Gallery.open(used.workspace.root / "tiny" / "gallery", exported)


def test_example_queries_are_captions_in_all_languages(gallery: Gallery, monkeypatch) -> None:
    queries = example_queries(gallery)
    assert len({one.text for one in queries}) == 5
    assert {one.text for one in queries} <= set(gallery.draw_captions("en", 10_000, 0))
    assert queries == example_queries(gallery)
    monkeypatch.setattr(gallery, "_captions", {"de": gallery._captions["en"], "en": gallery._captions["en"]})
    assert [one.language for one in example_queries(gallery)] == ["en", "en", "en", "de", "de"]
    monkeypatch.setattr(gallery, "_captions", {})
    assert example_queries(gallery) == []


def test_the_ambiguous_example_has_two_translations_each_nearer_to_its_picture(gallery: Gallery, monkeypatch) -> None:
    """With a translator that gives each picture its nearest caption: different ones are preferred for their own."""
    exported = gallery.exported
    captions = gallery.draw_captions("en", 10_000, 0)

    def fitting(self, texts, system, source, target, regions=None):
        if system == "mt":
            return ["back"] * len(texts)
        scores = exported.encode_regions(regions).single() @ exported.encode_captions(captions, "en").single().T
        return [captions[place] for place in scores.argmax(1).tolist()]

    monkeypatch.setattr(ExportedTranslators, "targets", lambda self, system, language: ["en"])
    monkeypatch.setattr(ExportedTranslators, "looking", lambda self, language: {"en": "mmt"})
    monkeypatch.setattr(ExportedTranslators, "translate_all", fitting)
    found = ambiguous_example(gallery)
    assert found is not None
    assert (found.sentence.language, found.target) == ("en", "en")
    assert found.sentence.text in captions
    seen, _ = gallery.regions_of(found.pictures)
    texts = fitting(exported.translators, ["", ""], "mmt", "en", "en", seen)
    scores = exported.encode_regions(seen).single() @ exported.encode_captions(texts, "en").single().T
    assert scores[0, 0] > scores[0, 1]
    assert scores[1, 1] > scores[1, 0]


def test_there_is_no_ambiguous_example_where_the_picture_changes_nothing(gallery: Gallery, monkeypatch) -> None:
    assert ambiguous_example(gallery) is None  # the model does not read German, so it cannot compare
    monkeypatch.setattr(ExportedTranslators, "targets", lambda self, system, language: ["en"])
    monkeypatch.setattr(ExportedTranslators, "looking", lambda self, language: {"en": "mmt"})
    monkeypatch.setattr(ExportedTranslators, "translate_all", lambda self, texts, *rest: ["the same"] * len(texts))
    assert ambiguous_example(gallery) is None
