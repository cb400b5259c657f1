"""Filters of synthetic captions, `mt:en-de@NAME`: what they score by, what they keep, and who trains on it."""

import csv
from pathlib import Path

import pytest

from data.captions.table import Caption, listed_captions, read_captions, write_captions
from data.text.languages import language_evidence
from pipeline.errors import RecipeError
from pipeline.graph import Graph
from pipeline.recipes.loading import load_recipe
from pipeline.recipes.overlays import trainings_beside
from pipeline.vectors.filtering import SCORES
from tests.pipeline.tiny import Tiny

FILTERS = {
    "image": "{by: image, keep: 0.5, retrieval: {row: both, epochs: 1, warmup_epochs: 0}}",
    "back": "{by: back-translation, keep: 0.5}",
    "language": "{by: language, keep: 0.5}",
    "half": "{by: chance, keep: 0.5}",
}
SETTINGS = [
    "--vse.rows={both: [en/human + de/human], kept: [en/human, 'de/mt:en-de@image']}", "--vse.only=[kept]",
    "--vse.epochs=1", "--vse.reranker.model=null", *(f"--augment.filters.{name}={it}" for name, it in FILTERS.items()),
    f"--augment.paths=[{', '.join(f'mt:en-de@{name}' for name in FILTERS)}]",
]  # fmt: skip


@pytest.fixture(scope="module")
def filtered(tiny: Tiny, tmp_path_factory) -> Tiny:
    """All filters, and a model that trains on what one of them keeps."""
    made = tiny.without(tmp_path_factory.mktemp("filters"), "vse-*")
    assert made.main("augment", *SETTINGS) == made.main("vse", *SETTINGS) == 0
    return made


@pytest.mark.parametrize("name", FILTERS)
def test_half_of_the_captions_stay_those_of_the_highest_scores(filtered: Tiny, name: str):
    whole, kept = filtered.captions("synthetic-mt-en-de"), filtered.captions(f"synthetic-mt-en-de@{name}")
    assert len(kept) == round(len(whole) / 2)
    texts = {(row["image_id"], row["text"]) for row in whole}
    assert {(row["image_id"], row["text"]) for row in kept} <= texts
    assert {(row["source"], row["language"], row["split"]) for row in kept} == {(f"mt:en-de@{name}", "de", "train")}
    assert len({row["caption_id"] for row in [*whole, *kept]}) == len(whole) + len(kept)
    with (filtered.job(f"synthetic-mt-en-de@{name}") / SCORES).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    scores = [float(row["score"]) for row in rows]
    assert scores == sorted(scores, reverse=True)
    assert [row["kept"] for row in rows] == ["yes"] * len(kept) + ["no"] * (len(whole) - len(kept))
    assert len(set(scores)) > 1
    figures = filtered.metrics(f"synthetic-mt-en-de@{name}")
    assert (figures["captions"], figures["removed"]) == (len(kept), len(whole) - len(kept))


def test_the_search_is_part_of_what_a_back_translation_is_made_of(tiny: Tiny):
    """All ranks translate back; the others are done by one."""
    jobs, wider = (
        Graph(tiny.recipe(*SETTINGS, *more), tiny.workspace).synthesis for more in ((), ("--augment.beam_size=3",))
    )
    for name in FILTERS:
        path = f"mt:en-de@{name}"
        assert (jobs[path].settings != wider[path].settings) == jobs[path].collective == (name == "back")


def test_a_row_trains_on_what_is_kept(filtered: Tiny):
    figures = filtered.metrics("vse-san-kept-1")
    assert figures["test"]["de"]["mean_recall"] > 0


def test_captions_in_another_language_are_removed(filtered: Tiny, tmp_path: Path):
    """Of human German captions each third is the English one instead."""
    human = listed_captions(filtered.job("corpus") / "captions.parquet")
    german = [row for row in human if row.language == "de" and row.split == "train"]
    english = {row.image_id: row.text for row in human if row.language == "en"}
    new = [
        Caption(
            row.image_id, f"{number}|mt:en-de", "de", row.text if number % 3 else english[row.image_id], "train",
            "mt:en-de", row.caption_id,
        ) for number, row in enumerate(german)
    ]  # fmt: skip
    write_captions(new, tmp_path / "captions.parquet")
    job = Graph(filtered.recipe(*SETTINGS), filtered.workspace).synthesis["mt:en-de@language"]
    inputs = {name: filtered.workspace.folder(one) for name, one in job.inputs.items()} | {"captions": tmp_path}
    out = tmp_path / "out"
    out.mkdir()
    job.run(out, inputs)
    kept = {row["caption_id"] for row in read_captions(out / "captions.parquet")}
    assert len(kept) == round(len(new) / 2)
    assert not kept & {f"{number}|mt:en-de@language" for number in range(0, len(new), 3)}


def test_evidence_of_a_language():
    assert language_evidence("Zwei Hunde spielen im Schnee.", "de") > 0 > language_evidence("Two dogs play.", "de")
    assert language_evidence("Two dogs are playing in the snow.", "en") > 0
    assert language_evidence("1234", "de") == 0


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["--augment.filters.x={by: image}", "--augment.paths=[mt:en-de@x]"], "retrieval.row, a row of vse.rows"),
        (["--augment.filters.x={by: chance, retrieval: {row: none}}", "--augment.paths=[mt:en-de@x]"], "retrieval.row"),
        (["--augment.filters.x={by: back-translation}", "--augment.paths=[mt:en-de-en@x]"], "no original in another"),
        (["--augment.filters.x={by: looks}"], "augment.filters.x.by is 'looks'; expected image, back-tr"),
        (["--augment.filters.x={keep: 0}"], "keep"),
        (["--augment.filters.x={by: chance}", "--augment.searches.x={beam_size: 2}"], "rename one"),
        (["--augment.filters.x={by: chance}", "--augment.paths=[mt:en-de@y]"], "augment.searches and augment.filters"),
        (["--augment.filters.x={by: image, retrieval: {row: nowhere}}"], "augment.filters.x.retrieval.row"),
        (
            ["--augment.filters.x={by: image, retrieval: {row: own}}", "--vse.rows.own=['de/mt:en-de@x']",
             "--augment.paths=[mt:en-de@x]"], "captions that a filter kept",
        ),
    ],
)  # fmt: skip
def test_filters_that_make_no_sense_are_one_line(tiny: Tiny, settings: list[str], expected: str):
    with pytest.raises(RecipeError, match=expected):
        tiny.recipe(*settings)


def test_a_filter_s_model_may_read_the_captions_that_are_filtered(tiny: Tiny) -> None:
    """The example of `.docs/pages/translation.md`, whose paths do not name them again."""
    recipe = tiny.recipe(
        "--augment.paths=[mt:en-de@fits]", "--augment.filters.fits={by: image, retrieval: {row: mt-f}}",
        "--vse.rows={mt-f: [en/human, 'de/mt:en-de'], fits: [en/human, 'de/mt:en-de@fits']}", "--vse.only=[mt-f, fits]",
    )  # fmt: skip
    graph = Graph(recipe, tiny.workspace)
    (row, _), kept = graph.rows, graph.synthesis["mt:en-de@fits"]
    assert row.job.key in {job.key for job in kept.inputs.values()}


def test_another_model_filters_on_the_row_of_a_dual_encoder() -> None:
    """It has words and options of its own."""
    recipe = load_recipe("scenes", [
        "--vse.model=dual-encoder", "--vse.pretrained=some/network", "--vse.options={text: full}", "--vse.only=[none]",
        "--vse.reranker.model=null", "--mmt.systems=[mt]", "--augment.paths=[mt:en-de, mt:en-de@fits]",
        "--augment.filters.fits={by: image, keep: 0.5, retrieval: {row: none, model: san, min_count: 1}}",
        "--mmt.rerank.retrieval={row: none, model: san}",
        "--augment.captioner={row: none, model: gxn, options: {generate: [i2t]}}",
    ])  # fmt: skip
    beside = trainings_beside(recipe)
    assert {key: (own.model, own.pretrained, own.options) for key, own in beside.items()} == {
        "augment.captioner": ("gxn", None, {"generate": ["i2t"]}),
        "augment.filters.fits.retrieval": ("san", None, {}), "mmt.rerank.retrieval": ("san", None, {}),
    }  # fmt: skip
    assert beside["augment.filters.fits.retrieval"].min_count == 1
