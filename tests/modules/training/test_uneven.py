"""Two processes where things do not come out even: fewer images or sentences than ranks, a language on one rank only.

This file is its own worker, as `test_distributed` is.
"""

from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor

from data.batches.retrieval import RetrievalData
from data.batches.slots import parse_group
from data.batches.translation import Sentences, TranslationData
from data.text.tokenisation import BEGIN, END
from modules.distributed import touch
from modules.training.retrieval import Retrieval
from modules.training.translation import Translation
from modules.translators.beam import BeamSettings
from modules.translators.regional import RegionalTranslator
from pipeline.recipes.trainer_settings import TrainerSettings
from pipeline.translation.translating import translate_all
from tests.modules.small import Corpus, Diary, OneLanguageARank, make_trainer
from tests.modules.test_plugins import PLUGINS
from tests.modules.two import both, two_processes

pytestmark = pytest.mark.whole

COUNTS = (1, 2, 7)
WORDS = 20


def held_out(corpus: Corpus, images: int, groups: tuple[str, ...] = ("en/human", "de/human")) -> RetrievalData:
    """Of validation and test so many images."""
    kept, seen = [], {"val": set(), "test": set(), "train": set()}
    for number, row in enumerate(corpus.captions.to_list()):
        of_split = seen[row["split"]]
        if row["split"] == "train" or row["image_id"] in of_split or len(of_split) < images:
            of_split.add(row["image_id"])
            kept.append(number)
    spoken = {"val": ["de", "en"], "test": ["de", "en"]}
    return RetrievalData(
        corpus.captions.select(kept), corpus.store, corpus.words, [parse_group(group) for group in groups],
        ["de", "en"], spoken, 7,
    )  # fmt: skip


def ranks_of(corpus: Corpus, images: int, **settings: Any) -> dict[str, Tensor]:
    """Train on batches of 7, validate and test: weights, per-query ranks and figures."""
    module, diary, data = corpus.module("san"), Diary(), held_out(corpus, images)
    trainer = make_trainer(2, diary, **settings)
    trainer.fit(module, data)
    trainer.test(module, data, verbose=False)
    found = {f"text {language}": ranks.text_to_image for language, ranks in module.ranks.items()}
    found |= {f"image {language}": ranks.image_to_text for language, ranks in module.ranks.items()}
    found |= {f"{epoch} {name}": torch.tensor(value) for epoch, logged in enumerate(diary.logged)
              for name, value in logged.items()}  # fmt: skip
    return found | {f"weight {name}": value for name, value in module.model.state_dict().items()}


def sentences(count: int) -> Sentences:
    generator = torch.Generator().manual_seed(2)
    texts = [torch.randint(4, WORDS, (1 + n % 4,), generator=generator).tolist() for n in range(count)]
    return Sentences(texts, [text[::-1] for text in texts], [None] * count)


class Numbers:
    """In the place of a vocabulary: words are numbers."""

    def decode(self, tokens: list[int], language: str = "") -> str:
        return " ".join(map(str, tokens))

    decode_tokens = decode


def translated(count: int, devices: int) -> tuple[list[tuple[str, float]], dict[str, Tensor]]:
    """So many sentences translated; and a translator trained on batches of 7 sentences and validated on so many."""
    network = {"vocabulary_size": WORDS, "region_dim": None, "embedding_dim": 4, "hidden_dim": 5, "dropout": 0.0}
    torch.manual_seed(0)
    translator = RegionalTranslator(**network)
    found = translate_all(
        translator, Numbers(), sentences(count).source, [None] * count, None, "de", BeamSettings(2), 12,
        TrainerSettings(accelerator="cpu", devices=devices, strategy="ddp" if devices > 1 else "auto", progress=False),
    )  # fmt: skip
    torch.manual_seed(0)
    module, diary = Translation(network, 0.01, 1, 8, 0.0, BEGIN, END), Diary()
    module.reference, module.decode = [Numbers().decode(s) for s in sentences(count).target], Numbers().decode
    data = TranslationData(sentences(21), sentences(count), None, 28, 4, 0)
    settings: dict[str, Any] = {"devices": 2, "strategy": "ddp"} if devices > 1 else {}
    make_trainer(2, diary, **settings).fit(module, data)
    figures = {name: torch.tensor([logged[name] for logged in diary.logged])
               for name in ("val/bleu", "train/loss", "train/words")}  # fmt: skip
    return [(best.text, best.score) for best, *_ in found], dict(module.state_dict()) | figures


class Same:
    """The same batches in every epoch, on every rank."""

    def __init__(self, batches: Any) -> None:
        self.batches = batches

    def __iter__(self):
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


def languages_apart(corpus: Corpus, rank: int | None) -> Retrieval:
    """Train an encoder per language on whole batches (None), or on this rank's language of each."""
    module, data, whole = corpus.module(PLUGINS[1]), corpus.data(), corpus.data()
    batches = list(whole.train_dataloader())
    data.train_dataloader = lambda: Same(batches) if rank is None else OneLanguageARank(batches, rank)
    settings: dict[str, Any] = {} if rank is None else {"devices": 2, "strategy": "ddp"}
    make_trainer(2, **settings).fit(module, data)
    return module


def never_trained(corpus: Corpus, **settings: Any) -> Retrieval:
    """Train an encoder per language on English alone; German is tested."""
    module = corpus.module(PLUGINS[1])
    make_trainer(2, **settings).fit(module, held_out(corpus, 7, ("en/human",)))
    return module


def work(rank: int, folder: Path) -> None:
    """What each of the two processes does."""
    torch.set_num_threads(1)
    corpus = Corpus(folder / f"corpus-{rank}")
    found: dict[str, Any] = {}
    for count in COUNTS:
        found[f"ranks {count}"] = ranks_of(corpus, count, devices=2, strategy="ddp")
        found[f"translated {count}"] = translated(count, 2)
    found["languages apart"] = dict(languages_apart(corpus, rank).model.state_dict())
    found["never trained"] = dict(never_trained(corpus, devices=2, strategy="ddp").model.state_dict())
    torch.save(found, folder / f"{rank}.pt")


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> list[dict]:
    return two_processes(__file__, tmp_path_factory.mktemp("ranks"))


def same(ours: dict[str, Tensor], theirs: dict[str, Tensor], tolerance: float = 1e-5) -> None:
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        torch.testing.assert_close(value, theirs[name], atol=tolerance, rtol=0, msg=lambda text, n=name: f"{n}: {text}")


@pytest.mark.parametrize("count", COUNTS)
def test_ranks_weights_and_figures_of_any_number_of_images(found: list[dict], corpus: Corpus, count: int) -> None:
    alone = ranks_of(corpus, count)
    assert len(alone["text en"]) == len(alone["image de"]) == count
    for one in found:
        weights = {name for name in alone if name.startswith("weight")}
        for part, tolerance in ((alone.keys() - weights, 1e-5), (weights, 1e-3)):  # Adam makes much of little gradients
            theirs = one[f"ranks {count}"]
            same({name: theirs[name] for name in theirs if (name in weights) == (part is weights)},
                 {name: alone[name] for name in part}, tolerance)  # fmt: skip


@pytest.mark.parametrize("count", COUNTS)
def test_every_sentence_is_translated_once_whatever_their_number(found: list[dict], count: int) -> None:
    texts, weights = translated(count, 1)
    assert len(texts) == count
    for one in found:
        theirs, others = one[f"translated {count}"]
        assert [text for text, _ in theirs] == [text for text, _ in texts]
        assert [score for _, score in theirs] == pytest.approx([score for _, score in texts], abs=1e-5)
        same(others, weights)


def test_an_encoder_per_language_learns_as_in_one_process(found: list[dict], corpus: Corpus) -> None:
    alone = languages_apart(corpus, None).model.state_dict()
    for one in found:
        same(one["languages apart"], alone, 1e-4)


def test_an_encoder_that_nobody_trains_stays_as_it_is(found: list[dict], corpus: Corpus) -> None:
    start, alone = corpus.module(PLUGINS[1]).model.state_dict(), never_trained(corpus).model.state_dict()
    for one in found:
        same(one["never trained"], alone, 1e-4)
        for name, weight in one["never trained"].items():
            assert torch.equal(weight, start[name]) == name.startswith("encoders.de")


def test_touch_gives_every_parameter_a_gradient_of_zero() -> None:
    module = pl.LightningModule()
    module.used, module.frozen, module.idle = (torch.nn.Linear(2, 2) for _ in range(3))
    module.frozen.requires_grad_(False)
    total = touch(module.parameters())
    assert total == 0
    (total + module.used.weight.sum()).backward()
    assert torch.equal(module.used.weight.grad, torch.ones(2, 2))
    assert torch.equal(module.idle.weight.grad, torch.zeros(2, 2))
    assert module.frozen.weight.grad is None


if __name__ == "__main__":
    both(work)
