"""The command line: its commands, their options, settings, help, and what it imports."""

import contextlib
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest

from pipeline.cli import main, split_settings
from pipeline.commands.options import recipe_names
from pipeline.commands.stages import PLAIN_NAMES, STAGES
from pipeline.engine.console import info
from pipeline.errors import RecipeError
from pipeline.recipes.documentation import documented_keys, documented_recipe
from pipeline.recipes.loading import CONFIGS, load_recipe
from tests.pipeline.tiny import ROOT, Tiny

COMMANDS = [*STAGES, "report", "all", "doctor", "table", "sts", "compare", "translate", "rerank-translations", "export",
            "index", "search", "describe", "init", "data", "recipes", "config"]  # fmt: skip
HEAVY = ("torch", "torch._dynamo", "pytorch_lightning", "transformers", "datasets", "sklearn", "matplotlib", "scipy",
         "pandas")  # fmt: skip


@pytest.mark.parametrize(
    ("given", "settings", "rest"),
    [
        ("vse --vse.epochs 3 own", ["--vse.epochs=3"], ["vse", "own"]),
        ("vse own --vse.epochs=3 --force", ["--vse.epochs=3"], ["vse", "own", "--force"]),
        ("--seed 4 --trainer.devices=2", ["--seed=4", "--trainer.devices=2"], []),
        ("--mmt.length_penalty -1", ["--mmt.length_penalty=-1"], []),
        ("search --top 3 -- --vse.epochs", [], ["search", "--top", "3", "--", "--vse.epochs"]),
        ("translate --with mt:en-de --output a.b", [], ["translate", "--with", "mt:en-de", "--output", "a.b"]),
    ],
)
def test_settings_are_parted_from_options(given: str, settings: list[str], rest: list[str]) -> None:
    assert split_settings(given.split()) == (settings, rest)


def _of_shell(words: str, shell: str) -> dict[str, str]:
    return {
        "_BILDWORT_COMPLETE": f"complete_{shell}", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1),
        "_TYPER_COMPLETE_ARGS": words, "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }  # fmt: skip


def completed(words: str, shell: str) -> tuple[list[str], bool]:
    """What the shell is told to complete the last word to, and whether that has imported something heavy."""
    code = (
        "import sys\nfrom pipeline.cli import main\ntry:\n    main([])\nfinally:\n"
        f"    sys.stderr.write(str(bool({set(HEAVY)} & sys.modules.keys())))"
    )
    environment = os.environ | _of_shell(words, shell)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
    return done.stdout.split(), done.stderr == "True"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("bildwort vse scenes --vse.ep", {"--vse.epochs"}),
        ("bildwort all --vse.epochs 30 --vse.lo", {"--vse.loss"}),
        ("bildwort vse --see", {"--seed"}),
        ("bildwort config show scenes --mmt.finetune.st", {"--mmt.finetune.steps"}),
        ("bildwort prepare --corpus.cap", {"--corpus.captions", "--corpus.captions_per_image"}),
        ("bildwort vse --for", {"--force"}),
        ("bildwort vse scenes-d", {"scenes-dual-encoder"}),
        ("bildwort search --vse.ep", set()),  # its recipe only says which gallery is used
        ("bildwort vse --", {"--help", "-h", "--recipe", "-r", "--force", "--dry-run", "--verbose", "-v", "--jobs",
                             "--cluster"}),
    ],
)  # fmt: skip
def test_a_shell_completes_settings(words: str, expected: set[str], monkeypatch, capsys) -> None:
    for name, value in _of_shell(words, "bash").items():
        monkeypatch.setenv(name, value)
    with contextlib.suppress(SystemExit):
        main([])
    offered = set(capsys.readouterr().out.split())
    assert offered <= expected if words.endswith("--") else offered == expected


@pytest.mark.whole
@pytest.mark.parametrize("shell", ["bash", "zsh", pytest.param("fish", marks=pytest.mark.slow)])
def test_each_shell_completes_settings_without_what_trains(shell: str) -> None:
    offered, heavy = completed("bildwort vse scenes --vse.ep", shell)
    assert "--vse.epochs" in " ".join(offered)
    assert not heavy


def test_a_value_is_taken_whole() -> None:
    assert split_settings(["--vse.rows", "{a: [en/human]}", "--a.b=x\ny=z"])[0] == [
        "--vse.rows={a: [en/human]}", "--a.b=x\ny=z",
    ]  # fmt: skip


@pytest.mark.parametrize("given", [["--vse.epochs"], ["--vse.epochs", "--force"]])
def test_a_setting_without_a_value_is_one_line(given: list[str]) -> None:
    with pytest.raises(RecipeError, match=r"'--vse.epochs': no value; expected --vse.epochs VALUE"):
        split_settings(given)


def test_a_setting_of_too_many_parts_is_one_line() -> None:
    with pytest.raises(RecipeError, match=r"^argument '--a\.a\..*': no setting has so many parts"):
        load_recipe("scenes", [f"--{'a.' * 5000}a=1"])


def test_both_forms_of_a_setting_do_the_same(fresh: Tiny, capsys) -> None:
    for setting in (["--vse.epochs", "none"], ["--vse.epochs=none"]):
        assert fresh.main("vse", *setting) == 1
        assert "vse.epochs is 'none'; expected a whole number" in capsys.readouterr().err


def test_a_recipe_may_stand_alone_or_behind_its_option(capsys) -> None:
    shown = []
    for arguments in (["own"], ["--recipe", "own"], ["-r", "own"], ["own", "--recipe", "own"]):
        assert main(["config", "show", *arguments]) == 0
        shown.append(capsys.readouterr().out)
    assert len(set(shown)) == 1
    assert main(["config", "show", "own", "--recipe", "scenes"]) == 1
    assert "two recipes are named" in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help_of_its_own(command: str, capsys) -> None:
    assert main([command, "--help"]) == 0
    text = capsys.readouterr().out
    assert f"bildwort {command}" in text
    stages = ("prepare", "mmt", "augment", "vse", "rerank", "all", "sts")
    files = ("translate", "rerank-translations", "search", "embed", "imagine", "init")
    assert ("--force" in text) == (command in stages + files)
    assert ("--verbose" in text) == (command in (*STAGES, "report", "all", "table", "sts"))
    assert ("--queries" in text) == (command == "search")


def test_the_stages_are_those_of_the_graph() -> None:
    from pipeline import stages

    assert [*stages.STAGES] == [*STAGES]


def test_the_commands_are_listed(capsys) -> None:
    assert main([]) == 2
    listed = capsys.readouterr().out
    assert all(f" {command} " in listed for command in COMMANDS)


@pytest.mark.parametrize(("stage", "plain"), PLAIN_NAMES.items())
def test_a_plain_name_stands_for_a_stage(stage: str, plain: str, capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    plans = []
    for name in (stage, plain):
        assert main([name, "scenes", "--dry-run"]) == 0
        plans.append(re.sub(r"free: [\d,.]+", "free: some", capsys.readouterr().out))
    assert plans[0] == plans[1]
    assert f"bildwort {stage}" not in plans[0]


def test_version(capsys) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"bildwort {version('bildwort')}\n"


def test_all_recipes_are_listed_with_a_line_each(capsys) -> None:
    assert main(["recipes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == recipe_names() == sorted(path.stem for path in CONFIGS.glob("*.yaml"))
    assert all(len(line.split()) > 3 for line in lines)
    assert recipe_names("multi30k-off")[0] == "multi30k-official"


@pytest.mark.whole
@pytest.mark.parametrize("name", [path.stem for path in sorted(CONFIGS.glob("*.yaml"))])
def test_a_documented_recipe_is_the_same_recipe(name: str, tmp_path: Path) -> None:
    recipe = load_recipe(name)
    (tmp_path / f"{name}.yaml").write_text(documented_recipe(recipe), encoding="utf-8")
    assert load_recipe(str(tmp_path / f"{name}.yaml")) == replace(recipe, tables={})


def test_every_setting_is_listed_with_its_documentation(capsys) -> None:
    lines = list(documented_keys())
    for place, line in enumerate(lines):
        if not line.startswith((" ", "#")):
            assert lines[place + 1].startswith("    "), f"{line} is not documented"
    assert main(["config", "keys", "vse"]) == 0
    assert "vse.epochs: int = 24\n" in capsys.readouterr().out
    assert main(["config", "keys", "vsee"]) == 1
    assert "no section 'vsee'" in capsys.readouterr().err


def imported(code: str, *arguments: str) -> tuple[str, set[str]]:
    """What a fresh process prints, and which heavy libraries it has imported."""
    script = f"import sys; {code}; print('|', *(name for name in {HEAVY} if name in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    )
    said, _, names = done.stdout.rpartition("|")
    return said + done.stderr, set(names.split())


def test_help_and_wrong_settings_need_no_heavy_library() -> None:
    answers = [
        (["--help"], "augment"), (["vse", "--help"], "--force"), (["recipes"], "scenes"),
        (["vse", "--vse.epoch=3"], "did you mean vse.epochs?"), (["mmt", "--mmt.clip=x"], "mmt.clip"),
        (["vse", "--vse.epochs=-1"], "vse.epochs is -1"), (["config", "keys"], "vse.margin"),
    ]  # fmt: skip
    given = json.dumps([arguments for arguments, _ in answers])
    said, names = imported(
        "import json; from pipeline.cli import main; [main(one) for one in json.loads(sys.argv[1])]", given
    )
    assert all(expected in said for _, expected in answers), said
    assert not names


@pytest.mark.whole
def test_a_search_needs_torch_alone() -> None:
    search = "import pipeline.gallery.search_commands"
    code = f"{search}; from pipeline.recipes.loading import load_recipe; load_recipe('scenes')"
    assert imported(code)[1] == {"torch"}


@pytest.mark.whole
def test_the_recipe_s_exported_model_is_found_without_what_trains() -> None:
    """`embed` needs seconds and 300 MB less."""
    code = (
        "import pytest; from pathlib import Path; from pipeline.errors import RecipeError; "
        "from pipeline.engine.workspace import Workspace; from pipeline.recipes.loading import load_recipe; "
        "import pipeline.embedding.embed; from pipeline.export.generation import given_model; "
        "pytest.raises(RecipeError, given_model, load_recipe('scenes'), Workspace(Path('nowhere')), None)"
    )
    assert imported(code)[1] == {"torch"}


def test_a_reader_that_closes_our_output_is_no_error() -> None:
    done = subprocess.run(
        f"set -o pipefail; {sys.executable} -m pipeline config keys | head -1", shell=True, executable="/bin/bash",
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "closed", "encoding", "said"),
    [
        ("config keys vse", "", "ascii", r"\\u03b1"),
        pytest.param("translate --with mt:en-de", "<&-", "utf-8", "error: ", marks=pytest.mark.slow),
        ("recipes", ">&-", "utf-8", "error: the standard output is closed"),
        ("prepare $'\\xff'", "", "utf-8", "error: .*not UTF-8"),
    ],
)  # fmt: skip
def test_odd_streams_and_arguments(words: str, closed: str, encoding: str, said: str, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONIOENCODING": encoding, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        f"{sys.executable} -m pipeline {words} {closed}", shell=True, executable="/bin/bash", cwd=tmp_path,
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    assert re.search(said, done.stdout + done.stderr)


def test_a_stage_works_where_nobody_sees_what_it_prints(tiny: Tiny, monkeypatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    assert tiny.main("vse") == 0
    sys.stdout.close()
    sys.stderr.close()


def test_markup_in_a_path_is_text(tmp_path: Path, capsys) -> None:
    assert main(["doctor", f"{tmp_path}/[/b]/x.yaml"]) == 1
    info("[/b] [red]x")
    out, err = capsys.readouterr()
    assert "[/b]/x.yaml" in err
    assert out == "[/b] [red]x\n"


def test_an_option_that_is_no_whole_number_is_told_as_settings_are(capsys) -> None:
    for words in (["search", "a dog", "--top", "x"], ["app", "--port", "1.5"]):
        assert main(words) == 2
        assert capsys.readouterr().err.strip() == f"error: Invalid value for '{words[-2]}': expected a whole number"


def test_a_recipe_where_none_is_expected_is_told_its_option(capsys) -> None:
    for words, more in ((["embed", "./mine.yaml", "--output", "x.npy"], "; name a recipe by --recipe ./mine.yaml"),
                        (["embed", "scenes", "--output", "x.npy"], "; name a recipe by --recipe scenes"),
                        (["embed", "words", "--output", "x.npy"], "(words)"),
                        (["search", "ein", "Hund"], "(Hund); put the query in quotation marks")):  # fmt: skip
        assert main(words) == 2
        assert capsys.readouterr().err.strip().endswith(more)


def test_a_backend_of_matplotlib_that_is_none_stops_nothing() -> None:
    environment = os.environ | {"MPLBACKEND": "Qt4Agg", "PYTHONPATH": str(ROOT)}
    code = "import pipeline.cli, matplotlib; print(matplotlib.rcParams['backend'])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == "agg", done.stderr[-500:]
