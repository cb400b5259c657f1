"""What every registered retrieval model must be able to do, whatever it is inside."""

import inspect

import pytest
import torch
from torch.nn import functional as F

from modules.metrics.retrieval import retrieval_ranks, retrieval_scores
from modules.retrieval_models import RetrievalModel, build_model, model_class, option_names
from tests.modules.cases import ON_REGIONS
from tests.modules.small import Corpus, make_trainer

model_class("san")  # all files of the folder are read
NAMES = ON_REGIONS
COMMON = {"region_dim": 3, "vocabulary_size": 9, "languages": ["de", "en"], "dim": 4, "word_dim": 5, "dropout": 0.1}
GERMAN, ENGLISH = torch.tensor([0]), torch.tensor([1])


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Corpus:
    return Corpus(tmp_path_factory.mktemp("corpus"))


def test_all_are_found() -> None:
    ours = {"san", "dan", "vse", "vse++", "oe", "vse-inf", "diverse-attention"}
    ours |= {f"scan-{way}-{pool}" for way in ("t2i", "i2t") for pool in ("avg", "lse")}
    ours |= {f"pivot-{parallel}{form}" for parallel in ("", "parallel-") for form in ("sym", "asym")}
    assert set(NAMES) >= ours


@pytest.mark.parametrize("name", NAMES)
def test_it_is_built_from_what_all_models_are_told_and_its_options_have_defaults(name: str) -> None:
    model = build_model(name, **COMMON)
    assert isinstance(model, RetrievalModel)
    assert (model.region_dim, model.dim, model.word_dim, model.dropout) == (3, 4, 5, 0.1)
    assert model.score in ("inner product", "vectors", "sets")
    signatures = [inspect.signature(kind.__init__).parameters for kind in type(model).__mro__[:-1]]
    for option in option_names(type(model)):
        assert next(one[option] for one in signatures if option in one).default is not inspect.Parameter.empty
    with pytest.raises(TypeError, match="tentacles"):
        build_model(name, **COMMON, tentacles=3)


@pytest.mark.parametrize("name", NAMES)
def test_one_word_and_one_region_are_enough(name: str) -> None:
    model = build_model(name, **COMMON).eval()
    images = model.encode_images(torch.randn(2, 1, 3), torch.ones(2, 1, dtype=torch.bool))
    for language in (GERMAN, ENGLISH):
        captions = model.encode_captions(torch.tensor([[4]]), torch.tensor([1]), language)
        for (vectors, mask), count in ((images, 2), (captions, 1)):
            assert vectors.shape[:2] == mask.shape == (count, 1)
            assert mask.all()
        scores = model.similarity(images, captions)
        assert scores.shape == (2, 1)
        assert scores.dtype == torch.float32
        assert scores.isfinite().all()
    scores.sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("name", NAMES)
def test_word_vectors_are_taken_over_and_matter(name: str) -> None:
    torch.manual_seed(0)
    model = build_model(name, **COMMON).eval()
    words = torch.tensor([[4, 5]]), torch.tensor([2]), ENGLISH
    before = model.encode_captions(*words)[0]
    vectors = torch.randn(9, 5)
    model.set_word_vectors(vectors)
    assert any(torch.equal(parameter, vectors) and parameter.requires_grad for parameter in model.parameters())
    assert (model.encode_captions(*words)[0] - before).abs().max() > 1e-4


@pytest.mark.parametrize("name", NAMES)
def test_words_without_a_vector_stay_as_they_are(name: str) -> None:
    torch.manual_seed(0)
    model, vectors = build_model(name, **COMMON), torch.randn(2, 5)
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    model.set_word_vectors(vectors.double(), torch.tensor([7, 3]))
    changed = {name: one for name, one in model.named_parameters() if not torch.equal(one, before[name])}
    assert changed
    for name, table in changed.items():
        assert torch.equal(table[[7, 3]], vectors)
        assert torch.equal(table[[0, 1, 2, 4, 5, 6, 8]], before[name][[0, 1, 2, 4, 5, 6, 8]])
    model.set_word_vectors(torch.zeros(0, 5), torch.zeros(0, dtype=torch.long))  # a file that has none of them
    assert all(torch.equal(one[7], vectors[0]) for one in changed.values())


@pytest.mark.parametrize("name", NAMES)
def test_dropout_works_in_training_only(name: str) -> None:
    model = build_model(name, **(COMMON | {"dropout": 0.5, "word_dim": 64, "dim": 32}))
    words = torch.tensor([[4, 5, 6]]), torch.tensor([3]), ENGLISH
    assert not torch.equal(model.encode_captions(*words)[0], model.encode_captions(*words)[0])
    model.eval()
    assert torch.equal(model.encode_captions(*words)[0], model.encode_captions(*words)[0])


@pytest.mark.parametrize("name", NAMES)
def test_it_learns_is_validated_and_ranks_as_its_matrix_does(corpus: Corpus, name: str) -> None:
    module, data = corpus.module(name), corpus.data()
    make_trainer(1).test(module, data, verbose=False)
    start = [retrieval_scores(module.ranks[language])["mean_recall"] for language in ("de", "en")]
    trainer = make_trainer(8, limit_val_batches=0)
    trainer.fit(module, data)
    make_trainer(1).test(module, data, verbose=False)
    module.eval()
    table = data._tables["test"]
    for language, before in zip(("de", "en"), start, strict=True):
        numbers = [number for number, spoken in enumerate(table["language"][:]) if spoken == language]
        batch = data._batches["test"][[(number,) for number in range(len(table))]]
        with torch.no_grad():
            scores = module.model.similarity(*module.encode(batch))[:, numbers]
        links, found = batch["image_index"][numbers], module.ranks[language]
        shift = 1e-6 * F.one_hot(links, len(scores)).t()  # of the right pairs: sums in another order may differ by less
        best, worst = (retrieval_ranks(one, links) for one in (scores + shift, scores - shift))
        for way in ("text_to_image", "image_to_text"):
            low, rank, high = (getattr(side, way) for side in (best, found, worst))
            assert ((low <= rank) & (rank <= high)).all()
        assert retrieval_scores(module.ranks[language])["mean_recall"] > before + 10
