"""Words of Chinese and Japanese: found by a segmenter, or character by character; missing packages are named."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

import data.text.segmentation
from data.errors import DataError
from data.text.segmentation import require_segmenter, segment
from data.text.text_inputs import WordVocabulary, load_text_input
from data.text.tokenisation import CHARACTERS, WORDS, words_of

CHINESE = "一个男人在公园里骑自行车。"
JAPANESE = "男の人が公園で自転車に乗っている。"
needs_chinese = pytest.mark.skipif(find_spec("rjieba") is None, reason="needs rjieba")
needs_japanese = pytest.mark.skipif(
    find_spec("fugashi") is None or find_spec("unidic_lite") is None, reason="needs fugashi and unidic-lite"
)


@needs_chinese
def test_chinese_words() -> None:
    assert words_of(CHINESE, "zh", WORDS).split() == ["一个", "男人", "在", "公园", "里", "骑", "自行车", "。"]
    assert words_of(CHINESE, "zh").split() == list(CHINESE)
    assert words_of("两只 Hund 和 T-Shirt", "zh", WORDS).split()[:3] == ["两只", "hund", "和"]
    assert words_of("  ", "zh", WORDS) == ""


@needs_japanese
def test_japanese_words() -> None:
    words = words_of(JAPANESE, "ja", WORDS).split()
    assert words == ["男", "の", "人", "が", "公園", "で", "自転", "車", "に", "乗っ", "て", "いる", "。"]
    assert "".join(words) == JAPANESE
    assert segment("", "ja") == []


def test_other_languages_are_read_alike() -> None:
    for text, language in (("Zwei Hunde, draußen.", "de"), ("ผู้ชาย นี่", "th")):
        assert words_of(text, language, WORDS) == words_of(text, language, CHARACTERS)
        require_segmenter(language)


@needs_chinese
def test_a_vocabulary_of_words_is_saved_and_reads_queries_alike(tmp_path: Path) -> None:
    by_words, by_characters = (
        WordVocabulary.build([CHINESE, "a man"], ["zh", "en"], min_count=1, by=by) for by in (WORDS, CHARACTERS)
    )
    assert "自行车" in by_words.words
    assert "自行车" not in by_characters.words
    assert len(by_words.encode(CHINESE, "zh")) == 8
    by_words.save(tmp_path / "words.json")
    loaded = load_text_input(tmp_path / "words.json")
    assert loaded.encode("公园里的自行车", "zh") == by_words.encode("公园里的自行车", "zh")
    assert WordVocabulary.UNKNOWN in loaded.encode("自行", "zh")
    by_characters.save(tmp_path / "plain.json")
    assert set(json.loads((tmp_path / "plain.json").read_text())) == {"shared", "words"}  # as before there were words
    (tmp_path / "odd.json").write_text(json.dumps({"shared": True, "words": by_words.words, "by": "syllables"}))
    with pytest.raises(DataError, match=r"odd\.json: not a word vocabulary .*read by 'syllables'"):
        load_text_input(tmp_path / "odd.json")


@pytest.mark.parametrize(("language", "package"), [("zh", "rjieba"), ("ja", "fugashi")])
def test_a_segmenter_that_is_not_installed_is_named(language: str, package: str, monkeypatch) -> None:
    monkeypatch.setattr(data.text.segmentation, "find_spec", lambda name: None)
    data.text.segmentation._segmenter.cache_clear()
    message = (
        rf"^vse.segment is words, but {package}, which finds the words of '{language}', is not installed: run `make "
        r"setup EXTRA=asian` or `pip install rjieba fugashi unidic-lite`"
    )
    with pytest.raises(DataError, match=f"{message}, or set vse.segment=characters$"):
        require_segmenter(language)
    with pytest.raises(DataError, match=f"{message}$"):  # a trained model reads words
        words_of("x", language, WORDS)
