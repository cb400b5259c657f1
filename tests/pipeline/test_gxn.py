"""GXN in the pipeline: pixels, weights to start from, captions that are written and pictures that are drawn."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import load_file

from data.pictures.pixels import PixelStore
from pipeline.cli import main
from pipeline.engine.job import Job
from pipeline.errors import RecipeError
from pipeline.export.exported_model import ExportedModel
from pipeline.export.generation import captions_of_regions, picture_of
from pipeline.graph import Graph
from pipeline.recipes.loading import load_recipe
from pipeline.recipes.overlays import overlaid
from pipeline.retrieval.training import of_model, start_weights
from tests.modules.text_models import save
from tests.pipeline.tiny import GXN, Tiny

pytestmark = pytest.mark.whole


def manifests(made: Tiny) -> dict[str, dict]:
    """The trainings by what they generate."""
    folders = (made.workspace.root / "jobs" / "vse-gxn-both-1").iterdir()
    found = {path: json.loads((path / "manifest.json").read_text()) for path in folders if path.is_dir()}
    return {"+".join(one["settings"]["options"]["generate"]): one | {"folder": path} for path, one in found.items()}


def test_its_parts_are_trained_first_and_it_starts_from_their_weights(gxn: Tiny) -> None:
    found = manifests(gxn)
    assert set(found) == {"i2t", "t2i", "i2t+t2i"}
    whole = found["i2t+t2i"]
    assert {name: one["key"] for name, one in whole["inputs"].items() if name.startswith("start")} == {
        "start-0": found["i2t"]["key"], "start-1": found["t2i"]["key"],
    }  # fmt: skip
    assert (found["i2t"]["settings"]["epochs"], whole["settings"]["epochs"]) == (1, 2)
    assert "pixels" in whole["inputs"]
    assert "pixels" not in found["i2t"]["inputs"]


def test_shared_parts_are_the_first_one_s(gxn: Tiny) -> None:
    from modules.retrieval_models import build_model

    found = manifests(gxn)
    network = json.loads((found["i2t+t2i"]["folder"] / "network.json").read_text())
    model = build_model(network["model"], **network["arguments"])
    start_weights(model, [found[name]["folder"] for name in ("i2t", "t2i")])
    first, second = (load_file(found[name]["folder"] / "weights.safetensors") for name in ("i2t", "t2i"))
    for name, weight in model.state_dict().items():
        assert np.array_equal(weight, first[name] if name in first else second[name]), name
    assert any(name.startswith("decoder.") for name in first)
    assert any(name.startswith("generator.") for name in second)
    with pytest.raises(RecipeError, match=r"vse\.start: decoder\.begin\.weight has the shape"):
        start_weights(build_model("gxn", **network["arguments"] | {"word_dim": 3}), [found["i2t"]["folder"]])


def test_pixels_are_the_middle_of_the_training_pictures(gxn: Tiny) -> None:
    folder = gxn.job("pixels-8")
    ids = (folder / "ids.txt").read_text().split()
    assert len(ids) == 12
    taken = PixelStore(folder).pixels_of(ids[3:4])[0]
    picture = Image.open(next(gxn.job("corpus").glob(f"pictures/{ids[3]}.*"))).convert("RGB")
    expected = np.asarray(picture.resize((8, 8), Image.Resampling.LANCZOS)).transpose(2, 0, 1)
    assert np.array_equal(taken, expected)


def test_captions_are_written_in_each_language(gxn: Tiny, gxn_model: Path, capsys: pytest.CaptureFixture) -> None:
    exported = ExportedModel.load(gxn_model)
    pictures = sorted((gxn.job("corpus") / "pictures").iterdir())[:3]
    regions = [exported.regions_of(picture)[0][None] for picture in pictures]
    together = captions_of_regions(exported, np.concatenate(regions), "en", beam=2)
    assert together == [captions_of_regions(exported, one, "en", beam=2)[0] for one in regions]
    assert all("<" not in text for text in together)
    assert main(["caption", str(pictures[0]), "--model", str(gxn_model), "--beam", "2", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["language"] for line in lines] == exported.languages
    assert {line["language"]: line["caption"] for line in lines}["en"] == together[0]


def test_pictures_are_drawn_by_sentence_and_seed(gxn_model: Path, tmp_path: Path) -> None:
    exported, written = ExportedModel.load(gxn_model), tmp_path / "drawn.png"
    assert main(["imagine", "a red bat", "--model", str(gxn_model), "--seed", "3", "--output", str(written)]) == 0
    drawn = np.asarray(Image.open(written))
    others = [("a red bat", 3), ("a red bat", 4), ("ein kleiner baum", 3)]
    same, *different = (np.asarray(picture_of(exported, text, seed=seed)).astype(int) for text, seed in others)
    assert np.array_equal(drawn, same), abs(drawn - same).max()
    assert not any(np.array_equal(drawn, one) for one in different)


def test_unknown_words_of_a_sentence_to_draw_are_named(gxn_model: Path, tmp_path: Path, capsys) -> None:
    drawn = ["--model", str(gxn_model), "--language", "en", "--output", str(tmp_path / "drawn.png")]
    assert main(["imagine", "a red qwertz", *drawn]) == 0
    told = " ".join(capsys.readouterr().err.split())
    assert "1 of 3 words unknown: qwertz; this model reads German and English" in told
    assert main(["imagine", "a red bat", *drawn, "--force"]) == 0
    assert "unknown" not in capsys.readouterr().err


@pytest.mark.parametrize(("arguments", "says"), [
    (["caption"], "caption: give a picture, or several"),
    (["imagine", " "], "imagine: give a sentence"),
    (["imagine", "a red bat", "--output", "."], "imagine: --output .: is a folder"),
    (["caption", "none.png"], "none.png: no such file"),
    (["imagine", "a red bat", "--language", "fr"], "language 'fr': the model"),
])  # fmt: skip
def test_what_cannot_be_done_is_one_line(gxn_model: Path, arguments, says, capsys: pytest.CaptureFixture) -> None:
    assert main([*arguments, "--model", str(gxn_model)]) != 0
    assert says in capsys.readouterr().err


def test_a_model_without_decoder_or_generator_says_so(exported: ExportedModel, used: Tiny) -> None:
    picture = next((used.job("corpus") / "pictures").iterdir())
    with pytest.raises(RecipeError, match=r"SAN writes no captions: it has no decoder; train `gxn`"):
        captions_of_regions(exported, exported.regions_of(picture)[0][None], "en")
    with pytest.raises(RecipeError, match=r"SAN draws no images: it has no generator of pictures; train `gxn`"):
        picture_of(exported, "a red bat", "en")


@pytest.mark.parametrize(("start", "says"), [
    ("[{colour: red}]", r"vse\.start\[0\]\.colour"),
    ("[{options: {generate: [x2y]}}]", r"generate is \['x2y'\]; expected a list of i2t or t2i"),
    ("[{epochs: -1}]", "epochs"),
    ("[{dim: 8}]", r"vse\.start\[0\]\.dim"),
    ("[{trainer: {devices: 2}}]", r"vse\.start\[0\]\.trainer"),
])  # fmt: skip
def test_trainings_to_start_from_are_checked_before_anything_runs(tiny: Tiny, start: str, says: str) -> None:
    with pytest.raises(RecipeError, match=says):
        tiny.recipe(*GXN, f"--vse.start={start}")


def test_settings_of_starts_are_typed_and_belong_to_the_model_alone(tiny: Tiny) -> None:
    recipe = tiny.recipe(*GXN, "--vse.start=[{learning_rate: 1e-4}]")
    assert recipe.vse.start == [{"learning_rate": 1e-4}]
    assert of_model(recipe.vse, "vse++").start == []
    assert of_model(recipe.vse, "gxn").start == recipe.vse.start


def test_sentence_vectors_are_of_caption_tables_alone(tiny: Tiny, tmp_path: Path) -> None:
    folder = save("bert", tmp_path)
    more = [f"--vse.pretrained={folder}", "--vse.pretrained_vectors=sentences", "--vse.options.generate=[t2i]"]
    starts = "--vse.start=[{options: {target: regions}, epochs: 1}]"
    (row,) = Graph(tiny.recipe(*GXN, *more, starts), tiny.workspace).rows
    inputs = trained_by(row.job).inputs
    assert {name for name in inputs if name.startswith("sentences-")} == {"sentences-corpus"}
    assert list(inputs).index("pixels") < list(inputs).index("start-0")


def trained_by(job: Job) -> Job:
    """The training behind a job of a row."""
    return job if job.name.startswith("vse-") else trained_by(next(iter(job.inputs.values())))


def test_the_full_model_starts_from_the_rows_of_its_parts() -> None:
    systems = load_recipe("multi30k-flickr8k-gxn", ["--corpus.root=/nowhere"]).tables["en"].systems
    full, *parts = (systems[name].vse for name in ("i2t + t2i", "i2t, mix", "t2i"))
    assert [overlaid(full, one) for one in full.start] == parts
