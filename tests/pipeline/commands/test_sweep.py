"""The sweep of the documentation runs as it is printed there."""

import re
import sys
from pathlib import Path

import optuna
import pytest

from tests.pipeline.tiny import ROOT, Tiny, at


def script() -> str:
    text = (ROOT / ".docs/pages/running.md").read_text(encoding="utf-8").partition("## Sweeps")[2]
    return re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)[0]


def test_a_trial_trains_on_one_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each process of the training would run the script, draw other settings, and wait for the others."""
    recipe, seen = tmp_path / "two.yaml", []
    recipe.write_text("base: scenes\ntrainer: {devices: 2}\nvse: {trainer: {num_nodes: 2}}\n")
    monkeypatch.setattr("pipeline.graph.Graph", lambda recipe, workspace: seen.append(recipe))
    monkeypatch.setattr(sys, "argv", ["sweep.py", str(recipe), "none", "1"])
    names: dict = {"__name__": "sweep"}
    exec(compile(script(), "sweep.py", "exec"), names)
    with pytest.raises(AttributeError), at(tmp_path):  # the graph above has no rows
        names["score"](optuna.trial.FixedTrial({"learning_rate": 1e-3, "weight_decay": 1e-5, "dropout": 0.0}))
    assert (seen[0].vse.trainer.devices, seen[0].vse.trainer.num_nodes) == (1, 1)


@pytest.mark.slow
def test_the_sweep_of_the_readme_trains_cached_jobs_and_scores_them_on_validation(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """A job for each trial, of which none is trained twice; the score is not of the test."""
    assert len(script().splitlines()) <= 30
    made = tiny.without(tmp_path / "sweep", "vse-*")
    monkeypatch.setattr(sys, "argv", ["sweep.py", str(made.yaml), "human", "2"])
    with at(made.folder):
        exec(compile(script(), "sweep.py", "exec"), {"__name__": "__main__"})
    assert re.search(r"rsum \d+\.\d on validation: \{'learning_rate': ", capsys.readouterr().out)
    names = optuna.get_all_study_names(f"sqlite:///{made.folder / 'sweep.db'}")
    assert names == [f"{made.yaml} human"]  # another row has a study of its own
    study = optuna.load_study(study_name=f"{made.yaml} human", storage=f"sqlite:///{made.folder / 'sweep.db'}")
    jobs = made.workspace.root / "jobs/vse-san-human-1"
    folders = [path for path in jobs.iterdir() if (path / "manifest.json").is_file()]
    assert len(folders) == len(study.trials) == 2
    best = study.best_params
    assert made.main("vse", "--vse.only=[human]", *(f"--vse.{key}={value}" for key, value in best.items())) == 0
    assert {path for path in jobs.iterdir() if path.is_dir()} == {*folders}  # it was done
