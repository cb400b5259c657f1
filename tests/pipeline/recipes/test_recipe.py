"""Recipes: what is read, what overlays what, which slips are told in which words."""

from pathlib import Path

import pytest
import yaml

from data.errors import DataError
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.graph import Graph
from pipeline.recipes.loading import CONFIGS, build_recipe, load_recipe
from tests.pipeline.tiny import at


@pytest.fixture(autouse=True)
def _no_data_root(monkeypatch):
    monkeypatch.delenv("BILDWORT_DATA", raising=False)


def write(folder: Path, name: str, content: dict | str) -> str:
    path = folder / f"{name}.yaml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content), encoding="utf-8")
    return str(path)


def message(*arguments, error: type[Exception] = RecipeError) -> str:
    with pytest.raises(error) as caught:
        load_recipe(*arguments)
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_recipe_in_configs_loads(path: Path) -> None:
    recipe = load_recipe(path.stem)
    assert recipe.name == path.stem
    assert recipe.vse.rows


def test_a_recipe_says_only_what_differs_from_its_base(tmp_path: Path) -> None:
    first = write(tmp_path, "first", {"base": "scenes", "seed": 7, "vse": {"epochs": 5, "seeds": [1, 2, 3]}})
    second = write(
        tmp_path, "second", {"base": first, "vse": {"seeds": [9], "rows": {"more": ["en/human", "de/human"]}}}
    )
    recipe, plain = load_recipe(second), load_recipe("scenes")
    assert (recipe.name, recipe.seed) == ("second", 7)
    assert recipe.vse.epochs == 5
    assert recipe.vse.seeds == [9]  # a list is replaced
    assert recipe.vse.rows["more"] == ["en/human", "de/human"]  # a mapping is laid over
    assert set(plain.vse.rows) - {"none"} <= set(recipe.vse.rows)
    assert recipe.mmt.hidden_dim == plain.mmt.hidden_dim != 256


def test_another_corpus_than_the_base_s_takes_none_of_its_keys(tmp_path: Path) -> None:
    first = write(tmp_path, "first", {"base": "multi30k", "corpus": {"name": "precomputed", "test": "testall"}})
    options = load_recipe(first).corpus.options
    assert (options.test, options.label) == ("testall", "Flickr30K")
    same = write(tmp_path, "same", {"base": "multi30k", "corpus": {"name": "multi30k", "task": "task1"}})
    options = load_recipe(same).corpus.options
    assert (options.task, options.parallel) == ("task1", "wmt/deu-eng.tsv.gz")
    unnamed = write(tmp_path, "unnamed", {"base": first, "corpus": {"val": "val"}})
    options = load_recipe(unnamed).corpus.options
    assert (options.test, options.val) == ("testall", "val")
    usual = write(tmp_path, "usual", {"corpus": {"train": 999}})  # the corpus without a name is scenes
    for name in ("scenes", "karpathy"):
        corpus = load_recipe(write(tmp_path, "over", {"base": usual, "corpus": {"name": name}})).corpus
        assert corpus.name == name
        assert getattr(corpus.options, "train", None) == (999 if name == "scenes" else None)
    bare = write(tmp_path, "bare", {"seed": 5})
    assert load_recipe(write(tmp_path, "over", {"base": bare, "corpus": {"name": "karpathy"}})).seed == 5


def test_a_base_that_leads_back_to_itself_is_told(tmp_path: Path) -> None:
    first = write(tmp_path, "first", {"base": str(tmp_path / "second.yaml")})
    write(tmp_path, "second", {"base": first})
    assert "leads back to itself" in message(first)


@pytest.mark.parametrize(
    ("argument", "section", "key", "value"),
    [
        ("--vse.model=san", "vse", "model", "san"),
        ("--vse.learning_rate=5e-4", "vse", "learning_rate", 0.0005),
        ("--vse.margin=1", "vse", "margin", 1.0),
        ("--vse.seeds=[3, 4]", "vse", "seeds", [3, 4]),
        ("--vse.test=[de]", "vse", "test", ["de"]),
        ("--vse.share_words=false", "vse", "share_words", False),
        ("--vse.steps=null", "vse", "steps", None),
        ("--vse.type_weights=null", "vse", "type_weights", {}),
        ("--vse.steps=12", "vse", "steps", 12),
        ("--vse.type_weights.en/human=0.5", "vse", "type_weights", {"en/human": 0.5}),
        ("--augment.paths=[mt:en-de]", "augment", "paths", ["mt:en-de"]),
    ],
)
def test_anything_can_be_overridden_from_the_shell(tmp_path: Path, argument, section, key, value) -> None:
    below = {"steps": 5, "select": ["de"], "model": "san", "type_weights": {"en/human": 1.0}}
    path = write(tmp_path, "mine", {"vse": below})
    found = getattr(getattr(load_recipe(path, [argument]), section), key)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("value", ["1e309", "-1e309", ".inf", "nan", ".nan"])
@pytest.mark.parametrize(
    "key", ["vse.learning_rate", "vse.margin", "mmt.clip", "mmt.channel.weight", "augment.length_penalty",
            "vse.options.lambda_softmax", "vse.type_weights.en/human", "mmt.finetune.learning_rate"]
)  # fmt: skip
def test_a_number_that_is_not_finite_is_one_line(key: str, value: str) -> None:
    text = message("scenes", [f"--{key}={value}"])
    assert key in text
    assert "expected" in text


def test_the_last_of_two_overrides_holds_and_nested_keys_are_reached() -> None:
    recipe = load_recipe("scenes", ["--mmt.pretrain.steps=200", "--seed=1", "--seed=5", "--mmt.pretrain.steps=600"])
    assert (recipe.seed, recipe.mmt.pretrain.steps) == (5, 600)


@pytest.mark.parametrize("argument", ["vse.model=san", "--vse.model", "--=3", "more"])
def test_an_argument_of_another_form_is_told(argument: str) -> None:
    text = message("scenes", [argument])
    assert repr(argument) in text
    assert "--section.key=value" in text


@pytest.mark.parametrize(
    ("content", "wrong", "right"),
    [
        ({"vze": {}}, "vze", "vse"),
        ({"vse": {"modl": "san"}}, "vse.modl", "vse.model"),
        ({"mmt": {"finetune": {"stps": 3}}}, "mmt.finetune.stps", "mmt.finetune.steps"),
        ({"trainer": {"devics": 2}}, "trainer.devics", "trainer.devices"),
        ({"mmt": {"trainer": {"workrs": 2}}}, "mmt.trainer.workrs", "mmt.trainer.workers"),
        ({"corpus": {"name": "scenes", "trian": 3}}, "corpus.trian", "corpus.train"),
        ({"regions": {"sise": 3}}, "regions.sise", "regions.size"),
    ],
)
def test_an_unknown_key_is_named_with_its_file_and_the_nearest_right_one(tmp_path: Path, content, wrong, right) -> None:
    path = write(tmp_path, "mine", content)
    text = message(path)
    assert path in text
    assert f"unknown key {wrong};" in text
    assert f"did you mean {right}?" in text


def test_an_unknown_option_of_a_model_is_told() -> None:
    assert "vse.options.hirden" in message("scenes", ["--vse.options.hirden=3"])


@pytest.mark.parametrize(
    ("argument", "key"),
    [
        ("--vse.epochs=many", "vse.epochs"),
        ("--vse.learning_rate=fast", "vse.learning_rate"),
        ("--vse.share_words=3", "vse.share_words"),
        ("--vse.select=en", "vse.select"),
        ("--vse.seeds=[a]", "vse.seeds"),
        ("--vse.words=fast", "vse.words"),
        ("--vse.rows.none=en", "vse.rows"),
        ("--mmt.pretrain.steps=1.5", "mmt.pretrain.steps"),
        ("--trainer.workers=a", "trainer.workers"),
        ("--trainer.devices=two", "devices is 'two'; expected a whole number or auto"),
        ("--trainer.loggers=[foo]", "loggers is ['foo']; expected a list of csv or wandb"),
        ("--corpus.train=all", "corpus.train"),
        ("--seed=a", "seed"),
        ("--seed=true", "seed"),
        ("--seed=-1", "seed"),
    ],
)
def test_a_value_of_the_wrong_type_is_told_in_one_line_with_its_key(argument: str, key: str) -> None:
    text = message("scenes", [argument])
    assert key in text
    assert argument.partition("=")[2].strip("[]").capitalize() in text.title() or "3" in text


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"corpus": "scenes"}, "corpus is 'scenes'"),
        ({"vse": 5}, "vse is 5"),
        ({"trainer": "cpu"}, "trainer is 'cpu'"),
        ({"mmt": {"trainer": "cpu"}}, "mmt.trainer is 'cpu'"),
        ({"base": ["scenes"]}, "base is ['scenes']"),
        ("- a\n- b\n", "found list"),
        ("vse: {model: [\n", "not a YAML file"),
        ("vse: {epochs: 3}\nseed: 1\nvse: {dim: 3}\n", "'vse' stands in line 1 and again in line 3"),
        ("vse: {dim: 3, dim: 4}\n", "'dim' stands in line 1 and again in line 1"), ("# nothing yet\n", "found nothing"),
    ],
)  # fmt: skip
def test_a_file_of_another_shape_is_told(tmp_path: Path, content, words: str) -> None:
    path = write(tmp_path, "mine", content)
    text = message(path)
    assert path in text
    assert words in text


def test_a_section_is_not_replaced_by_a_value() -> None:
    assert "vse is a section" in message("scenes", ["--mmt=3", "--vse.epochs=2", "--vse=3"][1:])


def test_a_stage_trainer_overlays_the_top_level_one(tmp_path: Path) -> None:
    trainer = {"devices": 2, "precision": "bf16-mixed"}
    path = write(tmp_path, "mine", {"trainer": trainer, "vse": {"trainer": {"devices": 1}}})
    recipe = load_recipe(path, ["--mmt.trainer.precision=32-true", "--trainer.workers=3"])
    assert [(s.trainer.devices, s.trainer.precision) for s in (recipe.mmt, recipe.augment, recipe.vse)] == [
        (2, "32-true"), (2, "bf16-mixed"), (1, "bf16-mixed"),
    ]  # fmt: skip
    assert recipe.vse.trainer.workers == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--vse.only=[all]"], ("vse.only", "'all'", "vse.rows")),
        (["--augment.paths=[mt:en-fr]"], ("augment.paths", "mmt.directions", "'en-fr'")),
        (
            ["--mmt.directions=[en-de]", "--augment.paths=[mmt:en-de-en]"],
            ("augment.paths", "mmt.directions", "'de-en'"),
        ),
        (["--augment.paths=[nmt:en-de]"], ("augment.paths", "nmt:en-de", "mmt.systems (mt, mmt)")),
        (["--augment.paths=[mmt:en]"], ("augment.paths", "'mmt:en'")),
        (
            ["--mmt.pretrain.steps=50", "--mmt.pretrain.eval_every=20"],
            ("mmt.pretrain.steps", "mmt.pretrain.eval_every"),
        ),
        (
            ["--mmt.finetune.steps=50", "--mmt.finetune.eval_every=20"],
            ("mmt.finetune.steps", "mmt.finetune.eval_every"),
        ),
        (["--mmt.finetune.eval_every=0"], ("mmt.finetune.eval_every is 0",)),
        (["--mmt.finetune.steps=0"], ("mmt.finetune.steps is 0",)),
        (["--vse.warmup_epochs=9", "--vse.epochs=8"], ("vse.warmup_epochs 9", "vse.epochs 8")),
        (["--vse.epochs=0", "--vse.warmup_epochs=0"], ("vse.epochs is 0",)),
        (["--vse.select=[fr]"], ("vse.select", "'fr'", "vse.test")),
        (["--vse.seeds=[]"], ("vse.seeds is empty",)),
    ],
)
def test_settings_that_contradict_are_told_by_both_names(arguments: list[str], words: tuple[str, ...]) -> None:
    text = message("scenes", arguments)
    for word in words:
        assert word in text


def test_pretraining_may_be_left_out(tmp_path: Path) -> None:
    recipe = load_recipe("scenes", ["--mmt.pretrain.steps=0"])
    jobs = Graph(recipe, Workspace(tmp_path)).translators
    assert not [name for name in jobs if name.startswith("nmt")]
    assert "start" not in jobs["mmt-en-de"].inputs


def test_unknown_names_list_the_nearest() -> None:
    assert "nearest are san" in message("scenes", ["--vse.model=sann"])
    assert "did you mean 'scenes'?" in message("scene")
    assert "did you mean 'scenes'?" in message("scenes", ["--corpus.name=scens"])
    assert "multi30k" in message("scenes", ["--corpus.name=qqq"])


def test_a_recipe_in_a_folder_is_told_from_one_of_the_package(tmp_path: Path) -> None:
    write(tmp_path, "two", {"base": "scenes", "seed": 7})
    (tmp_path / "fold.yaml").mkdir()
    with at(tmp_path):
        assert "/configs/two.yaml; did you mean ./two.yaml?" in message("two")
        assert load_recipe("./two").seed == load_recipe("./two.yaml").seed == load_recipe(tmp_path / "two").seed == 7
        for name in ("fold.yaml", "./fold.yaml", f"{tmp_path}/fold.yaml", "./fold.yaml/", "./fold", f"{tmp_path}/"):
            assert f"recipe {name!r}: " in message(name)
            assert " is a folder; expected a file that ends in .yaml" in message(name)
        line = "recipe './scenes': no file scenes.yaml; expected the path of a recipe, a file that ends in .yaml"
        assert message("./scenes") == line
        assert "did you mean ./two.yaml?" in message(write(tmp_path, "three", {"base": "two"}))


def test_a_row_that_trains_on_a_path_nobody_walks_is_told(tmp_path: Path) -> None:
    recipe = load_recipe("scenes", ["--augment.paths=[mt:en-de]", "--vse.rows.x=[de/mmt:en-de]", "--vse.only=[x]"])
    with pytest.raises(RecipeError, match=r"vse\.rows\.x .*mmt:en-de.*augment\.paths"):
        Graph(recipe, Workspace(tmp_path)).rows


def test_a_caption_group_of_another_form_is_told(tmp_path: Path) -> None:
    recipe = load_recipe("scenes", ["--vse.rows.x=[english]", "--vse.only=[x]"])
    with pytest.raises(DataError, match="caption group 'english'"):
        Graph(recipe, Workspace(tmp_path)).rows


def test_the_data_root_comes_from_the_recipe_or_the_environment(monkeypatch) -> None:
    assert load_recipe("scenes").corpus.root is None
    monkeypatch.setenv("BILDWORT_DATA", "/data/elsewhere")
    assert load_recipe("scenes").corpus.root == "/data/elsewhere"
    assert load_recipe("scenes", ["--corpus.root=/data/here"]).corpus.root == "/data/here"


def test_a_recipe_of_nothing_is_the_scenes_with_the_defaults() -> None:
    recipe = build_recipe({}, "empty", "here")
    assert (recipe.corpus.name, recipe.seed, recipe.vse.margin) == ("scenes", 0, 0.2)


def test_a_base_is_looked_for_beside_the_recipe_that_names_it(tmp_path: Path) -> None:
    write(tmp_path, "first", {"base": "scenes", "seed": 7})
    assert load_recipe(write(tmp_path, "second", {"base": "first.yaml"})).seed == 7


def test_a_section_without_keys_changes_nothing(tmp_path: Path) -> None:
    recipe = load_recipe(write(tmp_path, "first", "base: scenes\nvse:\n"))
    assert recipe.vse == load_recipe("scenes").vse


def test_a_path_may_begin_with_the_user_s_folder(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "words.vec").write_text("2 1\na 1\nb 1\n")
    path = write(
        tmp_path, "home", {"base": "scenes", "vse": {"word_vectors": {"en": "~/words.vec"}, "words": "random"}}
    )
    assert load_recipe(path, networks=False).vse.word_vectors == {"en": f"{tmp_path}/words.vec"}
    assert load_recipe("scenes", ["--corpus.root=~/data"]).corpus.root == f"{tmp_path}/data"
    monkeypatch.setenv("BILDWORT_DATA", "~/more")
    assert load_recipe("scenes").corpus.root == f"{tmp_path}/more"


def test_who_is_at_fault_is_named(tmp_path: Path) -> None:
    good, bad = write(tmp_path, "good", {"base": "scenes"}), write(tmp_path, "bad", {"vse": {"epohcs": 3}})
    assert message(good, ["--vse.epohcs=3"]).startswith("the command line: unknown key vse.epohcs")
    assert message(good, ["--vse.epochs=-1"]).startswith("the command line: vse.epochs is -1")
    assert message(bad, ["--vse.dim=3"]).startswith(f"{bad}: unknown key vse.epohcs")
    assert load_recipe(write(tmp_path, "wrong", {"vse": {"epochs": 0}}), ["--vse.epochs=1"]).vse.epochs == 1


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("--vse.epochs=many", "vse.epochs is 'many'; expected a whole number"),
        ("--vse.steps=1.5", "vse.steps is 1.5; expected a whole number or null"),
        ("--vse.rows.none=3", "vse.rows.none is 3; expected a list of texts"),
        ("--vse.seeds=[a]", "vse.seeds is ['a']; expected a list of whole numbers"),
        ("--trainer.precision=9", "trainer.precision is 9; expected auto, 32-true, tf32 or bf16-mixed"),
        ("--report.record=5", "report.record is 5; expected true or false"),
        ("--mmt.pretrain.steps=a", "mmt.pretrain.steps is 'a'; expected a whole number"),
        ("--augment.searches.x={beam_size: a}", "augment.searches.x.beam_size is 'a'; expected a whole number"),
        ("--mmt.repeat.task1=x", "mmt.repeat.task1 is 'x'; expected a whole number"),
    ],
)
def test_a_value_of_another_type_is_told_in_words(override: str, expected: str):
    with pytest.raises(RecipeError) as error:
        load_recipe("scenes", [override])
    assert str(error.value).endswith(expected)
