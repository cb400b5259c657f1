"""Differences of translators in the report."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.engine.artifacts import write_manifest
from pipeline.engine.workspace import Workspace
from pipeline.graph import Graph
from pipeline.recipes.loading import load_recipe
from pipeline.reporting.report import write_report

REFERENCE, WRONG = "der kleine ball ist rot", "ein hund rennt schnell weg"


@pytest.mark.parametrize("with_pictures", [True, False])
def test_sentences_without_pictures_are_resampled_each_alone(with_pictures: bool, tmp_path: Path) -> None:
    recipe = load_recipe("scenes", ["--report.record=false", "--report.resamples=200"])
    graph = Graph(recipe, Workspace(tmp_path))
    for name, every in (("mt-en-de", 2), ("mmt-en-de", 3)):
        folder = graph.workspace.folder(graph.translators[name])
        folder.mkdir(parents=True)
        write_manifest(folder, {"metrics": {}, "wall_s": 1.0, "cpu_s": 1.0, "peak_memory_mb": 5.0, "resumed": False})
        said = [WRONG if number % every == 0 else REFERENCE for number in range(60)]
        rows = [{"pair_id": f"{number}", "image_id": f"{number}.jpg" if with_pictures else None, "source": "",
                 "reference": REFERENCE, "hypothesis": text, "tokens": text, "score": 0.0}
                for number, text in enumerate(said)]  # fmt: skip
        pq.write_table(pa.Table.from_pylist(rows), folder / "test.parquet")
    lines = (write_report(graph).folder / "results.jsonl").read_text().splitlines()
    (found,) = [row for row in map(json.loads, lines) if row["metric"] == "bleu_tokenised-mt"]
    assert found["low"] < found["value"] < found["high"]
    assert found["high"] - found["low"] > 10
