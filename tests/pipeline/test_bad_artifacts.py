"""Artifacts, checkpoints and recipes that do not fit: one line that names the file and what to do, and nothing lost."""

import json
import pickle
import shutil
from pathlib import Path

import pytest
import torch

from tests.pipeline.tiny import Tiny, relisted

pytestmark = pytest.mark.whole


class Trap:
    """Unpickling it leaves a file: proof that somebody ran what a stranger wrote."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def told(tiny: Tiny, capsys, stage: str, *arguments: str) -> str:
    """The one line of an error."""
    capsys.readouterr()
    assert tiny.main(stage, *arguments) == 1
    lines = capsys.readouterr().err.splitlines()
    errors = [line for line in lines if line.startswith("error:")]
    assert len(errors) == 1
    assert lines[-1] == errors[0]
    return errors[0]


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def pickled(path: Path) -> None:
    path.write_bytes(pickle.dumps({"state_dict": Trap(path.with_name("sprung"))}))


def of_another_vocabulary(path: Path) -> None:
    network = json.loads((path.parent / "network.json").read_text())
    (path.parent / "network.json").write_text(json.dumps(network | {"vocabulary_size": 7}))


def of_another_size(path: Path) -> None:
    network = json.loads(path.read_text())
    path.write_text(json.dumps(network | {"hidden_dim": 32}))


def of_another_code(path: Path) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | {"layers": 6}))


SPOILED = [
    ("weights.safetensors", cut_short, "not a readable safetensors file"),
    ("weights.safetensors", pickled, "not a readable safetensors file"),
    ("weights.safetensors", Path.unlink, "not a readable safetensors file"),
    ("bpe.json", of_another_vocabulary, "bpe.json has"),
    ("bpe.json", cut_short, "bpe.json"),
    ("bpe.json", Path.unlink, "bpe.json"),
    ("network.json", of_another_size, "weights of another network"),
    ("network.json", of_another_code, "network.json"),
    ("network.json", cut_short, "no translator here"),
]


@pytest.mark.parametrize(("name", "spoil", "expected"), SPOILED, ids=[f"{n}-{s.__name__}" for n, s, _ in SPOILED])
def test_a_translator_that_is_spoiled(tiny: Tiny, tmp_path: Path, capsys, name, spoil, expected: str) -> None:
    copy = tiny.without(tmp_path, "synthetic-*")
    path = copy.job("mt-en-de") / name
    spoil(path)
    relisted(path.parent)
    line = told(
        copy, capsys, "augment", "--augment.paths=[mt:en-de]", "--vse.rows={}", "--vse.rows={human: [en/human]}"
    )
    assert expected in line
    assert str(path.parent) in line
    assert not (path.parent / "sprung").exists()


TABLES = [
    ("corpus", "captions.parquet", cut_short),
    ("corpus", "captions.parquet", Path.unlink),
    ("corpus", "about.json", cut_short),
    ("corpus", "regions/regions.npy", cut_short),
    ("corpus", "regions/ids.txt", cut_short),
    ("synthetic-mmt-en-de-en", "captions.parquet", pickled),
]


@pytest.mark.parametrize(("job", "name", "spoil"), TABLES, ids=[f"{n}-{s.__name__}" for _, n, s in TABLES])
def test_an_input_of_retrieval_that_is_spoiled(tiny: Tiny, tmp_path: Path, capsys, job: str, name: str, spoil) -> None:
    copy = tiny.without(tmp_path, "vse-*")
    path = copy.job(job) / name
    spoil(path)
    relisted(copy.job(job))
    line = told(copy, capsys, "vse", "--vse.only=[mmt-fb]")
    assert path.name in line or str(path.parent) in line
    assert not (path.parent / "sprung").exists()


def another_network(path: Path) -> None:
    checkpoint = torch.load(path, weights_only=True)
    checkpoint["state_dict"] = {name: tensor[:1] for name, tensor in checkpoint["state_dict"].items()}
    torch.save(checkpoint, path)


def without_weights(path: Path) -> None:
    torch.save({"epoch": 3}, path)


@pytest.fixture(scope="module")
def stopped(tiny: Tiny, tmp_path_factory) -> Tiny:
    """A retrieval training that was stopped after its first epoch."""
    from pipeline.training import trainer as training

    class Stop(training.Callback):
        def on_train_epoch_start(self, trainer, pl_module) -> None:
            if trainer.current_epoch == 2:
                raise KeyboardInterrupt

    copy = tiny.without(tmp_path_factory.mktemp("stopped"), "vse-*")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "LearningRateMonitor", lambda _: Stop())
        assert copy.main("vse", "--vse.only=[human]") == 130
    return copy


def emptied(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize(
    ("spoil", "name"),
    [(spoil, "last.ckpt") for spoil in (cut_short, emptied, pickled, another_network, without_weights)]
    + [(spoil, "best.ckpt") for spoil in (cut_short, another_network)],
)
def test_a_checkpoint_that_is_spoiled(stopped: Tiny, tmp_path: Path, capsys, spoil, name: str) -> None:
    copy = Tiny(tmp_path)
    shutil.copytree(stopped.workspace.root, copy.workspace.root)
    (path,) = copy.workspace.root.glob(f"jobs/vse-*/*.partial/checkpoints/{name}")
    spoil(path)
    line = told(copy, capsys, "vse", "--vse.only=[human]")
    assert str(path) in line
    assert "delete" in line
    assert not path.with_name("sprung").exists()
    path.unlink()
    assert copy.main("vse", "--vse.only=[human]") == 0  # what the line advises helps


@pytest.mark.parametrize(
    ("stage", "override", "expected"),
    [
        ("vse", "--vse.test=[en, ja]", "ja"),
        ("vse", "--vse.rows={human: [ja/human]}", "ja"),
        ("mmt", "--mmt.directions=[en-ja]", "ja"),
        ("augment", "--augment.paths=[mt:en-ja]", "en-ja"),
    ],
)
def test_a_language_that_the_data_lacks(tiny: Tiny, tmp_path: Path, capsys, stage: str, override: str,
                                        expected: str) -> None:  # fmt: skip
    copy = tiny.without(tmp_path, "nothing")
    more = ["--augment.paths=[]", "--vse.only=[human]"] if stage == "mmt" else []
    assert expected in told(copy, capsys, stage, override, *more)


@pytest.mark.parametrize(
    "setting",
    ["accelerator=gpuu", "precision=bf16-mixd", "strategy=foo", "devices=0", "devices=two", "accelerator=tpu"],
)
def test_what_lightning_refuses_is_one_line(tiny: Tiny, tmp_path: Path, capsys, setting: str) -> None:
    copy = tiny.without(tmp_path, "vse-*")
    line = told(copy, capsys, "vse", "--vse.only=[human]", f"--trainer.{setting}")
    assert "trainer" in line


def test_a_training_whose_folder_was_moved_keeps_its_best_epoch(stopped: Tiny, tmp_path: Path) -> None:
    copy = Tiny(tmp_path)
    shutil.copytree(stopped.workspace.root, copy.workspace.root)
    (path,) = copy.workspace.root.glob("jobs/vse-*/*.partial/checkpoints/best.ckpt")
    callbacks = torch.load(path, weights_only=True)["callbacks"]
    score = next(state["best_model_score"] for name, state in callbacks.items() if name.startswith("_Best"))
    from modules.training.callbacks import Best

    best = Best(path.parent, filename="best", monitor="val/rsum", mode="max", save_top_k=1)
    best.load_state_dict(next(state for name, state in callbacks.items() if name.startswith("_Best")))
    assert best.best_model_score == score
    assert list(best.best_k_models) == [best.best_model_path] == [str(path)]


def test_a_report_from_damaged_ranks_is_one_line(tiny: Tiny, tmp_path: Path, capsys) -> None:
    copy = tiny.without(tmp_path, "nothing")
    path = copy.job("vse-san-human-1") / "ranks-en.npz"
    cut_short(path)
    assert str(path) in told(copy, capsys, "report")
