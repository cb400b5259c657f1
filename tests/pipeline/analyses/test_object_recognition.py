"""Objects that are recognised in the pictures that a model draws of captions of scenes."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from data.corpora.scenes.grammar import Thing
from data.corpora.scenes.objects import Recogniser, objects_of, right
from data.pictures.pixels import middle_square
from pipeline.analyses import object_recognition
from pipeline.analyses.description import read_values
from pipeline.analyses.object_recognition import DRAWN, OTHER, PICTURES, REAL, name_of
from pipeline.corpus.prepare import pictures_of
from pipeline.graph import Graph
from pipeline.recipes.loading import load_recipe
from pipeline.reporting.analyses import tables_of
from pipeline.reporting.records import finished_records
from pipeline.reporting.results import Figures
from tests.data.layouts import write_folder
from tests.pipeline.tiny import GXN, Tiny

pytestmark = pytest.mark.whole

NAME = "recognised-gxn-both-1"
BAT = Thing("bat.animal", "red", "big", "left")
BALL = Thing("ball", "blue", "small", "top")
OBJECTS = (BAT, None, BALL, None, None)  # left, right, top, bottom, centre
ENGLISH, GERMAN = "a big red bat on the left and a small blue ball at the top", "links eine große rote Fledermaus"


@pytest.mark.parametrize(("seen", "text", "language", "expected"), [
    (OBJECTS, ENGLISH, "en", [100, 100, 100]),
    ((None,) * 5, ENGLISH, "en", [0, 0, 0]),
    ((replace(BAT, sense="bat.club"), None, None, None, None), ENGLISH, "en", [50, 50, 50]),
    ((replace(BAT, sense="bat.club"), None, BALL, None, None), GERMAN, "de", [0, 0, 100]),
    ((replace(BAT, colour="blue"), None, BALL, None, None), ENGLISH, "en", [50, 100, 50]),
    ((None, BAT, None, BALL, None), ENGLISH, "en", [0, 0, 0]),  # elsewhere
])  # fmt: skip
def test_an_object_is_right_at_its_place_by_a_noun_that_the_language_calls_it(seen, text, language, expected) -> None:
    assert right(seen, OBJECTS, text, language) == expected


@pytest.fixture(scope="module")
def real(gxn: Tiny) -> tuple[np.ndarray, list]:
    """Test pictures of 32 pixels and what is in them."""
    objects, files = objects_of(gxn.recipe().corpus.options, ["test"]), pictures_of(gxn.job("corpus"))
    return np.stack([middle_square(files[image], 32) for image in objects]), list(objects.values())


def test_known_pictures_are_recognised_and_grey_ones_are_empty(real) -> None:
    pictures, objects = real
    recogniser = Recogniser(pictures, objects)
    assert recogniser.recognise(pictures) == objects
    noise = np.random.default_rng(0).integers(-3, 4, pictures.shape)
    assert recogniser.recognise((pictures + noise).clip(0, 255).astype(np.uint8)) == objects
    assert recogniser.recognise(np.full_like(pictures[:1], 205)) == [(None,) * 5]


def test_figures_are_of_drawn_other_and_real_pictures(gxn: Tiny) -> None:
    scores = gxn.metrics(NAME)["test"]
    assert set(scores) == {"en", "de"}
    for language in scores:
        for picture in PICTURES:
            shares = read_values(gxn.job(NAME), language, "recognised", picture)
            assert shares.shape == (4, 3)
            for place, measure in enumerate(("objects", "nouns", "colours")):
                assert scores[language][name_of(picture, measure)] == pytest.approx(float(shares[:, place].mean()))
            assert (shares[:, 0] <= shares[:, 1:].min(1).values).all()


def test_what_is_drawn_decides(gxn: Tiny, real, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the model drew the real pictures, the right caption would score as those do, and another one less."""
    recipe, files = gxn.recipe(*GXN), pictures_of(gxn.job("corpus"))
    (row,), known = Graph(recipe, gxn.workspace).rows, objects_of(recipe.corpus.options, ["test"])
    drawn = np.stack([middle_square(files[image], 8) for image in known])
    monkeypatch.setattr(object_recognition, "TRAINING", ["test"])
    monkeypatch.setattr(
        object_recognition, "drawn_pictures", lambda model, encode, sentences, seed: drawn[: len(sentences)]
    )
    inputs = {name: gxn.workspace.folder(job) for name, job in row.analyses["recognised"].inputs.items()}
    figures = json.loads(json.dumps(row.analyses["recognised"].run(tmp_path, inputs)))["test"]
    for scores in figures.values():
        assert scores[name_of(DRAWN, "objects")] == scores[name_of(REAL, "objects")] == 100
        assert scores[name_of(OTHER, "objects")] < 50


def test_the_report_has_a_table_with_intervals_and_the_difference(gxn: Tiny, monkeypatch) -> None:
    recipe = gxn.recipe(*GXN)
    rows = Graph(recipe, gxn.workspace).rows
    shares = {DRAWN: 60.0, OTHER: 20.0, REAL: 90.0}
    monkeypatch.setattr("pipeline.analyses.object_recognition.read_values",
                        lambda folder, language, file, array: torch.full((4, 3), shares[array]))  # fmt: skip
    figures = Figures(Graph(recipe, gxn.workspace), [])
    (table,) = tables_of("recognised", figures, rows, "en")
    assert [line[2] for line in table.rows] == [PICTURES[DRAWN], PICTURES[OTHER], "the difference", PICTURES[REAL]]
    assert [line[4] for line in table.rows] == ["60.0 … 60.0", "20.0 … 20.0", "+40.0 … +40.0", "90.0 … 90.0"]
    assert [line[:2] for line in table.rows] == [["gxn", "both"], *[["", ""]] * 3]
    (kept,) = [one for one in figures.results if one.metric == "recognised_objects_drawn-other"]
    assert (kept.low, kept.high, kept.n, kept.language) == (40, 40, 4, "en")
    runs = list(finished_records(gxn.workspace, [rows[0].analyses["recognised"]], recipe, {}))
    gone = type(gxn.workspace)(gxn.folder / "nowhere")
    (there,) = tables_of("recognised", Figures(Graph(recipe, gone), runs), rows, "en")
    assert {line[4] for line in there.rows} == {"–"}
    assert [line[5:7] for line in there.rows] == [line[5:7] for line in table.rows]
    (untrained,) = tables_of("recognised", Figures(Graph(recipe, gone), []), rows, "en")
    assert [line[:3] for line in untrained.rows] == [["gxn", "both", "not run"]]
    (none,) = tables_of("recognised", figures, rows, "fr")
    assert not none.rows


def test_only_models_that_draw_scenes_have_the_job(tiny: Tiny, tmp_path: Path) -> None:
    for options in ("{generate: [i2t]}", "{generate: [t2i], target: regions}"):
        (row,) = Graph(tiny.recipe(*GXN, f"--vse.options={options}", "--vse.start=[]"), tiny.workspace).rows
        assert "recognised" not in row.analyses
    write_folder(tmp_path)
    own = ["--vse.model=gxn", "--vse.options.generate=[t2i]", "--vse.reranker={}", f"--corpus.root={tmp_path}"]
    for row in Graph(load_recipe("own", own), tiny.workspace).rows:
        assert not {"recognised", "senses"} & row.analyses.keys()
