"""Sub-words of pretrained translators, and the codes of their languages."""

import json
from pathlib import Path

import pytest

from data.errors import DataError
from data.text.language_codes import code_of
from data.text.tokenisation import MAX_TOKENS
from data.translators.translator_tokens import TranslatorTokens
from tests.modules.text_models import save
from tests.modules.translation_models import NEEDS_PACKAGE, SAVE, SENTENCES, save_marian


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    return {"nllb": SAVE["nllb"](tmp_path_factory.mktemp("nllb"))}


@pytest.fixture(scope="module", params=SAVE)
def folder(request, tmp_path_factory, folders) -> Path:
    if request.param in NEEDS_PACKAGE:
        pytest.importorskip("sentencepiece")
        folders[request.param] = SAVE[request.param](tmp_path_factory.mktemp(request.param))
    return folders[request.param]


def test_sentences_are_read_as_the_library_reads_them_and_written_without_marks(folder: Path) -> None:
    tokens = TranslatorTokens(str(folder), "en-de")
    for text, numbers in zip(SENTENCES, tokens.encode_all(SENTENCES, "en"), strict=True):
        assert numbers == [number + 1 for number in tokens.tokenizer(text)["input_ids"]]
        assert tokens.decode(numbers, "en") == text
        assert tokens.size(text, "en") == len(numbers)
        assert min(numbers) > 0
    assert tokens.decode_tokens(tokens.encode_all(["Zwei Hunde."], "en")[0]) == "zwei hunde ."
    assert tokens.encode_all([], "en") == []


def test_a_file_that_is_missing_is_told(tmp_path: Path) -> None:
    pytest.importorskip("sentencepiece")
    folder = save_marian(tmp_path, "en-de", [])
    (folder / "source.spm").unlink()
    with pytest.raises(DataError, match=r"a file of it is missing: source\.spm"):
        TranslatorTokens(str(folder), "en-de")


def test_empty_and_long_sentences(folder: Path) -> None:
    tokens = TranslatorTokens(str(folder), "en-de")
    assert [tokens.size(text, "en") for text in ("", "  ", "\x00")] == [0, 0, 0]
    empty, long = tokens.encode_all(["", "dog " * 300], "en")
    assert empty
    assert tokens.decode(empty, "en") == ""
    assert (len(long), long[-1]) == (MAX_TOKENS, empty[-1])
    assert tokens.size("dog " * 300, "en") > MAX_TOKENS


def test_nllb_is_told_both_languages_by_its_own_codes(folders) -> None:
    tokens = TranslatorTokens(str(folders["nllb"]), "de-zh")
    known = tokens.tokenizer.convert_tokens_to_ids(["deu_Latn", "zho_Hans", "zho_Hant"])
    assert (tokens.encode_all(["Zwei"], "de")[0][0], tokens.first) == (known[0] + 1, known[1])
    other = TranslatorTokens(str(folders["nllb"]), "de-zh", {"zh": "zho_Hant"})
    assert other.first == known[2]
    assert tokens.decode([known[2] + 1, *tokens.encode_all(["Zwei"], "de")[0]], "zh") == "Zwei"


def test_an_opus_mt_of_several_languages_is_told_the_target_before_each_sentence(tmp_path: Path) -> None:
    pytest.importorskip("sentencepiece")
    name = str(save_marian(tmp_path, "en-gmw", [">>deu<<", ">>nl<<"]))
    for direction, code in (("en-de", ">>deu<<"), ("en-nl", ">>nl<<")):
        tokens = TranslatorTokens(name, direction)
        (numbers,) = tokens.encode_all(["Two dogs"], "en")
        assert numbers[0] == tokens.tokenizer.convert_tokens_to_ids(code) + 1
        assert tokens.first is None
        assert tokens.decode(numbers, "en") == "Two dogs"
    with pytest.raises(DataError, match=r"does not know the language 'fr' \(as fr, fra, fra_Latn\).*: deu, nl$"):
        TranslatorTokens(name, "en-fr")


def test_an_opus_mt_of_two_languages_has_one_direction(tmp_path: Path) -> None:
    pytest.importorskip("sentencepiece")
    name = str(save_marian(tmp_path, "eng-de"))
    TranslatorTokens(name, "en-de")
    with pytest.raises(DataError, match="translates eng-de, not de-en; name a model of that direction"):
        TranslatorTokens(name, "de-en")


def test_a_language_that_is_not_known_is_one_line(folders) -> None:
    with pytest.raises(DataError, match=r"does not know the language 'xx'.*{xx: CODE}: ace_Arab, ") as caught:
        TranslatorTokens(str(folders["nllb"]), "en-xx")
    assert "\n" not in str(caught.value)
    with pytest.raises(DataError, match=r"'de' \(as german\).*: deu_Latn$"):
        code_of("de", ["deu_Latn", "eng_Latn"], {"de": "german"}, "here")


@pytest.mark.parametrize("kind", ["bert", "empty", "somebody/something"])
def test_what_is_no_tokenizer_of_a_translator_is_one_line(kind: str, tmp_path: Path) -> None:
    if kind == "bert":
        save("bert", tmp_path)
    name = kind if "/" in kind else str(tmp_path)
    with pytest.raises(DataError) as caught:
        TranslatorTokens(name, "en-de")
    assert str(caught.value).startswith(f"mmt.pretrained '{name}': ")
    assert "tokenizer" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_opus_mt_with_a_vocabulary_for_each_side_is_told_the_target_too(tmp_path: Path) -> None:
    """Its numbers of the source, the target's mark among them, are those of other words in a translation."""
    pytest.importorskip("sentencepiece")
    save_marian(tmp_path, "en-gmw", [">>deu<<", ">>nl<<"])
    pieces = [word for word in json.loads((tmp_path / "vocab.json").read_text()) if word[:2] != ">>"]
    numbers = {word: number for number, word in enumerate([*pieces[:-1], "▁Bahnhof", "▁Straße", "<pad>"])}
    (tmp_path / "target_vocab.json").write_text(json.dumps(numbers))
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text()) | {"separate_vocabs": True}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    tokens = TranslatorTokens(str(tmp_path), "en-de")
    (read,) = tokens.encode_all(["Two dogs"], "en")
    assert read[0] == tokens.tokenizer.encoder[">>deu<<"] + 1
    written = [number for number in numbers.values() if number > 1 and number < len(numbers) - 1]
    text = tokens.decode([number + 1 for number in written], "de")
    assert text.endswith("Bahnhof Straße")
    assert text == tokens.tokenizer.decode(written)
    assert tokens.decode([numbers["</s>"] + 1, numbers["<pad>"] + 1], "de") == ""
