"""The Makefile's environment: what is installed, when, and what is never done to a folder of somebody else."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from pipeline.cli import main
from pipeline.recipes.loading import CONFIGS, load_recipe

pytestmark = pytest.mark.whole

ROOT = Path(__file__).parents[1]
TOLD = (
    "MAKEFLAGS",
    "MFLAGS",
    "MAKEOVERRIDES",
    "MAKELEVEL",
    "DEVICE",
    "GALLERY",
    "VENV",
    "RECIPE",
    "ARGS",
    "PYTHON",
    "EXTRA",
)
PYTHON = """#!/bin/sh
# Makes an environment of itself, and writes down what pip is told to install.
case "$2" in
  "$WITH_ARGS") shift 3; [ "$1" != extras ] || exec {python} -c "$WITH_ARGS" {python} -m pipeline "$@" ;;
  venv) rm -rf "$4" && mkdir -p "$4/bin" && cp "$0" "$4/bin/python" ;;
  pip) for last; do :; done; [ "$last" = "pip<27" ] && exit; echo "$last" >> "{log}"; [ ! -e "{log}.fails" ] ;;
esac
"""
NEEDED = ("sh", "cat", "cksum", "ls", "rm", "mkdir", "cp", "grep", "make")


class Checkout:
    """A Makefile with its inputs, a `python3` that installs nothing, and a PATH on which there is no compiler."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log, self.venv = folder, folder / "installed", folder / ".venv"
        for name in ("Makefile", "pyproject.toml", ".ci/constraints.txt"):
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
        (folder / "bin").mkdir()
        for name in NEEDED:
            (folder / "bin" / name).symlink_to(str(shutil.which(name)))
        self.program("python3", PYTHON.format(log=self.log, python=sys.executable))

    def program(self, name: str, text: str = "#!/bin/sh\n") -> None:
        """Put a program on the PATH."""
        (self.folder / "bin" / name).write_text(text)
        (self.folder / "bin" / name).chmod(0o755)

    def make(self, *arguments: str, fails: bool = False) -> tuple[list[str], str]:
        """What pip was told to install, and what make printed."""
        self.log.unlink(missing_ok=True)
        printed = make(*arguments, folder=self.folder, path=str(self.folder / "bin"), fails=fails)
        return (self.log.read_text().split() if self.log.exists() else []), printed

    def stamps(self) -> set[str]:
        return {path.name for path in self.venv.glob(".setup*")}


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def make(*arguments: str, folder: Path = ROOT, path: str | None = None, fails: bool = False) -> str:
    """What make says, whatever the make that runs this was told."""
    env = {name: value for name, value in os.environ.items() if name not in TOLD} | ({"PATH": path} if path else {})
    done = subprocess.run(["make", *arguments], cwd=folder, capture_output=True, text=True, check=False, env=env)
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "target",
    ["demo", "stage-vse", "search", "plots"]
    + [pytest.param(target, marks=pytest.mark.slow) for target in ("stage-mmt", "index", "report", "sts")],
)
def test_what_is_no_test_and_no_page_needs_the_core_alone(checkout: Checkout, target: str) -> None:
    assert checkout.make(target)[0] == [".[cpu]"]
    assert checkout.stamps() == {".setup"}
    assert checkout.make(target)[0] == []


@pytest.mark.parametrize(
    ("target", "extra"),
    [
        ("app", "app"),
        ("serve", "serve"),
        *((name, "dev") for name in ("test", "test-all", "test-long", "benchmark", "screenshots")),
    ],
)
def test_an_extra_is_added_once_when_it_is_first_needed(checkout: Checkout, target: str, extra: str) -> None:
    checkout.program("g++")
    assert checkout.make("setup")[0] == [".[cpu]"]
    assert checkout.make(target)[0] == [f".[{extra}]"]
    assert checkout.make(target)[0] == []
    assert checkout.make("demo")[0] == []


def test_setup_alone_says_what_comes_next(checkout: Checkout) -> None:
    said = "next: make demo; with pictures of your own: make init PICTURES=folder\n"
    for _ in range(2):  # nothing is installed the second time
        assert checkout.make("setup")[1].endswith(said)
    assert "next:" not in checkout.make("setup", "EXTRA=onnx")[1] + checkout.make("report")[1]


def test_no_package_is_constrained_twice() -> None:
    lines = (ROOT / ".ci" / "constraints.txt").read_text(encoding="utf-8").split()
    names = [line.partition("==")[0].lower().replace("_", "-") for line in lines]
    assert len(names) == len(set(names))


def test_the_extra_of_the_tests_holds_the_others(checkout: Checkout) -> None:
    checkout.program("g++")
    assert checkout.make("setup", "EXTRA=dev")[0] == [".[cpu]", ".[dev]"]
    assert checkout.stamps() == {
        ".setup", ".setup-dev", ".setup-app", ".setup-cluster", ".setup-docs", ".setup-fasttext", ".setup-translators",
        ".setup-benchmarks", ".setup-lora", ".setup-onnx", ".setup-serve", ".setup-sweep"
    }  # fmt: skip
    assert checkout.make("app", "setup", "EXTRA=cluster fasttext")[0] == []


def test_every_extra_of_the_project_can_be_added(checkout: Checkout) -> None:
    """Those of a device apart, which `make setup` chooses; the extra of the tests holds what the Makefile says."""
    checkout.program("g++")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = sorted(extras.keys() - {"cpu", "gpu", "dev"})
    assert checkout.make("setup", f"EXTRA={' '.join(named)}")[0] == [".[cpu]", *(f".[{name}]" for name in named)]
    assert checkout.make("setup", "EXTRA=onnx")[0] == []
    (held,) = re.findall(r"bildwort\[(.*)\]", extras["dev"][0])
    assert f"HOLDS_dev := {' '.join(sorted(held.split(',')))}\n" in (ROOT / "Makefile").read_text()


@pytest.mark.parametrize("typed", ["onyx", "onnx onyx", "%", "'; touch seen; '", "$(shell touch seen)", "cpu"])
def test_an_unknown_extra_is_refused_and_what_is_typed_is_not_run(checkout: Checkout, typed: str) -> None:
    installed, printed = checkout.make("setup", f"EXTRA={typed}", fails=True)
    assert installed == []
    assert (
        printed
        == f"EXTRA={typed}: no such extra; there are app asian benchmarks cluster dev docs fasttext lora onnx serve "
        "sweep translators wandb\n"
    )
    assert not (checkout.folder / "seen").exists()


def test_a_compiler_is_asked_for_where_fasttext_is_compiled(checkout: Checkout) -> None:
    assert checkout.make("app")[0] == [".[cpu]", ".[app]"]
    for target in (["setup", "EXTRA=fasttext"], ["setup", "EXTRA=dev"], ["test"]):
        installed, printed = checkout.make(*target, fails=True)
        assert installed == []
        assert printed.startswith("fasttext is compiled here: install g++ and Python's headers")
    assert checkout.stamps() == {".setup", ".setup-app"}


@pytest.mark.parametrize("target", ["stage-vse", pytest.param("table", marks=pytest.mark.slow)])
def test_fasttext_is_added_when_settings_or_the_recipe_ask_for_it(checkout: Checkout, target: str) -> None:
    checkout.program("g++")
    (checkout.folder / "my recipe.yaml").write_text("base: scenes\nvse: {words: fasttext}\n")
    checkout.make("setup")
    assert checkout.make(target, "ARGS=--vse.words=random")[0] == []
    assert checkout.make(target, "ARGS=--seed=2 --vse.words fasttext")[0] == [".[fasttext]"]
    (checkout.venv / ".setup-fasttext").unlink()
    assert checkout.make(target, "RECIPE=./my recipe.yaml")[0] == [".[fasttext]"]
    assert checkout.make(target, "RECIPE=./my recipe.yaml")[0] == []


@pytest.mark.parametrize("target", ["stage-vse", pytest.param("table", marks=pytest.mark.slow)])
def test_what_finds_words_is_added_when_settings_a_recipe_or_its_base_ask_for_it(
    checkout: Checkout, target: str
) -> None:
    (checkout.folder / "mine.yaml").write_text("base: coco-3\n")
    checkout.make("setup")
    assert checkout.make(target, "ARGS=--vse.segment=words --force")[0] == []
    assert checkout.make(target, "RECIPE=mine.yaml")[0] == [".[asian]"]
    assert checkout.make(target, "RECIPE=mine.yaml")[0] == []


@pytest.mark.parametrize(
    ("words", "needed"),
    [("multi30k", ""), ("scenes-gxn", ""), ("coco-3", "asian"), ("coco-3 --vse.segment characters", ""),
     ("scenes --vse.words fasttext", "fasttext")],
)  # fmt: skip
def test_extras_that_a_recipe_asks_for(words: str, needed: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["extras", "--recipe", *words.split()]) == 0
    assert capsys.readouterr().out.partition(":")[0] == needed


@pytest.mark.parametrize("name", ["pyproject.toml", ".ci/constraints.txt"])
def test_all_is_made_afresh_when_its_inputs_change(checkout: Checkout, name: str) -> None:
    checkout.make("setup", "EXTRA=app")
    with (checkout.folder / name).open("a") as file:
        file.write("\n# more\n")
    assert checkout.make("demo")[0] == [".[cpu]"]
    assert checkout.stamps() == {".setup"}  # the extra went with the old environment
    assert checkout.make("app")[0] == [".[app]"]


def test_all_is_made_afresh_for_another_device_which_is_kept(checkout: Checkout) -> None:
    checkout.make("setup", "EXTRA=app")
    assert checkout.make("setup", "DEVICE=gpu")[0] == [".[gpu]"]
    assert checkout.make("setup")[0] == []
    assert checkout.make("app")[0] == [".[app]"]


def test_all_is_made_afresh_by_another_python_which_is_kept(checkout: Checkout) -> None:
    checkout.make("setup")
    checkout.program("python3.12", (checkout.folder / "bin" / "python3").read_text() + "# 3.12\n")
    used = checkout.venv / "bin" / "python"
    (fails := checkout.log.with_name("installed.fails")).touch()
    assert checkout.make("setup", "PYTHON=python3.12", fails=True)[0] == [".[cpu]"]
    fails.unlink()
    for changed in (False, True):
        if changed:
            with (checkout.folder / "pyproject.toml").open("a") as file:
                file.write("\n# more\n")
        assert checkout.make("setup")[0] == [".[cpu]"]
        assert used.read_text().endswith("# 3.12\n")
        assert checkout.make("demo")[0] == []


def test_an_installation_that_fails_is_tried_again(checkout: Checkout) -> None:
    checkout.make("setup")
    (fails := checkout.log.with_name("installed.fails")).touch()
    assert checkout.make("app", fails=True)[0] == [".[app]"]
    assert checkout.make("setup", "EXTRA=onnx sweep", fails=True)[0] == [".[onnx]"]
    assert checkout.make("setup", "DEVICE=gpu", fails=True)[0] == [".[gpu]"]
    fails.unlink()
    assert checkout.make("app")[0] == [".[gpu]", ".[app]"]


def test_an_environment_may_lie_on_another_disk(checkout: Checkout, tmp_path: Path) -> None:
    (tmp_path / "scratch disk").mkdir()
    checkout.venv.symlink_to(tmp_path / "scratch disk")
    assert checkout.make("setup")[0] == [".[cpu]"]
    assert checkout.venv.is_symlink()
    assert (tmp_path / "scratch disk" / "bin" / "python").exists()
    assert checkout.make("setup")[0] == []


def test_the_environment_of_another_checkout_is_neither_used_nor_emptied(
    checkout: Checkout, tmp_path_factory: pytest.TempPathFactory
) -> None:
    checkout.make("setup")
    other = Checkout(tmp_path_factory.mktemp("other"))
    other.venv.symlink_to(checkout.venv)
    assert other.make("demo", fails=True) == (
        [], f".venv is the environment of {checkout.folder.resolve()}: remove it here, or name another (VENV=…)\n",
    )  # fmt: skip
    assert checkout.make("setup")[0] == []


def test_a_checkout_that_was_moved_gets_a_new_environment(checkout: Checkout, tmp_path: Path) -> None:
    checkout.make("setup")
    stamp = checkout.venv / ".setup"
    stamp.write_text(stamp.read_text().replace(str(tmp_path.resolve()), str(tmp_path / "before")))
    assert checkout.make("setup")[0] == [".[cpu]"]
    assert checkout.make("setup")[0] == []


def test_setup_empties_no_folder_that_it_has_not_made(checkout: Checkout) -> None:
    checkout.venv.mkdir()
    (checkout.venv / "precious").touch()
    for target in (["setup"], ["setup", "EXTRA=app"], ["demo"]):
        installed, printed = checkout.make(*target, fails=True)
        assert installed == []
        assert printed == (".venv was not made by make setup, which would empty it: remove it, or name another "
                           "(VENV=…)\n")  # fmt: skip
    assert [path.name for path in checkout.venv.iterdir()] == ["precious"]


@pytest.mark.parametrize("target", ["index", "search", "describe"])
def test_make_names_a_gallery_only_if_it_is_told_one(target: str) -> None:
    assert '--gallery "$GALLERY"' in make("-n", target, "GALLERY=my pictures")
    assert "--gallery" not in make("-n", target)


def test_an_old_python_is_refused_in_one_line(checkout: Checkout) -> None:
    checkout.program("python3", "#!/bin/sh\nexit 1\n")
    assert (
        checkout.make("setup", fails=True)[1] == "Python 3.11, 3.12 or 3.13 is needed: make setup PYTHON=python3.11\n"
    )


def test_the_campaign_has_every_table_of_the_overlap() -> None:
    wanted = {
        f"{path.stem}:{name}" for path in CONFIGS.glob("multi30k-flickr8k*.yaml")
        for name in load_recipe(path.stem, networks=False).tables
    }  # fmt: skip
    (listed,) = [line for line in make("-n", "campaign").splitlines() if line.startswith("for each in ")]
    assert set(listed.removeprefix("for each in ").partition(";")[0].split()) == wanted
