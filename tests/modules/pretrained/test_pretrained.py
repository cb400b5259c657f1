"""Text models of transformers as words: small ones with random weights, saved to a folder and read from there."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers.processors import TemplateProcessing
from torch import nn
from transformers import AutoModel, BertConfig, BertModel, T5Config, T5Model, ViTConfig, ViTModel, XLMRobertaModel

from data.errors import DataError
from data.text.text_inputs import PretrainedTokens
from data.text.tokenisation import MAX_TOKENS
from modules.errors import ModelError
from modules.pretrained.pretrained_text import PretrainedWords
from modules.retrieval_models import build_model, model_class
from modules.retrieval_models.base import MODELS
from modules.training.retrieval import Retrieval
from tests.modules.text_models import SIZES, save

KINDS = ["bert", "xlm-r"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, str]:
    torch.manual_seed(0)
    return {kind: str(save(kind, tmp_path_factory.mktemp(kind))) for kind in KINDS}


def padded(tokens: list[list[int]], width: int = 0) -> torch.Tensor:
    width = max(width, *map(len, tokens))
    return torch.tensor([row + [0] * (width - len(row)) for row in tokens])


SENTENCES = ["a red dog", "hund", "ein roter hund house", "a zebra"]


@pytest.mark.parametrize("kind", KINDS)
def test_word_vectors_are_the_last_states_of_the_model_alone(folders, kind: str) -> None:
    tokens, words = PretrainedTokens(folders[kind]), PretrainedWords(folders[kind]).eval()
    numbers = [tokens.encode(sentence, "en") for sentence in SENTENCES]
    states = words(padded(numbers, 9))
    assert states.shape == (4, 9, words.embedding_dim)
    assert len(tokens) == words.vocabulary_size + 1
    for row, sentence in enumerate(SENTENCES):
        read = tokens.tokenizer(sentence, return_tensors="pt")
        assert numbers[row] == [number + 1 for number in read["input_ids"][0].tolist()]
        with torch.no_grad():
            alone = words.model(**read).last_hidden_state[0]
        assert alone.std() > 0.1
        torch.testing.assert_close(states[row, : len(alone)], alone)


@pytest.mark.parametrize("kind", KINDS)
def test_sentences_are_cut_and_never_empty(folders, kind: str) -> None:
    tokens = PretrainedTokens(folders[kind])
    assert len(tokens.encode("dog " * 300, "en")) == MAX_TOKENS
    first, last = tokens.encode("", "en")
    assert tokens.encode("dog " * 300, "en")[-1] == last
    assert tokens.encode("dog", "en")[::2] == [first, last]
    tokens.tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="$A", special_tokens=[])
    assert tokens.encode("", "en") == tokens.encode("zebra", "en")[:1] == [tokens.tokenizer.unk_token_id + 1]
    assert PretrainedWords(folders[kind])(padded([tokens.encode("dog " * 300, "en")])).isfinite().all()


def test_a_model_that_reads_less_cuts_earlier(folders, tmp_path) -> None:
    tokenizer = PretrainedTokens(folders["bert"]).tokenizer
    tokenizer.model_max_length = 7
    tokenizer.save_pretrained(tmp_path)
    BertModel(BertConfig(vocab_size=11, **SIZES)).save_pretrained(tmp_path)
    assert len(PretrainedTokens(str(tmp_path)).encode("dog " * 300, "en")) == 7


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_frozen_weights_stay_and_tuned_ones_learn_at_their_own_rate(folders, kind: str, rate: float) -> None:
    tokens = PretrainedTokens(folders[kind])
    arguments = {
        "region_dim": 3, "vocabulary_size": len(tokens), "languages": ["en"], "dim": 4, "pretrained": folders[kind],
    }  # fmt: skip
    module = Retrieval(
        "san", arguments, None, 0.2, None, 0, 0.01, 9, 0.1, ["en"], ["en"], pretrained_rate=rate,
    )  # fmt: skip
    words = module.model.captions.words
    for _ in range(2):
        assert words.training == words.model.training == bool(rate)  # Lightning trains it in the mode that it is in
        module.train()
    start = {name: parameter.clone() for name, parameter in module.named_parameters()}
    batch = padded([tokens.encode(sentence, "en") for sentence in SENTENCES])
    lengths = (batch > 0).sum(1)
    optimizer = module.configure_optimizers()[0][0]
    vectors, _ = module.model.encode_captions(batch, lengths, torch.zeros(4, dtype=torch.long))
    (vectors * torch.randn(vectors.shape)).sum().backward()
    optimizer.step()
    moved = {name for name, parameter in module.named_parameters() if not torch.equal(parameter, start[name])}
    assert "model.captions.lstm.lstm.weight_ih_l0" in moved
    inside = {name for name in moved if ".words.model." in name}
    if not rate:
        assert not inside
        return
    assert {name.split(".words.model.")[1].split(".")[0] for name in inside} == {"embeddings", "encoder"}
    name = "model.captions.words.model.encoder.layer.1.output.dense.bias"
    step = (dict(module.named_parameters())[name] - start[name]).abs().max()
    assert step.item() == pytest.approx(0.01 * rate, rel=1e-3)  # Adam's first step is its rate


def test_freezing_turns_dropout_off_at_once(folders) -> None:
    words = PretrainedWords(folders["bert"]).train()
    batch = padded([[3, 5, 6, 4]])
    assert not torch.equal(words(batch), words(batch))
    words.freeze()
    assert torch.equal(words(batch), words(batch))
    assert not words(batch).requires_grad
    assert not words.train().training


def test_weights_of_half_precision_are_read_as_float32(folders, tmp_path) -> None:
    BertModel.from_pretrained(folders["bert"]).bfloat16().save_pretrained(tmp_path)
    assert {parameter.dtype for parameter in PretrainedWords(str(tmp_path)).parameters()} == {torch.float32}


def one_line(error: pytest.ExceptionInfo, folder: str, *said: str) -> None:
    text = str(error.value)
    assert "\n" not in text
    assert text.startswith(f"vse.pretrained {folder!r}: ")
    assert all(part in text for part in said)


def test_a_folder_without_model_or_tokenizer_is_an_error_of_one_line(folders, tmp_path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        for kind, error, said in (
            (PretrainedWords, ModelError, "no text model of transformers found"),
            (PretrainedTokens, DataError, "no tokenizer of transformers there"),
        ):
            with pytest.raises(error) as found:
                kind(str(folder))
            one_line(found, str(folder), said)


@pytest.mark.parametrize("kind", [BertModel, XLMRobertaModel])
def test_a_model_without_its_tokenizer_is_an_error(tmp_path, kind: type) -> None:
    kind(kind.config_class(vocab_size=11, **SIZES)).save_pretrained(tmp_path)
    with pytest.raises(DataError) as found:
        PretrainedTokens(str(tmp_path))
    one_line(found, str(tmp_path), "no tokenizer of transformers there")


def test_a_broken_file_is_an_error_of_one_line(tmp_path) -> None:
    folder = save("bert", tmp_path)
    (folder / "model.safetensors").write_bytes(b"cut")
    with pytest.raises(ModelError) as found:
        PretrainedWords(str(folder))
    one_line(found, str(folder), "no text model of transformers found")
    for broken in ("{", "{}"):
        (folder / "tokenizer.json").write_text(broken)
        with pytest.raises(DataError) as found:
            PretrainedTokens(str(folder))
        one_line(found, str(folder), "no tokenizer of transformers there")


def test_adapters_beside_the_weights_are_refused(tmp_path) -> None:
    folder = save("bert", tmp_path)
    (folder / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelError) as found:
        PretrainedWords(str(folder))
    one_line(found, str(folder), "adapters are beside its weights; merge them")


@pytest.mark.parametrize("wrong", [{"hidden_size": "x"}, {"hidden_act": "x"}, {"vocab_size": 99}])
def test_a_configuration_that_does_not_fit_is_an_error_of_one_line(wrong, tmp_path) -> None:
    file = save("bert", tmp_path) / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | wrong))
    with pytest.raises(ModelError) as found:
        PretrainedWords(str(tmp_path))
    one_line(found, str(tmp_path), "no text model of transformers found")


def test_what_is_no_encoder_of_text_is_an_error(tmp_path) -> None:
    translator = T5Model(T5Config(vocab_size=10, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2))
    pictures = ViTModel(ViTConfig(image_size=8, patch_size=4, **SIZES))
    for model, said in ((translator, "an encoder-decoder model"), (pictures, "not a text model")):
        folder = tmp_path / type(model).__name__
        model.save_pretrained(folder)
        with pytest.raises(ModelError) as found:
            PretrainedWords(str(folder))
        one_line(found, str(folder), said, "expected an encoder (BERT, XLM-R …)")


def test_a_tokenizer_of_another_model_is_an_error(folders) -> None:
    arguments = {"region_dim": 3, "languages": ["en"], "dim": 4, "pretrained": folders["bert"]}
    with pytest.raises(ModelError, match="its tokenizer has 12 entries, but the model 11") as found:
        Retrieval("san", arguments | {"vocabulary_size": 13}, None, 0.2, None, 0, 0.01, 9, 0.1, ["en"], ["en"])
    one_line(found, folders["bert"])


def test_it_has_no_table_to_fill(folders) -> None:
    arguments = {"region_dim": 3, "vocabulary_size": 12, "languages": ["en"], "dim": 4, "pretrained": folders["bert"]}
    module = Retrieval("san", arguments, None, 0.2, None, 0, 0.01, 9, 0.1, ["en"], ["en"])
    with pytest.raises(ModelError, match=r"has no table of word vectors; set vse\.words=random"):
        module.model.set_word_vectors(torch.zeros(12, 300))


def test_a_new_model_has_the_weights_of_the_file(tmp_path: Path) -> None:
    """Start values of its own are those of its other parts."""
    stored = AutoModel.from_pretrained(save("bert", tmp_path / "bert"))
    for parameter in stored.parameters():
        nn.init.normal_(parameter)  # biases are 0 in a new network
    stored.save_pretrained(tmp_path / "bert")
    kinds = {"san": model_class("san"), **MODELS}  # all are known once one was asked for
    ours = {name: kind for name, kind in sorted(kinds.items()) if kind.__module__.startswith("modules.")}
    reading = [name for name, kind in ours.items() if not kind.on_network and not kind.taught]
    for name in reading:
        made = build_model(
            name, region_dim=8, vocabulary_size=11, languages=["en", "de"], dim=8, pretrained=str(tmp_path / "bert")
        )
        weights = dict(made.named_parameters())
        for key, expected in stored.named_parameters():
            (found,) = [weight for own, weight in weights.items() if own.endswith(f"words.model.{key}")]
            torch.testing.assert_close(found, expected, msg=f"{name}: {key}")
    assert len(reading) > 10


def test_weights_that_lack_a_tensor_are_an_error_of_one_line(tmp_path) -> None:
    """They would be random; the pooler is not read."""
    file = save("bert", tmp_path) / "model.safetensors"
    lacking = "encoder.layer.1.attention.self.query.weight"
    kept = {name: tensor for name, tensor in load_file(file).items() if not name.startswith("pooler.")}
    save_file(kept, file, {"format": "pt"})
    PretrainedWords(str(tmp_path))
    save_file({name: tensor for name, tensor in kept.items() if name != lacking}, file, {"format": "pt"})
    with pytest.raises(ModelError) as found:
        PretrainedWords(str(tmp_path))
    one_line(found, str(tmp_path), f"its weights lack {lacking}")
