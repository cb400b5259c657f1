"""Numbers and names that a training would stumble over hours later are refused before it begins."""

import pytest

from pipeline.errors import RecipeError
from pipeline.recipe import load_recipe


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("--mmt.beam_size=0", "mmt: beam_size is 0"),
        ("--augment.beam_size=0", "augment: beam_size is 0"),
        ("--augment.length_penalty=-1", "augment: length_penalty is -1"),
        ("--mmt.batch_tokens=0", "mmt.batch_tokens is 0"),
        ("--augment.batch_tokens=0", "augment.batch_tokens is 0"),
        ("--mmt.dropout=1.0", "mmt.dropout is 1.0; expected from 0 to below 1"),
        ("--mmt.label_smoothing=2", "mmt.label_smoothing is 2"),
        ("--mmt.pretrain.learning_rate=-1", "mmt.pretrain.learning_rate is -1"),
        ("--mmt.finetune.learning_rate=0", "mmt.finetune.learning_rate is 0"),
        ("--mmt.finetune.warmup=-1", "mmt.finetune.warmup -1"),
        ("--mmt.directions=[en-de-fr]", "'en-de-fr'; expected two languages"),
        ("--mmt.directions=[ende]", "'ende'; expected two languages"),
        ("--mmt.directions=[en-en]", "'en-en'; expected two languages"),
        ("--mmt.trainer.precision=16-mixed", '"mmt.trainer.precision": Expected'),
    ],
)
def test_what_no_translator_can_be_trained_by_is_one_line(argument: str, words: str) -> None:
    with pytest.raises(RecipeError) as error:
        load_recipe("scenes", ["--augment.paths=[]", "--vse.rows={none: [en/human]}", argument])
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_languages_that_begin_alike_are_two() -> None:
    assert load_recipe("scenes", ["--mmt.directions=[en-eng]", "--augment.paths=[]"]).mmt.directions == ["en-eng"]
