"""Features of n-best lists by a retrieval model, and the order by a weighted sum of features."""

import pytest
import torch

from modules.errors import ModelError
from modules.retrieval_models import RetrievalModel, build_model
from modules.translators.beam import BeamSettings, Hypothesis
from modules.translators.registry import translate
from modules.translators.rerankers import Length, LogProbability, Reranker, Similarity
from tests.modules.translators.test_ensemble import BEGIN, END, LENGTHS, REGIONS, SOURCE, member

BATCH = {"source": SOURCE, "source_lengths": LENGTHS, "index": torch.tensor([0, 1]), "regions": REGIONS}
FOUND = [
    [Hypothesis([3, 3], -1.0), Hypothesis([4], -1.1), Hypothesis([3, 3], -1.2)],
    [Hypothesis([5, 4, 3, 6], -2.0)],
]


def retrieval(name: str = "san") -> RetrievalModel:
    torch.manual_seed(5)
    return build_model(name, region_dim=6, vocabulary_size=9, languages=["de", "en"], dim=8, word_dim=5).eval()


def read(tokens):
    """From the translator's token numbers to those of the retrieval model."""
    return [token + 1 for token in tokens] or [1]


def alone(model, tokens, language):
    return model.encode_captions(torch.tensor([read(tokens)]), torch.tensor([len(tokens)]), torch.tensor([language]))


@pytest.mark.parametrize("name", ["san", "oe", "scan-t2i-avg"])
def test_similarities_are_those_of_one_picture_or_source_and_one_translation(name: str) -> None:
    model = retrieval(name)
    batch = BATCH | {"other_regions": REGIONS.flip(0)}
    found = {to: Similarity(model, to, read, "de", read, "en")(batch, FOUND)
             for to in ("regions", "other_regions", "source")}  # fmt: skip
    for sentence, best in enumerate(FOUND):
        for rank, one in enumerate(best):
            said = alone(model, one.tokens, 0)
            for to, number in (("regions", sentence), ("other_regions", 1 - sentence)):
                image = model.encode_images(REGIONS[number : number + 1], torch.ones(1, 3, dtype=torch.bool))
                wanted = model.similarity(image, said).item()
                assert found[to][sentence][rank] == pytest.approx(wanted, abs=1e-5)
            heard = alone(model, SOURCE[sentence, : LENGTHS[sentence]].tolist(), 1)
            wanted = model.caption_similarity(heard, said).item()
            if model.score == "sets":
                wanted = (wanted + model.similarity(said, heard).item()) / 2
            assert found["source"][sentence][rank] == pytest.approx(wanted, abs=1e-5)


def test_each_distinct_translation_is_encoded_once(monkeypatch) -> None:
    model, encoded = retrieval(), []

    def watch(sentences, language):
        encoded.extend(map(tuple, sentences))
        return RetrievalModel.encode_sentences(model, sentences, language)

    monkeypatch.setattr(model, "encode_sentences", watch)
    feature = Similarity(model, "regions", read, "de")
    first, again = feature(BATCH, FOUND), feature(BATCH, FOUND)
    assert first == again
    assert sorted(encoded) == sorted({tuple(read(one.tokens)) for best in FOUND for one in best})


def test_a_sentence_without_a_picture_keeps_its_order() -> None:
    regions = REGIONS.clone()
    regions[0] = 0
    model = retrieval()
    torch.nn.init.ones_(model.regions.bias)  # as training leaves it: what it sees of zeros is not zero
    feature = Similarity(model, "regions", read, "de")
    found = feature(BATCH | {"regions": regions}, FOUND)
    assert found[0] == [0.0, 0.0, 0.0]
    assert found[1][0] != 0
    both = Reranker(member("transformer", 1), {"logp": LogProbability(), "image": feature}, {"logp": 1, "image": 9}, 2)
    assert [one.tokens for one in both.rerank(BATCH | {"regions": regions}, FOUND)[0]] == [[3, 3], [4], [3, 3]]


def test_the_order_is_that_of_the_weighted_sum() -> None:
    features = {"length": Length(len), "logp": LogProbability()}
    both = Reranker(member("transformer", 1), features, {"logp": 1.0, "length": -0.2}, 2)
    first, _ = both.rerank(BATCH, FOUND)
    assert [one.features for one in first] == [
        {"length": 1.0, "logp": -1.1}, {"length": 2.0, "logp": -1.0}, {"length": 2.0, "logp": -1.2},
    ]  # fmt: skip
    assert [one.score for one in first] == pytest.approx([-1.3, -1.4, -1.6])


def test_every_search_has_the_length_penalty_that_the_weights_belong_to() -> None:
    direct, features = member("transformer", 1), {"logp": LogProbability()}
    batch = {name: tensor for name, tensor in BATCH.items() if name != "regions"}
    own, free = (Reranker(direct, features, {"logp": 1.0}, 4, alpha) for alpha in (0.5, None))
    assert own.widened(BeamSettings(2, 2.0)) == BeamSettings(4, 0.5)
    assert free.widened(BeamSettings(2, 2.0)) == BeamSettings(4, 2.0)
    expected = translate(direct, batch, BeamSettings(4, 0.5), BEGIN, END)
    for alpha in (0.0, 2.0):
        found = translate(own, BATCH, BeamSettings(2, alpha), BEGIN, END)
        for best, wanted in zip(found, expected, strict=True):
            assert [(one.tokens, one.score) for one in best] == [(one.tokens, one.score) for one in wanted]


@pytest.mark.parametrize("looks", [False, True])
def test_pictures_reach_the_features_whether_the_translator_looks_or_not(looks: bool) -> None:
    direct, feature = member("transformer", 1, looks=looks), Similarity(retrieval(), "regions", read, "de")
    both = Reranker(direct, {"logp": LogProbability(), "image": feature}, {"logp": 1.0, "image": 1.0}, 4)
    assert both.regions.in_features == 6
    found = translate(both, BATCH, BeamSettings(2), BEGIN, END)
    assert [len(best) for best in found] == [4, 4]
    for best, values in zip(found, feature(BATCH, found), strict=True):
        assert [one.features["image"] for one in best] == pytest.approx(values)
    plain = Reranker(member("transformer", 1), {"logp": LogProbability()}, {"logp": 1.0}, 4)
    assert plain.regions is None


def test_a_language_that_the_model_does_not_know_is_refused() -> None:
    for arguments in (("regions", read, "fr"), ("source", read, "de", read, "fr")):
        with pytest.raises(ModelError, match="a retrieval model of de, en scores translations in 'fr'"):
            Similarity(retrieval(), *arguments)


def test_a_feature_that_is_no_number_is_one_line() -> None:
    features = {"logp": LogProbability(), "length": Length(lambda tokens: float("nan") if len(tokens) == 1 else 2.0)}
    both = Reranker(member("transformer", 1), features, {"logp": 1.0, "length": 0.0}, 2)
    with pytest.raises(ModelError) as caught:
        both.rerank(BATCH, FOUND)
    assert "feature 'length' of a translation is nan; expected a finite number: train" in str(caught.value)
    assert "\n" not in str(caught.value)
