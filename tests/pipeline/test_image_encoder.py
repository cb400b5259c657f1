"""A recipe whose retrieval models read pictures by a network of their own: trained, exported, searched; refusals."""

import json
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from transformers import AutoModel

from data.captions.table import read_captions
from data.errors import DataError
from data.pictures.pixels import PixelStore
from pipeline.cli import main
from pipeline.corpus.pixels import pictures_job
from pipeline.corpus.prepare import corpus_job
from pipeline.errors import RecipeError
from pipeline.export.exported_model import ExportedModel
from pipeline.gallery.explanation import explain
from pipeline.gallery.gallery import Gallery
from pipeline.graph import Graph
from pipeline.recipes.loading import load_recipe
from pipeline.training.model_files import load_model
from tests.data.networks import make_network
from tests.pipeline.kills import Kills, Moment
from tests.pipeline.test_killed import contents
from tests.pipeline.test_two_processes import flat, run_on_two
from tests.pipeline.tiny import Tiny

pytestmark = pytest.mark.whole

WRITER = "{row: both, model: gxn, options: {generate: [i2t, t2i], picture_size: 8, picture_width: 2, longest: 6}}"
NAME = "vse-vse++-both-1"
ENCODER = "image_encoder.network."


@pytest.fixture(scope="module")
def resnet(tmp_path_factory) -> Path:
    return make_network("resnet", tmp_path_factory.mktemp("networks") / "resnet")


def arguments(network: Path, *more: str) -> list[str]:
    return [
        "--vse.model=vse++", "--vse.rows.both=[en/human + de/human]", "--vse.only=[both]", "--vse.epochs=2",
        "--vse.warmup_epochs=0", f"--vse.image_encoder={network}", "--vse.image_encoder_size=32",
        "--vse.reranker.model=null", *more,
    ]  # fmt: skip


def fine_tuned(network: Path) -> list[str]:
    """First frozen, then trained; reranked by a model with an image encoder, which writes captions."""
    first = "--vse.start=[{image_encoder_rate: 0, epochs: 1}]"
    return arguments(network, "--vse.image_encoder_rate=0.5", first, f"--vse.reranker={WRITER}")


@pytest.fixture(scope="module")
def trained(tiny: Tiny, resnet: Path, tmp_path_factory) -> Tiny:
    made = tiny.without(tmp_path_factory.mktemp("encoder"), "vse-*")
    assert made.main("vse", *fine_tuned(resnet)) == 0
    return made


@pytest.fixture(scope="module")
def exported(trained: Tiny, resnet: Path) -> ExportedModel:
    """Without the network that it was trained from."""
    assert trained.main("index", *fine_tuned(resnet)) == 0
    moved = resnet.rename(resnet.with_name("moved"))
    found = ExportedModel.load(trained.workspace.root / "tiny" / "model")
    moved.rename(resnet)
    return found


def test_it_is_frozen_then_fine_tuned(trained: Tiny, resnet: Path) -> None:
    (row,) = Graph(trained.recipe(*fine_tuned(resnet)), trained.workspace).rows
    store = PixelStore(trained.workspace.folder(row.job.inputs["images"]))
    captions = read_captions(trained.job("corpus") / "captions.parquet")
    assert set(store.ids) == set(captions["image_id"][:])
    before = AutoModel.from_pretrained(resnet).state_dict()
    frozen, after = (
        load_file(trained.workspace.folder(job) / "weights.safetensors") for job in (row.job.inputs["start-0"], row.job)
    )
    assert all(torch.equal(frozen[ENCODER + name], value) for name, value in before.items())
    moved = {name for name, value in before.items() if not torch.equal(after[ENCODER + name], value)}
    assert "embedder.embedder.convolution.weight" in moved
    assert not [name for name in moved if "running" in name]


def test_a_loaded_model_ranks_as_in_training_and_is_reported(trained: Tiny, resnet: Path) -> None:
    folds = [*fine_tuned(resnet), "--vse.folds=2"]
    assert trained.main("vse", *folds) == 0
    (row,) = Graph(trained.recipe(*fine_tuned(resnet)), trained.workspace).rows
    figures = trained.workspace.manifest(row.job)["metrics"]["test"]
    assert trained.metrics("folds-2-vse++-both-1")["test"] == figures
    assert trained.main("report", *fine_tuned(resnet)) == 0
    report = (trained.workspace.root / "tiny" / "report" / "report.md").read_text()
    assert f"{figures['en']['mean_recall']:.1f}" in report


def test_it_is_exported_whole_and_encodes_new_pictures(
    trained: Tiny, exported: ExportedModel, resnet: Path, tmp_path: Path
) -> None:
    picture = tmp_path / "new.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (32, 50, 3), dtype=np.uint8)).save(picture)
    pixels = np.asarray(Image.open(picture).crop((9, 0, 41, 32))).transpose(2, 0, 1)
    regions, boxes = exported.regions_of(picture)
    assert np.array_equal(regions, pixels.reshape(1, -1))
    assert boxes.tolist() == [[0, 0, 1, 1]]
    (row,) = Graph(trained.recipe(*fine_tuned(resnet)), trained.workspace).rows
    model, _ = load_model(trained.workspace.folder(row.job))
    with torch.no_grad():
        seen = model.see(torch.from_numpy(regions.astype(np.float32))[None], torch.ones(1, 1).bool())
        expected = model.encode_images(*seen)[0][:, 0]
    torch.testing.assert_close(exported.encode_pictures([picture]).single(), expected, atol=1e-5, rtol=1e-4)
    texts = [path.read_text() for path in exported.folder.rglob("*") if path.suffix in (".json", ".yaml", ".md")]
    assert not [text for text in texts if str(tmp_path.parents[0]) in text or str(trained.folder) in text]
    assert "by an image encoder of its own" in (exported.folder / "README.md").read_text()
    assert {name.partition("-")[0] for name in exported.translator_names} == {"mt"}  # an mmt reads regions


def test_it_searches_its_corpus_and_new_pictures(
    trained: Tiny, exported: ExportedModel, own: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    gallery = Gallery.open(trained.workspace.root / "tiny" / "gallery")
    hits = gallery.search("a red bat", top=3)  # reranked
    assert len(hits) == 3
    known, new = gallery.describe_known(hits[0].name), gallery.describe(hits[0].path)
    others = [hit.name for hit in new["en"] if hit.name not in known.own_in("en")]
    assert others == [hit.name for hit in known["en"]][: len(others)]
    words = explain(exported, "a red bat", "en", gallery.regions_of(hits)[0])
    assert [[(word.text, word.region) for word in one] for one in words] == [
        [("a", None), ("red", None), ("bat", None)]
    ] * 3
    place = ["--model", str(exported.folder), "--pictures", str(own), "--gallery", str(tmp_path / "gallery")]
    assert trained.main("index", *place) == 0
    assert len(Gallery.open(tmp_path / "gallery").search("a red bat")) == 6
    capsys.readouterr()
    assert main(["caption", str(own / "0.png"), "--model", str(exported.folder), "--json"]) == 0
    assert [json.loads(line)["language"] for line in capsys.readouterr().out.splitlines()] == ["de", "en"]


def test_the_key_is_of_the_network_and_what_is_made_of_it(tiny: Tiny, resnet: Path, tmp_path: Path) -> None:
    def key(network: Path, *more: str) -> str:
        (row,) = Graph(tiny.recipe(*arguments(network, *more)), tiny.workspace).rows
        return row.job.key

    plain = key(resnet)
    shutil.copytree(resnet, tmp_path / "moved")
    assert key(tmp_path / "moved") == plain  # where it lies is nothing to a result
    other = make_network("resnet", tmp_path / "other", layers=2)
    others = [key(other), key(resnet, "--vse.image_encoder_rate=0.1"), key(resnet, "--vse.image_encoder_size=40")]
    assert len({plain, *others}) == 4


def test_a_corpus_without_pictures_is_one_line(tiny: Tiny, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    shutil.copyfile(tiny.job("corpus") / "captions.parquet", corpus / "captions.parquet")
    about = json.loads((tiny.job("corpus") / "about.json").read_text())
    (corpus / "about.json").write_text(json.dumps(about | {"pictures": {}}))
    job = pictures_job(corpus_job(tiny.recipe(), tiny.workspace), 32, None)
    says = (
        r"(\d+) of \1 images have no picture, first '\S+'; give the corpus its pictures \(corpus\.pictures\), or read "
    )
    with pytest.raises(DataError, match=says + r"its regions \(vse\.image_encoder=null\)"):
        job.run(tmp_path / "job", {"corpus": corpus})


@pytest.mark.parametrize(("more", "says"), [
    ("--vse.image_encoder=null", r"vse\.image_encoder_size is 32, but vse\.image_encoder names no network"),
    ("--vse.pretrained_rate=0.1", r"vse\.pretrained_rate is 0\.1, but vse\.pretrained names no network"),
    ("--vse.negatives=3", r"vse\.negatives is 3, which the loss `hardest-k` alone reads, and no training has one"),
    ("--vse.image_encoder_rate=-1", r"vse\.image_encoder_rate is -1\.0; expected 0 or more"),
    ("--vse.image_encoder_size=0", r"vse\.image_encoder_size is 0; expected 1 or more"),
    ("--vse.reranker={row: both, model: san, image_encoder: null}", r"unknown key vse\.reranker\.image_encoder"),
    ("--vse.start=[{image_encoder: null}]", r"unknown key vse\.start\[0\]\.image_encoder"),
])  # fmt: skip
def test_settings_that_do_not_fit_are_one_line(tiny: Tiny, resnet: Path, more: str, says: str) -> None:
    with pytest.raises(RecipeError, match=says):
        tiny.recipe(*arguments(resnet, more))


def test_a_folder_without_a_network_is_told_before_anything_is_done(fresh: Tiny, own: Path, capsys) -> None:
    assert fresh.main("vse", *arguments(own)) == 1
    said = capsys.readouterr()
    assert f"vse.image_encoder '{own}': no vision model of transformers there" in " ".join(
        (said.out + said.err).split()
    )
    assert not list((fresh.workspace.root / "jobs").glob("*"))


def test_a_reranker_and_the_model_read_the_same_pictures(tiny: Tiny, resnet: Path) -> None:
    recipe = tiny.recipe(*fine_tuned(resnet))
    second = Graph(recipe, tiny.workspace).reranker
    assert second is not None
    read = {second.job.inputs[f"{number}:images"].key for number in range(2)}
    assert {job.inputs["images"].key for job in second.trained} == read


def test_translators_are_reranked_by_a_model_of_their_regions(tiny: Tiny, resnet: Path) -> None:
    recipe = tiny.recipe(*arguments(resnet, "--vse.image_encoder_rate=0.1", "--mmt.rerank.retrieval={row: both}"))
    job = Graph(recipe, tiny.workspace).retrieval_model
    assert "images" not in job.inputs
    assert (job.settings["image_encoder"], job.settings["image_encoder_rate"]) == (None, 0)


def test_another_network_has_a_size_of_its_own_and_none_has_no_rate(tiny: Tiny, resnet: Path, tmp_path: Path) -> None:
    path, words = tmp_path / "mine.yaml", "image_encoder_rate: 0.1, image_encoder_size: 32"
    path.write_text(f"base: {tiny.yaml}\nvse: {{image_encoder: {resnet}, {words}}}\n")
    sizes = {}
    for more in ("vse.epochs=3", "vse.image_encoder=null", f"vse.image_encoder={tmp_path}"):
        vse = load_recipe(str(path), [f"--{more}"]).vse
        sizes[more] = (vse.image_encoder_rate, vse.image_encoder_size)
    assert list(sizes.values()) == [(0.1, 32), (0.0, 224), (0.1, 224)]


@pytest.mark.slow
@pytest.mark.parametrize("more", [
    ["--vse.fuse=[vse++, san]"], ["--vse.first=vse++", "--vse.model=san"], ["--vse.translate=mt:de-en"],
    ["--augment.captioner={row: both, model: gxn, options: {generate: [i2t], longest: 6}}",
     "--augment.paths=[caption:de]", "--vse.rows.written=[en/human, de/caption:de]", "--vse.only=[written]"],
    ["--vse.retrieved_captions=true"],
], ids=lambda more: more[0].partition("=")[0])  # fmt: skip
def test_every_evaluation_reads_the_pictures(trained: Tiny, resnet: Path, more: list[str]) -> None:
    assert trained.main("vse", *arguments(resnet), *more) == 0


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0, 0.5])
def test_killed_it_ends_with_the_same_bytes(
    tiny: Tiny, server: Kills, resnet: Path, tmp_path: Path, rate: float
) -> None:
    order = ["vse", *arguments(resnet, f"--vse.image_encoder_rate={rate}")]
    whole, made = (tiny.without(tmp_path / name, "vse-*") for name in ("whole", "made"))
    (ended,) = server.run(whole.folder, *order)
    assert ended.status == 0, ended.said
    (ended,) = server.run(made.folder, *order, moment=Moment("step", 5))
    assert ended.status == -signal.SIGKILL, ended.said
    (ended,) = server.run(made.folder, *order)
    assert ended.status == 0, ended.said
    ours, theirs = (contents(one.job(NAME)) for one in (made, whole))
    assert [name for name in theirs if ours.get(name) != theirs[name]] == []


@pytest.mark.slow
def test_two_processes_give_the_figures_of_one(tiny: Tiny, resnet: Path, tmp_path: Path) -> None:
    order = arguments(resnet, "--vse.image_encoder_rate=0.5", "--vse.dropout=0")
    one, two = (tiny.without(tmp_path / name, "vse-*") for name in ("one", "two"))
    assert one.main("vse", *order) == 0
    run_on_two(two, "vse", *order)
    ours, theirs = (flat(folder.metrics(NAME)) for folder in (two, one))
    assert ours == pytest.approx(theirs, abs=1e-4)
    ours, theirs = (load_file(folder.job(NAME) / "weights.safetensors") for folder in (two, one))
    assert all(torch.allclose(ours[key], theirs[key], rtol=0, atol=2e-3) for key in theirs)
