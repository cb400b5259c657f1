"""`evaluate` on folders and recipes' corpora: figures as in the report, what was seen in training; bad input."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from data.captions import HUMAN
from data.errors import DataError
from data.sentences import sentence_hash
from modules.intervals import bootstrap_interval
from modules.retrieval_models.base import MODELS
from pipeline.corpus.prepare import pictures_of
from pipeline.errors import RecipeError
from pipeline.evaluation.measure import known_languages, measure
from pipeline.evaluation.sets import set_of_folder, set_of_recipe
from pipeline.jobs.files import digest_of
from pipeline.retrieval.ranks import read_ranks
from pipeline.search.exported_model import ExportedModel
from pipeline.search.seen import SEEN, TRAIN, VAL, Seen, name_hash
from tests.pipeline.tiny import Tiny


@pytest.fixture
def folder(used: Tiny, tmp_path: Path) -> Path:
    """Six test pictures and two training pictures of the tiny corpus under other names, with captions of their own."""
    place, pictures = tmp_path / "theirs", pictures_of(used.job("corpus"))
    split = {row["image_id"]: row["split"] for row in used.captions("corpus")}
    chosen = [one for wanted in ("test", "train") for one in pictures if split[one] == wanted][:4]
    chosen += [one for one in pictures if split[one] == "train"][:2]
    (place / "pictures").mkdir(parents=True)
    lines = []
    for number, name in enumerate(chosen):
        shutil.copyfile(pictures[name], place / "pictures" / f"their {number}.png")
        for language, text in (("en", f"a picture of number {number}"), ("xx", f"bild {number}")):
            lines.append(f"their {number}.png\t{language}\t{text}\t{'test' if number < 4 else 'train'}")
    (place / "captions.tsv").write_text("\n".join(lines) + "\n")
    return place


def _evaluate(tiny: Tiny, capsys: pytest.CaptureFixture, model: Path, *arguments: str) -> list[dict]:
    from pipeline.cli import main
    from tests.pipeline.tiny import at

    capsys.readouterr()
    with at(tiny.folder):
        assert main(["evaluate", str(model), *arguments, "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_recipe_s_test_gives_the_report_s_figures(used: Tiny, exported: ExportedModel, capsys) -> None:
    about = json.loads((exported.folder / "model.json").read_text())
    (found,) = _evaluate(used, capsys, exported.folder, "--on", f"recipe:{used.yaml}", "--report.resamples=50")
    assert (found["language"], found["split"], found["on"]) == ("en", "test", f"recipe:{used.yaml}")
    recorded = about["test"]["en"]
    assert {name: one["value"] for name, one in found["figures"].items()} == pytest.approx(recorded, abs=1e-3)
    intervals = bootstrap_interval(read_ranks(used.job(about["job"]), "en"), 50)
    assert found["figures"]["rsum"]["low"] == pytest.approx(intervals["rsum"].low, abs=1e-3)
    captions = [row for row in used.captions("corpus") if row["split"] == "test" and row["language"] == "en"]
    assert (found["images"], found["captions"]) == (len({row["image_id"] for row in captions}), len(captions))
    trained = {sentence_hash(row["text"]) for row in used.captions("corpus") if row["split"] == "train"
               and row["language"] == "en"}  # fmt: skip
    if "fb" not in about["row"]:
        expected = sum(sentence_hash(row["text"]) in trained for row in captions)
        assert found["seen"][TRAIN] == {"names": 0, "pictures": 0, "sentences": expected}
    assert found["seen"][VAL]["names"] == 0
