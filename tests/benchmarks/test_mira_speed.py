"""k-best MIRA on lists of a development set's size: ten tunings side by side, against one sentence at a time."""

import time

import numpy as np
import pytest

from modules.translators.mira import MiraSettings, tune
from tests.modules.translators import slow_mira

pytestmark = pytest.mark.benchmark
SENTENCES, CANDIDATES, FEATURES, SEEDS = 1014, 20, 6, 10


def test_ten_tunings_side_by_side(capsys) -> None:
    features, counts = slow_mira.made_up(SENTENCES, CANDIDATES, FEATURES)
    start = time.perf_counter()
    slow, _ = slow_mira.tune(features, counts, 0, passes=2)
    one = (time.perf_counter() - start) / 2
    arrays = [np.array(values, dtype=np.float64) for values in (features, counts)]
    start = time.perf_counter()
    found = tune(*arrays, list(range(SEEDS)), MiraSettings(passes=2))
    together = (time.perf_counter() - start) / 2
    assert found.weights[0] == pytest.approx(slow, rel=1e-9)
    with capsys.disabled():
        print(
            f"\na pass of MIRA, {SENTENCES:,} × {CANDIDATES}, {FEATURES} features, {SEEDS} seeds: {SEEDS * one:.2f} s "
            f"one by one, {together:.2f} s side by side, {SEEDS * one / together:.0f}×"
        )
    assert SEEDS * one > 10 * together
