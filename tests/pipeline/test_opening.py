"""What the report says first where not every row was validated."""

import numpy as np
import pytest

from pipeline.engine.workspace import Workspace
from pipeline.graph import Graph
from pipeline.recipes.loading import load_recipe
from pipeline.reporting.report import report
from tests.pipeline.test_report import finish, scores


def first_sentence(workspace: Workspace, validated: dict[str, float], *rows: str) -> str:
    """The first sentence of a report on rows of the same test figures, of which some were validated."""
    recipe = load_recipe("scenes", [f"--vse.only=[{','.join(rows)}]", "--vse.test=[en]"])
    for row in Graph(recipe, workspace).rows:
        of_image = np.ones(120, dtype=int)
        files = {"text_to_image": of_image, "image_to_text": of_image, "caption_image": np.arange(120)}
        val = {"val": {"en": {"rsum": validated[row.name]}}} if row.name in validated else {}
        finish(workspace, row.job, {"test": {"en": scores(100.0)}, **val}, [("en", files)])
    report(Graph(recipe, workspace))
    text = (workspace.root / "scenes" / "report" / "report.md").read_text(encoding="utf-8")
    return next(line for line in text.splitlines() if line.startswith("- ")).removeprefix("- English: ")


def test_without_validation_no_row_is_called_the_best(workspace: Workspace) -> None:
    said = first_sentence(workspace, {}, "none", "mt-f")
    assert said == "mean recall of none 100.0 and mt-f 100.0 %; no row was validated, so none is called the best."


@pytest.mark.parametrize(
    ("validated", "best"),
    [
        ({"mt-f": 90.0}, "mt-f (san) is the only validated row; "),
        ({"none": 80.0, "mt-f": 90.0}, "mt-f (san) is the best of 2 rows on validation; "),
    ],
)
def test_rows_that_were_not_validated_are_not_counted(workspace: Workspace, validated, best: str) -> None:
    assert first_sentence(workspace, validated, "none", "mt-f", "mmt-f").startswith(best)


def test_a_single_row_needs_no_validation(workspace: Workspace) -> None:
    assert first_sentence(workspace, {}, "none").startswith("none (san) is the only row; ")
