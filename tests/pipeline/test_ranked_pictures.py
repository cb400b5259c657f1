"""All rows rank the same pictures, where some have captions in one language alone."""

from pathlib import Path

import numpy as np

from pipeline.graph import Graph
from pipeline.retrieval.fusion import similarity_job
from tests.pipeline.tiny import Tiny, at, without_english


def test_matrices_hold_pictures_with_captions_in_another_language_alone(tiny: Tiny, tmp_path: Path) -> None:
    recipe = tiny.recipe("--vse.only=[human]")
    (row,) = Graph(recipe, tiny.workspace).rows
    job = similarity_job(row.job, row.job.inputs["corpus"], recipe.vse)
    inputs = {name: tiny.workspace.folder(source) for name, source in job.inputs.items()}
    inputs["corpus"] = without_english(inputs["corpus"], tmp_path / "corpus")
    (tmp_path / "scored").mkdir()
    with at(tmp_path):
        job.run(tmp_path / "scored", inputs)
    for split in ("val", "test"):
        with np.load(tmp_path / "scored" / f"similarity-{split}-en.npz") as saved:
            assert len(saved["images"]) == saved["scores"].shape[0] == 4
            assert len(set(saved["links"])) == 3  # the fourth image has no caption in English
