"""Links and folds that are refused, and the median of very many ranks."""

import pytest
import torch

from modules.errors import ModelError
from modules.metrics.retrieval import fold_scores, median_rank, retrieval_ranks


def test_links_are_whole_numbers_and_there_is_a_fold() -> None:
    for links in (torch.tensor([True, False]), torch.tensor([0, 1], dtype=torch.uint8), torch.tensor([0.0, 1.0])):
        with pytest.raises(ModelError, match=r"expected rows of images, int64 or int32"):
            retrieval_ranks(torch.eye(2), links)
    with pytest.raises(ModelError, match="no folds; expected one or more"):
        fold_scores([])


def test_the_median_of_any_number_of_ranks() -> None:
    ranks = torch.arange(1, 17_000_002, dtype=torch.int32)
    assert median_rank(ranks) == 8_500_001.0
    assert median_rank(ranks[:-1]) == 8_500_000.5
