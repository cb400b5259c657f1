"""Ranking in folds: the test images in equal parts, each ranked alone (COCO's 1K)."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from data.captions import read_captions
from modules.metrics import fold_scores
from pipeline.jobs.job import Job
from pipeline.jobs.manifests import read_manifest
from pipeline.recipes.settings import VseSettings
from pipeline.retrieval.images import images_in, images_of
from pipeline.retrieval.ranks import load_module, rank_split, write_ranks
from pipeline.retrieval.rows import Row, Training, recall_headline

VERSION = 1


def in_folds(training: Training) -> Row:
    """`vse.model`, tested on all images and in `vse.folds` equal parts of them."""
    settings = training.recipe.vse
    trained = training.train(settings.model)
    return training.row(folds_job(trained, training.corpus, settings), [trained], settings.model)


def folds_job(trained: Job, corpus: Job, settings: VseSettings) -> Job:
    """Rank the test by a trained model as a whole and in `vse.folds` equal parts, each by itself (COCO's 1K)."""

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Write the ranks on all images, and the means over folds."""
        module, text = load_module(inputs["model"], settings.test, settings.pretrained)
        captions = read_captions(inputs["corpus"] / "captions.parquet")
        store = images_in(inputs)
        rank_split(module, text, captions, store, settings.trainer, folds=settings.folds)
        images = float(len(module.folds[0]))
        folds = {language: fold_scores(ranks) | {"images": images} for language, ranks in module.fold_ranks.items()}
        validated = read_manifest(inputs["model"])["metrics"].get("val", {})
        return {"test": write_ranks(folder, module.ranks), "folds": folds, "val": validated}

    inputs = {"corpus": corpus, "model": trained} | images_of(trained)
    name = trained.name.replace("vse-", f"folds-{settings.folds}-", 1)
    plain = {"test": settings.test, "folds": settings.folds}
    return Job(name, "vse", VERSION, plain, inputs, run, True, asdict(settings.trainer), recall_headline)
