"""The variance of an image's rank across languages against a loop, and values that are known."""

import pytest
import torch

from modules.metrics.rank_variance import mean_rank_variance, rank_variances
from modules.metrics.retrieval import RetrievalRanks


def ranks(found: list[int], links: list[int], images: int = 3) -> RetrievalRanks:
    return RetrievalRanks(torch.tensor(found), torch.ones(images, dtype=torch.long), torch.tensor(links))


def test_it_is_the_loop() -> None:
    one = {"en": ranks([1, 3, 8, 2], [0, 0, 1, 2]), "de": ranks([4, 2, 7], [0, 1, 1]), "fr": ranks([1, 9], [0, 1])}
    assert rank_variances(one).tolist() == pytest.approx(
        [sum((rank - mean) ** 2 for rank in found) / 3 for found, mean in (((1, 4, 1), 2), ((8, 2, 9), 19 / 3))]
    )  # of each image's first captions; the third image has no German one


def test_equal_ranks_have_none_and_the_order_of_languages_does_not_matter() -> None:
    same = ranks([5, 1, 2], [0, 1, 2])
    assert mean_rank_variance([{"en": same, "de": same}]) == (0, 0, 0)
    other = ranks([1, 1, 4], [0, 1, 2])
    assert rank_variances({"en": same, "de": other}).tolist() == rank_variances({"de": other, "en": same}).tolist()


def test_the_interval_holds_the_mean_and_shrinks_with_more_images() -> None:
    widths = []
    for images in (50, 2000):
        generator, links = torch.Generator().manual_seed(1), list(range(images))
        runs = [
            {
                name: ranks(torch.randint(1, 20, (images,), generator=generator).tolist(), links, images)
                for name in ("en", "de")
            }
            for _ in range(2)
        ]
        found = mean_rank_variance(runs)
        assert found is not None
        assert found.low < found.value < found.high
        widths.append(found.high - found.value)  # the low end of few images is cut at 0
    assert widths[1] < 0.3 * widths[0]


def test_seeds_that_differ_widen_the_interval() -> None:
    first, links = [1, 4, 2, 7] * 10, list(range(40))
    runs = [{"en": ranks(first, links, 40), "de": ranks([rank + more for rank in first], links, 40)}
            for more in (1, 6, 20)]  # fmt: skip
    single, several = mean_rank_variance(runs[1:2]), mean_rank_variance(runs)
    assert single is not None
    assert several is not None
    assert single == (9, 9, 9)
    assert several.value == pytest.approx((0.25 + 9 + 100) / 3)
    assert several.low < 9 < several.high


def test_without_a_common_image_there_is_none() -> None:
    assert mean_rank_variance([{"en": ranks([1], [0]), "de": ranks([1], [1])}]) is None


def test_no_end_of_an_interval_is_below_0() -> None:
    english = ([1, 1, 2], [9, 1, 1], [1, 2, 1])
    runs = [{"en": ranks(found, [0, 1, 2]), "de": ranks([1, 1, 1], [0, 1, 2])} for found in english]
    interval = mean_rank_variance(runs)
    assert interval is not None
    assert 0 <= interval.low < interval.value < interval.high


def test_an_image_has_the_rank_of_its_first_caption_in_any_order_of_captions() -> None:
    images, threads = 100_000, torch.get_num_threads()
    first, second = torch.randint(1, 9, (2, images))
    one = torch.ones(images, dtype=torch.long)
    found = RetrievalRanks(torch.cat([first, second + 10]), one, torch.arange(images).repeat(2))
    torch.set_num_threads(2)
    try:
        variances = rank_variances({"en": found, "de": RetrievalRanks(one, one, torch.arange(images))})
    finally:
        torch.set_num_threads(threads)
    torch.testing.assert_close(variances, ((first - 1).double() / 2) ** 2)
