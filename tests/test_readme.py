"""What the README tells people to type exists."""

import re
from pathlib import Path

import yaml

from pipeline.__main__ import _OPTIONS
from pipeline.recipe import load_recipe

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.M))


def test_every_make_target_of_the_readme_exists_and_is_listed_by_help():
    named = set(re.findall(r"make ((?:stage-)?[a-z-]+)", README)) - {"it"}
    assert named <= TARGETS, named - TARGETS
    documented = set(re.findall(r"^([a-z-]+):.*## ", MAKEFILE, re.M))
    assert documented | {"help"} >= TARGETS


def test_every_recipe_and_override_of_the_readme_loads():
    for recipe in set(re.findall(r"RECIPE=([a-z0-9-]+)", README)):
        load_recipe(recipe)
    for recipe, overrides in re.findall(r'(?:RECIPE=([a-z0-9-]+) )?ARGS="([^"…]+)"', README):
        given = overrides.split()
        load_recipe(
            recipe or "scenes", [one for one in given if one.removeprefix("--").partition("=")[0] not in _OPTIONS]
        )


def test_paths_of_the_readme_exist():
    for path in re.findall(r"`((?:pipeline|data|modules|tests)/[\w/.-]*)`", README):
        assert (ROOT / path).exists() or "<" in path, path


def test_continuous_integration_runs_the_readme_s_commands():
    script = (ROOT / ".ci/run").read_text(encoding="utf-8")
    for command in ("make test", "make demo", "make check"):
        assert command in script
    assert (
        yaml.safe_load((ROOT / "pipeline/configs/scenes.yaml").read_text(encoding="utf-8"))["corpus"]["name"]
        == "scenes"
    )
