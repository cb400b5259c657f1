"""Exported models that somebody crafted, and what is asked of one in Python: each refusal is the promised error."""

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipeline.errors import RecipeError
from pipeline.export.exported_model import ExportedModel
from tests.pipeline.export.test_exported_model import rewritten


@pytest.mark.parametrize("content", ["[1]", "{}", '{"pretrained": "/etc"}', '{"longest": "x", "pretrained": 5}'])
def test_words_that_are_none_are_refused(exported: ExportedModel, tmp_path: Path, content: str) -> None:
    model = Path(shutil.copytree(exported.folder, tmp_path / "model"))
    with pytest.raises(RecipeError):
        ExportedModel.load(rewritten(model, {"words.json": content}))


def test_a_vocabulary_of_a_translator_that_is_none_is_refused(exported: ExportedModel, tmp_path: Path) -> None:
    model = Path(shutil.copytree(exported.folder, tmp_path / "model"))
    loaded = ExportedModel.load(rewritten(model, {"translators/mt-en-de/bpe.json": json.dumps({"a": 1})}))
    with pytest.raises(RecipeError, match="not a BPE vocabulary"):
        loaded.translators.translate("a red bat", "mt", "en", "de")


def test_a_model_is_copied_to_other_processes_after_it_has_translated(exported: ExportedModel) -> None:
    model = ExportedModel.load(exported.folder)
    translation = model.translators.translate("a red bat", "mt", "en", "de")
    copy = pickle.loads(pickle.dumps(model))
    assert copy.translators.translate("a red bat", "mt", "en", "de") == translation
    np.testing.assert_array_equal(copy.encode(["a red bat"]), model.encode(["a red bat"]))


def test_what_is_no_caption_and_no_picture_is_refused(exported: ExportedModel) -> None:
    for wrong in (5, None, b"dog.jpg"):
        with pytest.raises(RecipeError, match=f"expected a picture, a path or an image, not {type(wrong).__name__}"):
            exported.encode([wrong])
    with pytest.raises(RecipeError, match="not ndarray"):
        exported.encode_pictures([np.zeros((4, 4, 3))])
    assert len(exported.encode([Image.new("RGB", (40, 40))])) == 1
