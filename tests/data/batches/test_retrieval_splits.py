"""What a split of the retrieval data holds: its images, captions and references, in which order."""

from pathlib import Path

import numpy as np
import pytest

from data.batches.captions import CaptionBatches
from data.batches.retrieval import RetrievalData
from data.captions.table import Caption, table_of
from data.pictures.regions import RegionStore, write_regions
from tests.data.batches.test_retrieval_data import DE, EN, Lengths, encode

ROWS = [
    Caption("b", "b-en0", "en", "one", "test"), Caption("b", "b-de", "de", "eins zwei", "test"),
    Caption("a", "a-de", "de", "drei", "test"), Caption("b", "b-en1", "en", "two", "test"),
    Caption("c", "c-en", "en", "three", "test"), Caption("c", "c-mt", "de", "x", "test", "mmt:en-de", "c-en"),
    Caption("d", "d-en0", "en", "a dog", "train"), Caption("d", "d-en1", "en", "the big dog", "train"),
    Caption("d", "d-mt", "de", "ein Hund", "train", "mmt:en-de", "d-en0"), Caption("e", "e-en", "en", "sea", "train"),
    Caption("e", "e-mt", "de", "Wasser", "train", "mmt:en-de", "e-en"), Caption("e", "e-de", "de", "das Meer", "train"),
]  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> RegionStore:
    write_regions(tmp_path, list("abcde"), [(np.ones((1, 2)), np.zeros((1, 4)))] * 5)
    return RegionStore(tmp_path)


@pytest.fixture
def data(store: RegionStore) -> RetrievalData:
    groups = [(EN,), (DE,)]
    return RetrievalData(table_of(ROWS), store, Lengths(), groups, ["de", "en"], {"test": ["en", "de"]}, 2)


def test_images_and_captions_of_a_language_are_those_that_are_ranked(data: RetrievalData) -> None:
    assert data.image_keys("test") == [1, 0, 2]  # in the order of the table
    assert data.image_keys("test", "en") == [1, 2]
    assert data.image_keys("test", "de") == [1, 0]
    assert data.caption_ids("test") == ["b-en0", "b-de", "a-de", "b-en1", "c-en"]
    assert data.ranked("test", "en") == (["a", "b", "c"], ["b-en0", "b-en1", "c-en"])
    assert data.ranked("test", "de") == (["a", "b", "c"], ["b-de", "a-de"])


def test_references_are_by_people_where_there_are_any(store: RegionStore, data: RetrievalData) -> None:
    german, english = 0, 1
    assert data.references() == {
        (3, english): [encode("a dog", "en"), encode("the big dog", "en")], (3, german): [encode("ein Hund", "de")],
        (4, english): [encode("sea", "en")], (4, german): [encode("Wasser", "de")],
    }  # fmt: skip
    whole = CaptionBatches(table_of(ROWS[6:]), store, Lengths(), ["de", "en"], [])
    assert whole.references()[4, german] == [encode("das Meer", "de")]  # not the translated one beside it


def test_a_sentence_twice_on_an_image_is_one_of_its_sentences(store: RegionStore) -> None:
    texts = [("a", "one"), ("a", "One!"), ("a", "two"), ("a", "two"), ("b", "two"), ("c", "one")]
    table = table_of([Caption(image, f"{n}", "en", text, "train") for n, (image, text) in enumerate(texts)])
    batch = CaptionBatches(table, store, Lengths(), ["en"], [])[[np.array([0, 4])]]
    own, others = batch["image_sentences"].tolist(), batch["sentence"].tolist()
    assert sorted(image for image, _ in own) == [0, 0, 1]
    assert len({sentence for _, sentence in own}) == 2
    assert [0, others[0]] in own
    assert [1, others[1]] in own


def test_another_seed_draws_other_batches(store: RegionStore) -> None:
    rows = [Caption(image, f"{image}{number}", "en", f"{number}", "train") for image in "abcde" for number in range(4)]

    def drawn(seed: int) -> list[list[int]]:
        """The captions of each batch of an epoch."""
        data = RetrievalData(table_of(rows), store, Lengths(), [(EN,)], ["de", "en"], {}, 2, seed)
        return [batch["caption_key"].tolist() for batch in data.train_dataloader()]

    assert drawn(1) == drawn(1) != drawn(2)
