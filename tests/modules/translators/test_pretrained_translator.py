"""Pretrained translators: small ones with random weights, beside the library's own search of one sentence at a time."""

import copy
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from data.text.padding import pad
from data.translators.translator_tokens import TranslatorTokens
from modules.errors import ModelError
from modules.translators.beam import BeamSettings
from modules.translators.pretrained import PretrainedTranslator
from modules.translators.registry import translate
from modules.translators.rerankers import Length, LogProbability, Reranker
from modules.translators.sampling import SampleSettings
from tests.modules.text_models import save
from tests.modules.translation_models import NEEDS_PACKAGE, SAVE

SHORT = 0.3  # of a source's length: translations of models that have learned nothing go on to their limit
TEXTS = ["A man in a blue shirt.", "Two dogs", "a red bat and a small ball in the snow", ""]


@pytest.fixture(scope="module", params=SAVE)
def loaded(request, tmp_path_factory) -> tuple[TranslatorTokens, PretrainedTranslator]:
    if request.param in NEEDS_PACKAGE:
        pytest.importorskip("sentencepiece")
    folder = str(SAVE[request.param](tmp_path_factory.mktemp(request.param)))
    tokens = TranslatorTokens(folder, "en-de")
    return tokens, PretrainedTranslator(folder, tokens.first).eval()


def batch_of(tokens: TranslatorTokens, texts: list[str], index: list[int] | None = None) -> dict[str, Tensor]:
    ids = tokens.encode_all(texts, "en")
    lengths = torch.tensor([len(one) for one in ids])
    return {"source": pad(ids), "source_lengths": lengths, "index": torch.tensor(index or range(len(ids)))}


def test_a_batch_has_the_translations_of_the_librarys_own_search(loaded) -> None:
    tokens, translator = loaded
    found = translator.search(batch_of(tokens, TEXTS), BeamSettings(3, max_ratio=SHORT))
    prompt = 2 if tokens.first else 1
    for text, some in zip(TEXTS, found, strict=True):
        read = tokens.tokenizer(text, return_tensors="pt")
        limit = int(SHORT * read["input_ids"].shape[1]) + 10
        alone = translator.model.generate(
            **read, num_beams=3, num_return_sequences=3, length_penalty=1.0, early_stopping=True,
            max_length=prompt + limit, forced_bos_token_id=tokens.first, forced_eos_token_id=2 if tokens.first else 0,
            return_dict_in_generate=True, output_scores=True,
        )  # fmt: skip
        wanted = {}
        for row, score in zip(alone.sequences, alone.sequences_scores, strict=True):
            words = row[prompt:].tolist()
            words = words[: words.index(translator._eos)]
            # its length counts the language's mark
            wanted[tuple(word + 1 for word in words)] = float(score) * (len(words) + prompt) / (len(words) + 1)
        assert [one.score for one in some] == sorted((one.score for one in some), reverse=True)
        for one in some:
            if len(one.tokens) + 1 < limit:  # where the limit ends a sentence, the library counts no end
                assert one.score == pytest.approx(wanted[tuple(one.tokens)], abs=2e-3)
        assert len({tuple(one.tokens) for one in some} & wanted.keys()) >= 2


def test_scores_are_log_probabilities_by_the_word(loaded) -> None:
    tokens, translator = loaded
    batch = batch_of(tokens, TEXTS[:1])
    ((best,),) = translator.search(batch, BeamSettings(1, length_penalty=0.5, max_ratio=SHORT))
    start = [translator.model.config.decoder_start_token_id, *([tokens.first] if tokens.first else [])]
    words, total = [token - 1 for token in best.tokens] + [translator._eos], 0.0
    for place, word in enumerate(words):
        written = torch.tensor([start + words[:place]])
        with torch.no_grad():
            logits = translator.model(input_ids=batch["source"] - 1, decoder_input_ids=written).logits[0, -1]
        total += float(logits.log_softmax(-1)[word])
        if place + 1 < len(words):
            assert int(logits.argmax()) == word  # greedy
    assert best.score == pytest.approx(total / len(words) ** 0.5, abs=1e-4)


@pytest.mark.parametrize(
    "search", [BeamSettings(2, max_ratio=SHORT), SampleSettings(2, top_p=0.6, seed=5, max_ratio=SHORT)]
)
def test_a_translation_does_not_depend_on_the_batch_and_has_an_end(loaded, search) -> None:
    tokens, translator = loaded
    together = translator.search(batch_of(tokens, TEXTS), search)
    for number, text in enumerate(TEXTS):
        batch = batch_of(tokens, [text], [number])
        (alone,) = translator.search(batch, search)
        assert [one.tokens for one in alone] == [one.tokens for one in together[number]]
        assert all(len(one.tokens) < SHORT * batch["source_lengths"][0] + 10 for one in alone)


def test_samples_are_drawn_by_seed_and_temperature(loaded) -> None:
    tokens, translator = loaded
    batch = batch_of(tokens, TEXTS)

    def drawn(**settings) -> list[list[list[int]]]:
        return [
            [one.tokens for one in some]
            for some in translator.search(batch, SampleSettings(**settings, max_ratio=SHORT))
        ]

    assert drawn(samples=2, seed=1) == drawn(samples=2, seed=1) != drawn(samples=2, seed=2)
    greedy = [[one.tokens for one in some] for some in translator.search(batch, BeamSettings(1, max_ratio=SHORT))]
    assert drawn(temperature=1e-6) == greedy


@pytest.mark.parametrize("search", [BeamSettings(3, max_ratio=SHORT), SampleSettings(2, max_ratio=SHORT, seed=1)])
def test_a_gpu_finds_the_same(gpu: str, loaded, search) -> None:
    tokens, model = loaded
    found = []
    for device in ("cpu", gpu):
        batch = {name: tensor.to(device) for name, tensor in batch_of(tokens, TEXTS).items()}
        found.append([[one.tokens for one in row] for row in copy.deepcopy(model).to(device).search(batch, search)])
    assert found[1] == found[0]


def test_its_lists_can_be_reranked(loaded) -> None:
    tokens, translator = loaded
    features = {"logp": LogProbability(), "length": Length(lambda ids: len(ids))}
    reranker = Reranker(translator, features, {"logp": 0.0, "length": 1.0}, beam_size=4)
    assert reranker.regions is None
    for some in translate(reranker, batch_of(tokens, TEXTS), BeamSettings(2, max_ratio=SHORT), 1, 2):
        assert [one.features["length"] for one in some] == sorted((len(one.tokens) for one in some), reverse=True)
        assert len(some) == 4


def test_adapters_beside_the_weights_are_refused(tmp_path: Path) -> None:
    """transformers reads them only where `peft` is installed: another machine would translate without them."""
    SAVE["nllb"](tmp_path)
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelError, match=r"^mmt\.pretrained .*: no .* found \(adapters are beside its weights; merge"):
        PretrainedTranslator(str(tmp_path), 0)


@pytest.mark.parametrize("wrong", [{"d_model": "x"}, {"activation_function": "x"}, {"vocab_size": 99}])
def test_a_configuration_that_does_not_fit_is_one_line(wrong, tmp_path: Path) -> None:
    file = SAVE["nllb"](tmp_path) / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | wrong))
    with pytest.raises(
        ModelError, match=r"^mmt\.pretrained '\S+': no translator of transformers found \(.*\); expected"
    ):
        PretrainedTranslator(str(tmp_path))


def test_diverse_beam_search_is_refused(loaded) -> None:
    with pytest.raises(ModelError, match="no diverse beam search"):
        loaded[1].search(batch_of(loaded[0], TEXTS), BeamSettings(4, groups=2))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("bert", "a bert model; expected a translator: OPUS-MT"),
        ("empty", "no translator of transformers found"),
        ("somebody/something", "without internet, copy the model into a folder"),
        ("pickle", "no weights in safetensors; other weights are pickles"),
        ("damaged", "no translator of transformers found"),
        ("remote", "no translator of transformers found"),
    ],
)
def test_what_is_no_translator_is_one_line(kind: str, message: str, tmp_path: Path) -> None:
    folder, name = tmp_path / "model", kind if "/" in kind else str(tmp_path / "model")
    folder.mkdir()
    if kind == "bert":
        save("bert", folder)
    elif kind in ("pickle", "damaged", "remote"):
        SAVE["nllb"](folder)
    if kind == "pickle":
        torch.save({}, folder / "pytorch_model.bin")
        (folder / "model.safetensors").unlink()
    elif kind == "damaged":
        (folder / "model.safetensors").write_bytes(b"cut short")
    elif kind == "remote":
        shutil.rmtree(folder)
        folder.mkdir()
        (folder / "config.json").write_text('{"model_type": "mine", "auto_map": {"AutoConfig": "mine.Config"}}')
    with pytest.raises(ModelError) as caught:
        PretrainedTranslator(name)
    assert str(caught.value).startswith(f"mmt.pretrained '{name}': ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_weights_that_lack_a_tensor_are_one_line(tmp_path: Path) -> None:
    """They would be random, and so would the translations."""
    file = SAVE["nllb"](tmp_path) / "model.safetensors"
    kept = {name: tensor for name, tensor in load_file(file).items() if name != "model.encoder.layers.0.fc1.weight"}
    save_file(kept, file, {"format": "pt"})
    with pytest.raises(ModelError, match=r"^mmt\.pretrained '\S+': its weights lack model\.encoder\.layers\.0\.fc1"):
        PretrainedTranslator(str(tmp_path))


@pytest.mark.parametrize(
    "more",
    [{"max_new_tokens": 2}, {"min_new_tokens": 30}, {"return_dict_in_generate": True}, {"stop_strings": ["a"]},
     {"penalty_alpha": 0.6, "top_k": 4}, {"num_beam_groups": 2, "diversity_penalty": 0.5}],
)  # fmt: skip
def test_the_search_is_not_that_of_the_models_own_generation_settings(more, tmp_path: Path) -> None:
    folder = SAVE["nllb"](tmp_path)
    tokens = TranslatorTokens(str(folder), "en-de")
    batch, search = batch_of(tokens, TEXTS), SampleSettings(2, max_ratio=SHORT)
    wanted = PretrainedTranslator(str(folder), tokens.first).eval().search(batch, search)
    file = folder / "generation_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | more))
    found = PretrainedTranslator(str(folder), tokens.first).eval().search(batch, search)
    assert [[one.tokens for one in some] for some in found] == [[one.tokens for one in some] for some in wanted]
