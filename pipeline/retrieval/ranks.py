"""Testing a retrieval model: the jobs that do it, and the ranks that they leave on disk."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from datasets import Dataset as Table

from data.batches.retrieval import RetrievalData
from data.captions.table import read_captions
from data.pictures.regions import RegionStore
from data.text.text_inputs import TextInput
from modules.metrics.retrieval import RetrievalRanks, retrieval_scores
from modules.search.encoded_test import EncodedTest
from modules.training.ranked import EncodedModule
from pipeline.engine.artifacts import read_arrays
from pipeline.engine.console import stage_command
from pipeline.engine.job import Job, Run
from pipeline.errors import RecipeError
from pipeline.recipes.retrieval_settings import VseSettings
from pipeline.recipes.trainer_settings import TrainerSettings
from pipeline.retrieval.preconditions import require_equal_folds
from pipeline.retrieval.rows import recall_headline
from pipeline.training.model_files import load_model
from pipeline.training.trainer import evaluate_split, make_trainer
from pipeline.vectors.images import images_in, test_inputs

_ARRAYS = ("text_to_image", "image_to_text", "caption_image")


class ModelTest(NamedTuple):
    """What a trained model is tested with.

    Attributes:
        module: the model, ready to be tested in some languages.
        text: what it reads words with.
        store: what it reads of images.
    """

    module: EncodedModule
    text: TextInput
    captions: Table
    store: RegionStore
    trainer: TrainerSettings


def open_test(inputs: Mapping[str, Path], languages: Sequence[str], settings: VseSettings) -> ModelTest:
    """What a job with `test_inputs` tests its model with, in some languages; raises as `load_model`."""
    model, text = load_model(inputs["model"], settings.pretrained)
    captions = read_captions(inputs["corpus"] / "captions.parquet")
    return ModelTest(EncodedModule(model, languages).eval(), text, captions, images_in(inputs), settings.trainer)


def inputs_of_several(trained: Sequence[Job], corpus: Job) -> dict[str, Job]:
    """The inputs of a job that tests several models: `corpus`, and the others of each behind its number, `0:model`."""
    inputs = {"corpus": corpus}
    for number, job in enumerate(trained):
        inputs |= {f"{number}:{name}": each for name, each in test_inputs(job, corpus).items() if name != "corpus"}
    return inputs


def inputs_of(inputs: Mapping[str, Path], number: int) -> dict[str, Path]:
    """Those of one of them, as `open_test` takes them."""
    start = f"{number}:"
    return {name.removeprefix(start): inputs[name] for name in inputs if name == "corpus" or name.startswith(start)}


def ranking_job(
    name: str, inputs: Mapping[str, Job], plain: Mapping[str, Any], run: Run, settings: VseSettings, version: int = 1
) -> Job:
    """A job that leaves the ranks of the test; its arguments are those of `Job`, settings are of the model."""
    return Job(name, "vse", version, plain, inputs, run, True, asdict(settings.trainer), recall_headline)


def encode_split(test: ModelTest, split: str = "test") -> tuple[RetrievalData, dict[str, EncodedTest]]:
    """Encode the images and captions of `test` or `val` in the module's languages; what was read, and its encodings."""
    module, text, captions, store, settings = test
    data = RetrievalData(captions, store, text, [], module.model.languages, {split: module.test_languages})
    evaluate_split(make_trainer(settings), split, module, data)
    for encodings in module.encoded.values():
        module.to(encodings.images.vectors.device)  # which the trainer has taken it away from
    return data, module.encoded


def write_ranks(folder: Path, ranks: Mapping[str, RetrievalRanks]) -> dict[str, dict[str, float]]:
    """Write the ranks of each language; their scores."""
    for language, language_ranks in ranks.items():
        np.savez(
            folder / f"ranks-{language}.npz", **{name: getattr(language_ranks, name).cpu().numpy() for name in _ARRAYS}
        )
    return {language: retrieval_scores(language_ranks) for language, language_ranks in ranks.items()}


def validation_scores(ranks: Mapping[str, RetrievalRanks | None]) -> dict[str, dict[str, float]]:
    """The validation rsum of each language, by which systems are chosen."""
    return {
        language: {"rsum": retrieval_scores(language_ranks)["rsum"]}
        for language, language_ranks in ranks.items()
        if language_ranks
    }


def read_ranks(folder: Path, language: str) -> RetrievalRanks:
    """The test ranks that a finished job left for one language.

    Raises:
        RecipeError: the file is missing or damaged.
    """
    path = folder / f"ranks-{language}.npz"
    captions, images, links = arrays = read_arrays(path, _ARRAYS)
    if (
        any(array.dtype != np.int64 or array.ndim != 1 or (array < 0).any() for array in arrays)
        or captions.shape != links.shape or (links >= len(images)).any()
    ):  # fmt: skip
        raise RecipeError(f"{path}: no ranks; delete {folder} and run {stage_command('vse')}")
    return RetrievalRanks(*(torch.from_numpy(array) for array in arrays))


def read_runs(folders: Sequence[Path], languages: Sequence[str]) -> list[dict[str, RetrievalRanks]]:
    """The test ranks of several runs on one test: of each run, language → ranks of the same images and captions.

    Raises:
        RecipeError: a file is missing or damaged, or of another test than the first run's.
    """
    runs = [{language: read_ranks(folder, language) for language in languages} for folder in folders]
    for folder, run in zip(folders, runs, strict=True):
        for language, ranks in run.items():
            images = runs[0][languages[0]].image_to_text
            if len(ranks.image_to_text) != len(images) or not torch.equal(
                ranks.caption_image, runs[0][language].caption_image
            ):
                raise RecipeError(
                    f"{folder}: ranks of {language} are of another test than those of {folders[0]}; delete the first "
                    f"folder and run {stage_command('vse')}"
                )
    return runs


def folds_of(data: RetrievalData, count: int, languages: Sequence[str]) -> list[torch.Tensor]:
    """The images of each fold of the test, as rows of an `EncodedTest`; none if there is but one.

    Raises:
        RecipeError: folds would not be equal, or one has no caption in a tested language.
    """
    keys = data.image_keys("test")
    if count == 1:
        return []
    require_equal_folds(count, len(keys))
    folds = torch.tensor(keys).chunk(count)
    for language in languages:
        with_captions = torch.tensor(data.image_keys("test", language))
        for number, fold in enumerate(folds, 1):
            if not torch.isin(fold, with_captions).any():
                raise RecipeError(
                    f"vse.folds is {count}, but fold {number} has no human caption in {language!r}; take fewer folds, "
                    "or leave the language out of vse.test"
                )
    ascending = torch.tensor(keys).unique()
    return [torch.searchsorted(ascending, fold) for fold in folds]
