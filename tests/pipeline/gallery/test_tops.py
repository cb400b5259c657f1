"""How many results are wanted: less than one is refused, wherever it is asked for."""

from pathlib import Path

import pytest

from pipeline.errors import RecipeError
from pipeline.export.exported_model import ExportedModel
from pipeline.gallery.gallery import Gallery
from tests.pipeline.tiny import Tiny


@pytest.mark.parametrize("top", [0, -3])
def test_less_than_one_result_is_refused(used: Tiny, exported: ExportedModel, top: int, capsys) -> None:
    gallery = Gallery.open(used.workspace.root / "tiny" / "gallery", exported)
    row = gallery.rows([0])[0]
    for find, what in (
        (lambda: gallery.search("a red bat", top), "search: {} pictures"),
        (lambda: gallery.describe(Path(row["path"]), top), "describe: {} captions"),
        (lambda: gallery.describe_known(row["name"], top), "describe: {} captions"),
        (lambda: gallery.pictures_near(exported.encode_captions(["a bat"], "en").single(), top), "search: {} pictures"),
    ):
        with pytest.raises(RecipeError, match=f"^{what.format(top)} are wanted; expected 1 or more$"):
            find()
    assert used.main("describe", row["name"], "--top", str(top)) == 1
    assert f"describe: {top} captions are wanted; expected 1 or more" in capsys.readouterr().err
