"""The noisy channel with a fixed weight λ beside weights by k-best MIRA, on the same n-best lists.

`python -m tests.benchmarks.fixed_weight LISTS VALIDATION TEST`: the folder of a job `nbest-…`, with `val.lists` and
`test.lists`, and the references of both, a sentence a line. λ of log p + λ · channel is the best of 0, 0.1 … 1 on
validation; the table is of the test.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from modules.translators.mira import choose, corpus_bleu
from modules.translators.nbest import compare, tuned
from pipeline.translation.nbest import ListFiles, comparison_table, lists_of

NAMES = ["logp", "channel"]


def main(arguments: Sequence[str]) -> None:
    """Print both tables: against log p, and against the fixed weight."""
    folder, *references = map(Path, arguments)
    val, test = (
        lists_of(ListFiles(folder / f"{split}.lists", file, None), NAMES, None)[1]
        for split, file in zip(("val", "test"), references, strict=True)
    )
    weights = np.stack([np.ones(11), np.arange(11) / 10], 1)
    best = weights[corpus_bleu(val.statistics(), choose(val.features, weights)).argmax()]
    fixed = f"λ {best[1]:.1f}"
    systems = {
        "log p": [test.taken([0] * len(test.texts))],
        fixed: test.chosen(best[None]),
        "MIRA": test.chosen(tuned(val, range(1, 6)).by_seed),
    }
    for first in ("log p", fixed):
        shown = {name: systems[name] for name in [*systems][[*systems].index(first) :]}
        comparison_table("log p and channel, test", compare(shown, test.references, None, False, 1000)).show()


if __name__ == "__main__":
    main(sys.argv[1:])
