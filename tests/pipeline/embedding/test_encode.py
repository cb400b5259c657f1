"""What people hand to a trained model from Python: columns, generators, what is no text; and what they get."""

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.export.exported_model import ExportedModel
from pipeline.gallery.gallery import Gallery
from pipeline.library import train
from tests.pipeline.tiny import Tiny

TEXTS = ["a red ball", "a blue box"]


@pytest.fixture
def pictures(used: Tiny) -> list[Path]:
    return sorted((used.job("corpus") / "pictures").iterdir())[:3]


@pytest.mark.parametrize("kind", [list, tuple, iter, np.array, pd.Series])
def test_any_sequence_of_captions_and_of_pictures(exported: ExportedModel, pictures: list[Path], kind: Any) -> None:
    wanted = exported.encode_captions(TEXTS).single()
    assert torch.equal(exported.encode_captions(kind(TEXTS)).single(), wanted)
    np.testing.assert_array_equal(exported.encode(kind(TEXTS)), wanted)
    ways = ("mt", "en", "de")
    assert exported.translators.translate_all(kind(TEXTS), *ways) == exported.translators.translate_all(TEXTS, *ways)
    if kind is not np.array:  # paths become objects
        seen = exported.encode_pictures(pictures).single()
        assert torch.equal(exported.encode_pictures(kind(pictures)).single(), seen)
        np.testing.assert_array_equal(exported.encode(kind(pictures)), seen)


def test_no_captions_have_the_width_of_vectors(exported: ExportedModel, pictures: list[Path]) -> None:
    width = exported.encode_captions(TEXTS).single().shape[1]
    none = exported.encode_captions([])
    assert tuple(none.single().shape) == exported.encode([]).shape == (0, width)
    assert tuple(exported.score(exported.encode_pictures(pictures), none).shape) == (3, 0)


def test_vectors_can_be_trained_on(exported: ExportedModel, pictures: list[Path]) -> None:
    captions, images = exported.encode_captions(TEXTS), exported.encode_pictures(pictures)
    probe = nn.Linear(captions.single().shape[1], 1)
    (probe(captions.single()).sum() + probe(images.single()).sum()).backward()
    assert probe.weight.grad is not None
    assert not exported.score(images, captions).is_inference()


@pytest.mark.parametrize(("items", "words"), [
    (["a", np.nan], "item 1 is nan; expected a text"), ([None], "item 0 is None"), ([3], "item 0 is 3"),
    ("a red ball", "expected a list of sentences, not one"), (None, "expected a list of sentences, not NoneType"),
    (b"a", "expected a list of sentences, not bytes"), ({"a": 1}, "expected a list of sentences, not dict"),
    (pd.DataFrame({"caption": ["a"]}), "expected a list of sentences, not DataFrame"), (["\ud800"], "not UTF-8"),
])  # fmt: skip
def test_what_is_no_caption_is_named(exported: ExportedModel, items: Any, words: str) -> None:
    for call in (exported.encode_captions, lambda texts: exported.translators.translate_all(texts, "mt", "en", "de")):
        with pytest.raises(RecipeError, match=words):
            call(items)


def test_what_is_no_text_language_or_picture_is_named(exported: ExportedModel, pictures: list[Path]) -> None:
    for call, words in (
        (lambda: exported.language_of("a red ball", "en"), r"languages is 'en'; expected a list, \['en'\]"),
        (lambda: exported.language_of(None), "item 0 is None; expected a text"),
        (lambda: exported.reading("\ud800"), "not UTF-8"),
        (lambda: exported.encode_captions(TEXTS, ["en"]), "1 languages of 2 captions; expected one of all"),
        (lambda: exported.encode_captions(TEXTS, ["en", 3]), "language 3: expected the code"),
        (lambda: exported.encode_captions(TEXTS, ["en", b"de"]), "language b'de': expected the code or the name"),
        (lambda: exported.encode_pictures(str(pictures[0])), "expected a list of one picture or more"),
        (lambda: exported.encode_pictures(pictures[0]), "expected a list of one picture or more"),
        (lambda: exported.encode_pictures(None), "encode_pictures: expected a list of pictures, not NoneType"),
        (lambda: exported.encode(None), "encode: expected a list of captions or pictures, not NoneType"),
    ):
        with pytest.raises(RecipeError, match=words):
            call()


@pytest.mark.parametrize("wrong", [
    np.full((1, 3, 4), np.nan), np.zeros((1, 4)), np.zeros((2, 3, 4)), np.zeros((1, 3, 5)), "picture.jpg", None,
])  # fmt: skip
def test_regions_that_do_not_fit_are_one_line(exported: ExportedModel, wrong: Any) -> None:
    with pytest.raises(
        RecipeError, match=r"translate: mmt-de-en reads regions \(R, \d+\) of a picture, finite numbers"
    ):
        exported.translators.translate_all(["ein Ball"], "mmt", "de", "en", wrong)


def test_regions_beyond_float32_are_one_line(exported: ExportedModel) -> None:
    regions = np.full((1, 3, exported.model.input_dim), 1e300)
    with pytest.raises(RecipeError, match=r"of a picture, finite numbers"):
        exported.translators.translate_all(["ein Ball"], "mmt", "de", "en", regions)


def test_a_translation_is_copied_and_pickled(exported: ExportedModel) -> None:
    made = exported.translators.translate("a red ball", "mt", "en", "de")
    for other in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert (other, other.reading) == (made, made.reading)


def test_the_working_directory_may_change_and_random_numbers_stay(used: Tiny, exported, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(used.workspace.root)
    torch.manual_seed(1)
    wanted = torch.rand(1)
    torch.manual_seed(1)
    gallery = Gallery.open("tiny/gallery")
    model = ExportedModel.load("tiny/model")
    assert torch.equal(torch.rand(1), wanted)
    monkeypatch.chdir(tmp_path)
    assert not Path("tiny").exists()
    text = model.translators.translate("a red ball", "mt", "en", "de")
    assert text == exported.translators.translate("a red ball", "mt", "en", "de")
    (name,) = (row["name"] for row in gallery.rows([0]))
    assert gallery.describe_known(name)


def test_another_default_type_is_refused(used: Tiny, exported: ExportedModel) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        for call in (lambda: ExportedModel.load(exported.folder), lambda: train(used.recipe(), used.workspace.root)):
            with pytest.raises(
                RecipeError, match=r"torch's default type is torch\.float64; call torch\.set_default_dtyp"
            ):
                call()
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_folder_whose_name_is_not_utf8_is_one_line(exported: ExportedModel, monkeypatch) -> None:
    for call in (Workspace, ExportedModel.load, Gallery.open):
        with pytest.raises(
            RecipeError, match=r"b\\udcffd.*: not UTF-8; write it in UTF-8, or rename the file or folder"
        ):
            call(Path("b\udcffd"))
    monkeypatch.setattr("sys.getfilesystemencoding", lambda: "ascii")
    with pytest.raises(RecipeError, match="Python reads names as ascii in this locale: set PYTHONUTF8=1"):
        Workspace(Path("b\udcffd"))
