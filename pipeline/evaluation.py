"""Jobs that rank with models trained before: similarity matrices, their fusion, and search by translation."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset as Table
from torch import Tensor

from data.captions import HUMAN, read_captions
from data.regions import RegionStore
from modules.beam import BeamSettings
from modules.metrics import RetrievalRanks, fold_scores, retrieval_ranks
from pipeline.errors import RecipeError
from pipeline.jobs import Job, read_manifest
from pipeline.ranking import load_model, rank_split, read_arrays, validation_scores, write_ranks
from pipeline.settings import AugmentSettings, VseSettings
from pipeline.synthesis import lenders_of, load_translator, refuse_seen_images, translate_all

VERSION = 1
SCORES_VERSION = 2  # validation beside test
_SCORES = ("scores", "images", "captions", "links")


def similarity_job(trained: Job, corpus: Job, settings: VseSettings) -> Job:
    """Score images with captions by a trained model: `similarity-<split>-<language>.npz`.

    All test languages on test, and on validation those that choose.
    """

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Leave the matrices, and the ranks by them."""
        captions = read_captions(inputs["corpus"] / "captions.parquet")
        store = RegionStore(inputs["corpus"] / "regions", check_values=False)
        for split, languages in (("val", settings.select), ("test", settings.test)):
            module, text = load_model(inputs["model"], languages, settings.pretrained)
            module.scores = {}
            data = rank_split(module, text, captions, store, settings.trainer, split)
            for language, scores in module.scores.items():
                images, said = data.ranked(split, language)
                links = module.ranks[language].caption_image.cpu().numpy()
                path = folder / f"similarity-{split}-{language}.npz"
                np.savez(path, scores=scores.numpy(), images=np.array(images), captions=np.array(said), links=links)
        return {"test": write_ranks(folder, module.ranks)}

    inputs = {"corpus": corpus, "model": trained}
    name = trained.name.replace("vse-", "similarity-", 1)
    plain = {"test": settings.test, "select": settings.select}
    return Job(name, "vse", SCORES_VERSION, plain, inputs, run, True, asdict(settings.trainer))


def folds_job(trained: Job, corpus: Job, settings: VseSettings) -> Job:
    """Rank the test by a trained model as a whole and in `vse.folds` equal parts, each by itself (COCO's 1K)."""

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Leave the ranks of the whole, and the means over folds."""
        module, text = load_model(inputs["model"], settings.test, settings.pretrained)
        captions = read_captions(inputs["corpus"] / "captions.parquet")
        store = RegionStore(inputs["corpus"] / "regions", check_values=False)
        rank_split(module, text, captions, store, settings.trainer, folds=settings.folds)
        images = float(len(module.folds[0]))
        folds = {language: fold_scores(ranks) | {"images": images} for language, ranks in module.fold_ranks.items()}
        validated = read_manifest(inputs["model"])["metrics"].get("val", {})
        return {"test": write_ranks(folder, module.ranks), "folds": folds, "val": validated}

    inputs = {"corpus": corpus, "model": trained}
    name = trained.name.replace("vse-", f"folds-{settings.folds}-", 1)
    plain = {"test": settings.test, "folds": settings.folds}
    return Job(name, "vse", VERSION, plain, inputs, run, True, asdict(settings.trainer))


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
    return Job(name, "vse", SCORES_VERSION, plain, inputs, run)


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


def translated_job(
    name: str, trained: Job, corpus: Job, translator: Job, direction: str, settings: VseSettings, beam: AugmentSettings
) -> Job:
    """Translate-search: test captions of one language are translated, and a model of the other language ranks them.

    The figures are those of the translated language, queries and gallery. The translations are kept beside them. The
    translator is shown no picture: a query has none.

    Raises:
        RecipeError: a test image has no caption in that language, so the gallery would be another one.
    """
    source, target = direction.split("-")
    plain = {"direction": direction, "beam_size": beam.beam_size, "length_penalty": beam.length_penalty}

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Leave the translations, and the ranks of them."""
        refuse_seen_images(inputs)
        captions = read_captions(inputs["corpus"] / "captions.parquet")
        store = RegionStore(inputs["corpus"] / "regions", check_values=False)
        rows = [
            row for row in captions.to_list()
            if row["split"] == "test" and row["language"] == source and row["source"] == HUMAN
        ]  # fmt: skip
        network, bpe = load_translator(inputs["translator"])
        lacking = {row["image_id"] for row in captions if row["split"] == "test" and row["source"] == HUMAN}
        lacking -= {row["image_id"] for row in rows}
        if lacking:
            first = min(lacking)
            raise RecipeError(f"{name}: {len(lacking)} test images have no caption in {source!r}, first {first!r}")
        found = translate_all(
            network, bpe, bpe.encode_all([row["text"] for row in rows], source), [None] * len(rows), None, target,
            BeamSettings(beam.beam_size, beam.length_penalty), beam.batch_tokens, settings.trainer,
        )  # fmt: skip
        spoken = [row | {"language": target, "text": best.text} for row, (best, *_) in zip(rows, found, strict=True)]
        table = Table.from_list(spoken, features=captions.features)
        table.to_parquet(folder / "translated.parquet")
        module, text = load_model(inputs["model"], [target], settings.pretrained)
        rank_split(module, text, table, store, settings.trainer)
        return {"test": write_ranks(folder, {source: module.ranks[target]})}

    inputs = {"corpus": corpus, "model": trained, "translator": translator} | lenders_of(translator, corpus)
    return Job(name, "vse", VERSION, plain, inputs, run, True, asdict(settings.trainer))
