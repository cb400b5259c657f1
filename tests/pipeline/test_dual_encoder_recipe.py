"""A recipe of dual encoders and students: what is refused, what is computed once, what is left after a kill."""

import copy
import json
import re
import shutil
import signal
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from streamlit.testing.v1 import AppTest
from transformers import AutoModel, AutoTokenizer

from data.captions.table import read_captions
from data.pictures.pixels import VectorStore
from pipeline.corpus.prepare import pictures_of
from pipeline.errors import RecipeError
from pipeline.export.exported_model import ExportedModel
from pipeline.export.onnx_export import write_onnx
from pipeline.export.parts import write_for_transformers
from pipeline.gallery.gallery import Gallery
from pipeline.gallery.indexing import update_gallery
from pipeline.gallery.picture_sources import PictureFolder
from pipeline.graph import Graph
from pipeline.training.model_files import TEXT
from tests.modules.dual_networks import save
from tests.pipeline.kills import Kills, Moment
from tests.pipeline.test_killed import contents
from tests.pipeline.tiny import ROOT, Tiny, ran

pytestmark = pytest.mark.whole

ROWS = (
    "--vse.rows={zero-shot: [], tuned: [en/human, de/human], lora: [en/human], "
    "student: ['en/text:human', 'de/text:mt:en-de', en/human]}"
)
SETTINGS = (
    "--vse.row_settings={zero-shot: {epochs: 0}, lora: {options: {text: lora, image: lora, lora_rank: 2}, "
    "cached_chunk: 2, interpolate: [0, 0.5, 1]}, "
    "student: {model: student, pretrained: null, teacher: {row: zero-shot}}}"
)
JOBS = ["vse-dual-encoder-zero-shot-1", "vse-dual-encoder-tuned-1", "vse-dual-encoder-tuned-2"]


@pytest.fixture(scope="module")
def network(tiny: Tiny, tmp_path_factory) -> Path:
    """It knows the words of the corpus."""
    texts = read_captions(tiny.job("corpus") / "captions.parquet")["text"][:]
    words = sorted({word.strip(".,").lower() for text in texts for word in text.split()})
    return save("siglip", tmp_path_factory.mktemp("networks") / "siglip", words)


def arguments(network: Path, only: str, *more: str) -> list[str]:
    return [
        "--vse.model=dual-encoder", f"--vse.pretrained={network}", ROWS, SETTINGS, f"--vse.only=[{only}]",
        "--vse.epochs=1", "--vse.steps=2", "--vse.decay_epoch=1", "--vse.warmup_epochs=0", "--vse.batch_size=6",
        "--vse.learning_rate=0.01", "--vse.reranker.model=null", "--vse.test=[en, de]", *more,
    ]  # fmt: skip


@pytest.fixture(scope="module")
def trained(tiny: Tiny, network: Path, tmp_path_factory) -> Tiny:
    made = tiny.without(tmp_path_factory.mktemp("dual"), "vse-*")
    assert made.main("vse", *arguments(network, "zero-shot, tuned, lora, student")) == 0
    return made


def test_vectors_of_images_are_computed_once_for_all_rows_and_seeds(trained: Tiny, network: Path) -> None:
    vectors = trained.job("image-vectors")  # the only one
    array = np.load(vectors / "vectors.npy")
    assert array.shape == (len(read_captions(trained.job("corpus") / "captions.parquet").unique("image_id")), 16)
    np.testing.assert_allclose(np.linalg.norm(array, axis=1), 1, atol=1e-5)
    assert not (vectors / "checkpoints").exists()
    recipe = trained.recipe(*arguments(network, "zero-shot, tuned, student", "--vse.seeds=[1, 2]"))
    jobs = [row.job for row in Graph(recipe, trained.workspace).rows]
    assert {job.inputs["images"].key for job in jobs} == {vectors.name}
    assert {job.name for job in jobs} == {*JOBS, "vse-student-student-1", "vse-student-student-2"}  # nothing is drawn
    assert trained.job("pictures-network").is_dir()  # of `lora`, whose image tower is trained


def test_where_the_corpus_changes_only_new_pictures_are_encoded(trained: Tiny, network: Path, tmp_path: Path) -> None:
    made = trained.without(tmp_path / "made", "vse-*")
    graph = Graph(made.recipe(*arguments(network, "zero-shot")), made.workspace)
    folder = made.workspace.folder(first := graph.rows[0].job.inputs["images"])
    (listed,), before = folder.glob("pictures-*.txt"), folder / "vectors.npy"
    changed = replace(first, settings=first.settings | {"pictures": "others"})  # as where a caption was edited
    for unknown in (0, 2):  # pictures that are not those of the finished job
        digests = listed.read_text().splitlines()
        listed.write_text("\n".join(["another"] * unknown + digests[unknown:]))
        after = np.load(ran(made.workspace, changed, force=True) / "vectors.npy")
        np.testing.assert_array_equal(after[unknown:], np.load(before)[unknown:])
        np.testing.assert_allclose(after, np.load(before), atol=1e-6)
        assert made.workspace.manifest(changed)["metrics"]["computed"] == unknown
    listed.write_text("\n".join(digests[1:]))  # damaged: nothing of it is taken
    ran(made.workspace, changed, force=True)
    assert made.workspace.manifest(changed)["metrics"]["computed"] == len(after)


def test_the_zero_shot_row_has_figures_and_no_checkpoint(trained: Tiny, network: Path) -> None:
    folder, figures = trained.job(JOBS[0]), trained.metrics(JOBS[0])
    assert set(figures["test"]) == {"en", "de"}
    assert all(0 <= figures["test"][language]["rsum"] <= 600 for language in ("en", "de"))
    assert (figures["trained_parameters"], figures["steps_an_epoch"]) == (0, 0)
    assert not [path for path in folder.rglob("*") if path.suffix == ".ckpt" or path.name == "checkpoints"]
    weights, whole = load_file(folder / "weights.safetensors"), load_file(network / "model.safetensors")
    ours = {name.removeprefix("network.network."): tensor for name, tensor in weights.items()}
    assert ours
    assert all(bool((tensor == whole[name]).all()) for name, tensor in ours.items() if name in whole)


def test_a_frozen_image_tower_stays_and_is_no_part_of_the_row(trained: Tiny, network: Path) -> None:
    whole = load_file(network / "model.safetensors")
    tower = load_file(trained.job("image-vectors") / "weights.safetensors")
    start = "network.network."
    assert any(name.startswith(f"{start}vision_model") for name in tower)
    assert all(bool((whole[name.removeprefix(start)] == tensor).all()) for name, tensor in tower.items())
    weights = load_file(trained.job(JOBS[1]) / "weights.safetensors")
    assert not [name for name in weights if "vision_model" in name]
    moved = [name for name, tensor in weights.items() if not (whole[name.removeprefix(start)] == tensor).all()]
    assert f"{start}text_model.embeddings.token_embedding.weight" in moved


def test_adapters_are_merged_and_the_best_share_of_them_is_told(trained: Tiny, network: Path) -> None:
    figures = trained.metrics("vse-dual-encoder-lora-1")
    assert list(figures["interpolated"]) == ["0", "0.5", "1"]
    best = max(figures["interpolated"].values())
    assert figures["val"]["en"]["rsum"] == pytest.approx(best, abs=1e-4)
    weights = load_file(trained.job("vse-dual-encoder-lora-1") / "weights.safetensors")
    whole = load_file(network / "model.safetensors")
    assert {name.removeprefix("network.network.") for name in weights} == set(whole)


def test_a_student_s_sentences_have_the_teacher_s_vectors(trained: Tiny) -> None:
    human, translated = trained.metrics("taught-human"), trained.metrics("taught-mt-en-de")
    assert human["dim"] == translated["dim"] == 16
    assert human["pairs"] >= human["sentences"] > 0
    assert translated["pairs"] > 0
    assert set(trained.metrics("vse-student-student-1")["test"]) == {"en", "de"}


@pytest.fixture(scope="module", params=["tuned", "lora", "student"])
def exported(trained: Tiny, network: Path, request, tmp_path_factory) -> ExportedModel:
    """Moved after it was exported."""
    folder = tmp_path_factory.mktemp("exported")
    more = [] if request.param == "student" else ["--transformers", str(folder / "network")]
    output = ["--output", str(folder / "before"), *more]
    assert trained.main("export", *output, *arguments(network, request.param)) == 0
    return ExportedModel.load((folder / "before").rename(folder / "model"))


def test_an_exported_model_has_the_image_tower_again_and_names_no_place(trained: Tiny, exported: ExportedModel) -> None:
    pictures, store = pictures_of(trained.job("corpus")), VectorStore(trained.job("image-vectors"))
    names = sorted(pictures)[:3]
    vectors = exported.encode([pictures[name] for name in names])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    given = store.regions[store.rows(names)][:, 0]
    trained_tower = "lora" in exported.name
    assert trained_tower or np.allclose(vectors, given, atol=1e-5)
    assert not [path for path in exported.folder.rglob("*.json") if "/tmp/" in path.read_text(encoding="utf-8")]
    assert exported.languages == (["en"] if trained_tower else ["de", "en"])


def test_as_transformers_reads_it_it_has_the_same_vectors(trained: Tiny, exported: ExportedModel) -> None:
    folder = exported.folder.with_name("network")
    if "student" in exported.name:
        assert not folder.exists()
        return
    network, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    texts = ["a red ball", "a blue tree"]
    inputs = tokenizer(texts, padding="max_length", max_length=12, truncation=True, return_tensors="pt")
    with torch.no_grad():
        theirs = network.get_text_features(input_ids=inputs["input_ids"]).pooler_output
    theirs = theirs / theirs.norm(dim=1, keepdim=True)
    np.testing.assert_allclose(exported.encode(texts, "en"), theirs.numpy(), atol=1e-6)


def test_a_network_in_half_precision_is_written_as_it_was_trained(exported: ExportedModel, tmp_path: Path) -> None:
    """Its configuration still says how the first weights were stored."""
    if "student" in exported.name:
        return
    folder = Path(shutil.copytree(exported.folder, tmp_path / "model"))
    config = json.loads((folder / TEXT / "config.json").read_text())
    (folder / TEXT / "config.json").write_text(json.dumps(config | {"dtype": "bfloat16"}))
    write_for_transformers(folder, exported.model, tmp_path / "network")
    ours = load_file(exported.folder.with_name("network") / "model.safetensors")
    theirs = load_file(tmp_path / "network" / "model.safetensors")
    assert ours.keys() == theirs.keys()
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("exported", ["tuned"], indirect=True)
def test_a_network_of_two_towers_has_the_settings_of_each(exported: ExportedModel, tmp_path: Path, monkeypatch) -> None:
    config = copy.deepcopy(exported.model.image_side.network.network.config)
    monkeypatch.setattr(exported.model.image_side.network.network, "config", config)
    config.vision_config.hidden_act = "relu"
    write_for_transformers(exported.folder, exported.model, tmp_path / "network")
    written = json.loads((tmp_path / "network" / "config.json").read_text())
    assert written["vision_config"]["hidden_act"] == "relu"
    assert (
        written["text_config"]["hidden_act"] == exported.model.network.network.config.text_config.hidden_act != "relu"
    )
    config.model_type = "another"
    with pytest.raises(RecipeError, match="--transformers: its text tower is of siglip, its image tower of another; "):
        write_for_transformers(exported.folder, exported.model, tmp_path / "second")
    assert not [*tmp_path.glob("second*")]


@pytest.mark.parametrize("exported", ["tuned", "student"], indirect=True)
@pytest.mark.slow
def test_it_is_written_as_onnx(exported: ExportedModel, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    assert write_onnx(exported, tmp_path / "onnx") < 1e-5


def test_the_page_searches_and_describes_with_it(
    trained: Tiny, exported: ExportedModel, tmp_path: Path, monkeypatch
) -> None:  # fmt: skip
    pictures = trained.job("corpus") / "pictures"
    update_gallery(tmp_path / "gallery", exported, PictureFolder(pictures), {"en": ["a red ball"]})
    monkeypatch.setattr(sys, "argv", ["app", str(tmp_path / "gallery")])
    page = AppTest.from_file(str(ROOT / "pipeline" / "app" / "page.py"), default_timeout=60).run()
    assert not page.exception
    page.text_input(key="q").set_value("a red ball").run()
    assert not page.exception
    shown = [
        text for text in (part.value.replace("\\", "") for part in page.markdown) if re.match(r"\*\*\d+\*\*  ·", text)
    ]
    assert len(shown) > 3
    described = Gallery.open(tmp_path / "gallery").describe(next(pictures.iterdir()))
    assert [hit.name for hit in described["en"]] == ["a red ball"]


DUAL = ("--vse.model=dual-encoder", "--vse.pretrained=NETWORK")
HUMAN = "--vse.rows={human: [en/human], more: [en/human]}"
TAUGHT = "--vse.row_settings={more: {model: student, teacher: {row: human, "
IS_DUAL, IN_MORE = r"vse\.model is dual-encoder", r"vse\.row_settings\.more"


@pytest.mark.parametrize(("more", "says"), [
    (DUAL[:1], rf"{IS_DUAL}, but vse\.pretrained names no dual encoder; name a folder or a model of the hub"),
    ((*DUAL, "--vse.pretrained_vectors=sentences"), rf"{IS_DUAL}, which reads whole pictures and captions"),
    ((*DUAL, "--vse.drop_words=0.1"), rf"{IS_DUAL}, which reads whole pictures and captions .*vse\.drop_words out"),
    ((*DUAL, "--vse.row_settings={more: {pretrained_vectors: sentences}}"), rf"{IN_MORE}: {IS_DUAL}, which reads"),
    ((*DUAL, "--vse.image_encoder=x"), rf"{IS_DUAL}, which has images of its own .*leave vse\.image_encoder out"),
    (("--vse.model=student",), r"vse\.model is student, but vse\.teacher names no model .*; write both for a"),
    (("--vse.row_settings={more: {teacher: {row: human}}}",),
     rf"{IN_MORE}: vse\.model is san, which reads images itself, so it learns from no vse\.teacher; take `student`"),
    ((*DUAL, "--vse.row_settings={more: {options: {image: full}, teacher: {row: human}}}"),
     rf"{IN_MORE}: {IS_DUAL}, which reads images itself, .*; freeze its image tower \(vse\.options\.image=frozen\)"),
    (("--vse.epochs=0", "--vse.warmup_epochs=0"), r"vse\.model is san and vse\.epochs is 0; only dual-encoder is"),
    ((*DUAL, "--vse.options={text: frozen}"), rf"{IS_DUAL} with both towers frozen, and vse\.epochs is 4; set it to 0"),
    ((*DUAL, "--vse.options={text: forzen}"), r"vse\.options\.text is 'forzen'; expected frozen, head"),
    (("--vse.model=scan-t2i-avg", "--vse.cached_chunk=4"), r"vse\.cached_chunk is 4, but scan-t2i-avg has no single"),
    (("--vse.model=mlmme", "--vse.caption_loss=0.5"), r"vse\.caption_loss is 0\.5, but mlmme has a loss between"),
    (("--vse.row_settings={more: {model: mule, caption_loss: 1}}",), rf"{IN_MORE}: vse\.caption_loss is 1, but"),
    (("--vse.row_settings={mroe: {epochs: 1}}",), r"vse\.row_settings\.mroe: expected one of vse\.rows:"),
    (("--vse.row_settings={more: {epoch: 1}}",), rf"unknown key {IN_MORE}\.epoch; did you mean {IN_MORE}\.epochs\?"),
    (("--vse.row_settings={more: {epochs: -1}}",), rf"{IN_MORE}: vse\.epochs is -1; expected 0 or more"),
    (("--vse.row_settings={more: {epochs: many}}",), rf"{IN_MORE}\.epochs is 'many'; expected a whole number"),
    (("--vse.row_settings={more: {options: 3}}",), rf"{IN_MORE}\.options is 3; expected keys with values"),
    (("--vse.row_settings={more: {options: null}}",), rf"{IN_MORE}\.options is empty; expected a value"),
    (("--vse.fuse=[san, vse++]", "--vse.row_settings={more: {model: dan}}"), rf"{IN_MORE}\.model: vse\.fuse names"),
    (("--vse.rows.more=[]",), r"vse\.rows\.more is empty; expected caption groups .*, or epochs: 0 in vse"),
    (("--vse.model=student", "--vse.teacher={row: humen}"), r"vse\.teacher\.row is 'humen'; expected one of vse\.rows"),
    (("--vse.model=student", "--vse.teacher={model: san}"), r"vse\.teacher\.row is None; expected one of vse\.rows:"),
    (("--vse.model=student", "--vse.teacher={row: human}"), r"vse\.teacher\.row is 'human', which has a teacher"),
    ((f"{TAUGHT}epoch: 3}}}}}}",), rf"unknown key {IN_MORE}\.teacher\.epoch; did you mean"),
    ((f"{TAUGHT}language: 3}}}}}}",), rf"{IN_MORE}\.teacher\.language is 3; expected a code like en"),
    ((f"{TAUGHT}language: fr}}}}}}",), rf"{IN_MORE}\.teacher\.language is 'fr', but the teacher reads de, en;"),
    ((f"{TAUGHT}options: 3}}}}}}",), rf"{IN_MORE}\.teacher\.options is 3; expected keys with values"),
    ((f"{TAUGHT}model: dual-encoder}}}}}}",), rf"{IN_MORE}\.teacher: {IS_DUAL}, but vse\.pretrained names no"),
    ((f"{TAUGHT}loss: hard}}}}}}",), rf"{IN_MORE}\.teacher: vse\.loss is 'hard'; expected one of hardest"),
    ((f"{TAUGHT}epochs: 0}}}}}}",), rf"{IN_MORE}\.teacher: vse\.model is san and vse\.epochs is 0"),
    (("--vse.interpolate=[0, 2]",), r"vse\.interpolate\.1 is 2\.0; expected from 0 and at most 1"),
])  # fmt: skip
def test_settings_that_do_not_fit_are_one_line(tiny: Tiny, network: Path, more: tuple[str, ...], says: str) -> None:
    given = [word.replace("NETWORK", str(network)) for word in more]
    with pytest.raises(RecipeError, match=says) as error:
        tiny.recipe(HUMAN, "--vse.only=[human, more]", "--vse.reranker.model=null", *given)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("rows", "settings", "says"), [
    ("s: [en/human], t: [en/human]", "s: {model: student, teacher: {row: t}}, t: {model: scan-t2i-avg}",
     r"vse\.teacher is scan-t2i-avg, whose score is of sets, not an inner product of single vectors; take another"),
    ("s: ['de/text:mt:en-de']", "{}", r"vse\.rows\.s has 'text:mt:en-de', but no teacher whose vectors it would"),
    ("s: ['de/text:mt:de-en'], t: [en/human]", "s: {model: student, teacher: {row: t}}",
     r"vse\.rows\.s trains on 'mt:de-en', which augment\.paths lacks \("),
])  # fmt: skip
def test_rows_that_cannot_be_taught_are_one_line(tiny: Tiny, rows: str, settings: str, says: str) -> None:
    settings = "" if settings == "{}" else settings
    recipe = tiny.recipe(
        f"--vse.rows={{{rows}}}", f"--vse.row_settings={{{settings}}}", "--vse.only=[s]", "--vse.reranker.model=null"
    )
    with pytest.raises(RecipeError, match=says):
        Graph(recipe, tiny.workspace).rows


@pytest.mark.slow
@pytest.mark.parametrize(("row", "job", "moment"), [
    ("tuned", "vse-dual-encoder-tuned-1", Moment("step", 3)), ("lora", "vse-dual-encoder-lora-1", Moment("step", 3)),
    ("student", "vse-student-student-1", Moment("step", 3)),
    ("tuned", "image-vectors", Moment("open *checkpoints/*.half", what="cut")),
    ("student", "taught-human", Moment("table *pairs.parquet", what="cut")),
    ("lora", "pictures-network", Moment("open *pixels.npy", what="cut")),
], ids=lambda one: str(one))  # fmt: skip
def test_killed_it_ends_with_the_same_bytes(
    tiny: Tiny, network: Path, server: Kills, tmp_path: Path, row: str, job: str, moment: Moment
) -> None:
    order = ["vse", *arguments(network, row, "--vse.epochs=2")]
    whole, made = (tiny.without(tmp_path / name, "vse-*") for name in ("whole", "made"))
    (ended,) = server.run(whole.folder, *order)
    assert ended.status == 0, ended.said
    (ended,) = server.run(made.folder, *order, moment=moment)
    assert ended.status in (-signal.SIGKILL, -signal.SIGXFSZ), ended.said
    (ended,) = server.run(made.folder, *order)
    assert ended.status == 0, ended.said
    ours, theirs = (contents(one.job(job)) for one in (made, whole))
    assert ours.keys() == theirs.keys()
    assert [name for name in theirs if ours.get(name) != theirs[name]] == []


@pytest.mark.parametrize(("group", "says"), [
    ("de/text:human", "taught in the teacher's language, en"), ("de/text:tatoebaa", "there is text:scenes-text"),
    ("'de/text:scenes-text + de/human'", "write two"),
])  # fmt: skip
def test_sentences_that_are_not_there_are_told_before_the_teacher_is_trained(
    tiny: Tiny, group: str, says: str, capsys
) -> None:
    taught = f"--vse.rows={{human: [en/human], more: [{group}]}}"
    settings = "--vse.row_settings={more: {model: student, teacher: {row: human}}}"
    assert tiny.main("vse", taught, settings, "--vse.only=[more]", "--vse.test=[en, de]") == 1
    out = " ".join("".join(capsys.readouterr()).split())
    assert says in out
    assert "starts" not in out


def test_weights_of_a_new_network_are_of_the_seed(tiny: Tiny, tmp_path: Path) -> None:
    small = ("--width=32", "--layers=1", "--vocabulary=300", "--side=16")
    for name, seed in (("one", "1"), ("again", "1"), ("two", "2")):
        assert tiny.main("network", str(tmp_path / name), *small, f"--seed={seed}") == 0
    one, again, two = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "again", "two"))
    assert one == again != two
