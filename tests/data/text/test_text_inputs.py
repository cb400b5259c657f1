"""Text inputs: a whole caption table is read as each of its sentences is."""

import random
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from data.captions.table import Caption, choose, read_captions, sentences_of, table_of, write_captions
from data.text.sentences import sentence_hash
from data.text.text_inputs import PretrainedTokens, WordVocabulary, words_of_all
from data.text.tokenisation import CHARACTERS, MAX_TOKENS, WORDS, tokenize, tokenize_all, words_of
from data.text.tokens import Tokens
from tests.modules.text_models import save

ODD = [
    "",
    " ",
    "\n",
    "a",
    "Zwei Männer\u00a0– draußen!",
    "a\u3000b",
    "x\x1cy",
    "hand " * 150,
    "don't 3.5",
    "\u200b",
    "𝔘 ß",
]
LETTERS = "ab cdß'.,-–!?3 \u00a0\u3000\t\x1cÄé두人あกิ\u200d\"&<>|[]"


def made(count: int, seed: int = 0) -> list[Caption]:
    rng = random.Random(seed)
    texts = ODD + ["".join(rng.choices(LETTERS, k=rng.randrange(30))) for _ in range(count)]
    return [
        Caption(f"{number % 7}.jpg", str(number), rng.choice(("en", "de", "zh", "th", "cs")), text, "train")
        for number, text in enumerate(texts)
    ]


@pytest.mark.whole
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("tokens", [True, False])
def test_words_of_a_table_are_those_of_each_sentence(shared: bool, tokens: bool) -> None:
    captions = made(400)
    table = table_of(captions, tokens)
    texts, languages = table["text"][:], table["language"][:]
    vocabulary = WordVocabulary.build(texts, languages, 2, shared)
    read = vocabulary.encode_all(table)
    assert len(read) == len(captions)
    for number, caption in enumerate(captions):
        assert read[number] == vocabulary.encode(caption.text, caption.language), caption
    counted: dict[str, int] = {}
    for caption in captions:
        for word in words_of(caption.text, caption.language).split():
            key = word if shared else f"{caption.language}:{word}"
            counted[key] = counted.get(key, 0) + 1
    assert set(vocabulary.words[2:]) == {word for word, count in counted.items() if count >= 2}
    order = [(-counted[word], word) for word in vocabulary.words[2:]]
    assert order == sorted(order)


def test_chinese_words_of_a_table_are_those_of_each_sentence() -> None:
    pytest.importorskip("rjieba")
    table = table_of([Caption("1", "1", "zh", "公园里的自行车", "train"), Caption("1", "2", "en", "a man", "train")])
    for by in (WORDS, CHARACTERS):
        vocabulary = WordVocabulary.build(table["text"][:], table["language"][:], 1, by=by)
        assert [vocabulary.encode_all(table)[0], vocabulary.encode_all(table)[1]] == [
            vocabulary.encode("公园里的自行车", "zh"), vocabulary.encode("a man", "en"),
        ]  # fmt: skip
        assert words_of_all([tokenize("公园里的自行车", "zh")], ["zh"], by) == [words_of("公园里的自行车", "zh", by)]


@pytest.mark.parametrize("longest", [None, 4])
def test_sub_words_of_a_table_are_those_of_each_sentence(tmp_path: Path, longest: int | None) -> None:
    save("bert", tmp_path / "bert")
    tokens = PretrainedTokens(str(tmp_path / "bert"), longest, lower=True)
    captions = made(100)
    read = tokens.encode_all(table_of(captions))
    assert [read[number] for number in range(len(read))] == [tokens.encode(each.text, "en") for each in captions]


def test_the_table_keeps_tokens_and_hashes_and_old_files_are_read(tmp_path: Path) -> None:
    captions, path = made(50), tmp_path / "captions.parquet"
    write_captions(captions, path)
    table = read_captions(path, tokens=True)
    assert table["tokens"][:] == [tokenize(each.text, each.language) for each in captions]
    assert sentences_of(table).tolist() == [sentence_hash(each.text) for each in captions]
    assert sentences_of(read_captions(path)).tolist() == sentences_of(table).tolist()
    pq.write_table(pq.read_table(path).drop_columns(["tokens", "sentence"]), path)
    assert read_captions(path, tokens=True).to_list() == table.to_list()


@pytest.mark.whole
def test_very_many_sentences_are_shared_by_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"Sentence {number}, a man's." for number in range(100)] * 2
    alone = tokenize_all(texts, ["en"] * 200)
    monkeypatch.setattr("data.text.tokenisation._CHUNK", 20)
    monkeypatch.setattr("data.processes.cores", lambda: 2)
    assert tokenize_all(texts, ["en"] * 200) == alone == [tokenize(text, "en") for text in texts]


def test_captions_are_chosen_by_split_and_type() -> None:
    captions = [
        Caption("1", f"{split}{source}{language}", language, "a", split, source)
        for split in ("train", "val") for source in ("human", "mt:en-de") for language in ("en", "de")
    ]  # fmt: skip
    found = choose(table_of(captions), "val", {"de/human", "de/mt:en-de"})
    assert found["caption_id"][:] == ["valhumande", "valmt:en-dede"]
    assert len(choose(table_of(captions), "test", {"de/human"})) == len(choose(table_of(captions), "val", set())) == 0


@pytest.mark.parametrize("most", [1, 3, MAX_TOKENS])
def test_tokens_are_padded_and_cut_as_lists_are(most: int) -> None:
    rng = np.random.default_rng(0)
    listed = [rng.integers(1, 9, rng.integers(1, 6)).tolist() for _ in range(30)]
    tokens = Tokens.of(listed).cut(most)
    assert [tokens[number] for number in range(30)] == [sentence[:most] for sentence in listed]
    rows = np.array([4, 29, 0, 4])
    batch, lengths = tokens.padded(rows)
    assert batch.shape == (4, int(lengths.max()))
    for place, row in enumerate(rows):
        sentence = listed[row][:most]
        assert batch[place].tolist() == sentence + [0] * (batch.shape[1] - len(sentence))
        assert lengths[place] == len(sentence)
