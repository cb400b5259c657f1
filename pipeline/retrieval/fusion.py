"""Other tests of trained models: several fused by the mean of their similarities; one in folds (COCO's 1K)."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from data.captions import read_captions
from modules.metrics.retrieval import RetrievalRanks, fold_scores, retrieval_ranks
from pipeline.engine.artifacts import read_arrays, read_manifest
from pipeline.engine.job import Job
from pipeline.errors import RecipeError
from pipeline.recipes.retrieval_settings import VseSettings
from pipeline.retrieval.preconditions import read_in_validation
from pipeline.retrieval.ranks import (
    encode_split,
    folds_of,
    open_test,
    ranked,
    ranking_job,
    validation_scores,
    write_ranks,
)
from pipeline.retrieval.rows import Row, recall_headline
from pipeline.retrieval.training import Training
from pipeline.vectors.images import test_inputs

VERSION = 3
_SCORES = ("scores", "images", "captions", "links")


def fused(training: Training) -> Row:
    """The models of `vse.fuse`, by the mean of their similarities."""
    settings = training.settings
    members = [(model, training.seed if seed is None else seed) for model, seed in settings.fused_models]
    trained = [replace(training, seed=seed).train(model) for model, seed in members]
    scored = [similarity_job(trained_job, training.corpus, settings) for trained_job in trained]
    job = fusion_job(f"fusion-{'-'.join(settings.fuse)}-{training.name}-{training.seed}", scored, settings)
    return training.row(job, trained, " + ".join(settings.fuse))


def similarity_job(trained: Job, corpus: Job, settings: VseSettings) -> Job:
    """Score images with captions by a trained model: `similarity-<split>-<language>.npz`.

    All test languages on test, and on validation those that choose, with the images that all rows rank.
    """

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Leave the matrices, and the ranks by them."""
        captions = read_captions(inputs["corpus"] / "captions.parquet")
        for split, languages in (("val", settings.select), ("test", settings.test)):
            test = open_test(inputs, read_in_validation(captions, languages, settings.test), settings)
            data, encoded = encode_split(test, split)
            for language in languages:
                images, ids = map(np.array, data.ranked(split, language))
                scores, links = encoded[language].scores().numpy(), encoded[language].links.cpu().numpy()
                path = folder / f"similarity-{split}-{language}.npz"
                np.savez(path, scores=scores, images=images, captions=ids, links=links)
        return {"test": write_ranks(folder, ranked(encoded))}

    plain = {"test": settings.test, "select": settings.select}
    name = trained.name.replace("vse-", "similarity-", 1)
    return ranking_job(name, test_inputs(trained, corpus), plain, run, settings, VERSION)


def fusion_job(name: str, members: Sequence[Job], settings: VseSettings) -> Job:
    """Rank by the mean of saved similarity matrices (mmt-retrieval, "fusion")."""

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Leave the ranks by the mean."""
        ranks: dict[str, dict[str, RetrievalRanks]] = {"val": {}, "test": {}}
        for split, languages in (("val", settings.select), ("test", settings.test)):
            for language in languages:
                path = f"similarity-{split}-{language}.npz"
                ranks[split][language] = retrieval_ranks(*fuse([member / path for member in inputs.values()]))
        return {"test": write_ranks(folder, ranks["test"]), "val": validation_scores(ranks["val"])}

    inputs = {str(number): job for number, job in enumerate(members)}
    plain = {"test": settings.test, "select": settings.select}
    return Job(name, "vse", VERSION, plain, inputs, run, headline=recall_headline)


def in_folds(training: Training) -> Row:
    """`vse.model`, ranked on the whole test and in `vse.folds` equal parts of it, each by itself (COCO's 1K)."""
    settings, row = training.settings, training.tested(training.settings.model)

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Write the ranks on all images, and the means over folds."""
        data, encoded = encode_split(open_test(inputs, settings.test, settings))
        cut = folds_of(data, settings.folds, settings.test)
        folds = {
            language: fold_scores([whole.part(rows).ranks() for rows in cut]) | {"images": float(len(cut[0]))}
            for language, whole in encoded.items()
        }
        validated = read_manifest(inputs["model"])["metrics"].get("val", {})
        return {"test": write_ranks(folder, ranked(encoded)), "folds": folds, "val": validated}

    name = row.job.name.replace("vse-", f"folds-{settings.folds}-", 1)
    plain = {"test": settings.test, "folds": settings.folds}
    return replace(row, job=ranking_job(name, test_inputs(row.job, training.corpus), plain, run, settings))


def fuse(paths: Sequence[Path]) -> tuple[Tensor, Tensor]:
    """The mean (I, C) of saved similarity matrices, and each caption's image (C,).

    Raises:
        RecipeError: a file is damaged, or the matrices are not of the same images and captions.
    """
    total, *about = read_arrays(paths[0], _SCORES)
    for path in paths[1:]:
        scores, *other = read_arrays(path, _SCORES)
        for name, first, second in zip(_SCORES[1:], about, other, strict=True):
            if not np.array_equal(first, second):
                raise RecipeError(
                    f"{path}: its {name} are not those of {paths[0]}; similarity matrices of one test set can be fused"
                )
        total = total + scores
    return torch.from_numpy(total / len(paths)), torch.from_numpy(about[-1])
