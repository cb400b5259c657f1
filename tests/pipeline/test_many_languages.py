"""Models of many languages in the pipeline: trained, reported across languages, exported; refusals."""

import json
from functools import partial
from pathlib import Path

import pytest
import torch

from modules.retrieval_models import build_model, parameters_of_a_language
from pipeline.errors import RecipeError
from pipeline.export.exported_model import ExportedModel
from pipeline.graph import Graph
from tests.pipeline.tiny import Tiny

pytestmark = pytest.mark.whole

ROWS = {"mule": "en/human + de/human", "mlmme": "en/human + de/human"}
OPTIONS = {"mule": "pretrain_epochs=1", "mlmme": "beta=0.5"}


def arguments(model: str) -> list[str]:
    return [
        f"--vse.model={model}", f"--vse.options.{OPTIONS[model]}", f"--vse.rows.both=[{ROWS[model]}]",
        "--vse.only=[both]", "--vse.warmup_epochs=0", "--vse.reranker.model=null",
    ]  # fmt: skip


@pytest.fixture(scope="module", params=list(ROWS))
def trained(request: pytest.FixtureRequest, tiny: Tiny, tmp_path_factory) -> tuple[str, Tiny]:
    made = tiny.without(tmp_path_factory.mktemp(request.param), "vse-*")
    assert made.main("vse", *arguments(request.param)) == 0
    return request.param, made


def test_the_report_shows_it_across_languages(trained: tuple[str, Tiny]) -> None:
    model, made = trained
    assert made.main("report", *arguments(model)) == 0
    folder = made.workspace.root / "tiny" / "report"
    rows = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    counts = {row["language"]: row["value"] for row in rows if row["metric"] == "training_captions"}
    assert counts == {"en": 12, "de": 12}
    (more,) = (row["value"] for row in rows if row["metric"] == "language_parameters")
    state, mapped = 3 * 8 * (16 + 8 + 2), (8 + 1) * 16  # of mlmme: a GRU and a map to the joint space
    assert more == {"mule": 16 * 16 + 16 + 17, "mlmme": state + mapped}[model]
    assert "recall on test by language" not in (folder / "report.html").read_text()  # as many captions of each
    found = {row["metric"]: row for row in rows if row["language"] == "de+en"}
    assert found["rank_variance"]["value"] >= 0
    assert found["rank_variance"]["n"] == 4
    line = next(line for line in (folder / "report.md").read_text().splitlines() if line.startswith("| both | de+en |"))
    probed = made.metrics(f"vse-{model}-both-1").get("language_probe")
    assert (probed is not None) == ("language_probe" in found) == (model == "mule")
    if probed is not None:
        assert f"| {probed:.1f} (chance 50.0) |" in line


def test_it_is_exported_and_searches_in_each_language(trained: tuple[str, Tiny], tmp_path: Path) -> None:
    model, made = trained
    assert made.main("export", *arguments(model), f"--output={tmp_path / 'model'}") == 0
    exported = ExportedModel.load(tmp_path / "model")
    vectors = {language: exported.encode_captions(["a red bat"], language).single() for language in ("en", "de")}
    torch.testing.assert_close(vectors["en"].norm(dim=-1), torch.ones(1))
    assert not torch.allclose(vectors["en"], vectors["de"])


@pytest.mark.parametrize(
    ("model", "row", "words"),
    [
        ("mule", "en/human", "vse.model mule compares the captions of an image, but no group of vse.rows.both"),
        ("mlmme", "en/human", "vse.model mlmme compares the captions of an image in two languages, but no group of"),
        ("mlmme", "2*en/human", "vse.model mlmme compares the captions of an image in two languages, but no group of"),
        ("pivot-parallel-sym", "2*en/human", "compares the captions of an image in two languages, but no group of"),
        ("pivot-parallel-asym", "en/human, de/human", "of an image in two languages, but no group of vse.rows.both"),
    ],
)
def test_rows_without_captions_to_compare_are_one_line(tiny: Tiny, model: str, row: str, words: str) -> None:
    options = arguments(model) if model in OPTIONS else [f"--vse.model={model}", "--vse.only=[both]"]
    recipe = tiny.recipe(*options, f"--vse.rows.both=[{row}]", "--vse.reranker.model=null")
    with pytest.raises(RecipeError, match=words):
        Graph(recipe, tiny.workspace).rows


@pytest.mark.parametrize("group", ["5*de/human", "en/human + 5*de/human", "5*de/human + en/mmt:en-de-en"])
def test_more_captions_than_an_image_has_are_one_line_before_training(tiny: Tiny, capsys, group: str) -> None:
    before = sorted((tiny.workspace.root / "jobs").glob("vse-*/*"))
    rows = f'--vse.rows={{"human": ["en/human"], "many": ["{group}"]}}'
    settings = ["--vse.only=[human, many]", "--vse.reranker.model=null"]
    capsys.readouterr()
    assert tiny.main("vse", *settings, rows, "--vse.epochs=5") == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert line == (
        "error: vse.rows.many: `5*de/human` draws 5 captions of an image at once, but no training image of its group "
        "has more than 1 of this type; ask for at most 1 in vse.rows"
    )
    assert sorted((tiny.workspace.root / "jobs").glob("vse-*/*")) == before


def test_options_that_make_no_sense_are_refused_before_anything_runs(tiny: Tiny) -> None:
    for option, words in (
        ("neighbours=-1", "neighbours is -1; expected 0 or more"),
        ("cell=rnn", "expected lstm or gru"),
    ):
        with pytest.raises(RecipeError, match=words):
            tiny.recipe("--vse.model=mule", f"--vse.options.{option}")


def test_parameters_are_those_of_the_paper() -> None:
    """At the paper's sizes the LSTM and the layer behind it have 6.8 million, a language more costs 0.15 million."""
    common = {"region_dim": 2048, "vocabulary_size": 4, "dim": 512, "word_dim": 300}
    model = build_model("mule", languages=["en", "de"], **common)
    branch = sum(parameter.numel() for parameter in model.captions.parameters())
    assert branch == pytest.approx(6.8e6, rel=0.01)
    of_a_language = partial(parameters_of_a_language, languages=["en", "de"], **common)
    words = build_model("embn", languages=["en"], **common).captions  # reads word vectors of 300 numbers
    assert of_a_language("embn") == 0
    assert of_a_language("parallel-embn") == sum(parameter.numel() for parameter in words.parameters())
    assert of_a_language("mule") == 300 * 512 + 512 + 513  # its layer, and the classifier's row
    assert of_a_language("mule", pretrained="any") is None
