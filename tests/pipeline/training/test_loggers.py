"""Training curves beside TensorBoard's: as CSV, and for Weights & Biases (a stand-in: it needs an account)."""

import csv
import importlib
import sys
from pathlib import Path

import pytest
from pytorch_lightning.loggers import wandb as of_lightning

from pipeline.errors import RecipeError
from pipeline.recipes import networks
from pipeline.recipes.loading import load_recipe
from pipeline.training.loggers import loggers_of
from tests.pipeline.tiny import Tiny

FILES = {
    "__init__.py": "run, runs, refuses = None, [], False\n"
    "def init(**settings):\n"
    "    global run\n"
    "    from wandb.errors import Error\n"
    "    from wandb.wandb_run import Run\n"
    "    if refuses:\n"
    "        raise Error('no API key\\nconfigured')\n"
    "    run = Run(settings)\n"
    "    runs.append(run)\n"
    "    return run\n",
    "errors.py": "class Error(Exception): pass\n",
    "sdk/__init__.py": "",
    "sdk/lib.py": "class RunDisabled: pass\n",
    "wandb_run.py": "import wandb\n"
    "class Run:\n"
    "    define_metric = None\n"
    "    def __init__(self, settings):\n"
    "        self.settings, self.logged, self.config = settings, [], {}\n"
    "    def log(self, figures): self.logged.append(dict(figures))\n"
    "    def finish(self): wandb.run = None\n",
}


@pytest.fixture
def wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What Lightning uses of it; it keeps what it is given."""
    for name, text in FILES.items():
        (tmp_path / "stub/wandb" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "stub/wandb" / name).write_text(text)
    for name in [name for name in sys.modules if name.partition(".")[0] == "wandb"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path / "stub"))
    monkeypatch.setattr(of_lightning, "_WANDB_AVAILABLE", True)
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    yield importlib.import_module("wandb")
    for name in [name for name in sys.modules if name.partition(".")[0] == "wandb"]:
        del sys.modules[name]


def test_a_training_is_logged_everywhere_and_is_the_same_training(tiny: Tiny, wandb, tmp_path: Path) -> None:
    """Its key and its figures are those of the training without them; its test is logged too."""
    made = tiny.without(tmp_path / "logged", "vse-*")
    assert made.main("vse", "--vse.only=[human]", "--trainer.loggers=[csv,wandb]") == 0
    name = "vse-san-human-1"
    assert made.job(name).name == tiny.job(name).name
    assert made.metrics(name)["test"] == tiny.metrics(name)["test"]
    (run,) = (made.folder / "lightning_logs/tiny" / name).iterdir()
    rows = [
        {column: float(value) for column, value in row.items() if value}
        for path in sorted(run.glob("csv/version_*/metrics.csv"))
        for row in csv.DictReader(path.read_text().splitlines())
    ]
    assert len([row for row in rows if "val/rsum" in row]) == 4  # epochs
    tested = made.metrics(name)["test"]["en"]["mean_recall"]
    assert [row["test/en/mean_recall"] for row in rows if "test/en/mean_recall" in row] == [pytest.approx(tested)]
    assert any("pace/captions a second" in row for row in rows)
    assert {one.settings["id"] for one in wandb.runs} == {f"tiny-{name}-{run.name}"}  # training and test: one run
    assert wandb.runs[0].settings["project"] == "bildwort"
    logged = [figures for one in wandb.runs for figures in one.logged]
    best = max(row["val/rsum"] for row in rows if "val/rsum" in row)
    assert max(figures["val/rsum"] for figures in logged if "val/rsum" in figures) == pytest.approx(best)
    assert wandb.run is None  # it has ended: the next training does not go on in it


def test_curves_of_a_stopped_training_are_kept(tmp_path: Path) -> None:
    for value in (1.0, 2.0):
        board, table = loggers_of(["csv"], tmp_path / "recipe/job/abc")
        table.log_metrics({"loss": value}, 1)
        table.finalize("success")
        assert Path(str(board.log_dir)) == tmp_path / "recipe/job/abc"
    found = sorted((tmp_path / "recipe/job/abc").glob("csv/*/metrics.csv"))
    assert [path.read_text().split()[-1] for path in found] == ["1.0,1", "2.0,1"]


def test_wandb_that_is_not_installed_is_one_line_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(networks, "find_spec", lambda name: None)
    said = r"trainer\.loggers names wandb, which is not installed; run `make setup EXTRA=wandb`, or leave it out"
    with pytest.raises(RecipeError, match=said):
        load_recipe("scenes", ["--trainer.loggers=[wandb]"])
    assert load_recipe("scenes", ["--trainer.loggers=[wandb]"], networks=False).vse.trainer.loggers == ["wandb"]


def test_an_unknown_logger_is_one_line() -> None:
    with pytest.raises(RecipeError, match=r"trainer\.loggers is .*comet.*; expected a list"):
        load_recipe("scenes", ["--trainer.loggers=[comet]"])


def test_the_id_of_a_run_has_no_character_that_wandb_refuses(wandb, tmp_path: Path) -> None:
    """Rows and recipes may have such names; the name that is shown keeps them."""
    loggers_of(["wandb"], tmp_path / "my, recipe/vse-san-a#b'c-1/abc")
    assert wandb.runs[0].settings["id"] == "my_ recipe-vse-san-a_b_c-1-abc"
    assert wandb.runs[0].settings["name"] == "my, recipe/vse-san-a#b'c-1/abc"


def test_wandb_that_refuses_is_one_line(wandb, tmp_path: Path) -> None:
    wandb.refuses = True
    said = (
        r"wandb does not begin \(no API key configured\); log in with `\.venv/bin/wandb login`, set WANDB_MODE=offline"
    )
    with pytest.raises(RecipeError, match=said):
        loggers_of(["wandb"], tmp_path / "recipe/job/abc")
