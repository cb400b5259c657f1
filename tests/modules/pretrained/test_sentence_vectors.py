"""One vector for each caption by a frozen text model: its value, and looked up instead of computed."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

from data.text.text_inputs import PretrainedTokens
from modules.errors import ModelError
from modules.pretrained.pretrained_text import PretrainedWords, SentenceVectors, read_words
from modules.retrieval_models import build_model
from tests.modules.text_models import SIZES, save

SENTENCES = ["a red dog", "hund", "ein roter hund house", "a zebra"]
MODELS = ["embn", "parallel-embn", "mule", "vse++", "pivot-sym", "mlmme", "san", "vse-inf", "dan"]
MODELS += ["oe", "scan-t2i-avg", "diverse-attention"]


@pytest.fixture(scope="module", params=["bert", "xlm-r"])
def folder(request: pytest.FixtureRequest, tmp_path_factory) -> str:
    torch.manual_seed(0)
    return str(save(request.param, tmp_path_factory.mktemp(request.param)))


def padded(tokens: list[list[int]]) -> torch.Tensor:
    width = max(map(len, tokens))
    return torch.tensor([row + [0] * (width - len(row)) for row in tokens])


def numbers_of(folder: str) -> torch.Tensor:
    tokens = PretrainedTokens(folder)
    return padded([tokens.encode(sentence, "en") for sentence in SENTENCES])


@pytest.mark.parametrize("layer", [-1, -2, -3])
def test_it_is_the_mean_over_the_tokens_of_a_layer_whatever_stands_beside_it(folder: str, layer: int) -> None:
    vectors, states = SentenceVectors(folder, layer), PretrainedWords(folder).eval().model
    found = vectors(numbers_of(folder))
    assert found.shape == (4, 1, vectors.embedding_dim)
    for row, sentence in enumerate(SENTENCES):
        read = PretrainedTokens(folder).tokenizer(sentence, return_tensors="pt")
        with torch.no_grad():
            expected = states(**read, output_hidden_states=True).hidden_states[layer][0].double().mean(0)
        torch.testing.assert_close(found[row, 0].double(), expected, atol=1e-6, rtol=0)


def test_its_text_model_is_frozen_and_no_part_of_the_network(folder: str) -> None:
    words = SentenceVectors(folder).train()
    found = words(numbers_of(folder))
    assert not found.requires_grad
    assert torch.equal(words(numbers_of(folder)), found)  # no dropout
    assert not list(words.parameters())
    assert not words.state_dict()


def test_known_vectors_are_looked_up_and_others_computed(folder: str) -> None:
    words, tokens = SentenceVectors(folder), numbers_of(folder)
    computed, first = words(tokens), len(PretrainedTokens(folder))
    table = np.arange(3 * words.embedding_dim, dtype=np.float32).reshape(3, -1)
    words.look_up(table, first)
    mixed = tokens.clone()
    mixed[1], mixed[3] = 0, 0
    mixed[1, 0], mixed[3, 0] = first + 2, first
    found = words(mixed)[:, 0]
    torch.testing.assert_close(found[[0, 2]], computed[[0, 2], 0])
    assert torch.equal(found[[1, 3]], torch.from_numpy(table[[2, 0]]))


def test_looking_up_loads_no_text_model(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = SentenceVectors(folder)
    words.look_up(np.ones((2, words.embedding_dim), np.float32), 20)
    monkeypatch.setattr("modules.pretrained.pretrained_text.PretrainedWords", None)
    vectors, lengths = read_words(words, torch.tensor([[21], [20]]), torch.tensor([1, 1]))
    assert torch.equal(vectors, torch.ones(2, 1, words.embedding_dim))
    assert lengths.tolist() == [1, 1]


@pytest.mark.parametrize("name", MODELS)
def test_every_model_reads_looked_up_captions_as_computed_ones(folder: str, name: str) -> None:
    tokens, first = numbers_of(folder), len(PretrainedTokens(folder))
    torch.manual_seed(1)
    model = build_model(
        name, region_dim=3, vocabulary_size=first, languages=["de", "en"], dim=8, pretrained=folder,
        pretrained_vectors="sentences",
    ).eval()  # fmt: skip
    lengths, languages = (tokens > 0).sum(1), torch.tensor([1, 0, 0, 1])
    with torch.no_grad():
        computed = model.encode_captions(tokens, lengths, languages)
        table = SentenceVectors(folder).encode(tokens).numpy()
        model.look_up_sentences(table, first)
        rows = torch.arange(first, first + 4)[:, None]
        looked_up = model.encode_captions(rows, torch.ones(4, dtype=torch.long), languages)
        alone = model.encode_sentences([tokens[0][: lengths[0]].tolist()], "en")
    assert computed[0].std() > 0
    torch.testing.assert_close(looked_up[0], computed[0], atol=1e-6, rtol=0)
    assert torch.equal(looked_up[1], computed[1])
    torch.testing.assert_close(alone[0], computed[0][:1], atol=1e-6, rtol=0)


def test_universal_vectors_of_mule_are_a_layer_on_the_sentence_vector(folder: str) -> None:
    tokens, first = numbers_of(folder), len(PretrainedTokens(folder))
    model = build_model(
        "mule", region_dim=3, vocabulary_size=first, languages=["en"], dim=8, pretrained=folder,
        pretrained_vectors="sentences",
    )  # fmt: skip
    found = model.universal_of(tokens, (tokens > 0).sum(1), torch.zeros(4, dtype=torch.long))
    torch.testing.assert_close(found, model.to_universal.of["en"](SentenceVectors(folder)(tokens), None)[:, 0])


def test_models_and_layers_that_are_not_there_are_one_line(tmp_path: Path) -> None:
    BertModel(BertConfig(vocab_size=11, **SIZES)).save_pretrained(tmp_path)
    for layer in (0, -4):
        with pytest.raises(ModelError, match=rf"^vse\.pretrained_layer is {layer}; expected -1 to -3, as '.*' has 2 "):
            SentenceVectors(str(tmp_path), layer)
    with pytest.raises(ModelError, match=r"^vse\.pretrained '.*nowhere': no text model of transformers found"):
        SentenceVectors(str(tmp_path / "nowhere"))
    (tmp_path / "model.safetensors").unlink()
    words = SentenceVectors(str(tmp_path))
    with pytest.raises(ModelError, match=r"^vse\.pretrained '.*': no text model of transformers found"):
        words(torch.tensor([[3, 5]]))
