"""Vision-language models: tiny ones with random weights, beside the library's own search of one picture."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor, GenerationConfig

from data.text.padding import pad
from data.translators.answer_tokens import AnswerTokens
from modules.errors import ModelError
from modules.translators.beam import BeamSettings
from modules.translators.image_text import ImageTextTranslator
from modules.translators.registry import reads_pictures, translate
from modules.translators.rerankers import LogProbability, Reranker
from modules.translators.sampling import SampleSettings
from tests.modules.image_text_models import SAVE, save_llava
from tests.modules.text_models import save

PROMPT = "translate this from english to german : {text}"
TEXTS = ["a red ball", "the small blue bat on the left of a house", "a dog .", "", "the man"]
LONGEST = 7


@pytest.fixture(scope="module", params=SAVE)
def folder(request, tmp_path_factory) -> Path:
    return SAVE[request.param](tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def loaded(folder: Path) -> tuple[AnswerTokens, ImageTextTranslator]:
    translator = ImageTextTranslator(str(folder), PROMPT, LONGEST).eval()
    return AnswerTokens(translator.processor.tokenizer, "de"), translator


@pytest.fixture(scope="module")
def pictures() -> list[Image.Image]:
    """One of each colour, of several shapes, some with noise."""
    random = np.random.default_rng(0)
    return [
        Image.fromarray(random.integers(0, 255, (16 + 9 * number, 30, 3), dtype=np.uint8))
        for number in range(len(TEXTS))
    ]


def batch_of(tokens: AnswerTokens, texts: list[str], pictures: list | None) -> dict:
    ids = tokens.encode_all(texts, "en")
    batch = {"source": pad(ids), "source_lengths": torch.tensor([len(one) for one in ids])}
    return batch if pictures is None else batch | {"pictures": pictures}


def by_hand(folder: Path, text: str, picture: Image.Image, beam_size: int) -> list[tuple[list[int], float]]:
    """The library's own answers to one prompt: new tokens up to the end, and log p / length."""
    processor = AutoProcessor.from_pretrained(folder)
    model = AutoModelForImageTextToText.from_pretrained(folder)
    prompt = PROMPT.replace("{text}", text)
    prompt = f"<s>user : <image> {prompt} assistant :" if processor.chat_template else f"<image>{prompt}"
    read = processor(text=prompt, images=[picture], return_tensors="pt")
    made = model.generate(
        **read, max_new_tokens=LONGEST, num_beams=beam_size, num_return_sequences=beam_size, do_sample=False,
        length_penalty=1.0, early_stopping=beam_size > 1, return_dict_in_generate=True, output_logits=True,
        output_scores=True, pad_token_id=0,
    )  # fmt: skip
    answers = []
    for row, ids in enumerate(made.sequences[:, read["input_ids"].shape[1] :].tolist()):
        length = ids.index(2) if 2 in ids else len(ids)
        if beam_size > 1:
            score = float(made.sequences_scores[row])
        else:
            counted = min(length + 1, len(ids))
            logs = [made.logits[place][row].log_softmax(-1)[ids[place]] for place in range(counted)]
            score = float(sum(logs)) / counted
        answers.append((ids[:length], score))
    return answers


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_batch_has_the_answers_of_the_librarys_own_search(loaded, folder, pictures, beam_size: int) -> None:
    tokens, translator = loaded
    found = translate(translator, batch_of(tokens, TEXTS, pictures), BeamSettings(beam_size), 2, 3)
    assert [len(best) for best in found] == [beam_size] * len(TEXTS)
    for text, picture, best in zip(TEXTS, pictures, found, strict=True):
        expected = by_hand(folder, text, picture, beam_size)
        assert [[token - 1 for token in one.tokens] for one in best] == [ids for ids, _ in expected]
        assert [one.score for one in best] == pytest.approx([score for _, score in expected], abs=1e-4)


@pytest.mark.parametrize("more", [{"stop_strings": ["a"]}, {"penalty_alpha": 0.6}, {"min_new_tokens": 6}])
def test_the_search_is_not_that_of_the_models_own_generation_settings(loaded, folder, pictures, more, tmp_path) -> None:
    tokens, translator = loaded
    own = shutil.copytree(folder, tmp_path / "own")
    settings = GenerationConfig.from_pretrained(own)
    settings.update(**more)
    settings.save_pretrained(own)
    batch = batch_of(tokens, TEXTS, pictures)
    wanted = translator.search(batch, BeamSettings(1))
    found = ImageTextTranslator(str(own), PROMPT, LONGEST).eval().search(batch, BeamSettings(1))
    assert [one.tokens for (one,) in found] == [one.tokens for (one,) in wanted]


@pytest.mark.parametrize("together", [1, 2, 8])
def test_an_answer_does_not_depend_on_its_batch(loaded, pictures, monkeypatch, together: int) -> None:
    tokens, translator = loaded
    alone = [translator.search(batch_of(tokens, [text], [one]), BeamSettings(3))[0]
             for text, one in zip(TEXTS, pictures, strict=True)]  # fmt: skip
    monkeypatch.setattr("modules.translators.image_text._TOGETHER", together)
    order = [3, 1, 4, 0, 2]
    batch = batch_of(tokens, [TEXTS[place] for place in order], [pictures[place] for place in order])
    for place, best in zip(order, translator.search(batch, BeamSettings(3)), strict=True):
        assert [one.tokens for one in best] == [one.tokens for one in alone[place]]
        assert [one.score for one in best] == pytest.approx([one.score for one in alone[place]], abs=1e-4)


def test_the_picture_and_the_sentence_change_the_answer(loaded, pictures) -> None:
    tokens, translator = loaded

    def scores(texts: list[str], seen: list | None) -> list[tuple[list[int], float]]:
        found = translator.search(batch_of(tokens, texts, seen), BeamSettings(1))
        return [(one.tokens, round(one.score, 4)) for (one,) in found]

    own, wrong = scores(TEXTS, pictures), scores(TEXTS, pictures[1:] + pictures[:1])
    blind, other = scores(TEXTS, None), scores(TEXTS[1:] + TEXTS[:1], pictures)
    for answers in (wrong, blind, other):
        assert sum(one != another for one, another in zip(own, answers, strict=True)) >= 4
    mixed = scores(TEXTS, [None if place % 2 else picture for place, picture in enumerate(pictures)])
    assert mixed == [(blind if place % 2 else own)[place] for place in range(len(TEXTS))]


def test_what_is_asked_for_a_picture_is_read_with_it(tmp_path: Path, pictures) -> None:
    """A caption's prompt has no text; other prompts give other captions."""
    save_llava(tmp_path)
    answers = []
    for prompt in ("describe this picture in one german sentence .", "a red"):
        translator = ImageTextTranslator(str(tmp_path), prompt, LONGEST)
        tokens = AnswerTokens(translator.processor.tokenizer, "de")
        found = translator.search(batch_of(tokens, [""] * 5, pictures), BeamSettings(1))
        answers.append([tokens.decode(one.tokens, "de") for (one,) in found])
    assert len({*answers[0]}) > 1
    assert answers[0] != answers[1]
    assert not any("describe" in text and "picture in one" in text for text in answers[0])  # the prompt is not repeated


def test_its_lists_can_be_reranked(loaded, pictures) -> None:
    tokens, translator = loaded
    reranker = Reranker(translator, {"logp": LogProbability()}, {"logp": -1.0}, 3)
    batch = batch_of(tokens, TEXTS, pictures)
    worst = translate(reranker, batch, BeamSettings(1), 2, 3)
    lists = translator.search(batch, BeamSettings(3))
    assert [best[0].tokens for best in worst] == [some[-1].tokens for some in lists]
    assert reads_pictures(reranker)
    assert reads_pictures(translator)


@pytest.mark.parametrize("search", [SampleSettings(), BeamSettings(4, groups=2)])
def test_other_searches_are_refused(loaded, search) -> None:
    tokens, translator = loaded
    with pytest.raises(ModelError, match="is searched by a plain beam"):
        translator.search(batch_of(tokens, TEXTS[:1], None), search)


def test_sentences_become_numbers_and_answers_one_line(loaded) -> None:
    tokens, _ = loaded
    (ids, empty, longer) = tokens.encode_all(["a red ball", "", "dog " * 200], "en")
    assert tokens.decode(ids, "en") == "a red ball"
    assert tokens.decode(empty, "en") == ""
    assert len(longer) == 100
    assert (tokens.size("dog " * 200, "en"), tokens.size(" ", "en")) == (200, 0)
    (marked,) = tokens.encode_all(["a <image> red"], "en")  # a sentence cannot hold the picture's mark
    assert tokens.decode(marked, "en") == "a red"
    assert tokens.read_words("a red zebra", "en").unknown == ["zebra"]
    assert min(ids + empty) > 0


def test_an_answer_of_several_lines_becomes_one() -> None:
    class Tokenizer:
        def decode(self, numbers: list[int], skip_special_tokens: bool) -> str:
            return " Ein\n\nroter\tBall \n"

    assert AnswerTokens(Tokenizer(), "de").decode([5], "de") == "Ein roter Ball"


def test_what_is_no_such_network_is_one_line(tmp_path: Path) -> None:
    save_llava(tmp_path / "llava")
    save("bert", tmp_path / "bert")
    bare = Path(shutil.copytree(tmp_path / "llava", tmp_path / "bare"))
    for name in ("processor_config.json", "chat_template.jinja"):
        (bare / name).unlink()
    pickled = Path(shutil.copytree(tmp_path / "llava", tmp_path / "pickled"))
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    cases = {
        str(tmp_path / "bert"): "a bert model; expected a vision-language model with a decoder alone: LLaVA",
        str(bare): "its processor cannot be loaded", str(pickled): "no weights in safetensors",
        "nobody/nothing": "without internet, copy the model into a folder",
    }  # fmt: skip
    for name, words in cases.items():
        with pytest.raises(ModelError) as caught:
            ImageTextTranslator(name, "", 5, setting="augment.captioner")
        assert str(caught.value).startswith(f"augment.captioner {name!r}: "), name
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)
