"""Why two runs differ: what the manifests say of settings, inputs and figures."""

from pathlib import Path

import pytest

from pipeline.cli import main
from pipeline.engine.job import Job
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.reporting.compare import compare
from tests.pipeline.tiny import ran


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "artifacts")


def run(workspace: Workspace, rate: float, score: float, words: int = 5, runtime: dict | None = None) -> str:
    corpus = Job("corpus", "prepare", 1, {"words": words}, {}, lambda folder, inputs: {})
    job = Job("work", "mmt", 1, {"phase": {"rate": rate, "steps": 3}}, {"corpus": corpus},
              lambda folder, inputs: {"test": {"en": {"r1": score}}}, runtime=runtime or {})  # fmt: skip
    ran(workspace, corpus)
    return str(ran(workspace, job))


def said(capsys, *arguments) -> list[list[str]]:
    capsys.readouterr()
    compare(*arguments)
    return [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]


def test_settings_and_figures_that_differ_are_named(workspace: Workspace, capsys) -> None:
    first, second = run(workspace, 0.1, 10.0), run(workspace, 0.2, 12.5)
    lines = said(capsys, first, second, workspace)
    assert ["settings.phase.rate", "0.1", "0.2"] in lines
    assert ["test.en.r1", "10", "12.5"] in lines
    assert not any("steps" in line[0] for line in lines)


def test_inputs_are_looked_into(workspace: Workspace, capsys) -> None:
    first, second = run(workspace, 0.1, 10.0), run(workspace, 0.1, 10.0, words=6)
    assert ["corpus:", "settings.words", "5", "6"] in said(capsys, first, second, workspace)


def test_an_input_that_is_gone_is_named_by_its_key(workspace: Workspace, capsys) -> None:
    first, second = run(workspace, 0.1, 10.0), run(workspace, 0.1, 10.0, words=6)
    for folder in (workspace.root / "jobs" / "corpus").iterdir():
        folder.rename(folder.with_name(folder.name + "-gone"))
    assert any(line[0] == "corpus" and len(line[1]) == len(line[2]) == 12 for line in said(capsys, first, second,
                                                                                          workspace))  # fmt: skip


def test_where_it_ran_is_compared_too(workspace: Workspace, tmp_path: Path, capsys) -> None:
    elsewhere = Workspace(tmp_path / "elsewhere")
    first, second = run(workspace, 0.1, 10.0, runtime={"devices": 1}), run(elsewhere, 0.1, 9.0, runtime={"devices": 2})
    lines = said(capsys, first, second, workspace)
    assert ["runtime.devices", "1", "2"] in lines


def test_a_run_is_found_by_its_key_or_part_of_it(workspace: Workspace, capsys) -> None:
    first = run(workspace, 0.1, 10.0)
    key = Path(first).name
    assert "0 differences" in " ".join(said(capsys, f"work/{key}", key[:6], workspace)[0])


@pytest.mark.parametrize("name", ["nothing", "work/000", ""])
def test_a_run_that_is_not_there_or_not_one_is_told(workspace: Workspace, name: str) -> None:
    first = run(workspace, 0.1, 10.0)
    run(workspace, 0.2, 10.0)
    with pytest.raises(RecipeError, match=r"is not there|fits") as caught:
        compare(first, name, workspace)
    assert "\n" not in str(caught.value)


def test_a_damaged_manifest_is_one_line(workspace: Workspace) -> None:
    first = Path(run(workspace, 0.1, 10.0))
    (first / "manifest.json").write_text("{")
    with pytest.raises(RecipeError, match="not a readable manifest"):
        compare(str(first), str(first), workspace)


def test_from_the_shell(workspace: Workspace, monkeypatch, capsys) -> None:
    first, second = run(workspace, 0.1, 10.0), run(workspace, 0.2, 12.5)
    monkeypatch.setenv("BILDWORT_ARTIFACTS", str(workspace.root))
    assert main(["compare", first, second]) == 0
    assert "settings.phase.rate" in capsys.readouterr().out
    assert main(["compare", first, second, "--vse.dim=3"]) == 1
    assert "compare takes no settings" in capsys.readouterr().err
