"""Other tests of trained models: several fused by the mean of their similarities; one in folds (COCO's 1K)."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from data.captions.checks import read_in_validation
from data.captions.table import read_captions
from modules.metrics.retrieval import RetrievalRanks, fold_scores, retrieval_ranks
from modules.search.ranking import ROUNDING
from pipeline.engine.artifacts import read_manifest
from pipeline.engine.job import Job
from pipeline.recipes.retrieval_settings import VseSettings
from pipeline.retrieval.ranks import (
    encode_split,
    folds_of,
    inputs_of,
    inputs_of_several,
    open_test,
    ranking_job,
    validation_scores,
    write_ranks,
)
from pipeline.retrieval.rows import Row
from pipeline.retrieval.training import Training
from pipeline.vectors.images import test_inputs

VERSION = 5  # 5: scores that differ by rounding alone are ties


def fused(training: Training) -> Row:
    """The models of `vse.fuse`, by the mean of their similarities."""
    settings = training.settings
    members = [(model, training.seed if seed is None else seed) for model, seed in settings.fused_models]
    trained = [replace(training, seed=seed).train(model) for model, seed in members]
    name = f"fusion-{'-'.join(settings.fuse)}-{training.name}-{training.seed}"
    return training.row(fusion_job(name, trained, training.corpus, settings), trained, " + ".join(settings.fuse))


def fusion_job(name: str, trained: Sequence[Job], corpus: Job, settings: VseSettings) -> Job:
    """Rank by the mean similarity of trained models (mmt-retrieval, "fusion").

    All test languages on test, and on validation those that choose, with the images that all rows rank.
    """

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Leave the ranks by the mean."""
        captions = read_captions(inputs["corpus"] / "captions.parquet")
        ranks: dict[str, dict[str, RetrievalRanks]] = {}
        for split, languages in (("val", settings.select), ("test", settings.test)):
            read = read_in_validation(captions, languages, settings.test)
            tests = (open_test(inputs_of(inputs, number), read, settings) for number in range(len(trained)))
            total: dict[str, Tensor] = {}
            for _, encoded in (encode_split(test, split) for test in tests):
                links = {language: test.links.cpu() for language, test in encoded.items()}
                scores = {language: encoded[language].scores() for language in languages}
                total = {language: scores[language] + total.get(language, 0) for language in languages}
            ranks[split] = {
                language: retrieval_ranks(whole / len(trained), links[language], ROUNDING)
                for language, whole in total.items()
            }
        return {"test": write_ranks(folder, ranks["test"]), "val": validation_scores(ranks["val"])}

    plain = {"test": settings.test, "select": settings.select}
    return ranking_job(name, inputs_of_several(trained, corpus), plain, run, settings, VERSION)


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
        ranks = {language: whole.ranks() for language, whole in encoded.items()}
        return {"test": write_ranks(folder, ranks), "folds": folds, "val": validated}

    name = row.job.name.replace("vse-", f"folds-{settings.folds}-", 1)
    plain = {"test": settings.test, "folds": settings.folds}
    return replace(row, job=ranking_job(name, test_inputs(row.job, training.corpus), plain, run, settings))
