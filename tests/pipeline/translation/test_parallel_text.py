"""Which pairs a translator reads, of a parallel table that people and back-translation have written."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data.captions.table import Pair, write_pairs
from data.errors import DataError
from data.pictures.regions import write_regions
from pipeline.recipes.translator_settings import MmtSettings
from pipeline.translation.parallel_text import BACK, parallel_text_of


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Images `seen.jpg` and `blind.jpg`, the first with regions; pairs about each and none, a German sentence alone."""
    both = {"en": "a", "de": "ein"}
    pairs = [
        Pair("seen", "seen.jpg", "train", "task1", both), Pair("blind", "blind.jpg", "train", "task1", both),
        Pair("text", None, "train", "tatoeba", both), Pair("alone", "seen.jpg", "train", "task2", {"de": "ein"}),
    ]  # fmt: skip
    write(tmp_path, pairs)
    write_regions(tmp_path / "regions", ["seen.jpg"], [(np.ones((2, 4)), np.zeros((2, 4)))])
    (tmp_path / "about.json").write_text(
        json.dumps({"task": "", "label": "", "twins": [], "pictures": {}}), encoding="utf-8"
    )
    back = {"pair_id": ["alone"], "text": ["one"], "tokens": [[7, 8]]}
    pq.write_table(pa.table(back), tmp_path / BACK)
    return tmp_path


def write(folder: Path, pairs: list[Pair]) -> None:
    """The parallel table and its token numbers."""
    write_pairs(pairs, folder / "pairs.parquet")
    tokens = {name: pa.array([[5]] * len(pairs), pa.list_(pa.int32())) for name in ("en", "de")}
    pq.write_table(pa.table(tokens), folder / "tokens.parquet")


def ids(corpus: Path, captions: bool | None, without_regions: str = "text", back: bool = True) -> list[str]:
    inputs = dict.fromkeys(("corpus", "text", *(["back"] if back else [])), corpus)
    pairs = parallel_text_of(inputs, "en-de", MmtSettings(without_regions=without_regions))
    return [row["pair_id"] for row in pairs.rows("train", captions)]


def test_captions_and_text_share_out_the_pairs(corpus: Path) -> None:
    assert ids(corpus, True) == ["seen"]
    assert ids(corpus, False) == ["blind", "text", "alone"]
    assert ids(corpus, None) == ["seen", "blind", "text", "alone"]
    assert ids(corpus, True, "captions") == ["seen", "blind"]
    assert ids(corpus, False, "captions", back=False) == ["text"]


def test_without_text_all_is_pretrained_on_and_back_translations_push_none_out(corpus: Path) -> None:
    write(corpus, [
        Pair("seen", "seen.jpg", "train", "task1", {"en": "a", "de": "ein"}),
        Pair("alone", "seen.jpg", "train", "task2", {"de": "ein"}),
    ])  # fmt: skip
    assert ids(corpus, False, back=False) == ["seen"]
    assert ids(corpus, False) == ["seen", "alone"]
    assert ids(corpus, True) == ["seen"]


def test_without_pairs_about_pictures_text_is_fine_tuned_on(corpus: Path) -> None:
    both = {"en": "a", "de": "ein"}
    write(corpus, [Pair("text", None, "train", "tatoeba", both), Pair("alone", None, "train", "task2", {"de": "ein"})])
    for without_regions in ("text", "captions"):
        assert ids(corpus, True, without_regions) == ["text"]
        assert ids(corpus, False, without_regions) == ["text", "alone"]


def test_token_numbers_are_of_the_direction_s_sides_and_some_origins_come_again(corpus: Path) -> None:
    numbers = {"en": [[1], [2], [3], [4]], "de": [[11], [12], [13], [14]]}
    tokens = {name: pa.array(rows, pa.list_(pa.int32())) for name, rows in numbers.items()}
    pq.write_table(pa.table(tokens), corpus / "tokens.parquet")
    back = {"pair_id": ["alone", "text"], "text": ["one", "unused"], "tokens": [[7, 8], [9]]}  # `text` has a source
    pq.write_table(pa.table(back), corpus / BACK)
    pairs = parallel_text_of(dict.fromkeys(("corpus", "text", "back"), corpus), "en-de", MmtSettings())
    whole = pairs.select("train", None)
    assert list(zip(whole.source, whole.target, whole.image_ids, strict=True)) == [
        ([1], [11], "seen.jpg"), ([2], [12], None), ([3], [13], None), ([7, 8], [14], "seen.jpg"),
    ]  # fmt: skip
    assert pairs.texts("en", "train", None) == ["a", "a", "a", "one"]
    assert pairs.select("train", None, {"task1": 2, "task2": 3}).target == [[11], [11], [12], [12], [13], *[[14]] * 3]
    with pytest.raises(DataError, match=r"mmt.repeat names 'task3'; the pairs are of task1, task2, tatoeba"):
        pairs.select("train", None, {"task3": 2})
    with pytest.raises(DataError, match=r"mmt: no en-de pair with regions for val; see the data report"):
        pairs.select("val", True)
    turned = parallel_text_of({"corpus": corpus, "text": corpus}, "de-en", MmtSettings()).select("train", True)
    assert (turned.source, turned.target) == ([[11]], [[1]])
