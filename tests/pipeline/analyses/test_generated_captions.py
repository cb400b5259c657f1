"""Captions that a trained model writes of the test images: kept, scored beside both baselines, and in the report."""

import json
import math
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch

from data.captions.table import read_captions
from data.text.tokenisation import plain_words
from pipeline.analyses.description import read_values
from pipeline.analyses.generated import (
    BASELINES,
    MEASURES,
    _headline,
    caption_baselines,
    generated_scores,
)
from pipeline.export.exported_model import ExportedModel
from pipeline.export.generation import captions_of_regions
from pipeline.graph import Graph
from pipeline.reporting import drawings
from pipeline.reporting.analyses import tables_of
from pipeline.reporting.results import Figures
from pipeline.visualization.pictures import picture_sheet
from tests.pipeline.tiny import GXN, Tiny

pytestmark = pytest.mark.whole

NAME = "generated-gxn-both-1"


def read_generated(folder: Path) -> dict[str, dict[str, str]]:
    """Language → image id → caption."""
    captions = defaultdict[str, dict[str, str]](dict)
    for line in (folder / "captions.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        captions[row["language"]][row["image_id"]] = row["caption"]
    return captions


def test_a_caption_of_each_test_image_is_kept_and_scored_beside_the_baselines(gxn: Tiny) -> None:
    corpus, folder = gxn.job("corpus"), gxn.job(NAME)
    captions = read_captions(corpus / "captions.parquet")
    images = {row["image_id"] for row in captions.to_list() if row["split"] == "test"}
    lines = [json.loads(line) for line in (folder / "captions.jsonl").read_text().splitlines()]
    assert all(set(line) == {"image_id", "language", "caption"} for line in lines)
    assert {(line["image_id"], line["language"]) for line in lines} == {(i, x) for i in images for x in ("de", "en")}
    written = read_generated(folder)
    for language in ("de", "en"):
        words = {image: plain_words(text, language) for image, text in written[language].items()}
        expected, baselines = generated_scores(captions, language, words), caption_baselines(corpus, language)
        scores = gxn.metrics(NAME)["test"][language]
        assert [scores[f"generated_{one}"] for one in MEASURES] == pytest.approx(list(expected.figures().values()))
        assert scores["generated_images"] == len(images)
        assert np.array_equal(read_values(folder, language, "generated", "cider"), expected.cider)
        for name in BASELINES:
            figures = gxn.metrics("caption-baselines")["test"][language]
            assert figures[f"{name}_cider"] == baselines[name].figures()["cider"]
            kept = read_values(gxn.job("caption-baselines"), language, name, "cider")
            assert np.array_equal(kept, baselines[name].cider)


def test_they_are_what_the_exported_model_writes(gxn: Tiny, gxn_model) -> None:
    """It is of the same weights, and reads the regions of the picture itself."""
    written = read_generated(gxn.job(NAME))["en"]
    pictures = {path.stem: path for path in (gxn.job("corpus") / "pictures").iterdir()}
    some = [image for image in written if image in pictures][:3]
    exported = ExportedModel.load(gxn_model)
    regions = np.stack([exported.regions_of(pictures[one])[0] for one in some])
    assert captions_of_regions(exported, regions, "en") == [written[one] for one in some]


def test_the_report_has_a_table_of_rows_and_baselines_with_intervals(gxn: Tiny) -> None:
    recipe = gxn.recipe(*GXN)
    figures, rows = Figures(Graph(recipe, gxn.workspace), []), Graph(recipe, gxn.workspace).rows
    (german,), (english,) = (list(tables_of("generated", figures, rows, language)) for language in ("de", "en"))
    assert (german.title[:29], english.title[:29]) == ("Generated captions, gxn, de, ", "Generated captions, gxn, en, ")
    assert [row[0] for row in english.rows] == ["both", *BASELINES.values()]
    assert all("…" in row[6] for row in english.rows)
    (row,) = [one for one in figures.results if (one.language, one.metric) == ("en", "generated_cider")]
    assert (row.system, row.source, row.n, row.seeds) == ("gxn", "both", 4, 1)
    assert row.low <= row.value <= row.high
    (baseline,) = [one for one in figures.results if (one.language, one.metric) == ("en", "nearest_cider")]
    assert 0 <= baseline.low <= baseline.value <= baseline.high
    spread = [torch.tensor([0.0, 0.0, 0.0, 12.0]), torch.zeros(4)]
    jobs = [rows[0].analyses["generated"]] * 2
    assert figures.interval(jobs, lambda _: spread[0], 0.0, 1000.0)[0] == 0
    seeds = iter([*spread] * 2)
    assert (
        figures.interval(jobs, lambda _: next(seeds), 0.0, 1000.0)[0]
        == 0
        > figures.interval(jobs, lambda _: next(seeds), -math.inf, math.inf)[0]
    )
    elsewhere = Figures(Graph(recipe, type(gxn.workspace)(gxn.folder / "nowhere")), [])
    assert [row[:2] for row in next(tables_of("generated", elsewhere, rows, "en")).rows] == [["both", "not run"]]


def test_a_model_without_a_decoder_has_no_such_job(tiny: Tiny) -> None:
    for options in ("{generate: []}", "{generate: [t2i]}"):
        (row,) = Graph(tiny.recipe(*GXN, f"--vse.options={options}", "--vse.start=[]"), tiny.workspace).rows
        assert "generated" not in row.analyses
        assert not any(job.name.startswith("generated-") for job in row.jobs)


def test_empty_captions_are_counted(gxn: Tiny, tmp_path, monkeypatch) -> None:
    (row,) = Graph(gxn.recipe(*GXN), gxn.workspace).rows
    monkeypatch.setattr(
        "modules.retrieval_models.gxn.Gxn.write_captions", lambda self, regions, *_: [[]] * len(regions)
    )
    inputs = {name: gxn.workspace.folder(job) for name, job in row.analyses["generated"].inputs.items()}
    figures = json.loads(json.dumps(row.analyses["generated"].run(tmp_path, inputs)))
    assert figures["test"]["en"]["generated_cider"] == 0
    assert figures["test"]["en"]["generated_empty"] == 4
    assert _headline(figures) == "CIDEr-D de 0.0, CIDEr-D en 0.0; empty captions, which score 0: 8"


@pytest.mark.slow
def test_captions_and_pictures_stand_side_by_side_in_the_report(gxn: Tiny, tmp_path, monkeypatch) -> None:
    """Beside each test image what is drawn of its human caption, and its captions."""
    sheets = []
    monkeypatch.setattr(drawings, "picture_sheet", lambda rows: sheets.append(rows) or picture_sheet(rows))
    made = gxn.without(tmp_path, "draw-*")
    assert made.main("draw", *GXN) == 0
    (rows,) = sheets
    assert len(rows) == 4
    texts = {row["text"] for row in read_captions(made.job("corpus") / "captions.parquet").to_list()}
    written = read_generated(made.job(NAME))
    for (picture, drawn), lines in rows:
        assert [text.partition(":")[0] for text, _ in lines] == [
            "English, human", "retrieved", "generated", "German, human", "retrieved", "generated", "drawn",
        ]  # fmt: skip
        said = [text.partition(": ")[2] for text, _ in lines]
        assert {said[0], said[1], said[3], said[4]} <= texts
        assert (said[2], said[5]) == tuple(written[one][picture.stem] or "(empty)" for one in ("en", "de"))
        assert said[6] == "of the human caption in English"
        assert drawn.size == (128, 128)
    assert (made.job("draw-gxn-both-1") / "generation.png").is_file()
    assert made.main("report", *GXN) == 0
    page = (made.workspace.root / "tiny" / "report" / "report.html").read_text()
    assert "vse-gxn-both-1, generation" in page
    assert "Generated captions, gxn, en" in page
