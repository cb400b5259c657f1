"""Before its first step a retrieval model is checked by some images and captions of the batch."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from modules.errors import ModelError
from modules.retrieval_models import RetrievalModel
from modules.retrieval_models.base import Encoding, one_vector
from modules.retrieval_models.vse import VSE
from modules.training.encoding_checks import check_model
from tests.modules.cases import LANGUAGES, LENGTHS, D, H, V, make, make_batch
from tests.modules.small import Corpus, make_trainer


def batch() -> dict[str, Tensor]:
    regions, mask, tokens = make_batch()
    order = [1, 0, 2]  # the first image and the first caption are shorter than others
    captions = LENGTHS.argsort()
    return {
        "regions": regions.detach().float()[order], "region_mask": mask[order], "tokens": tokens[captions],
        "lengths": LENGTHS[captions], "language": LANGUAGES[captions],
    }  # fmt: skip


def plain(kind: type[RetrievalModel] = VSE) -> Any:
    torch.manual_seed(1)
    return kind(region_dim=D, vocabulary_size=V, languages=["de", "en"], dim=H)


class Padded(VSE):
    """Its captions have padding in their mean."""

    def encode_captions(self, tokens: Tensor, lengths: Tensor, languages: Tensor) -> Encoding:
        return one_vector(self.caption.words(tokens).mean(1)[:, :H])


class OfBatch(VSE):
    """Its images lose the mean of the batch."""

    def encode_images(self, regions: Tensor, mask: Tensor) -> Encoding:
        vectors, real = super().encode_images(regions, mask)
        return vectors - vectors.mean(0), real


class ByChance(VSE):
    """Its images have noise, in evaluation too."""

    def encode_images(self, regions: Tensor, mask: Tensor) -> Encoding:
        vectors, real = super().encode_images(regions, mask)
        return vectors + torch.randn_like(vectors), real


class Learned(VSE):
    """Its score is another one than it says."""

    def similarity(self, images: Encoding, captions: Encoding) -> Tensor:
        return -super().similarity(images, captions)


class Hot(VSE):
    """Its score has a temperature, and a teacher that stays as it is."""

    def __init__(self, **common: Any) -> None:
        super().__init__(**common)
        self.temperature = nn.Parameter(torch.tensor(2.0))
        self.teachers = (nn.Linear(2, 2).requires_grad_(False),)

    def similarity(self, images: Encoding, captions: Encoding) -> Tensor:
        return self.temperature.exp() * super().similarity(images, captions) - 0.5


class Nested(VSE):
    def __init__(self, **common: Any) -> None:
        super().__init__(**common)
        self._extra = {"more": [nn.Linear(2, 2)]}


class Turned(VSE):
    """Its scores are of captions and images."""

    score = "vectors"

    def similarity(self, images: Encoding, captions: Encoding) -> Tensor:
        return super().similarity(images, captions).t()


class Misnamed(VSE):
    score = "dot"  # type: ignore[assignment]


class Listed(VSE):
    def __init__(self, **common: Any) -> None:
        super().__init__(**common)
        self.extra = [nn.Linear(2, 2)]


def returning(change: Callable[[Tensor, Tensor], Any]) -> type[RetrievalModel]:
    """VSE whose images are encoded in another form."""

    class Changed(VSE):
        def encode_images(self, regions: Tensor, mask: Tensor) -> Encoding:
            return change(*super().encode_images(regions, mask))

    return Changed


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Padded, r"Padded.encode_captions: the first of 3 has another vector than alone"),
        (OfBatch, r"OfBatch.encode_images: the first of 2 has another vector than alone"),
        (ByChance, r"ByChance.encode_images: the first of 2 has another vector than alone"),
        (Learned, r"Learned.similarity is not the inner product of the vectors.*set Learned.score = \"vectors\""),
        (Misnamed, r"Misnamed.score is 'dot'; expected one of inner product, vectors, sets"),
        (Nested, r"Nested._extra is a plain dict with layers"),
        (Listed, r"Listed.extra is a plain list with layers.*nn.ModuleList"),
        (returning(lambda vectors, mask: vectors[:, 0]), r"encode_images returns a Tensor; expected vectors \(N"),
        (returning(lambda vectors, mask: (vectors[:, 0], mask)), r"returns \(2, 8\) of float32 and a mask"),
        (returning(lambda vectors, mask: (vectors, mask.float())), r"a mask \(2, 1\) of float32; expected"),
        (returning(lambda vectors, mask: (vectors, ~mask)), "an item without a vector"),
        (returning(lambda vectors, mask: (vectors.expand(-1, 2, -1), mask)), r"a mask \(2, 1\) of bool; expected \(N"),
        (
            returning(lambda vectors, mask: (vectors.expand(-1, 2, -1), mask.expand(-1, 2))),
            'several vectors of an item.*set score = "sets"',
        ),
        (returning(lambda vectors, mask: (vectors.double(), mask)), r"images as .* of float64, captions as .* float32"),
        (returning(lambda vectors, mask: (vectors[..., :3], mask)), "expected as many numbers"),
        (returning(lambda vectors, mask: (vectors * torch.nan, mask)), "numbers that are not finite"),
        (returning(lambda vectors, mask: (vectors[:1], mask[:1])), r"encode_images returns 1 items of 2 images"),
        (returning(lambda vectors, mask: (vectors.repeat(2, 1, 1), mask.repeat(2, 1))), "returns 4 items of 2 images"),
        (Turned, r"similarity returns \(3, 2\) of float32 of 2 images and 3 captions; expected finite scores \(2, 3\)"),
    ],
)  # fmt: skip
def test_what_would_be_ranked_in_another_way_is_refused(kind: type[RetrievalModel], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        check_model(plain(kind), batch())


@pytest.mark.parametrize("name", ["vse", "san", "scan-t2i-avg", "oe", "vse-inf", "mule", "pivot-asym", "dan"])
def test_a_right_model_passes_and_stays_as_it_was(name: str) -> None:
    model = make(name).float().train()
    part = next(model.children()).eval()  # as a frozen part is
    data = batch()
    before, state = torch.get_rng_state(), {key: tensor.clone() for key, tensor in model.state_dict().items()}
    check_model(model, data)
    assert torch.equal(torch.get_rng_state(), before)
    assert model.training
    assert not part.training
    assert all(torch.equal(tensor, state[key]) for key, tensor in model.state_dict().items())


def test_a_temperature_and_a_frozen_teacher_are_right() -> None:
    check_model(plain(Hot), batch())


@pytest.mark.parametrize(
    ("further", "words"),
    [
        (lambda one: {"ranking": one}, "'ranking': the name of another loss"),
        (lambda one: {"more": one[None]}, "'more': expected a tensor of one number"),
        (lambda one: {"more": 1.0}, "'more': expected a tensor of one number"),
        (lambda one: one, "returns Tensor; expected losses by name, {} for none"),
    ],
)
def test_auxiliary_losses_have_names_of_their_own_and_one_number(corpus: Corpus, further: Any, words: str) -> None:
    module = corpus.module("vse")
    module.model.auxiliary_losses = lambda batch, pairs: further(pairs.images[0].sum())
    with pytest.raises(ModelError, match=words):
        make_trainer(1, limit_train_batches=1).fit(module, corpus.data())


def test_a_loss_that_is_not_finite_is_named_after_the_epoch(corpus: Corpus) -> None:
    module = corpus.module("vse")
    module.model.auxiliary_losses = lambda batch, pairs: {"more": pairs.images[0].sum() * torch.nan}
    with pytest.raises(ModelError, match="VSE: the loss 'more' is not finite at the end of epoch 1; lower"):
        make_trainer(2, limit_train_batches=1).fit(module, corpus.data())


def test_a_training_begins_with_the_check(corpus: Corpus) -> None:
    module = corpus.module("vse")
    module.model.similarity = lambda images, captions: images[0][:, 0].neg() @ captions[0][:, 0].t()
    with pytest.raises(ModelError, match="is not the inner product"):
        make_trainer(1, limit_train_batches=1).fit(module, corpus.data())


def test_it_is_checked_in_float32_whatever_the_training_is_in() -> None:
    class Looks(VSE):
        def encode_images(self, regions: Tensor, region_mask: Tensor) -> tuple[Tensor, Tensor]:
            seen.append((torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32))
            return super().encode_images(regions, region_mask)

    seen: list[tuple[str, bool]] = []
    before = torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high")
    try:
        check_model(plain(Looks), batch())
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")
    assert {*seen} == {("highest", False)}
    assert torch.backends.cudnn.allow_tf32 == before
