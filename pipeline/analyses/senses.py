"""How well each branch of a model tells the two senses of twin pictures apart, each branch alone."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from modules.retrieval_models import model_class
from pipeline.analyses.description import Analysis, Line, read_values
from pipeline.corpus.prepare import about_corpus
from pipeline.engine.job import Job
from pipeline.retrieval.probes import BOTH, Twins, encoded_twins, other_twins, own_above_twin
from pipeline.retrieval.ranks import open_test
from pipeline.retrieval.rows import Trained
from pipeline.vectors.images import test_inputs

VERSION = 1


def senses_job(tested: Trained) -> Job | None:
    """Test each branch of a model alone: how often it scores a twin's caption with its own picture above the other's.

    Leaves `senses-<language>.npz` for each tested language whose captions of two twins differ (in the language that has
    one word for both senses, one of the two captions is always wrong): for each branch, and for `BOTH`, the share in
    percent of each pair of twins (P,), in the order of the corpus.

    Returns:
        None for a model without branches, or a corpus without twins.
    """
    trained, corpus, settings = tested.job, tested.corpus, tested.recipe.vse
    branches = model_class(settings.model).branches_with(**settings.options)
    if not branches or tested.scenes is None or not tested.scenes.twins:
        return None
    parts = [*branches, *([BOTH] if len(branches) > 1 else [])]

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Encode the twins, compare their scores."""
        test, figures = open_test(inputs, settings.test, settings), dict[str, dict[str, float]]()
        other = other_twins(about_corpus(inputs["corpus"])["twins"])
        for language in settings.test:
            twins = encoded_twins(test, other, language)
            shares: dict[str, Any] = {
                part: _by_pair(twins, own_above_twin(test.module, twins, part), other) for part in parts
            }
            if not len(shares[parts[0]]):
                continue
            np.savez(folder / f"senses-{language}.npz", **shares)
            figures[language] = {f"senses_{part}": float(values.mean()) for part, values in shares.items()}
            figures[language]["senses_pairs"] = float(len(shares[parts[0]]))
        return {"test": figures}

    name, inputs = trained.name.replace("vse-", "senses-", 1), test_inputs(trained, corpus)
    plain: dict[str, Any] = {"test": settings.test, "parts": parts}
    return Job(name, "vse", VERSION, plain, inputs, run, False, asdict(settings.trainer), _headline)


def _by_pair(twins: Twins, right: Tensor, other: Mapping[str, str]) -> np.ndarray:
    """Shares in percent (P,) of the pairs of twins whose captions differ."""
    texts: dict[str, set[str]] = {}
    for row in twins.rows:
        texts.setdefault(row["image_id"], set()).add(row["text"])
    by_pair: dict[frozenset[str], list[bool]] = {}
    for row, hit in zip(twins.rows, right.tolist(), strict=True):
        image, twin = row["image_id"], other[row["image_id"]]
        if row["text"] not in texts[twin]:
            by_pair.setdefault(frozenset((image, twin)), []).append(hit)
    return np.array([100 * np.mean(hits) for hits in by_pair.values()])


def _headline(figures: Mapping[str, Any]) -> str:
    """The figures of each branch by language, as text."""
    shown = [
        f"{language} " + ", ".join(f"{name.removeprefix('senses_')} {value:.1f} %"
                                   for name, value in scores.items() if name != "senses_pairs")
        for language, scores in figures["test"].items()
    ]  # fmt: skip
    return "twins told apart: " + ("; ".join(shown) or "captions of twins are equal in these languages")


def _lines(job: Job) -> Sequence[Line]:
    """A line for each kind of vectors."""
    read = partial(read_values, file="senses")
    return [Line(part, [f"senses_{part}"], "senses_pairs", partial(read, array=part)) for part in job.settings["parts"]]


SENSES = Analysis(
    senses_job,
    "Senses of twins, {language}, {corpus}: how often a caption is nearer to its own picture than to its twin's",
    ["own picture nearer %"],
    _lines,
    label="vectors",
    systems=True,
    optional=True,
    split="twins",
    items="pairs of twins",
    compared=("grounded", "abstract"),
    beside_recall=True,
)
