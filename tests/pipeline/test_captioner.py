"""Captions of pictures as a source, `caption:de`: who writes them, of which images, and who trains on them."""

import pytest

from data.captions.table import read_captions
from data.pictures.pixels import open_images
from modules.translators.beam import BeamSettings
from pipeline.engine.job import topological_order
from pipeline.errors import RecipeError
from pipeline.graph import Graph
from pipeline.retrieval.generation import captions_of_corpus
from pipeline.stages import all_jobs
from tests.pipeline.tiny import Tiny

MODEL = "model: gxn, options: {generate: [i2t], longest: 6}, epochs: 1, warmup_epochs: 0"
SETTINGS = [
    "--vse.rows={both: [en/human + de/human], more: [en/human, 'de/caption:de']}", "--vse.only=[more]",
    "--vse.epochs=1", "--augment.paths=[caption:de]", f"--augment.captioner={{row: both, {MODEL}}}",
    "--vse.reranker.model=null",
]  # fmt: skip


@pytest.fixture(scope="module")
def written(tiny: Tiny, tmp_path_factory) -> Tiny:
    """A captioner, its captions, and a model that trains on them."""
    made = tiny.without(tmp_path_factory.mktemp("captioner"), "vse-*")
    assert made.main("augment", *SETTINGS) == made.main("vse", *SETTINGS) == 0
    return made


@pytest.mark.slow
def test_training_images_alone_get_the_captions_of_the_model(written: Tiny) -> None:
    corpus, rows = written.job("corpus"), written.captions("synthetic-caption-de")
    human = read_captions(corpus / "captions.parquet").to_list()
    train = list(dict.fromkeys(row["image_id"] for row in human if row["split"] == "train"))
    assert {row["image_id"] for row in rows} <= set(train)
    assert {(row["language"], row["split"], row["source"], row["parent"]) for row in rows} == {
        ("de", "train", "caption:de", None)
    }
    settings = written.recipe(*SETTINGS)
    images, search = open_images(corpus / "regions"), BeamSettings(2)
    model, trainer = written.job("vse-gxn-both-1"), settings.vse.trainer
    expected = captions_of_corpus(model, images, train, ["de"], search, trainer)["de"]
    assert {row["image_id"]: row["text"] for row in rows} == {one: text for one, text in expected.items() if text}
    figures = written.metrics("synthetic-caption-de")
    assert figures["captions"] == len(rows)
    assert figures["empty"] == len(train) - len(rows)


@pytest.mark.slow
def test_a_row_trains_on_them_and_the_report_shows_them(written: Tiny, capsys) -> None:
    jobs = Graph(written.recipe(*SETTINGS), written.workspace).rows[0].jobs
    needed = {job.name for job in topological_order(jobs)}
    assert needed >= {"vse-gxn-both-1", "synthetic-caption-de", "vse-san-more-1"}
    assert written.metrics("vse-san-more-1")["test"]["de"]["mean_recall"] >= 0
    assert written.main("report", *SETTINGS) == 0
    said = capsys.readouterr().out
    assert "caption:de" in said
    results = (written.workspace.root / "tiny" / "report" / "results.jsonl").read_text()
    assert '"caption:de"' in results


@pytest.mark.whole
def test_its_training_is_that_of_the_row_where_settings_are_equal(tiny: Tiny) -> None:
    """So it is done once. What a captioner is does not change keys of translators' captions."""
    recipe = tiny.recipe(*SETTINGS)
    alone = ["--vse.rows={both: [en/human + de/human]}", "--vse.only=[both]", "--vse.model=gxn", "--vse.epochs=1",
             "--vse.options={generate: [i2t], longest: 6}", "--vse.warmup_epochs=0"]  # fmt: skip
    (row,) = Graph(tiny.recipe(*alone), tiny.workspace).rows
    assert Graph(recipe, tiny.workspace).captioner.key == row.trained[0].key
    with_it = tiny.recipe(*SETTINGS, "--augment.paths=[caption:de,mt:en-de]")
    found, before = Graph(with_it, tiny.workspace).synthesis, Graph(tiny.recipe(), tiny.workspace).synthesis
    assert found["mt:en-de"].key == before["mt:en-de"].key
    assert (found["mt:en-de"].stage, found["caption:de"].stage) == ("augment", "vse")
    listed = [job.name for job in all_jobs(Graph(with_it, tiny.workspace))]
    assert listed.index("vse-gxn-both-1") < listed.index("synthetic-caption-de") < listed.index("vse-san-more-1")
    assert len(listed) == len(set(listed))


@pytest.mark.slow
def test_captions_that_are_all_empty_are_one_line(written: Tiny, tmp_path, monkeypatch) -> None:
    job = Graph(written.recipe(*SETTINGS), written.workspace).synthesis["caption:de"]
    monkeypatch.setattr(
        "modules.retrieval_models.gxn.Gxn.write_captions", lambda self, regions, *_: [[]] * len(regions)
    )
    with pytest.raises(RecipeError, match=r"caption:de: every caption is empty; train the captioner longer"):
        job.run(tmp_path, {name: written.workspace.folder(one) for name, one in job.inputs.items()})


@pytest.mark.parametrize(("more", "says"), [
    ("--augment.captioner.row=more", r"captioner\.row is 'more', which trains on 'caption:de', captions that it is to"),
    ("--augment.captioner.row=no-row", r"augment\.captioner\.row is 'no-row'; expected one of vse\.rows: "),
    ("--augment.captioner.model=san", r"augment\.captioner: 'san' has no decoder with these options, so it writes no"),
    ("--augment.captioner.options={generate: [t2i]}", r"augment\.captioner: 'gxn' has no decoder with these options"),
    ("--augment.captioner.colour=red", r"unknown key augment\.captioner\.colour"),
    ("--augment.captioner.epochs=long", r"augment\.captioner\.epochs"),
    ("--augment.captioner.epochs=0", r"augment\.captioner: vse\.model is gxn and vse\.epochs is 0"),
    ("--augment.paths=[caption:fr]", r"has 'caption:fr': augment\.captioner\.row 'both' is trained on de, en"),
    ("--augment.paths=[caption:en-de]", r"has 'caption:en-de': expected caption:de, with one language and no search"),
    ("--augment.paths=[caption:de@wide]", r"has 'caption:de@wide': expected caption:de, with one language and no"),
])  # fmt: skip
def test_a_captioner_is_checked_before_anything_runs(tiny: Tiny, more: str, says: str) -> None:
    with pytest.raises(RecipeError, match=says):
        tiny.recipe(*SETTINGS, more)


def test_captions_of_pictures_need_a_captioner(tiny: Tiny) -> None:
    with pytest.raises(RecipeError, match=r"augment\.paths has 'caption:de': nothing writes captions; set augment\."):
        tiny.recipe("--augment.paths=[caption:de]")


@pytest.mark.slow
def test_the_model_card_says_who_wrote_them(written: Tiny) -> None:
    assert written.main("export", *SETTINGS, "--output", str(written.folder / "model")) == 0
    assert "de captions by a retrieval model (caption:de), en captions by people" in (
        (written.folder / "model" / "README.md").read_text()
    )
