"""Every recipe in `pipeline/configs`: all rows of all systems of its tables take a step, on made-up data in its layout.

The pipeline's own jobs read the corpus, choose the captions and build the model; only their training is cut to a step
of warm-up and one after it, and synthetic captions are human ones that others are said to have written.
"""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
from numpy.typing import NDArray
from pytorch_lightning.callbacks import Callback

import pipeline.retrieval.training
from data.batches.retrieval import RetrievalData
from data.batches.taught import TEXT, TaughtPair, write_pairs
from data.captions.table import Caption, read_captions, write_captions
from data.pictures.regions import write_regions
from data.vectors.sentence_vectors import compute_vectors
from modules.training.retrieval import Retrieval
from pipeline.corpus.prepare import corpus_job
from pipeline.engine.job import Job
from pipeline.engine.workspace import Workspace
from pipeline.graph import Graph
from pipeline.recipes.loading import CONFIGS, load_recipe
from pipeline.recipes.settings import Recipe
from pipeline.recipes.systems import parse_path
from pipeline.recipes.trainer_settings import TrainerSettings
from pipeline.training.trainer import make_trainer
from tests.data.layouts import entries, write_folder, write_json
from tests.data.official import OFFICIAL, pack, write_data
from tests.modules.dual_networks import SIDE
from tests.modules.dual_networks import save as save_dual
from tests.modules.text_models import save
from tests.pipeline.tiny import at, ran

pytestmark = pytest.mark.whole

SMALL = [
    "--trainer.accelerator=cpu", "--trainer.threads=1", "--trainer.progress=false", "--vse.dim=8", "--vse.word_dim=10",
    "--vse.min_count=1", "--vse.batch_size=6", "--vse.seeds=[1]", "--vse.segment=characters",
]  # fmt: skip
OF_SCENES = [
    "--corpus.train=24", "--corpus.retrieval=12", "--corpus.validation=4", "--corpus.test=4", "--corpus.twins=2",
    "--corpus.captions=1", "--corpus.text_pairs=40", "--regions.regions=3", "--regions.size=64",
]  # fmt: skip

OF_RECIPE = {
    **dict.fromkeys(("scenes", "scenes-gxn", "scenes-clip", "scenes-dual-encoder"), OF_SCENES),
    "coco-3": ["--corpus.drawn=3"], "coco-mule": ["--corpus.drawn=3"],
    "multi30k-mlmme": ["--corpus.validation_images=1"],
}  # fmt: skip
VECTORS = [f"fasttext/cc.{language}.300.vec.gz" for language in ("en", "de", "fr", "cs", "ja", "zh")]
VECTORS += [f"muse/wiki.multi.{language}.vec" for language in ("en", "de", "fr", "cs")]


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """A folder with what each recipe says that BILDWORT_DATA must hold."""
    folder = tmp_path_factory.mktemp("data")
    write_data(folder)
    write_folder(folder)
    (folder / "tatoeba").mkdir(exist_ok=True)
    for name, other in (("jpn", "これは{}番目の家です。"), ("cmn", "这是第{}座房子。")):
        lines = [f"This is house {k}.\t{other.format(k)}" for k in range(40)]
        pack(folder / "tatoeba" / f"{name}-eng.tsv.gz", lines)
    pairs = [f"This is one of the {k} houses.\tDas ist eines der {k} Häuser." for k in range(3, 40)]
    pack(folder / "wmt" / "deu-eng.tsv.gz", pairs)
    made = entries()
    for name in ("dataset_flickr30k.json", "dataset_coco.json"):
        write_json(folder / name, made)
    japanese = [
        {"image_id": image["cocoid"], "caption": f"{animal}が公園の{image['cocoid']}にいる"}
        for image in made[2:] for animal in "犬猫"
    ]  # fmt: skip
    (folder / "yj_captions").mkdir()
    (folder / "yj_captions" / "yjcaptions26k_clean.json").write_text(json.dumps({"annotations": japanese}))
    chinese = [f"{image['filename'][:-4]}#0\t一只狗在公园{image['cocoid']}里" for image in made[2:]]
    pack(folder / "coco-cn" / "imageid.human-written-caption.txt", chinese)
    names = [image["filename"] for image in made]
    official = [image for of_split in OFFICIAL.values() for image in of_split]
    rng, box = np.random.default_rng(0), np.array([0, 0, 1, 1])
    for store, ids, count in (
        ("flickr30k_regions", official + names, 2), ("flickr30k_vgg19", official, 1),
        ("flickr30k_resnet152", official + names, 1),
        ("coco_regions", [name.removesuffix(".jpg") for name in names], 2),
        ("coco_resnet152", [name.removesuffix(".jpg") for name in names], 1),
    ):  # fmt: skip
        write_regions(folder / store, ids, ((rng.normal(size=(count, 5)), np.tile(box, (count, 1))) for _ in ids))
    for name in VECTORS:
        rows = [f"{word} {' '.join(['0.1'] * 10)}" for word in ("the", "a", "der", "ein", "un", "1", ".")]
        if name.endswith(".gz"):
            pack(folder / name, rows)
        else:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text("\n".join(rows) + "\n")
    return folder


@pytest.fixture(scope="module")
def bert(tmp_path_factory) -> str:
    """The folder of a text model."""
    return str(save("bert", tmp_path_factory.mktemp("bert")))


@pytest.fixture(scope="module")
def clip(tmp_path_factory) -> str:
    """The folder of a dual encoder."""
    return str(save_dual("clip", tmp_path_factory.mktemp("clip")))


def local(recipe: Recipe, text_model: str, dual_encoder: str) -> Recipe:
    """The recipe with networks from a folder for those that rows would download."""
    systems = [system for table in recipe.tables.values() for system in table.systems.values()]
    for vse in (recipe.vse, *(system.vse for system in systems)):
        vse.pretrained = vse.pretrained and (dual_encoder if vse.model == "dual-encoder" else text_model)
    return recipe


class Watch(Callback):
    """Losses of the steps; gradients must be finite, and not all of them zero."""

    def __init__(self) -> None:
        self.losses: list[float] = []

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Retrieval, outputs: Any, *_) -> None:
        self.losses.append(float(outputs["loss"]))

    def on_after_backward(self, trainer: pl.Trainer, pl_module: Retrieval) -> None:
        found = [parameter.grad for parameter in pl_module.parameters() if parameter.grad is not None]
        assert all(gradient.isfinite().all() for gradient in found)
        assert any(gradient.any() for gradient in found)


class Enough(Exception):  # noqa: N818
    """The steps have been taken."""


def two_steps(module: Retrieval, data: RetrievalData, settings: TrainerSettings, *_: Any) -> None:
    """What stands for `fit`: one step of each epoch until the warm-up is over."""
    watch, epochs = Watch(), module.loss.warmup_epochs + 1
    trainer = make_trainer(
        settings, max_epochs=epochs, limit_train_batches=1, limit_val_batches=0, callbacks=[watch],
        enable_checkpointing=False,
    )  # fmt: skip
    trainer.fit(module, data)
    assert len(watch.losses) == epochs
    assert all(math.isfinite(loss) and loss > 0 for loss in watch.losses)
    raise Enough


def trainings(recipe: Recipe, workspace: Workspace) -> dict[str, Job]:
    """The jobs that train the recipe's own rows and those of its tables, each once, by name and key."""
    found: dict[str, Job] = {}

    def collect(job: Job) -> None:
        if job.name.startswith("vse-"):
            found[f"{job.name} {job.key}"] = job
            return
        for other in job.inputs.values():
            if other.stage == "vse":
                collect(other)

    systems = [system for table in recipe.tables.values() for system in table.systems.values()]
    for vse in (recipe.vse, *(system.vse for system in systems)):
        for row in Graph(replace(recipe, vse=vse), workspace).rows:
            collect(row.job)
    return found


def synthetic(corpus: Path, path: str, folder: Path) -> Path:
    """Human captions of training images as the path would have left them."""
    origin, target = (parse_path(path)[1] * 2)[0], parse_path(path)[1][-1]  # captions of pictures have one language
    human = [Caption(**row) for row in read_captions(corpus / "captions.parquet")]
    folder.mkdir()
    write_captions(
        [
            replace(one, language=target, source=path, caption_id=f"{one.caption_id}|{path}", parent=one.caption_id)
            for one in human if one.split == "train" and one.language == origin
        ],
        folder / "captions.parquet",
    )  # fmt: skip
    return folder


def of_table(job: Job, tables: dict[str, Path], folder: Path) -> Path:
    """What the job that computes the sentence vectors of a caption table leaves."""
    folder.mkdir()
    job.run(folder, {"captions": tables[folder.name.removeprefix("sentences-")]})
    return folder


def pixels(corpus: Path, size: int, folder: Path) -> Path:
    """Grey pictures of all images with training captions."""
    return of_images(corpus, folder, "pixels.npy", lambda count: np.full((count, 3, size, size), 128, np.uint8))


def images(job: Job, corpus: Path, folder: Path) -> Path:
    """What the job of a dual encoder's pictures, or of image vectors of it or a teacher, would have left."""
    if job.name == "pictures-network":
        return pixels(corpus, SIDE, folder)
    return of_images(corpus, folder, "vectors.npy", lambda count: drawn(count))


def of_images(corpus: Path, folder: Path, name: str, make: Callable[[int], NDArray]) -> Path:
    ids = list(dict.fromkeys(read_captions(corpus / "captions.parquet")["image_id"][:]))
    folder.mkdir(exist_ok=True)
    np.save(folder / name, make(len(ids)))
    (folder / "ids.txt").write_text("".join(f"{name}\n" for name in ids))
    return folder


def drawn(count: int) -> NDArray[np.float32]:
    """Unit vectors of the size of `SMALL` and of the dual encoder."""
    vectors = np.random.default_rng(0).normal(size=(count, 8))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def taught(folder: Path) -> Path:
    """Sentences without pictures in four languages, with a teacher's vectors."""
    folder.mkdir()
    texts = [f"house {number}" for number in range(8)]
    compute_vectors(texts, lambda text: [1], lambda tokens: drawn(len(tokens)), folder, folder / "parts")
    write_pairs([TaughtPair(text, language, text) for text in texts for language in ("en", "de", "fr", "cs")], folder)
    return folder


LONG = (
    "scenes",  # the demo trains it
    "coco",
    "coco-gxn",
    "coco-3",
    "coco-mule",
    "flickr30k",
    "flickr30k-gxn",
    "multi30k-mule",
    "multi30k-mule-vgg",
    "multi30k-diverse-attention-vgg",
    "multi30k-vgg",
    "multi30k-flickr8k",  # the kinds of its rows are those of `multi30k` and of `multi30k-flickr8k-few`
    "multi30k-flickr8k-gxn",
    "multi30k-flickr8k-diverse",
    "multi30k-flickr8k-diverse-attention",
    "multi30k-flickr8k-mule",
)

TEST_SETS = ("xtd10",)
"""Recipes of corpora on which nothing is trained."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(path.stem, marks=pytest.mark.slow if path.stem in LONG else ())
        for path in sorted(CONFIGS.glob("*.yaml")) if path.stem not in TEST_SETS
    ],
)  # fmt: skip
def test_every_row_of_every_system_takes_a_step(
    name: str, root: Path, bert: str, clip: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline.retrieval.training, "fit", two_steps)
    monkeypatch.setattr(pipeline.retrieval.training, "start_weights", lambda model, folders: None)
    with at(tmp_path):
        recipe = local(load_recipe(name, [*SMALL, f"--corpus.root={root}", *OF_RECIPE.get(name, [])]), bert, clip)
        workspace = Workspace(tmp_path / "artifacts")
        corpus = ran(workspace, corpus_job(recipe, workspace))
        written = {path: synthetic(corpus, path, tmp_path / path.replace(":", "-")) for path in recipe.augment.paths}
        jobs = trainings(recipe, workspace)
        assert len(jobs) >= len(recipe.vse.only or recipe.vse.rows)
        for title, job in jobs.items():
            folder = tmp_path / title
            folder.mkdir()
            tables = {"corpus": corpus} | {path: written[path] for path in job.inputs if path in written}
            vectors = {name: of_table(one, tables, folder / name) for name, one in job.inputs.items()
                       if name.startswith("sentences-")}  # fmt: skip
            if "pixels" in job.inputs:
                tables["pixels"] = pixels(corpus, job.inputs["pixels"].settings["size"], folder / "pixels")
            tables |= dict.fromkeys((name for name in job.inputs if name.startswith("start-")), folder)
            tables |= {name: taught(folder / name.replace(":", "-")) for name in job.inputs if name.startswith(TEXT)}
            if "images" in job.inputs:
                tables["images"] = images(job.inputs["images"], corpus, folder / "images")
            if job.settings["epochs"]:
                with pytest.raises(Enough):
                    job.run(folder, tables | vectors)
            else:
                assert job.run(folder, tables | vectors)["test"]


def of_people(recipe: Recipe) -> bool:
    """Are all rows, those of tables too, trained on captions by people?"""
    rows = [groups for vse in (recipe.vse, *(one.vse for table in recipe.tables.values()
            for one in table.systems.values())) for groups in vse.rows.values()]  # fmt: skip
    return not recipe.augment.paths and not any(":" in group for groups in rows for group in groups)


@pytest.mark.parametrize("name", sorted(path.stem for path in CONFIGS.glob("*.yaml")))
def test_a_recipe_of_captions_by_people_needs_the_files_of_no_other(name: str) -> None:
    recipe = load_recipe(name, networks=False)
    if of_people(recipe):
        assert recipe.augment.translators is None
