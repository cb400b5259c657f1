"""`evaluate` on folders and recipes' corpora: figures as in the report, what was seen in training; bad input."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from data.errors import DataError
from data.evaluation.seen import TRAIN, VAL, name_hash
from data.pictures.regions import RegionStore, write_regions
from data.text.sentences import sentence_hash
from modules.metrics.intervals import bootstrap_interval
from modules.metrics.retrieval import retrieval_ranks, retrieval_scores
from modules.retrieval_models.base import MODELS
from pipeline.analyses.sets import set_of_folder, set_of_recipe
from pipeline.cli import main
from pipeline.corpus.prepare import pictures_of
from pipeline.engine import files
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.evaluation.measure import measure, shared_languages
from pipeline.export.exported_model import ExportedModel
from pipeline.export.training_hashes import SEEN, exported_hashes, hashes_of
from pipeline.graph import Graph
from pipeline.recipes.loading import load_recipe
from pipeline.retrieval.ranks import read_ranks
from tests.data.layouts import XTD10, write_xtd10
from tests.modules.dual_networks import save
from tests.pipeline.init.own_pictures import write_coco
from tests.pipeline.tiny import Tiny, at


@pytest.fixture
def folder(used: Tiny, tmp_path: Path) -> Path:
    """Four test pictures and two training pictures of the tiny corpus under other names, with other captions."""
    place, pictures = tmp_path / "theirs", pictures_of(used.job("corpus"))
    split = {row["image_id"]: row["split"] for row in used.captions("corpus")}
    chosen = [name for wanted, count in (("test", 4), ("train", 2))
              for name in [one for one in pictures if split.get(one) == wanted][:count]]  # fmt: skip
    (place / "pictures").mkdir(parents=True)
    lines = []
    for number, name in enumerate(chosen):
        shutil.copyfile(pictures[name], place / "pictures" / f"their {number}.png")
        for language, text in (("en", f"a picture of number {number}"), ("xx", f"bild {number}")):
            lines.append(f"their {number}.png\t{language}\t{text}\t{'test' if number < 4 else 'train'}")
    (place / "captions.tsv").write_text("\n".join(lines) + "\n")
    return place


@pytest.fixture
def scan(exported: ExportedModel) -> ExportedModel:
    """A model of sets that reads regions made elsewhere."""
    sizes = {
        "region_dim": exported.model.input_dim, "vocabulary_size": exported.model.vocabulary_size,
        "languages": exported.model.languages, "dim": 8, "word_dim": 8,
    }  # fmt: skip
    return replace(exported, model=MODELS["scan-t2i-avg"](**sizes).eval(), extractor=None, standard=None)


def _command(tiny: Tiny, capsys: pytest.CaptureFixture, model: Path | str, *arguments: str) -> tuple[int, str, str]:
    """Status, output and errors of the command."""
    capsys.readouterr()
    with at(tiny.folder):
        status = main(["evaluate", str(model), *arguments])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_a_recipe_s_test_gives_the_report_s_figures(used: Tiny, exported: ExportedModel, capsys) -> None:
    about = json.loads((exported.folder / "model.json").read_text())
    on = f"recipe:{used.yaml}"
    _, out, err = _command(used, capsys, exported.folder, "--on", on, "--report.resamples=100", "--json")
    (found,) = [json.loads(line) for line in out.splitlines()]
    assert (found["language"], found["split"], found["on"], found["gallery"]) == ("en", "test", on, 4)
    assert {name: one["value"] for name, one in found["figures"].items()} == pytest.approx(
        about["test"]["en"], abs=1e-3
    )
    interval = bootstrap_interval(read_ranks(used.job(about["job"]), "en"), 100)["rsum"]
    assert found["figures"]["rsum"] == pytest.approx(interval._asdict(), abs=1e-3)
    assert "left out: cs, de, fr; the model was trained on en" in err


def test_what_a_model_was_trained_and_chosen_on_is_counted(used: Tiny, exported: ExportedModel, capsys) -> None:
    rows = [row for row in used.captions("corpus") if row["language"] == "en"]
    trained = {sentence_hash(row["text"]) for row in rows if row["split"] == "train"}
    for split, names in (("train", 12), ("test", 0)):
        (found,) = measure(exported, set_of_recipe(used.recipe(), used.workspace, split), 100, 1)
        own = [row for row in rows if row["split"] == split]
        again = sum(sentence_hash(row["text"]) in trained for row in own)
        assert found.seen
        assert found.seen[TRAIN] == (names, names, again)
        assert (found.images, found.captions) == (12 if names else 4, len(own))
    _, out, err = _command(used, capsys, exported.folder, "--on", f"recipe:{used.yaml}", "--split", "val")
    assert out.count("of 4") == 3
    assert "val, ranked among 4 pictures; recalls in percent; 95 %" in " ".join(out.split())
    assert "en: 4 of 4 images are validation images of the model" in err


def test_pictures_of_a_folder_are_recognised_by_their_bytes(used: Tiny, exported, folder: Path, capsys) -> None:
    status, out, _ = _command(used, capsys, exported.folder, "--on", str(folder))
    counts = next(line for line in out.splitlines() if "t→i" in line).split()[-3:]
    assert (status, counts, out.count("of 6")) == (0, ["0", "2", "0"], 3)  # names, pictures, sentences
    (found,) = measure(exported, set_of_folder(folder, "test"), 100, 1)
    assert found.seen
    assert found.seen == {TRAIN: (0, 0, 0), VAL: (0, 0, 0)}
    (folder / "captions.tsv").write_text("their 0.png\ten\ta picture\ntheir 1.png\ten\ta picture\n")
    assert measure(exported, set_of_folder(folder, None), 100, 1)[0].images == 2


def test_each_picture_is_read_once_for_its_hash(used: Tiny, exported, folder: Path, monkeypatch) -> None:
    """Though there are two languages; for an export not at all, if the key of the corpus has its digest."""
    read, digest_of = [], files.digest_of
    monkeypatch.setattr(files, "digest_of", lambda path: (read.append(path.name), digest_of(path))[1])
    text = (folder / "captions.tsv").read_text()
    (folder / "captions.tsv").write_text(text.replace("\txx\t", "\tde\t"))
    both = measure(replace(exported, languages=["de", "en"]), set_of_folder(folder, None), 100, 1)
    assert [one.seen and one.seen[TRAIN].pictures for one in both] == [2, 2]
    assert sorted(read) == [f"their {number}.png" for number in range(6)]
    workspace = Workspace(shutil.copytree(used.workspace.root, folder / "artifacts"))
    (row,) = [one for one in Graph(used.recipe(), workspace).rows if one.name == "human"]
    workspace.fingerprint(list(pictures_of(workspace.folder(row.job.inputs["corpus"])).values()))
    read.clear()
    found = hashes_of(row.job, workspace)
    assert found
    assert read == []
    expected = load_file(exported.folder / SEEN)
    assert all((found.hashes[split]["files"] == expected[f"{split}.files"]).all() for split in (TRAIN, VAL))


def test_a_folder_is_read_as_init_reads_it(exported: ExportedModel, folder: Path) -> None:
    """Captions without a column of languages beside the pictures; COCO's JSON."""
    names = [f"pictures/their {number}.png" for number in range(6)]
    (folder / "captions.tsv").unlink()
    (folder / "texts.tsv").write_text("".join(f"{name}\tThis is a picture of a small house\n" for name in names))
    found = set_of_folder(folder, None)
    assert (found.split, {one.language for one in found.captions}, len(found.pictures)) == ("all", {"en"}, 6)
    assert measure(exported, found, 100, 1)[0].captions == 6
    (folder / "texts.tsv").unlink()
    write_coco(folder / "captions.json", dict.fromkeys(names, "This is a picture of a small house"))
    assert len(set_of_folder(folder, None).captions) == 12
    assert len(set_of_folder(folder, "test").captions) == 2


def test_set_models_and_regions_made_elsewhere_are_measured_too(used: Tiny, scan: ExportedModel, tmp_path) -> None:
    made_here = set_of_recipe(used.recipe(), used.workspace, "test")
    with pytest.raises(RecipeError, match="made elsewhere, and scenes has none; measure it on the corpus of a recipe"):
        measure(scan, made_here, 100, 1)
    regions = Path(shutil.copytree(used.job("corpus") / "regions", tmp_path / "regions"))
    (regions / "standard.npz").unlink()
    (found,) = measure(scan, replace(made_here, regions=regions), 100, 1)
    english = [one for one in made_here.captions if one.language == "en"]
    ids, store = list(dict.fromkeys(one.image_id for one in english)), RegionStore(regions)
    images = scan.encode_regions(store.regions[store.rows(ids)])
    scores = scan.score(images, scan.encode_captions([one.text for one in english], "en"))
    ranks = retrieval_ranks(scores, torch.tensor([ids.index(one.image_id) for one in english]))
    assert {name: one[0] for name, one in found.figures.items()} == pytest.approx(retrieval_scores(ranks))


@pytest.mark.parametrize("regions", [False, True])
def test_a_test_set_is_read_as_its_files_are(exported: ExportedModel, scan: ExportedModel, tmp_path, regions) -> None:
    """From pictures, or from a region store that others have made; nothing is prepared."""
    write_xtd10(tmp_path)
    ids, dim = [name.removesuffix(".jpg") for name in XTD10], exported.model.input_dim
    rng, boxes = np.random.default_rng(0), np.tile([0, 0, 1, 1], (3, 1))
    write_regions(tmp_path / "stored", ids, [(rng.normal(size=(3, dim)), boxes) for _ in ids])
    chosen = ["--corpus.regions=stored", "--corpus.pictures=null"] if regions else ["--corpus.pictures=coco"]
    recipe = load_recipe("xtd10", [f"--corpus.root={tmp_path}", *chosen])
    on = set_of_recipe(recipe, Workspace(tmp_path / "artifacts"), None)
    (found,) = measure(scan if regions else exported, on, 100, 1)
    assert (on.split, len(on.captions), found.language, found.gallery, found.captions) == ("test", 20, "en", 4, 4)
    assert found.seen
    assert found.seen[TRAIN].names == 0
    assert not (tmp_path / "artifacts").exists()


def test_the_command_on_a_test_set(used: Tiny, exported: ExportedModel, tmp_path: Path, capsys) -> None:
    write_xtd10(tmp_path)
    settings = (f"--corpus.root={tmp_path}", "--corpus.pictures=coco", "--report.resamples=100")
    status, out, err = _command(used, capsys, exported.folder, "--on", "recipe:xtd10", "--json", *settings)
    assert (status, json.loads(out)["images"], json.loads(out)["split"]) == (0, 4, "test")
    assert "left out: de, es, ja, zh; the model was trained on en" in err
    german = tmp_path / "xtd10/MIC/test_1kcaptions_de.txt"
    for change, arguments, said in (
        (lambda: None, ("--split", "val"), "--split val: XTD10 has no captions by people there, but in test; name"),
        (lambda: shutil.copy(tmp_path / "xtd10/XTD10/test_1kcaptions_en.txt", german), (),
         "XTD10: sentences that seem to be in 'en' (4×, test, de: COCO_"),
        (lambda: german.write_text("ein Hund\n"), (), "test_1kcaptions_de.txt: 1 lines, expected 4, one for each"),
    ):  # fmt: skip
        change()
        status, out, err = _command(used, capsys, exported.folder, "--on", "recipe:xtd10", *arguments, *settings)
        assert (status, out, err.count("\n")) == (1, "", 1)
        assert said in err


def test_a_network_is_compared_in_the_languages_of_both(used: Tiny, exported, folder: Path, tmp_path, capsys) -> None:
    network = f"hub:{save('clip', tmp_path / 'clip', ('picture', 'number', 'bild'))}"
    command = (network, "--against", str(exported.folder), "--on", str(folder))
    status, out, err = _command(used, capsys, *command, "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert (status, [(one["model"], one["language"]) for one in lines]) == (
        0, [(network, "en"), (exported.name, "en"), (network, "en")]
    )  # fmt: skip
    ours, theirs, difference = (one["figures"] if "figures" in one else one["differences"] for one in lines)
    assert difference["rsum"]["value"] == pytest.approx(ours["rsum"]["value"] - theirs["rsum"]["value"], abs=1e-3)
    assert "left out: xx; the first model reads en, xx; the second en" in err
    text = (folder / "captions.tsv").read_text()
    (folder / "captions.tsv").write_text(text.replace("\ten\t", "\tfr\t"))
    status, out, err = _command(used, capsys, *command)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert "theirs, all: has captions in fr, xx; the model" in err


def test_models_without_a_language_in_common_are_one_line(exported: ExportedModel, folder: Path) -> None:
    on = set_of_folder(folder, None)
    other = replace(exported, languages=["xx"], name="the other")
    with pytest.raises(
        RecipeError, match=r"all: no language that both models read \(san, .*: en; the other: xx\); com"
    ):
        shared_languages([exported, other], on)
    with pytest.raises(RecipeError, match=r"6 of 6 images have no picture here, first 'their 0\.png', but the model"):
        shared_languages([exported, exported], replace(on, pictures={}))


@pytest.fixture
def older(exported: ExportedModel, tmp_path: Path) -> ExportedModel:
    """An export from before hashes were written."""
    folder = Path(shutil.copytree(exported.folder, tmp_path / "older"))
    about = json.loads((folder / "model.json").read_text())
    del about["files"][SEEN]
    (folder / "model.json").write_text(json.dumps(about))
    (folder / SEEN).unlink()
    return ExportedModel.load(folder)


def test_of_an_older_export_it_is_not_known(used: Tiny, older: ExportedModel, folder: Path, capsys) -> None:
    _, out, _ = _command(used, capsys, older.folder, "--on", str(folder))
    assert out.count("not known") == 3
    _, out, _ = _command(used, capsys, older.folder, "--on", str(folder), "--json")
    assert json.loads(out)["seen"] is None


def test_sentences_that_another_version_compared_are_not_counted(used: Tiny, exported, folder: Path, capsys) -> None:
    """Its hashes were made by another rule, so that equal sentences may have others."""
    found = exported_hashes(exported.folder)
    assert found
    assert found.overlap(TRAIN, [], [], ["a"]).sentences == 0
    capsys.readouterr()
    for metadata in (None, {"sentences": "1"}):
        save_file(load_file(exported.folder / SEEN), folder / SEEN, metadata)
        older = exported_hashes(folder)
        assert older
        assert older.overlap(TRAIN, ["x"], [], ["a"]) == (0, 0, None)
        assert "which ones it has seen is not known; export it again" in " ".join(capsys.readouterr().err.split())


def test_damaged_hashes_are_one_line(exported: ExportedModel, tmp_path: Path) -> None:
    (tmp_path / SEEN).write_bytes(b"no tensors")
    with pytest.raises(RecipeError, match=r"seen\.safetensors: not readable"):
        exported_hashes(tmp_path)
    save_file(
        {name: one.astype(np.float32) for name, one in load_file(exported.folder / SEEN).items()}, tmp_path / SEEN
    )
    with pytest.raises(RecipeError, match=r"seen\.safetensors: not readable .*whole numbers"):
        exported_hashes(tmp_path)


def test_hashes_are_sorted_and_few_bytes(used: Tiny, exported: ExportedModel) -> None:
    arrays = load_file(exported.folder / SEEN)
    assert set(arrays) == {f"{split}.{kind}" for split in (TRAIN, VAL) for kind in ("names", "files", "sentences")}
    assert all((np.diff(one) > 0).all() for one in arrays.values())
    assert [len(arrays[f"{split}.{kind}"]) for split in (TRAIN, VAL) for kind in ("names", "files")] == [
        12,
        12,
        4,
        4,
    ]
    assert (exported.folder / SEEN).stat().st_size < 2000


def test_names_are_compared_without_folder_suffix_and_photo_key() -> None:
    assert name_hash("images/1000092795_693b08cb0e.jpg") == name_hash("1000092795")
    assert name_hash("1000092795") != name_hash("1000092796")


def test_bad_input_is_one_line(used: Tiny, exported: ExportedModel, folder: Path, capsys) -> None:
    on = f"recipe:{used.yaml}"
    for model, arguments, said in (
        (folder, ("--on", on), "model.json: no exported model here"),
        (exported.folder, ("--on", "nowhere"), "--on nowhere: no such folder; expected one with pictures and"),
        (exported.folder, ("--on", "recipe:"), "--on recipe: expected the name of a recipe behind it"),
        (exported.folder, ("--on", "recipe:scenez"), "recipe 'scenez': no file"),
        (exported.folder, ("--on", "recipe:scenes"), "corpus: not done yet"),
        (exported.folder, ("--on", on, "--split", "dev"), "no captions by people there, but in test, train, tr"),
        (exported.folder, ("--on", str(folder), "--split", "val"), "theirs has no captions by people there, but"),
        (exported.folder, ("--on", str(folder), "--vse.model=san"), "takes no settings, but '--vse.model=san'"),
        (exported.folder, ("--on", str(folder / "pictures")), "pictures: pictures, but no captions; write a file"),
    ):  # fmt: skip
        status, out, err = _command(used, capsys, model, *arguments)
        assert (status, out) == (1, "")
        assert said in err
        assert err.count("\n") == 1


def test_data_that_do_not_fit_are_one_line(used: Tiny, exported: ExportedModel, folder: Path) -> None:
    on = set_of_folder(folder, None)
    with pytest.raises(
        RecipeError, match=r"theirs, all: has captions in xx; the model .* was trained on en: measure it"
    ):
        measure(exported, replace(on, captions=[one for one in on.captions if one.language == "xx"]), 100, 1)
    with pytest.raises(RecipeError, match=r"6 of 6 images have no picture here, first 'their 0\.png', but the model"):
        measure(exported, replace(on, pictures={}), 100, 1)
    (folder / "pictures" / "their 3.png").write_text("no picture")
    with pytest.raises(DataError, match=r"their 3\.png: not a readable picture"):
        measure(exported, on, 100, 1)


def test_pictures_that_cannot_be_read_are_left_out(used: Tiny, exported, folder: Path, capsys) -> None:
    (folder / "pictures" / "their 3.png").write_text("no picture")
    status, out, err = _command(used, capsys, exported.folder, "--on", str(folder))
    assert (status, out.count("of 5")) == (0, 3)
    assert "left out 1 picture that cannot be read" in err
    assert "their 3.png: not a readable picture" in err
    for path in (folder / "pictures").iterdir():
        path.write_text("no picture")
    status, out, err = _command(used, capsys, exported.folder, "--on", str(folder))
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert "their 0.png: not a readable picture" in err


def test_a_missing_picture_is_named(exported: ExportedModel, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        exported.encode_pictures([tmp_path / "gone.jpg"])
