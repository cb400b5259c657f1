"""CIDEr-D as the reward of self-critical training: a call with kept references, against pycocoevalcap's.

Without pycocoevalcap against the tests' plain form, which makes the vectors of the references in each call too.
"""

import importlib.util
from collections.abc import Callable

import numpy as np
import pytest

from modules.metrics.cider import CiderD
from tests.benchmarks.timing import medians
from tests.modules.metrics import slow_cider

pytestmark = pytest.mark.benchmark
BATCH, IMAGES, REFERENCES, VOCABULARY = 128, 2000, 5, 3000
Sentences = list[list[int]]
Score = Callable[[Sentences, list[int]], np.ndarray]


def made_up() -> list[Sentences]:
    """References of about ten words, some of them much more frequent than others, as in captions."""
    rng = np.random.default_rng(0)
    odds = 1 / np.arange(1, VOCABULARY + 1)
    words = rng.choice(VOCABULARY, (IMAGES, REFERENCES, 14), p=odds / odds.sum())
    return [[one[: rng.integers(8, 15)].tolist() for one in of_image] for of_image in words]


def published(references: list[Sentences]) -> tuple[str, Score]:
    """pycocoevalcap's CIDEr-D with frequencies of all references, or what stands for it."""
    if importlib.util.find_spec("pycocoevalcap") is None:
        having = slow_cider.counted(references)
        return "plain form", lambda captions, rows: np.array(
            [
                slow_cider.cider_d(one, references[row], references, having)
                for one, row in zip(captions, rows, strict=True)
            ]
        )
    from pycocoevalcap.cider.cider_scorer import CiderScorer

    text, counted = [[" ".join(map(str, one)) for one in of_image] for of_image in references], CiderScorer()
    for of_image in text:
        counted += (of_image[0], of_image)
    counted.compute_doc_freq()

    def score(captions: Sentences, rows: list[int]) -> np.ndarray:
        """One call."""
        scorer = CiderScorer()
        scorer.document_frequency = counted.document_frequency
        for caption, row in zip(captions, rows, strict=True):
            scorer += (" ".join(map(str, caption)), text[row])
        scorer.crefs += [[]] * (IMAGES - len(rows))  # it takes their number for that of all documents
        return np.array(scorer.compute_cider())

    return "pycocoevalcap", score


def test_the_reward_of_a_step_of_self_critical_training(capsys) -> None:
    references, rows = made_up(), list(range(BATCH)) * 2  # a sample and a greedy caption of each image
    captions = [references[row][place % 5][:7] + references[place][0][:4] for place, row in enumerate(rows)]
    metric = CiderD(references)
    title, score = published(references)
    np.testing.assert_allclose(metric.score(captions, rows), score(captions, rows), atol=1e-9, rtol=0)
    plain, here = medians(lambda: score(captions, rows), lambda: metric.score(captions, rows), times=9)
    with capsys.disabled():
        print(f"\nCIDEr-D of {len(rows)} captions, {REFERENCES} references each: {title} {1000 * plain:.1f} ms, "
              f"kept references {1000 * here:.1f} ms, {plain / here:.1f}×")  # fmt: skip
    assert plain > 4 * here
