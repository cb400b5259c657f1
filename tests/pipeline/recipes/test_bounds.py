"""Recipes that nobody would write on purpose: refused in one line, at once."""

import time
from pathlib import Path

import pytest

from data.yaml_text import parse_yaml
from pipeline.errors import RecipeError
from pipeline.recipes.loading import load_recipe

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + level)}: &{chr(98 + level)} [{', '.join(['*' + chr(97 + level)] * 9)}]\n" for level in range(12)
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BOMB, "more than 50,000 values"), ("seed: 2001-99-99", "timestamp"), ("a: 0b_", "invalid literal"),
        ("a: !!int x", "invalid literal"), ("[" * 100_000, "nested too deeply"), ("{a: " * 3000, "nested too deeply"),
        ("a: &x [*x]", "refers to itself"), ("a: !!set {b}", "of the kind"), ("a: !!binary aGk=", "of the kind"),
        ("a: !!python/object:os.system x", "of the kind"), ("? [a]\n: b", "unhashable"), ("a: " + "9" * 4000, "digits"),
        ("a: 1\na: 2", "stands in line 1 and again in line 2"), ("a: \x07", "unacceptable character"),
        ("x" * 2**20 + "x", "letters; expected at most"),
    ],
)  # fmt: skip
def test_yaml_that_is_no_recipe(text: str, said: str, tmp_path: Path) -> None:
    started = time.monotonic()
    with pytest.raises(ValueError, match=said) as told:
        parse_yaml(text)
    assert "\n" not in str(told.value)
    assert time.monotonic() - started < 5
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(RecipeError, match=r"mine\.yaml: not a YAML file of ours"):
        load_recipe(str(tmp_path / "mine.yaml"), networks=False)


def test_aliases_of_reasonable_number_are_read() -> None:
    assert parse_yaml("a: &a {b: [1]}\nc: *a\nd: {<<: *a}") == {"a": {"b": [1]}, "c": {"b": [1]}, "d": {"b": [1]}}
    assert parse_yaml("") is None


def test_norwegian_is_no_truth_value() -> None:
    assert parse_yaml("[no, en, yes, on, off, y, true, False, TRUE]") == [
        "no", "en", "yes", "on", "off", "y", True, False, True
    ]  # fmt: skip
    recipe = load_recipe("scenes", ["--vse.test=[no, en]", "--vse.select=[no]", "--trainer.progress=no"])
    assert (recipe.vse.test, recipe.vse.trainer.progress) == (["no", "en"], False)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("regions.regions=10000000", "regions.regions is 10000000; expected 1,000 at most"),
        ("regions.size=1000000", "expected 4,096 at most"), ("vse.batch_size=1", "expected 2 or more"),
        ("vse.epochs=99999999999", "expected 1,000,000 at most"), ("seed=99999999999", "expected 2,147,483,647"),
        ("vse.seeds=[99999999999]", "expected 2,147,483,647"), ("trainer.devices=99999", "expected 1,024 at most"),
        ("trainer.workers=99999", "expected 1,024"), ("report.resamples=999999999", "expected 1,000,000 at most"),
        ('vse.rows={"a\\nb": [en/human]}', "control characters"), ('vse.rows={"a\\0": [en/human]}', "control char"),
        ("vse.rows={..: [en/human]}", "which no file can be called"), (f"vse.rows={{{'a' * 300}: [x]}}", "no file"),
        ("vse.rows={a/b: [en/human]}", "whose / no file name has"), ("vse.test=[../../x]", "expected codes like en"),
        ("corpus.name=scenes\nx", "corpus.name is"), ("vse.reranker={row: [a], model: scan-t2i-avg}", "row is"),
        ("vse.start=[{options: 5}]", r"vse.start\[0\].options is 5; expected keys"), ("mmt.directions=[en-d\x85e]", ""),
        ("mmt.rerank.retrieval={row: {a: b}}", "retrieval.row is"), ("augment.captioner={row: [a]}", "captioner.row"),
        ("mmt.embedding_dim=0", "expected 1 or more"), ("mmt.vocabulary=0", "expected 1 or more"),
        ("vse.negatives=-1", "expected 1 or more"), ("vse.decay_every=-3", "expected 0 or more"),
        ("mmt.beam_size=100000", "expected 1,000 at most"), ("vse.word_vectors={en: 'a\x00.vec'}", "not YAML|control"),
    ],
)  # fmt: skip
def test_settings_beyond_all_bounds(override: str, said: str) -> None:
    with pytest.raises(RecipeError, match=said) as told:
        load_recipe("own", [f"--{override}"], networks=False)
    assert "\n" not in str(told.value)
