"""Systems compared on the same sentences, against sacreBLEU; the best of several tunings."""

import numpy as np
import pytest
import sacrebleu

from modules.translators.nbest import Tuning, compare, figures_of, scored_in

WANTED = ["Ein Hund läuft über die Wiese.", "Zwei Frauen sitzen auf einer Bank.", "Ein Mann fährt Rad."]
BASE = ["Ein Hund rennt auf einer Wiese.", "Zwei Frauen sitzen auf einem Stuhl.", "ein Mann"]
ONE, OTHER = ["ein Hund läuft über die Wiese.", *BASE[1:]], [*BASE[:2], "Ein Mann fährt mit dem Rad."]
SCORE = {
    "BLEU": lambda said: sacrebleu.corpus_bleu(said, [WANTED], lowercase=True).score,
    "chrF": lambda said: sacrebleu.CHRF(lowercase=True).corpus_score(said, [WANTED]).score,
    "TER": lambda said: sacrebleu.TER(normalized=True).corpus_score(said, [WANTED]).score,
}


@pytest.mark.parametrize("images", [None, ["1.jpg", "2.jpg", "1.jpg"]])
def test_scores_are_means_over_runs_and_gains_are_over_the_first_system(images: list[str] | None) -> None:
    scored = compare({"base": [BASE], "ours": [ONE, OTHER]}, WANTED, images, False, 50)
    assert [(one.measure, one.system) for one in scored] == [(name, s) for name in SCORE for s in ("base", "ours")]
    for base, ours in zip(scored[::2], scored[1::2], strict=True):
        expected = SCORE[base.measure](BASE), (SCORE[base.measure](ONE) + SCORE[base.measure](OTHER)) / 2
        assert (base.value, ours.value) == pytest.approx(expected)
        assert base.gain is None
        assert ours.gain.value == pytest.approx(expected[1] - expected[0])
        assert ours.gain.low <= ours.gain.value <= ours.gain.high
    figures = figures_of(scored, " | own")
    assert scored_in(figures, ["base", "ours"], " | own") == scored
    assert figures["ours | BLEU | own"] == scored[1].value


def test_the_gain_of_each_system_is_over_the_first_one() -> None:
    scored = compare({"base": [BASE], "ours": [ONE, OTHER], "again": [BASE]}, WANTED, None, False, 50)
    assert [one.gain.value for one in scored if one.system == "again"] == [0, 0, 0]


def test_the_best_tuning_is_that_of_the_highest_bleu() -> None:
    tuning = Tuning(["length", "log p"], np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), np.array([20.0, 31.0, 30.0]))
    assert tuning.best == {"length": 3.0, "log p": 4.0}
