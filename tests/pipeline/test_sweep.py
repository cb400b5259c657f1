"""The sweep of the documentation runs as it is printed there."""

import re
import sys
from pathlib import Path

import optuna
import pytest

from tests.pipeline.tiny import ROOT, Tiny, at


@pytest.mark.slow
def test_the_sweep_of_the_readme_trains_cached_jobs_and_scores_them_on_validation(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """A job for each trial, of which none is trained twice; the score is not of the test."""
    text = (ROOT / ".docs/pages/running.md").read_text(encoding="utf-8").partition("## Sweeps")[2]
    script = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)[0]
    assert len(script.splitlines()) <= 30
    made = tiny.without(tmp_path / "sweep", "vse-*")
    monkeypatch.setattr(sys, "argv", ["sweep.py", str(made.yaml), "human", "2"])
    with at(made.folder):
        exec(compile(script, "sweep.py", "exec"), {"__name__": "__main__"})
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
