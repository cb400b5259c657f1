"""Ranks, scores and their intervals against plain numpy."""

import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torchmetrics.retrieval import RetrievalHitRate

from modules.errors import ModelError
from modules.metrics.intervals import bootstrap_interval, paired_difference
from modules.metrics.retrieval import (
    RECALLS,
    RetrievalRanks,
    fold_scores,
    image_folds,
    median_rank,
    recall_at,
    retrieval_ranks,
    retrieval_scores,
)


def slow_ranks(similarity: np.ndarray, caption_image: list[int]) -> tuple[list[int], list[int]]:
    """Count, query by query, who scores at least as high."""
    images, captions = range(similarity.shape[0]), range(similarity.shape[1])
    by_text = [sum(similarity[i, c] >= similarity[caption_image[c], c] for i in images) for c in captions]
    by_image = []
    for i in images:
        best = max((similarity[i, c] for c in captions if caption_image[c] == i), default=None)
        wrong = [c for c in captions if caption_image[c] != i]
        by_image.append(0 if best is None else 1 + sum(similarity[i, c] >= best for c in wrong))
    return by_text, by_image


def slow_scores(by_text: list[int], by_image: list[int]) -> dict[str, float]:
    scores = {}
    for task, values in (("t2i", by_text), ("i2t", [rank for rank in by_image if rank])):
        scores |= {f"{task}_r{k}": 100 * float(np.mean(np.array(values) <= k)) for k in (1, 5, 10)}
        scores[f"{task}_medr"] = float(np.median(values))
    scores["rsum"] = sum(scores[name] for name in RECALLS)
    return scores | {"mean_recall": scores["rsum"] / 6}


def some_ranks(seed: int, images: int = 40, noise: float = 1.0) -> RetrievalRanks:
    """A middling model on images of 1, 3 and 5 captions; the scores of the wrong pairs depend on the seed."""
    generator = torch.Generator().manual_seed(seed)
    links = torch.arange(images).repeat_interleave(torch.tensor([1, 3, 5]).repeat(images)[:images])
    similarity = noise * torch.randn(images, len(links), generator=generator)
    similarity[links, torch.arange(len(links))] += 2
    return retrieval_ranks(similarity, links)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), images=st.integers(1, 8), captions=st.integers(1, 20), levels=st.integers(1, 9))
def test_ranks_and_scores_are_the_loop(seed, images, captions, levels) -> None:
    """With few levels of scores, ties are the rule; some images have no caption."""
    generator = torch.Generator().manual_seed(seed)
    similarity = torch.randint(levels, (images, captions), generator=generator).float()
    links = torch.randint(images, (captions,), generator=generator)
    ranks = retrieval_ranks(similarity, links)
    by_text, by_image = slow_ranks(similarity.numpy(), links.tolist())
    assert ranks.text_to_image.tolist() == by_text
    assert ranks.image_to_text.tolist() == by_image
    assert retrieval_scores(ranks) == pytest.approx(slow_scores(by_text, by_image))


def test_constant_scores_rank_last() -> None:
    ranks = retrieval_ranks(torch.ones(20, 60), torch.arange(20).repeat_interleave(3))
    assert ranks.text_to_image.unique().tolist() == [20]
    assert ranks.image_to_text.unique().tolist() == [58]  # 57 wrong captions before it; its own two do not count
    assert retrieval_scores(ranks)["rsum"] == 0


def test_perfect_scores_are_600_with_any_number_of_captions() -> None:
    links = torch.arange(6).repeat_interleave(torch.tensor([1, 3, 5, 0, 5, 1]))
    scores = retrieval_scores(retrieval_ranks(torch.nn.functional.one_hot(links, 6).T.float(), links))
    assert scores["rsum"] == 600
    assert scores["mean_recall"] == 100
    assert scores["t2i_medr"] == scores["i2t_medr"] == 1


def test_an_image_without_captions_is_gallery_but_no_query() -> None:
    similarity = torch.tensor([[0.5, 0.1], [0.2, 0.9], [0.7, 0.3]])
    ranks = retrieval_ranks(similarity, torch.tensor([0, 1]))
    assert ranks.text_to_image.tolist() == [2, 1]
    assert ranks.image_to_text.tolist() == [1, 1, 0]
    assert recall_at(ranks.image_to_text, 1) == 100


def test_order_changes_nothing() -> None:
    generator = torch.Generator().manual_seed(0)
    similarity, links = torch.rand(9, 30, generator=generator), torch.randint(9, (30,), generator=generator)
    rows, columns = torch.randperm(9, generator=generator), torch.randperm(30, generator=generator)
    shuffled = retrieval_ranks(similarity[rows][:, columns], rows.argsort()[links[columns]])
    assert retrieval_scores(shuffled) == pytest.approx(retrieval_scores(retrieval_ranks(similarity, links)))


@pytest.mark.parametrize("score", [float("nan"), float("inf"), -float("inf")])
def test_a_score_that_is_not_finite_is_named(score: float) -> None:
    similarity = torch.rand(4, 8)
    similarity[2, 5] = score
    with pytest.raises(ModelError, match=r"image 2 \(row\) and caption 5 \(column\)"):
        retrieval_ranks(similarity, torch.arange(8) // 2)


def test_scores_that_are_integers_are_told() -> None:
    with pytest.raises(ModelError, match="expected floating-point numbers"):
        retrieval_ranks(torch.ones(4, 8, dtype=torch.long), torch.arange(8) // 2)


@pytest.mark.parametrize(("links", "message"), [([0, 1, 4], "caption 2 names image 4"), ([0, 1], "expected")])
def test_wrong_links_are_named(links: list[int], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        retrieval_ranks(torch.rand(3, 3), torch.tensor(links))


def test_no_query_is_an_error() -> None:
    nothing = retrieval_ranks(torch.rand(3, 0), torch.zeros(0, dtype=torch.long))
    for use in (retrieval_scores, bootstrap_interval):
        with pytest.raises(ModelError, match="no query"):
            use(nothing)


@pytest.mark.parametrize("k", [1, 5, 10])
def test_recall_is_torchmetrics_hit_rate(k: int) -> None:
    """Where nothing ties."""
    generator = torch.Generator().manual_seed(k)
    images, each = 30, 5
    links = torch.arange(images).repeat_interleave(each)
    similarity = torch.rand(images, len(links), generator=generator)
    right = links == torch.arange(images)[:, None]
    similarity += 0.4 * right
    ranks = retrieval_ranks(similarity, links)
    query = torch.arange(images)[:, None].expand_as(similarity).flatten()
    by_image = RetrievalHitRate(top_k=k)(similarity.flatten(), right.flatten(), indexes=query)
    assert recall_at(ranks.image_to_text, k) == pytest.approx(100 * float(by_image))
    query = torch.arange(len(links))[:, None].expand(-1, images).flatten()
    by_text = RetrievalHitRate(top_k=k)(similarity.T.flatten(), right.T.flatten(), indexes=query)
    assert recall_at(ranks.text_to_image, k) == pytest.approx(100 * float(by_text))


def test_sum_and_mean_of_a_published_row() -> None:
    """Flickr30K, MMT(f)+SAN (mmt-retrieval, Table 1): 47.1/74.6/83.0 and 62.1/87.9/93.8 sum to 448.5."""

    def at(*recalls: float) -> torch.Tensor:
        up_to = [round(10 * recall) for recall in recalls]
        return torch.tensor([1] * up_to[0] + [5] * (up_to[1] - up_to[0]) + [10] * (up_to[2] - up_to[1])
                            + [11] * (1000 - up_to[2]))  # fmt: skip

    scores = retrieval_scores(RetrievalRanks(at(47.1, 74.6, 83.0), at(62.1, 87.9, 93.8), torch.arange(1000)))
    assert scores["rsum"] == pytest.approx(448.5)
    assert scores["mean_recall"] == pytest.approx(74.75)
    assert (scores["t2i_medr"], scores["i2t_medr"]) == (5, 1)


def test_median_rank_of_an_even_number_is_the_middle() -> None:
    assert median_rank(torch.tensor([4, 1, 0, 2, 9])) == 3


def slow_folds(similarity: Tensor, links: Tensor, folds: list[list[int]]) -> list[tuple[list[int], list[int]]]:
    """Ranks of each fold, from the part of the matrix that is its own."""
    parts = []
    for rows in folds:
        columns = [c for c in range(len(links)) if int(links[c]) in rows]
        block = similarity[rows][:, columns].numpy()
        parts.append(slow_ranks(block, [rows.index(int(links[c])) for c in columns]))
    return parts


def in_folds(similarity: Tensor, links: Tensor, folds: list[list[int]]) -> list[RetrievalRanks]:
    cut = image_folds(links, len(similarity), [torch.tensor(rows) for rows in folds])
    return [retrieval_ranks(similarity[rows][:, columns], within) for rows, columns, within in cut]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), folds=st.integers(1, 5), size=st.integers(1, 6), captions=st.integers(1, 40))
def test_folds_are_ranked_within_themselves_in_any_order(seed, folds, size, captions) -> None:
    generator = torch.Generator().manual_seed(seed)
    images = folds * size
    similarity = torch.randint(9, (images, captions + folds), generator=generator).float()
    order = torch.randperm(images, generator=generator)
    first = order[::size]  # one caption of each fold at least
    links = torch.cat([torch.randint(images, (captions,), generator=generator), first])
    parts = [rows.tolist() for rows in order.split(size)]
    ranked, expected = in_folds(similarity, links, parts), slow_folds(similarity, links, parts)
    assert [(r.text_to_image.tolist(), r.image_to_text.tolist()) for r in ranked] == expected
    scores = [slow_scores(*ranks) for ranks in expected]
    for name, value in fold_scores(ranked).items():
        assert value == pytest.approx(sum(score[name] for score in scores) / folds)


def test_the_mean_of_folds_is_none_of_the_wrong_averages() -> None:
    """Folds of unequal difficulty and numbers of captions, in which every shortcut gives another figure."""
    generator = torch.Generator().manual_seed(0)
    links = torch.arange(60).repeat_interleave(torch.tensor([1] * 20 + [5] * 40))
    similarity = torch.rand(60, len(links), generator=generator)
    similarity[links, torch.arange(len(links))] += torch.linspace(0, 0.9, 60)[links]
    ranked = in_folds(similarity, links, torch.arange(60).view(3, 20).tolist())
    scores, parts = fold_scores(ranked), [retrieval_scores(ranks) for ranks in ranked]
    assert scores["rsum"] == pytest.approx(sum(scores[name] for name in RECALLS))
    # Ranks of all folds thrown together: a fold of many captions counts more, and medians are no means of medians.
    together = retrieval_scores(RetrievalRanks(
        torch.cat([r.text_to_image for r in ranked]), torch.cat([r.image_to_text for r in ranked]), links
    ))  # fmt: skip
    # SCAN's script prints six times the mean recall of image to text (column 10) where it says rsum (column 12).
    column_10 = 6 * sum(sum(part[f"i2t_r{k}"] for k in (1, 5, 10)) / 3 for part in parts) / 3
    # Every rank of the whole gallery, cut into folds afterwards.
    whole = retrieval_ranks(similarity, links)
    uncut = sum(
        recall_at(whole.text_to_image[torch.isin(links, rows)], 1) for rows in torch.arange(60).view(3, 20)
    ) / 3  # fmt: skip
    assert abs(scores["t2i_r1"] - together["t2i_r1"]) > 1
    assert abs(scores["t2i_medr"] - together["t2i_medr"]) > 0.1
    assert abs(scores["rsum"] - column_10) > 10
    assert scores["t2i_r1"] - uncut > 3


def test_a_fold_without_captions_is_an_error() -> None:
    ranked = in_folds(torch.rand(4, 2), torch.tensor([0, 1]), [[0, 1], [2, 3]])
    with pytest.raises(ModelError, match="no query"):
        fold_scores(ranked)


def test_bootstrap_is_that_of_a_loop_over_images() -> None:
    """Resampled one by one, every score has the same spread, captions moving with their image."""
    ranks = some_ranks(0)
    generator, by_loop = np.random.default_rng(0), []
    for _ in range(1000):
        drawn = generator.integers(40, size=40)
        of_texts = np.concatenate([ranks.text_to_image[ranks.caption_image == i].numpy() for i in drawn])
        by_loop.append(slow_scores(of_texts.tolist(), ranks.image_to_text[drawn].tolist()))
    for name, interval in bootstrap_interval(ranks, resamples=4000).items():
        low, high = np.percentile([scores[name] for scores in by_loop], [2.5, 97.5])
        assert (interval.low, interval.high) == pytest.approx((low, high), abs=0.12 * (high - low) + 0.51), name


def test_bootstrap_of_unweighted_images_is_the_score() -> None:
    runs = [some_ranks(seed) for seed in range(3)]
    for name, interval in bootstrap_interval(runs).items():
        assert interval.value == pytest.approx(np.mean([retrieval_scores(run)[name] for run in runs]))
        assert interval.low <= interval.value <= interval.high


@pytest.mark.whole
def test_intervals_of_several_seeds_hold_what_seeds_change() -> None:
    """Of pairs of systems that differ by the seed alone, about 5 % have an interval without 0; by images alone many."""
    generator, missed, missed_by_images = torch.Generator().manual_seed(1), 0, 0
    hard = torch.rand(300, generator=generator)  # how hard each image is, for all systems
    links = torch.arange(300)

    def runs() -> list[RetrievalRanks]:
        found = []
        for _ in range(3):
            luck = 0.03 * torch.randn((), generator=generator)  # of the seed
            ranks = (hard > 0.5 + luck).long() + 1
            found.append(RetrievalRanks(ranks, ranks, links))
        return found

    for _ in range(200):
        system, baseline = runs(), runs()
        interval = paired_difference(system, baseline, resamples=200)["t2i_r1"]
        missed += not interval.low <= 0 <= interval.high
        means = [torch.stack([run.text_to_image for run in one]).float().mean(0) for one in (system, baseline)]
        drawn = torch.randint(300, (200, 300), generator=generator)
        low, high = (means[0] - means[1])[drawn].mean(1).quantile(torch.tensor([0.025, 0.975]))
        missed_by_images += not low <= 0 <= high
    assert missed <= 22
    assert missed_by_images >= 40


def test_one_run_has_an_interval_over_images_alone() -> None:
    run = some_ranks(3)
    assert bootstrap_interval([run]) == bootstrap_interval(run)
    wider = bootstrap_interval([some_ranks(3), some_ranks(4)])["t2i_r1"]
    assert wider.high - wider.low > 2 * (bootstrap_interval(run)["t2i_r1"].high - bootstrap_interval(run)["t2i_r1"].low)


def test_runs_of_unequal_number_are_compared() -> None:
    few, many = [some_ranks(0)], [some_ranks(seed) for seed in range(4)]
    found = paired_difference(many, few)["rsum"]
    assert found.low < found.value < found.high


def test_bootstrap_is_over_images_not_captions() -> None:
    """Five equal captions an image tell no more than one."""
    one = torch.tensor([1, 20] * 50)
    few = RetrievalRanks(one, one, torch.arange(100))
    many = RetrievalRanks(one.repeat_interleave(5), one, torch.arange(100).repeat_interleave(5))
    assert bootstrap_interval(few)["t2i_r1"] == pytest.approx(bootstrap_interval(many)["t2i_r1"])


def test_bootstrap_covers() -> None:
    """Of many test sets whose true R@1 is 50 %, about 95 % have it in their interval."""
    generator, inside = torch.Generator().manual_seed(0), 0
    for _ in range(200):
        ranks = torch.randint(1, 3, (100,), generator=generator)
        interval = bootstrap_interval(RetrievalRanks(ranks, ranks, torch.arange(100)), resamples=200)["t2i_r1"]
        inside += interval.low <= 50 <= interval.high
    assert 178 <= inside <= 199


def test_bootstrap_is_seeded_and_leaves_images_without_captions_alone() -> None:
    ranks = some_ranks(1)
    padded = RetrievalRanks(ranks.text_to_image, torch.cat([ranks.image_to_text, torch.zeros(9)]), ranks.caption_image)
    assert bootstrap_interval(ranks) == bootstrap_interval(ranks)
    assert bootstrap_interval(ranks) != bootstrap_interval(ranks, seed=1)
    assert bootstrap_interval(padded) == bootstrap_interval(ranks)


def test_paired_difference_finds_what_is_there_and_nothing_else() -> None:
    weak = [some_ranks(seed, 200, noise=1.5) for seed in range(3)]
    strong = [some_ranks(seed, 200, noise=1.0) for seed in range(3)]
    better = paired_difference(strong, weak)["t2i_r1"]
    assert 0 < better.low < better.value < better.high
    assert better.p_value < 0.02
    same = paired_difference(weak, weak)["rsum"]
    assert same == (0, 0, 0, 1)
    reversed_ = paired_difference(weak, strong)["t2i_r1"]
    assert reversed_.value == pytest.approx(-better.value)
    assert reversed_.p_value == pytest.approx(better.p_value, abs=0.02)


def test_a_paired_difference_is_surer_than_two_intervals() -> None:
    base = some_ranks(0, 300)
    better = base.text_to_image.clone()
    better[::40] = 1
    gain = paired_difference(RetrievalRanks(better, base.image_to_text, base.caption_image), base)["t2i_r1"]
    alone = bootstrap_interval(base)["t2i_r1"]
    assert gain.high - gain.low < 0.5 * (alone.high - alone.low)


def test_runs_on_other_images_cannot_be_compared() -> None:
    with pytest.raises(ModelError, match="same images"):
        paired_difference(some_ranks(0, 40), some_ranks(0, 41))


def test_bootstrap_of_a_whole_test_set_takes_less_than_a_second() -> None:
    ranks = RetrievalRanks(torch.randint(1, 99, (5000,)), torch.randint(1, 99, (1000,)), torch.arange(5000) // 5)
    start = time.perf_counter()
    bootstrap_interval(ranks)
    assert time.perf_counter() - start < 3  # 0.1 s on an idle machine
