"""Parallel text about no image: its lines, what is held out of it, and as part of Karpathy's corpora."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from data.captions.table import Pair
from data.corpora import folder, parallel
from data.corpora.coco.karpathy import KarpathySettings, read, sources
from data.corpora.folder import FolderSettings
from data.corpora.parallel import held_out, read_parallel
from data.errors import DataError
from tests.data.layouts import write_karpathy
from tests.data.official import pack


def pairs_of(lines: list[str], folder: Path) -> tuple[list[Pair], list[str]]:
    empty: list[str] = []
    pack(folder / "tatoeba" / "jpn-eng.tsv.gz", lines)
    return list(read_parallel(folder / "tatoeba" / "jpn-eng.tsv.gz", "ja", empty, "ja")), empty


def test_lines_are_pairs_without_an_image(tmp_path: Path) -> None:
    found, empty = pairs_of(["A dog.\t犬。", "A cat. \t 猫。\tauthors", "\t鳥。", "A bird.\t "], tmp_path)
    assert found == [
        Pair("ja#1", None, "train", "tatoeba", {"en": "A dog.", "ja": "犬。"}),
        Pair("ja#2", None, "train", "tatoeba", {"en": "A cat.", "ja": "猫。"}),
    ]
    assert [place.rpartition(":")[2] for place in empty] == ["3", "4"]
    with pytest.raises(DataError, match=r"jpn-eng\.tsv\.gz:2: no TAB, expected `english TAB ja`$"):
        pairs_of(["A dog.\t犬。", "A cat."], tmp_path)


def made(count: int, each: int = 2) -> list[Pair]:
    return [Pair(f"ja#{n}.{k}", None, "train", "x", {"en": f"Dog {n}.", "ja": f"犬{n}{k}"})
            for n in range(count) for k in range(each)]  # fmt: skip


def test_all_pairs_of_a_sentence_are_in_one_split(monkeypatch: pytest.MonkeyPatch) -> None:
    found = held_out(made(50))
    assert Counter(pair.split for pair in found) == {"train": 80, "val": 10, "test": 10}
    of_sentence = {(pair.texts["en"], pair.split) for pair in found}
    assert len(of_sentence) == 50
    assert {(pair.texts["en"], pair.split) for pair in held_out(made(50)[::-1])} == of_sentence
    monkeypatch.setattr(parallel, "MOST_HELD_OUT", 3)
    assert Counter(pair.split for pair in held_out(made(50))) == {"train": 88, "val": 6, "test": 6}


def test_no_translation_is_in_two_splits() -> None:
    pairs = [replace(pair, texts=pair.texts | {"ja": pair.texts["ja"][:2]}) for pair in made(50)]  # 犬1: of 1, 10 to 19
    splits = {split: {pair.texts["ja"] for pair in held_out(pairs) if pair.split == split}
              for split in ("train", "val", "test")}  # fmt: skip
    assert splits["test"]
    assert sum(map(len, splits.values())) == len(set.union(*splits.values())) == 10
    placed = {pair.pair_id: pair.split for pair in held_out(made(50))}
    left = {pair.pair_id: pair.split for pair in held_out(pairs)}
    assert left.items() < placed.items()
    assert sum(split == "test" for split in left.values()) == 10


def test_karpathys_captions_beside_parallel_text(tmp_path: Path) -> None:
    write_karpathy(tmp_path)
    lines = [f"Dog {n}.\t犬{n}" for n in range(20)]
    pack(tmp_path / "tatoeba" / "jpn-eng.tsv.gz", [*lines, "\t犬"])
    plain = {"captions": "dataset.json", "languages": ["en", "ja"], "translated": {"ja": "ja.tsv"}}
    settings = KarpathySettings(**plain, parallel={"ja": "tatoeba/jpn-eng.tsv.gz"})
    corpus = read(settings, tmp_path, tmp_path)
    assert corpus.captions == read(KarpathySettings(**plain), tmp_path, tmp_path).captions
    assert Counter(pair.split for pair in corpus.pairs) == {"train": 16, "val": 2, "test": 2}
    file = tmp_path / "tatoeba" / "jpn-eng.tsv.gz"
    assert corpus.place is not None
    assert corpus.place(corpus.pairs[4], "ja") == f"{file}:5"
    assert f"{file}:21" in corpus.empty
    assert file in sources(settings, tmp_path)
    for languages, parallel_text in ((["en"], {"ja": "x"}), (["en", "ja"], {"en": "x"})):
        with pytest.raises(DataError, match=r"^karpathy: parallel names '(ja|en)', but languages are en"):
            read(KarpathySettings(**plain | {"languages": languages}, parallel=parallel_text), tmp_path, tmp_path)


def test_text_beside_a_folder_is_held_out_too_where_none_of_it_is_about_a_picture(tmp_path: Path) -> None:
    Image.new("RGB", (9, 9)).save(tmp_path / "a.png")
    (tmp_path / "captions.tsv").write_text("a.png\ten\ta dog\n")
    lines = [f"Hund {number}\tchien {number}" for number in range(40)]
    (tmp_path / "pairs.tsv").write_text("\n".join(["de\tfr", *lines]))
    settings = FolderSettings(parallel="pairs.tsv", pictures=".", validation=0, test=0)
    pairs = folder.read(settings, tmp_path, tmp_path).pairs
    assert Counter(pair.split for pair in pairs) == {"train": 32, "val": 4, "test": 4}
    named = [f"{'a.png' * (number == 7)}\t{line}" for number, line in enumerate(lines)]
    (tmp_path / "pairs.tsv").write_text("\n".join(["picture\tde\tfr", *named]))
    pairs = folder.read(settings, tmp_path, tmp_path).pairs
    assert {pair.split for pair in pairs} == {"train"}  # the splits of the pictures decide
