"""What the pages of documentation tell people to type, read and follow exists."""

import ast
import importlib
import re
import runpy

import pytest
import yaml
from torch.nn import BatchNorm1d

from modules.retrieval_models import MODELS, build_model, model_class
from pipeline.cli import split_settings
from pipeline.recipes.documentation import documented_keys
from pipeline.recipes.loading import CONFIGS, load_recipe
from tests.documentation import FOLDERS, PAGES, ROOT

README = PAGES["README.md"]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
ELSEWHERE = {"dask_jobqueue"}  # no dependency of ours: the page says how to install it
TARGETS = set(re.findall(r"^([a-z-]+): ", MAKEFILE, re.M))


def anchors(text: str) -> set[str]:
    """What GitHub calls the headings of a page in its links."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_readme_is_short():
    assert len(README.split()) <= 1800


@pytest.mark.parametrize("name", FOLDERS)
def test_the_readme_of_a_folder_is_short(name: str) -> None:
    """What is here and how to add to it; how to use it stands in the pages of the site."""
    assert len(PAGES[name].split()) <= 400


@pytest.mark.parametrize("name", PAGES)
def test_links_between_pages_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", PAGES[name]):
        if target.startswith("https://") or target.endswith(".png"):  # pictures are taken by `make screenshots`
            continue
        path, _, anchor = target.partition("#")
        page = (ROOT / name).parent / path if path else ROOT / name
        assert page.is_file(), target
        assert not anchor or anchor in anchors(page.read_text(encoding="utf-8")), target


@pytest.mark.parametrize("name", PAGES)
def test_every_make_target_of_a_page_exists(name: str) -> None:
    named = set(re.findall(r"make ((?:stage-)?[a-z-]+)", PAGES[name]))
    assert named <= TARGETS, named - TARGETS


def test_every_make_target_is_listed_by_help():
    documented = set(re.findall(r"^([a-z-]+):.*## ", MAKEFILE, re.M))
    assert documented | {"help"} >= TARGETS


def test_the_page_of_commands_names_each_target_that_runs_a_command():
    named = set(re.findall(r"^([a-z]+):.*\n(?:\t.*\n)*?\t@\$\(PIPELINE\) \1\b", MAKEFILE, re.M))
    (told,) = re.findall(r"(`make report`.*?) run the command of the same name", PAGES[".docs/pages/running.md"])
    assert len(named) > 8
    assert named == set(re.findall(r"`(?:make )?([a-z]+)`", told))


def test_the_page_of_many_gpus_names_the_models_with_batch_normalisation():
    model_class("san")  # registers all
    sizes = {"region_dim": 8, "vocabulary_size": 20, "languages": ["en", "de"], "dim": 8, "word_dim": 8}
    models = {name: build_model(name, **sizes) for name in MODELS if name != "dual-encoder"}
    normed = {name for name, model in models.items() if any(isinstance(part, BatchNorm1d) for part in model.modules())}
    (told,) = re.findall(r"Batch normalisation \((.*?)\)", PAGES[".docs/pages/scale.md"])
    assert normed == set(re.findall(r"`([\w-]+)`", told)) - {"gxn"}


def test_the_page_of_settings_has_all_that_the_command_prints():
    page = runpy.run_path(str(ROOT / ".docs" / "hooks.py"))["_settings"]()
    missing = [line for line in documented_keys() if line[0] not in " #" and f"`{line}`" not in page]
    assert not missing


COMMENTS = {path.stem: path.read_text(encoding="utf-8").replace("\n# ", " ") for path in CONFIGS.glob("*.yaml")}


@pytest.mark.parametrize("name", [*PAGES, *(one for one in sorted(COMMENTS) if "RECIPE=" in COMMENTS[one])])
def test_every_recipe_and_override_of_a_page_and_of_comments_in_recipes_loads(name: str) -> None:
    text = (PAGES | COMMENTS)[name]
    for recipe in set(re.findall(r"RECIPE=([a-z0-9-]+)", text)):
        load_recipe(recipe)
    for recipe, overrides in re.findall(r'(?:RECIPE=([a-z0-9-]+) )?ARGS="([^"…]+)"', text):
        load_recipe(recipe or (name if name in COMMENTS else "scenes"), split_settings(overrides.split())[0])


@pytest.mark.parametrize("name", PAGES)
def test_paths_of_a_page_exist(name: str) -> None:
    for path in re.findall(r"`((?:pipeline|data|modules|tests)/[\w/.-]*)`", PAGES[name]):
        assert (ROOT / path).exists() or "<" in path, path


@pytest.mark.parametrize("folder", ["pipeline", "data", "modules", "tests/benchmarks"])
def test_paths_of_a_folder_s_own_readme_exist(folder: str) -> None:
    text = PAGES[f"{folder}/README.md"]
    named = re.findall(r"`([\w/-]+(?:\.py|\.yaml|/))`", text)
    assert len(named) > 8
    for path in named:
        assert (ROOT / folder / path).exists() or (ROOT / path).exists(), path


def test_only_recipes_that_read_captions_by_translators_are_said_to_need_the_regions_of_multi30k():
    for name in ("multi30k-vgg", "multi30k-mlmme", "multi30k-mule-vgg", "multi30k-diverse-attention-vgg"):
        recipe = load_recipe(name, networks=False)
        rows = {row for table in recipe.tables.values() for each in table.systems.values() for row in each.rows}
        written = any("mt:" in group for row in rows for group in recipe.vse.rows[row])
        (needs,) = re.findall(rf"^\| .*`{name}`.* \| (.*) \|$", PAGES[".docs/pages/data.md"], re.M)
        assert written == (re.search("the same|`multi30k-vgg` needs;", needs) is not None), name


BLOCKS = [
    pytest.param(block, id=f"{name} {number}")
    for name, text in PAGES.items()
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", text, re.S))
]


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_of_python_compiles_and_imports_what_exists(block: str) -> None:
    """All but that of a cluster are run too: `test_site_blocks.py`, `test_library.py`, `test_sweep.py` and others."""
    for node in ast.walk(ast.parse(block)):
        names = [one.name for one in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        for name in names:
            module = node.module if isinstance(node, ast.ImportFrom) else name
            if module.partition(".")[0] in ELSEWHERE:
                continue
            imported = importlib.import_module(module)
            assert isinstance(node, ast.Import) or hasattr(imported, name), f"{module} has no {name}"


def test_functions_of_the_site_name_the_errors_that_they_raise():
    """Of modules that a page shows: the error's name is in the docstring, or its first word is *Refuse*."""
    shown = {name for text in PAGES.values() for name in re.findall(r"^::: ([\w.]+)", text, re.M)}
    modules = {re.sub(r"\.([A-Z]\w*|write_regions|load_recipe)$", "", name) for name in shown}
    silent = []
    for path in sorted(ROOT / f"{name.replace('.', '/')}.py" for name in modules):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                told = ast.get_docstring(node) or ""
                raised = re.findall(r"raise ((?:Data|Model|Recipe|OS)Error)\(", ast.unparse(node))
                if not told.startswith("Refuse") and not all(name in told for name in raised):
                    silent.append(f"{path.name}: {node.name}")
    assert shown
    assert not silent


def test_the_glossary_is_short():
    text = PAGES[".docs/pages/glossary.md"]
    assert 0 < text.count("\n| ") - 1 <= 25


def test_the_page_of_speed_names_the_batches_of_the_demo():
    size = load_recipe("scenes").vse.reranker["batch_size"]
    assert f"instead of {size} in SCAN's training" in PAGES[".docs/pages/speed.md"]


def test_continuous_integration_runs_the_readme_s_commands():
    script = (ROOT / ".ci/run").read_text(encoding="utf-8")
    for command in ("make test", "make demo", "make check"):
        assert command in script
    assert (
        yaml.safe_load((ROOT / "pipeline/configs/scenes.yaml").read_text(encoding="utf-8"))["corpus"]["name"]
        == "scenes"
    )
