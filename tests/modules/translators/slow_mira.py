"""k-best MIRA, one sentence, candidate and feature at a time, in plain Python; `modules.translators.mira` agrees."""

import math
import random
from collections.abc import Sequence

import numpy as np

Features = Sequence[Sequence[Sequence[float]]]


def bleu(counts: Sequence[float], background: Sequence[float]) -> float:
    """BLEU of a candidate on top of a background corpus, times the reference length of both."""
    sums = [one + other for one, other in zip(counts, background, strict=True)]
    log = sum(math.log(sums[n] / sums[4 + n]) for n in range(4)) / 4
    return math.exp(log + min(0.0, 1 - sums[9] / sums[8])) * sums[9]


def corpus_bleu(statistics: Features, chosen: Sequence[int]) -> float:
    """Corpus BLEU without smoothing, in percent."""
    sums = [sum(statistics[n][k][i] for n, k in enumerate(chosen)) for i in range(10)]
    if not all(sums[:8]):
        return 0.0
    return 100 * bleu(sums, [0.0] * 10) / sums[9]


def dot(weights: Sequence[float], values: Sequence[float]) -> float:
    return sum(one * other for one, other in zip(weights, values, strict=True))


def best(scores: Sequence[float]) -> int:
    """The first of the highest."""
    return max(range(len(scores)), key=lambda k: scores[k])


def spreads(features: Features) -> list[float]:
    """Standard deviation of each feature around the mean of its list."""
    found = []
    for f in range(len(features[0][0])):
        squares = []
        for candidates in features:
            mean = sum(one[f] for one in candidates) / len(candidates)
            squares += [(one[f] - mean) ** 2 for one in candidates]
        found.append(math.sqrt(sum(squares) / len(squares)) or 1.0)
    return found


def tune(
    features: Features, statistics: Features, seed: int, cap: float = 0.01, decay: float = 0.999, passes: int = 60
) -> tuple[list[float], float]:
    """Weights and their BLEU on the lists."""
    sd = spreads(features)
    scaled = [[[x / s for x, s in zip(one, sd, strict=True)] for one in candidates] for candidates in features]
    weights, totals, updates = [0.0] * len(sd), [0.0] * len(sd), 0
    background = [4.0, 3.0, 2.0, 1.0, 4.0, 3.0, 2.0, 1.0, 4.0, 4.0]
    found, highest = weights, -1.0
    generator = np.random.default_rng(seed)
    for _ in range(passes):
        for n in generator.permutation(len(scaled)):
            scores = [dot(weights, one) for one in scaled[n]]
            bleus = [bleu(one, background) for one in statistics[n]]
            hope = best([s + b for s, b in zip(scores, bleus, strict=True)])
            fear = best([s - b for s, b in zip(scores, bleus, strict=True)])
            if hope == fear:
                continue
            step = [a - b for a, b in zip(scaled[n][hope], scaled[n][fear], strict=True)]
            loss = bleus[hope] - bleus[fear] - dot(weights, step)
            if loss > 0:
                rate = min(cap, loss / dot(step, step)) if dot(step, step) else cap
                weights = [w + rate * d for w, d in zip(weights, step, strict=True)]
                totals = [t + w for t, w in zip(totals, weights, strict=True)]
                updates += 1
            background = [decay * b + s for b, s in zip(background, statistics[n][hope], strict=True)]
        mean = [t / max(updates, 1) for t in totals]
        score = corpus_bleu(statistics, [best([dot(mean, one) for one in candidates]) for candidates in scaled])
        if score > highest:
            found, highest = mean, score
    return [w / s for w, s in zip(found, sd, strict=True)], highest


def made_up(sentences: int, candidates: int, features: int, seed: int = 0) -> tuple[list, list]:
    """Features and BLEU statistics of made-up lists; the first feature knows a little about the matches."""
    draw = random.Random(seed)
    values, counts = [], []
    for _ in range(sentences):
        reference = draw.randint(4, 14)
        of_values, of_counts = [], []
        for _ in range(candidates):
            length = max(4, reference + draw.randint(-3, 3))
            matches = [draw.randint(1, min(length, reference))]
            for n in range(1, 4):
                matches.append(draw.randint(0, max(0, min(matches[-1] - 1, length - n))))
            of_counts.append([*map(float, matches), *(float(length - n) for n in range(4)), length, reference])
            of_values.append([sum(matches) / 4 + draw.gauss(0, 3), *(draw.gauss(0, 5) for _ in range(features - 1))])
        values.append(of_values)
        counts.append(of_counts)
    return values, counts
