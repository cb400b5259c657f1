"""A model and a loss of another package, which lists its module as an entry point of the group `bildwort`."""

import sys
from pathlib import Path

import pytest
import torch

from modules.errors import ModelError
from modules.losses.registry import OWN, RankingLoss, loss_names, register_loss
from modules.plugins import import_plugins
from modules.retrieval_models import _register_all
from modules.retrieval_models.base import MODELS
from tests.pipeline.tiny import Tiny

MODULE = """
import torch
from torch import nn
from torch.nn import functional as F

from modules.losses.registry import register_loss
from modules.retrieval_models import RetrievalModel, register
from modules.retrieval_models.base import one_vector


@register("my-mean")
class Mean(RetrievalModel):
    def __init__(self, hidden: int = 8, **common):
        super().__init__(**common)
        self.words = self.make_words()
        self.image = nn.Sequential(nn.Linear(self.region_dim, hidden), nn.ReLU(), nn.Linear(hidden, self.dim))
        self.text = nn.Linear(self.words.embedding_dim, self.dim)

    def encode_images(self, regions, mask):
        shares = mask.to(regions) / mask.sum(1, keepdim=True)
        return one_vector(F.normalize(self.image((regions * shares[..., None]).sum(1)), dim=-1))

    def encode_captions(self, tokens, lengths, languages):
        known = (torch.arange(tokens.shape[1]) < lengths[:, None]).to(tokens.device)
        words = self.words(tokens) * known[..., None]
        return one_vector(F.normalize(self.text(words.sum(1) / lengths.to(words)[:, None]), dim=-1))


@register_loss("my-sigmoid")
class Sigmoid(nn.Module):
    def __init__(self, margin: float):
        super().__init__()
        self.scale, self.bias = nn.Parameter(torch.tensor(2.3)), nn.Parameter(torch.tensor(-3.0))

    def forward(self, scores, positives, negatives):
        logits = scores * self.scale.exp() + self.bias
        return -(F.logsigmoid(logits)[positives].sum() + F.logsigmoid(-logits)[negatives].sum()) / len(scores)
"""
BROKEN = "import a_package_that_is_not_there\n"


def installed(folder: Path, module: str) -> Path:
    """A package as pip leaves it in a folder of `sys.path`."""
    about = folder / "mine-1.0.dist-info"
    about.mkdir(parents=True)
    (folder / "mine.py").write_text(module)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[bildwort]\nmine = mine\n")
    return folder


@pytest.fixture
def package(tmp_path: Path, monkeypatch):
    """Installed for this process, and forgotten afterwards."""
    monkeypatch.syspath_prepend(installed(tmp_path / "site", MODULE))
    known = import_plugins, _register_all
    for cached in known:
        cached.cache_clear()
    yield
    for cached in known:
        cached.cache_clear()
    sys.modules.pop("mine", None)
    OWN.pop("my-sigmoid", None)
    MODELS.pop("my-mean", None)


def test_it_is_trained_exported_and_searched_by_the_usual_commands(tiny: Tiny, package, tmp_path: Path, capsys) -> None:
    made = tiny.without(tmp_path / "made", "vse-*")
    settings = ["--vse.model=my-mean", "--vse.loss=my-sigmoid", "--vse.options.hidden=6", "--vse.only=[human]",
                "--vse.reranker.model=null"]  # fmt: skip
    assert made.main("vse", *settings) == 0
    assert made.metrics("vse-my-mean-human-1")["test"]["en"]["mean_recall"] > 0
    assert any("my-mean" in str(path) for path in made.folder.glob("lightning_logs/**/events.*"))
    assert made.main("index", *settings) == 0
    capsys.readouterr()
    assert made.main("search", "a red ball") == 0
    assert "train-" in capsys.readouterr().out


def test_without_the_package_its_model_is_not_known(tiny: Tiny, capsys) -> None:
    assert tiny.main("vse", "--vse.model=my-mean") == 1
    assert "'my-mean': no such retrieval model" in capsys.readouterr().err


@pytest.fixture
def broken(tmp_path: Path, monkeypatch):
    monkeypatch.syspath_prepend(installed(tmp_path / "site", BROKEN))
    import_plugins.cache_clear()
    yield
    import_plugins.cache_clear()


def test_a_package_that_cannot_be_imported_is_named(broken, fresh: Tiny, capsys) -> None:
    assert fresh.main("vse", "--vse.loss=my-sigmoid") == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "mine, an entry point of mine for bildwort, cannot be imported (ModuleNotFoundError: No module named" in line
    assert line.endswith("mend it, or uninstall mine")


def test_a_loss_must_be_one_number() -> None:
    @register_loss("test-rows")
    class Rows(torch.nn.Module):
        def __init__(self, margin: float) -> None:
            super().__init__()
            self.margin = margin

        def forward(self, scores, positives, negatives):
            return (self.margin - scores).sum(1)

    try:
        assert loss_names()[-1] == "test-rows"
        own = torch.eye(2, dtype=torch.bool)
        with pytest.raises(ModelError, match=r"loss 'test-rows' returns \(2,\); expected a tensor of one number"):
            RankingLoss("test-rows", 0.2)(torch.eye(2), own, ~own, None)
    finally:
        del OWN["test-rows"]
