"""Several retrieval models fused: their similarity matrices are saved and averaged."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from data.captions import read_captions
from modules.metrics.retrieval import RetrievalRanks, retrieval_ranks
from pipeline.engine.artifacts import read_arrays
from pipeline.engine.job import Job
from pipeline.errors import RecipeError
from pipeline.recipes.retrieval_settings import VseSettings
from pipeline.retrieval.images import images_in, images_of
from pipeline.retrieval.ranks import load_module, rank_split, validation_scores, write_ranks
from pipeline.retrieval.rows import Row, Training, recall_headline

VERSION = 2  # validation beside test
_SCORES = ("scores", "images", "captions", "links")


def fused(training: Training) -> Row:
    """The models of `vse.fuse`, by the mean of their similarities."""
    settings = training.recipe.vse
    trained = [training.train(model) for model in settings.fuse]
    scored = [similarity_job(one, training.corpus, settings) for one in trained]
    job = fusion_job(f"fusion-{'-'.join(settings.fuse)}-{training.name}-{training.seed}", scored, settings)
    return training.row(job, trained, " + ".join(settings.fuse))


def similarity_job(trained: Job, corpus: Job, settings: VseSettings) -> Job:
    """Score images with captions by a trained model: `similarity-<split>-<language>.npz`.

    All test languages on test, and on validation those that choose.
    """

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Leave the matrices, and the ranks by them."""
        captions = read_captions(inputs["corpus"] / "captions.parquet")
        store = images_in(inputs)
        for split, languages in (("val", settings.select), ("test", settings.test)):
            module, text = load_module(inputs["model"], languages, settings.pretrained)
            module.scores = {}
            data = rank_split(module, text, captions, store, settings.trainer, split)
            for language, scores in module.scores.items():
                images, caption_ids = data.ranked(split, language)
                links = module.ranks[language].caption_image.cpu().numpy()
                path = folder / f"similarity-{split}-{language}.npz"
                np.savez(
                    path, scores=scores.numpy(), images=np.array(images), captions=np.array(caption_ids), links=links
                )
        return {"test": write_ranks(folder, module.ranks)}

    inputs = {"corpus": corpus, "model": trained} | images_of(trained)
    name = trained.name.replace("vse-", "similarity-", 1)
    plain = {"test": settings.test, "select": settings.select}
    return Job(name, "vse", VERSION, plain, inputs, run, True, asdict(settings.trainer), recall_headline)


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
