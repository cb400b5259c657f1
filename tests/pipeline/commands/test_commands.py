"""Every make target is run, and every command that the documentation shows is read as one would type it."""

import builtins
import contextlib
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

import pytest

from pipeline.cli import main
from tests import recorded_plots
from tests.documentation import PAGES
from tests.pipeline.tiny import ROOT, Tiny, at

pytestmark = pytest.mark.whole

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z-]+): ", MAKEFILE, re.M))
SETUP = ("setup", "extra-app", "extra-dev", "extra-docs", "extra-serve", "extra-translators")  # tests/test_makefile.py
INSTALLED = [f"--assume-old={target}" for target in SETUP]
BY_CI = {"check", "test-all", "demo"}  # .ci/run runs these themselves
BENCHES = {  # each with a file that has such tests and imports little
    "test": "tests/data/test_progress.py",
    "test-long": "tests/data/test_spoiled.py",
    "benchmark": "tests/benchmarks/test_startup.py",
}  # fmt: skip
SERVERS = {"app", "serve", "tensorboard"}
WORK = tuple(
    f"pipeline.{name}"
    for name in (
        "analyses",
        "app",
        "corpus",
        "embedding",
        "evaluation",
        "export",
        "gallery",
        "graph",
        "init",
        "reporting",
        "serve",
        "stages",
        "translation",
        "vectors",
    )
)
SET_BY_MAKE = ("MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "DEVICE", "GALLERY", "VENV", "RECIPE", "ARGS")


PROGRAM = """#!{python}
import json, os, sys
if sys.argv[1:2] == ["extras"]:  # which needs none
    sys.exit()
if sys.argv[1:2] == ["-c"]:  # a line of the Makefile's own
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
print(json.dumps([os.path.basename(sys.argv[0]), *sys.argv[1:]]))
"""


@pytest.fixture(scope="session")
def programs(tmp_path_factory) -> Path:
    """An environment whose programs print their arguments."""
    folder = tmp_path_factory.mktemp("programs")
    (folder / "bin").mkdir()
    for name in ("python", "bildwort", "ruff", "mypy"):
        (folder / "bin" / name).write_text(PROGRAM.format(python=sys.executable))
        (folder / "bin" / name).chmod(0o755)
    return folder


@pytest.fixture
def commands(programs: Path) -> Callable[..., list[list[str]]]:
    """What make runs for a target of a finished environment, word by word."""

    def run(*arguments: str) -> list[list[str]]:
        environment = {name: value for name, value in os.environ.items() if name not in SET_BY_MAKE}
        made = ["make", "--no-print-directory", *INSTALLED, f"VENV={programs}", *arguments]
        done = subprocess.run(made, cwd=ROOT, capture_output=True, text=True, check=True, env=environment)
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


@pytest.fixture
def of_bildwort(commands) -> Callable[..., list[str]]:
    """The arguments that make gives to the command line."""

    def run(*arguments: str) -> list[str]:
        (command,) = commands(*arguments)
        assert command[0] == "bildwort"
        return command[1:]

    return run


TYPED = [
    'a "red" ball', "a 'red' ball", "`touch pwned`", "$(touch pwned)", "$(shell touch pwned)", "; touch pwned;",
    "$HOME $$ $5", "two  spaces", "two\nlines", "a # b \\ c", "*", "ein Käse",
]  # fmt: skip
WHERE = {
    "QUERY": "search", "PICTURE": "describe", "PICTURES": "index", "GALLERY": "search", "WITH": "translate",
    "INPUT": "translate", "OUTPUT": "translate", "TABLE": "table", "RECIPE": "report", "ADDRESS": "app", "PORT": "app",
}  # fmt: skip


@pytest.mark.parametrize("text", [" ".join(TYPED), *(pytest.param(one, marks=pytest.mark.slow) for one in TYPED)])
def test_what_is_typed_is_data(commands, text: str) -> None:
    for name, target in WHERE.items():
        (command,) = commands(target, f"{name}={text}")
        assert any(word == text or word.endswith(f"={text}") for word in command), (name, command)
    (command,) = commands("report", f"ARGS={shlex.quote(text)} --json")
    assert command[-2:] == [text, "--json"]
    assert not (ROOT / "pwned").exists()


def test_words_of_args_that_are_not_closed_are_one_line(programs: Path) -> None:
    made = ["make", *INSTALLED, f"VENV={programs}", "report", "ARGS=--seed='1"]
    done = subprocess.run(made, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[0] == "ARGS: No closing quotation; expected words, as on a command line"


RUN = {
    "stage-prepare": ["is up to date"], "stage-mmt": ["mmt-en-de", "is up to date"],
    "stage-augment": ["synthetic-mt-en-de", "is up to date"], "stage-vse": ["mean recall en"],
    "draw": ["t-SNE, grounding of 3 images"],
    "report": ["results.jsonl"], "doctor": ["images"], "export": ["model"], "index": ["gallery"],
}  # fmt: skip


@pytest.mark.parametrize("target", [pytest.param(one, marks=pytest.mark.slow if one == "draw" else ()) for one in RUN])
def test_a_target_that_takes_a_recipe(of_bildwort, used: Tiny, capsys, target: str) -> None:
    capsys.readouterr()
    with at(used.folder):
        assert main(of_bildwort(target, f"RECIPE={used.yaml}")) == 0
    printed = capsys.readouterr().out
    assert all(word in printed for word in RUN[target]), printed


def test_a_recipe_that_reranks_nothing_is_told_what_to_set(of_bildwort, fresh: Tiny, capsys) -> None:
    with at(fresh.folder):
        assert main(of_bildwort("stage-rerank", f"RECIPE={fresh.yaml}")) == 1
    assert "recipe tiny re-ranks nothing; set mmt.rerank.retrieval.row" in capsys.readouterr().err


def test_search_and_describe(of_bildwort, used: Tiny, capsys) -> None:
    with at(used.folder):
        assert main(of_bildwort("search", f"RECIPE={used.yaml}", "QUERY=--red bat", "ARGS=--top=2")) == 0
        found = capsys.readouterr().out.splitlines()
        assert len([line for line in found if line.strip()]) == 2
        picture = found[0].split()[-1]
        assert main(of_bildwort("describe", f"RECIPE={used.yaml}", f"PICTURE={picture}")) == 0
    assert capsys.readouterr().out.startswith(f"{picture} en, similar captions in the gallery:\n")


def test_translate(of_bildwort, used: Tiny, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("a red bat\na small ball\n")
    files = [f"INPUT={tmp_path / 'in.txt'}", f"OUTPUT={tmp_path / 'out.txt'}"]
    with at(used.folder):
        assert main(of_bildwort("translate", f"RECIPE={used.yaml}", "WITH=mt:en-de", *files)) == 0
    assert len((tmp_path / "out.txt").read_text().splitlines()) == 2


def test_sts(of_bildwort, used: Tiny, capsys) -> None:
    with at(used.folder):
        assert main(of_bildwort("sts", f"RECIPE={used.yaml}")) == 1
    assert "recipe tiny has no sts.sets; name one" in " ".join(capsys.readouterr().err.split())


def test_table(of_bildwort, used: Tiny, capsys) -> None:
    with at(used.folder):
        assert main(of_bildwort("table", f"RECIPE={used.yaml}")) == 1
    assert "has no tables; try `bildwort table --table=1 multi30k-flickr8k`" in capsys.readouterr().err


def test_plots(commands, tmp_path: Path, capsys) -> None:
    (command,) = commands("plots", f"ARGS=--output={tmp_path}")
    assert command[:3] == ["python", "-m", "tests.recorded_plots"]
    recorded_plots.main(command[3:])
    assert "speed.png" in capsys.readouterr().out


def test_the_benchmark_at_full_size_is_given_its_folder(commands) -> None:
    (command,) = commands("benchmark-full", "ARGS='my data/multi30k' --images 200 --steps 5")
    from tests.benchmarks import full  # takes seconds

    assert command[:3] == ["python", "-m", "tests.benchmarks.full"]
    given = full.arguments_of(command[3:])
    assert (given.text, given.images, given.steps) == (Path("my data/multi30k"), 200, 5)


def test_the_site(commands) -> None:
    """`make check` builds it, and so does the first of them here; the second serves it."""
    (command,) = commands("docs")
    assert command == ["python", "-m", "mkdocs", "build", "--quiet", "--strict", "--config-file", ".docs/mkdocs.yml"]
    (command,) = commands("docs-serve", "PORT=8123")
    assert command[:4] == ["python", "-m", "mkdocs", "serve"]
    assert command[-1] == "127.0.0.1:8123"


@pytest.mark.parametrize(
    "target", ["test", *(pytest.param(one, marks=pytest.mark.slow) for one in BENCHES if one != "test")]
)
def test_targets_of_tests_find_tests(commands, target: str) -> None:
    (command,) = commands(target, f"ARGS=--collect-only --quiet {BENCHES[target]}")
    done = subprocess.run([sys.executable, *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
    assert re.search(r"^tests/.*: [1-9]", done.stdout, re.M), done.stdout + done.stderr


@pytest.mark.parametrize(
    ("target", "words"), [("app", "Bildwort|Streamlit"), ("serve", "Bildwort"), ("tensorboard", "TensorBoard")]
)
def test_a_server_answers(commands, used: Tiny, tmp_path: Path, target: str, words: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (command,) = commands(target, f"RECIPE={used.yaml}", f"PORT={port}", f"GALLERY={used.workspace.root}/tiny/gallery")
    command[0] = str(Path(sys.executable).parent / Path(command[0]).name)
    with (tmp_path / "said").open("w") as said:
        server = subprocess.Popen(command, cwd=ROOT, stdout=said, stderr=subprocess.STDOUT)
    try:
        deadline, page = time.monotonic() + 60, ""
        while not page and server.poll() is None and time.monotonic() < deadline:
            time.sleep(0.2)
            with contextlib.suppress(OSError):
                page = (
                    urlopen(f"http://127.0.0.1:{port}/{'docs' if target == 'serve' else ''}", timeout=10)
                    .read()
                    .decode()
                )
        assert re.search(words, page), (tmp_path / "said").read_text()
    finally:
        server.kill()
        server.wait()


@pytest.mark.parametrize(("display", "port"), [("", []), (":0", []), (":0", ["PORT=6007"])])
def test_tensorboard_opens_a_browser_where_there_is_a_display(tmp_path: Path, display: str, port: list[str]) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("python", "sleep", "uname"):
        (tmp_path / "bin" / name).write_text(f'#!/bin/sh\necho {name} "$@" >> {tmp_path}/said\n')
        (tmp_path / "bin" / name).chmod(0o755)
    environment = os.environ | {
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
        "DISPLAY": display,
        "WAYLAND_DISPLAY": "",
    }
    made = ["make", "--assume-old=setup", f"VENV={tmp_path}", "tensorboard", "ADDRESS=0.0.0.0", *port]
    subprocess.run(made, cwd=ROOT, check=True, env=environment)
    deadline, said = time.monotonic() + 10, ""
    while "uname" not in said and "webbrowser" not in said and time.monotonic() < deadline:
        time.sleep(0.05)  # the browser is opened beside the server
        said = (tmp_path / "said").read_text()
    number = "".join(port).removeprefix("PORT=") or "6006"
    assert f"bildwort tensorboard --address 0.0.0.0{' --port ' + number if port else ''}\n" in said
    assert (f"python -m webbrowser http://0.0.0.0:{number}\n" in said) == bool(display)


def test_help_lists_every_target() -> None:
    said = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {line.split()[1] for line in said.splitlines() if line.startswith("  make ")} == TARGETS


def test_clean_deletes_what_was_trained_alone(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("artifacts/jobs/a", "lightning_logs/scenes/vse", "data"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "lightning_logs" / "README.md").touch()
    for name in ("pyproject.toml", ".ci/constraints.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    subprocess.run(["make", "clean"], cwd=tmp_path, check=True, capture_output=True)
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")}
    assert left == {"Makefile", "data", "lightning_logs", "lightning_logs/README.md", "pyproject.toml", ".ci",
                    ".ci/constraints.txt"}  # fmt: skip


def test_init_is_given_the_folder(of_bildwort) -> None:
    assert of_bildwort("init", "PICTURES=my pictures", "ARGS=--to fr") == ["init", "--to", "fr", "--", "my pictures"]


def test_every_target_is_run_here_or_by_ci() -> None:
    here = {"init", "search", "describe", "translate", "table", "sts", "stage-rerank", "plots", "help", "clean",
            "benchmark-full", "docs", "docs-serve"}  # fmt: skip
    here |= {*RUN, *BENCHES, *SERVERS}
    elsewhere = {"screenshots", "campaign"}  # app/test_app.py, where there is a browser; tests/test_makefile.py
    assert here | {"setup"} | BY_CI | elsewhere == TARGETS
    assert all(f"make {target}" in (ROOT / ".ci/run").read_text() for target in BY_CI)
    assert "tests.screenshots" in (ROOT / "tests/pipeline/app/test_app.py").read_text()


def shown() -> list[str]:
    """The commands in the code blocks of the documentation, without comments."""
    blocks = [block for text in PAGES.values() for block in re.findall(r"```\w*\n(.*?)```", text, re.S)]
    lines = [line.partition("  #")[0].strip() for block in blocks for line in block.splitlines()]
    found = [part.strip() for line in lines for part in line.split("&&")]
    return sorted({line for line in found if line.startswith(("make ", ".venv/bin/bildwort "))})


@pytest.mark.parametrize("line", shown())
def test_a_command_of_a_page_is_accepted(of_bildwort, line: str, monkeypatch, tmp_path: Path, capsys) -> None:
    """Its recipe is loaded with its settings, and its options are read; what it would do then is left out."""
    words, done = shlex.split(line), []
    if words[0] == "make":
        assert words[1] in TARGETS
        if words[1] in {
            "setup",
            *BY_CI,
            *BENCHES,
            *SERVERS,
            "benchmark-full",
            "help",
            "clean",
            "screenshots",
            "docs",
            "docs-serve",
        }:
            return
        words = [".venv/bin/bildwort", *of_bildwort(*words[1:])]
    real = builtins.__import__

    class Stub:
        def __getattr__(self, name: str):
            return lambda *given, **more: done.append(name)

    def stubbed(name: str, globals=None, *more, **named):
        """What works is left out; what only reads recipes and options is not."""
        of_command = (globals or {}).get("__name__", "").startswith("pipeline.commands.")
        return Stub() if of_command and name.startswith(WORK) else real(name, globals, *more, **named)

    monkeypatch.setattr(builtins, "__import__", stubbed)
    monkeypatch.setattr("pipeline.engine.runner.executor_for", lambda *given: None)
    monkeypatch.setenv("BILDWORT_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name in ("cnn", "holiday", "marian", "mine", "pictures"):  # as a user would write it
        (tmp_path / f"{name}.yaml").write_text("base: own\n")
    words[1] = "vse" if words[1] == "all" else words[1]  # which takes the same, and would start here
    assert main(words[1:]) == 0, capsys.readouterr().err
    assert done or words[1] in ("--help", "recipes", "config")
