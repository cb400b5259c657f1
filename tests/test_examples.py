"""The examples in docstrings run and print what they say; every metric and loss is shown by one."""

import doctest
import importlib
import inspect
import re
from dataclasses import is_dataclass
from functools import cache
from types import ModuleType

import pytest
import sklearn.linear_model  # noqa: F401  before the examples that need it: this takes longer than all of them

from tests.test_imports import ROOT

PACKAGES = ["data", "modules", "pipeline/recipes"]
COMPLETE = ["modules.metrics", "modules.losses"]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
PARTS = {
    "best_captions", "image_ranks_from_counts", "percentiles", "require_finite", "require_links", "require_reading",
    "rows_at_a_time", "seed_shifts", "surface_bleu",
}  # fmt: skip
"""Helpers of what has an example: nobody calls them alone."""
OF_MODELS = {"pair_similarity", "universal_vectors"}
"""They need a trained model."""


def modules_of(packages: list[str]) -> list[str]:
    """Names of the modules of packages whose text holds an example."""
    paths = [path for package in packages for path in sorted((ROOT / package).rglob("*.py"))]
    paths += sorted((ROOT / "pipeline").glob("*.py"))
    return [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in dict.fromkeys(paths) if re.search(r"^ +>>> ", path.read_text(encoding="utf-8"), re.M)
    ]  # fmt: skip


@cache
def examples_of(module: ModuleType) -> list[doctest.DocTest]:
    return [found for found in doctest.DocTestFinder().find(module) if found.examples]


@pytest.mark.parametrize("name", modules_of(PACKAGES))
def test_the_examples_of_a_module_print_what_they_say(name: str) -> None:
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    for example in examples_of(importlib.import_module(name)):
        runner.run(example, out=said.append, clear_globs=False)
    assert not runner.summarize(verbose=False).failed, "".join(said)


def shown_or_not(package: str) -> tuple[set[str], set[str]]:
    """Public functions and classes of a package: those with an example or called in one, and the others.

    Records (data classes and named tuples) are shown by what returns them.
    """
    public, shown, called = set(), set(), ""
    for path in sorted((ROOT / package.replace(".", "/")).glob("[!_]*.py")):
        module = importlib.import_module(f"{package}.{path.stem}")
        for name, member in vars(module).items():
            is_ours = getattr(member, "__module__", "") == module.__name__ and not name.startswith("_")
            is_record = inspect.isclass(member) and (issubclass(member, tuple) or is_dataclass(member))
            if is_ours and not is_record and (inspect.isfunction(member) or inspect.isclass(member)):
                public.add(name)
        for example in examples_of(module):
            shown.add(example.name.rpartition(".")[2])
            called += "".join(line.source for line in example.examples)
    shown |= {name for name in public if re.search(rf"\b{name}\(", called)}
    return public & shown, public - shown


@pytest.mark.parametrize("package", COMPLETE)
def test_every_public_name_has_an_example(package: str) -> None:
    shown, others = shown_or_not(package)
    assert shown
    assert others <= PARTS | OF_MODELS, f"no example: {sorted(others - PARTS - OF_MODELS)}; add one to the docstring"


def test_what_needs_no_example_is_there_and_has_none() -> None:
    assert set().union(*(shown_or_not(package)[1] for package in COMPLETE)) == PARTS | OF_MODELS


def test_examples_are_short() -> None:
    for name in modules_of(PACKAGES):
        for example in examples_of(importlib.import_module(name)):
            lines = sum(len((line.source + line.want).splitlines()) for line in example.examples)
            assert lines <= 8, f"{example.name}: {lines} lines; a docstring is no tutorial"
