"""Scores from sums of sentences' statistics, against sacreBLEU's own; differences of several runs."""

import pytest
import sacrebleu
import torch

from modules.errors import ModelError
from modules.metrics.surface_scores import BLEU_MEASURE, SURFACE_MEASURES, SurfaceMeasure, surface_statistics
from modules.metrics.translation import paired_gain, translation_scores
from tests.modules.metrics.test_translation_metrics import HYPOTHESES, REFERENCES

SAID = [*HYPOTHESES, "", "Ein Hund .", "mann"]
WANTED = [*REFERENCES, "Ein Mann.", "ein Hund.", "Nichts davon"]


@pytest.mark.parametrize("characters", [False, True])
@pytest.mark.parametrize("rows", [slice(None), slice(0, 2), slice(2, 3), slice(3, 5)])
def test_sums_of_statistics_have_sacrebleus_scores(rows: slice, characters: bool) -> None:
    said, wanted = SAID[rows], WANTED[rows]
    scores = translation_scores(said, wanted, said, wanted, characters)
    found = {one.name: one.score(one.statistics(said, wanted, characters).sum(0)).item() for one in SURFACE_MEASURES}
    assert found == pytest.approx({"BLEU": scores.sacre, "chrF": scores.chrf, "TER": scores.ter})


def test_the_gain_of_several_runs_is_their_mean_and_less_sure_where_they_differ() -> None:
    one, other = (surface_statistics(text, WANTED) for text in (SAID, WANTED))
    base = surface_statistics(SAID[::-1], WANTED)
    single, same = paired_gain(one, base, BLEU_MEASURE.score), paired_gain([one, one], base, BLEU_MEASURE.score)
    assert same == pytest.approx(single)
    both = paired_gain([one, other], base, BLEU_MEASURE.score)
    gains = [paired_gain(run, base, BLEU_MEASURE.score) for run in (one, other)]
    assert both.value == pytest.approx((gains[0].value + gains[1].value) / 2)
    assert both.high - both.low > max(gain.high - gain.low for gain in gains)


def test_runs_of_both_systems_are_paired() -> None:
    one, other, base = (surface_statistics(text, WANTED) for text in (SAID, WANTED, SAID[::-1]))
    none = paired_gain([one, other, base], [one, other, base], BLEU_MEASURE.score)
    assert (none.value, none.low, none.high) == pytest.approx((0, 0, 0))
    gains = [paired_gain(ours, theirs, BLEU_MEASURE.score).value for ours, theirs in ((one, base), (other, one))]
    assert paired_gain([one, other], [base, one], BLEU_MEASURE.score).value == pytest.approx(sum(gains) / 2)
    alone = paired_gain(other, [base, one], BLEU_MEASURE.score)
    assert alone.value == pytest.approx(-paired_gain([base, one], other, BLEU_MEASURE.score).value)


def test_lists_of_different_length_are_refused() -> None:
    with pytest.raises(ModelError, match="2 translations for 1 references"):
        surface_statistics(["a", "b"], ["a"])
    assert surface_statistics(["a b"], ["a c"]).dtype == torch.float64


@pytest.mark.parametrize("measure", SURFACE_MEASURES, ids=lambda measure: measure.name)
def test_scores_of_a_batch_of_sums_are_those_of_each(measure: SurfaceMeasure) -> None:
    rows = measure.statistics(SAID, WANTED, False)
    batch = torch.stack([rows[:2].sum(0), rows.sum(0), rows[3]])
    assert measure.score(batch).tolist() == pytest.approx([measure.score(sums).item() for sums in batch])


def test_chrf_of_a_poor_translation_and_ter_of_nothing() -> None:
    found = {one.name: one.score(one.statistics(["abcd"], ["axyz uvw"], False)[0]).item() for one in SURFACE_MEASURES}
    assert found["chrF"] == pytest.approx(sacrebleu.corpus_chrf(["abcd"], [["axyz uvw"]]).score)
    assert 0 < found["chrF"] < 5
    ter = SURFACE_MEASURES[-1]
    assert ter.score(ter.statistics(["", "a b"], ["", ""], False)).tolist() == [0, 100]


def test_the_edit_rate_of_thai_is_by_letters_with_their_marks() -> None:
    said, wanted = ["ผู้หญิงเดิน"], ["ผู้ชายเดิน"]
    edits, letters = 3, 7  # ห ญิ ง for ช า ย, in ผู้ ช า ย เ ดิ น
    assert translation_scores(said, wanted, said, wanted, True).ter == pytest.approx(100 * edits / letters)
    ter = SURFACE_MEASURES[-1]
    assert ter.statistics(said, wanted, True).tolist() == [[edits, letters]]
    assert ter.statistics(said, wanted, False).tolist() == [[1, 1]]
