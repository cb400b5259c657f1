"""Ranks by index and by blocks are those of the whole matrix; encodings gathered from batches and processes too."""

import multiprocessing
import socket
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from modules.errors import ModelError
from modules.metrics.retrieval import RetrievalRanks, retrieval_ranks, retrieval_scores
from modules.search.encoded_test import GatheredTest, RetrievalMetric
from modules.search.encodings import Encoding, Encodings
from modules.search.ranking import block_similarity, exact_ranks, first_captions, ranks_by_index


def inner_product(images: Encoding, captions: Encoding) -> Tensor:
    """The score of models of one vector."""
    return images[0][:, 0] @ captions[0][:, 0].T


def best_word_and_region(images: Encoding, captions: Encoding) -> Tensor:
    """The score of a set model: mean over words of the best region."""
    (regions, region_mask), (words, word_mask) = images, captions
    products = torch.einsum("irh,clh->icrl", regions, words)
    best = products.masked_fill(~region_mask[:, None, :, None], -1e4).amax(dim=2)
    return (best * word_mask).sum(dim=2) / word_mask.sum(dim=1)


def whole(*encodings: Encoding) -> list[Encodings]:
    """Encodings of all items, as ranking takes them."""
    return [Encodings.of(encoding) for encoding in encodings]


def one_vector(vectors: Tensor) -> Encoding:
    return vectors[:, None], torch.ones(len(vectors), 1, dtype=torch.bool)


def vectors_with_duplicates(seed: int, images: int, captions: int, whole: bool = True) -> tuple[Tensor, ...]:
    """Small whole numbers, whose products are exact in any order, so that ties are ties in every kernel."""
    generator = torch.Generator().manual_seed(seed)
    pool = torch.randint(-2, 3, (max(2, images // 2), 4), generator=generator).float()
    if not whole:
        pool = torch.randn(len(pool), 64, generator=generator)
    image = pool[torch.randint(len(pool), (images,), generator=generator)]
    caption = pool[torch.randint(len(pool), (captions,), generator=generator)]
    return image, caption, torch.randint(images, (captions,), generator=generator)


def assert_same(ours: RetrievalRanks, theirs: RetrievalRanks) -> None:
    assert torch.equal(ours.text_to_image, theirs.text_to_image)
    assert torch.equal(ours.image_to_text, theirs.image_to_text)
    assert torch.equal(ours.caption_image, theirs.caption_image)


sizes = {"seed": st.integers(0, 10_000), "images": st.integers(1, 30), "captions": st.integers(1, 60)}


@settings(max_examples=60, deadline=None)
@given(**sizes, k=st.integers(1, 70), block=st.integers(1, 70))
def test_ranks_by_index_are_exact_with_ties(seed, images, captions, k, block) -> None:
    image, caption, links = vectors_with_duplicates(seed, images, captions)
    assert_same(ranks_by_index(image, caption, links, k, block), retrieval_ranks(image @ caption.T, links))


@settings(max_examples=60, deadline=None)
@given(**sizes, block=st.integers(1, 70))
def test_ranks_by_blocks_are_exact_with_ties(seed, images, captions, block) -> None:
    image, caption, links = vectors_with_duplicates(seed, images, captions)
    ours = exact_ranks(inner_product, *whole(one_vector(image), one_vector(caption)), links, block)
    assert_same(ours, retrieval_ranks(image @ caption.T, links))


@pytest.mark.parametrize("k", [1, 10, 500])
def test_equal_vectors_tie_though_kernels_round(k: int) -> None:
    """As many images as captions stand in the way; each vector is there several times, in random places."""
    image, caption, links = vectors_with_duplicates(k, 200, 300, whole=False)
    distinct, row = torch.cat([image, caption]).unique(dim=0, return_inverse=True)
    products = distinct.double() @ distinct.double().T  # each once, so that equal vectors have the very same scores
    exact = retrieval_ranks(products[row[:200]][:, row[200:]], links)
    assert_same(ranks_by_index(image, caption, links, k, block=64), exact)


@pytest.mark.parametrize("k", [1, 10, 500])
def test_a_sentence_of_two_images_ties_though_its_batches_round(k: int) -> None:
    """Caption i is of image i, the same sentence once more of the next image; an encoder rounds in the last bit."""
    generator = torch.Generator().manual_seed(0)
    image = torch.nn.functional.normalize(torch.randn(100, 64, generator=generator), dim=1)
    twice = image * torch.where(torch.rand(image.shape, generator=generator) < 0.5, 1 - 2**-24, 1 + 2**-23)
    links = torch.cat([torch.arange(100), (torch.arange(100) + 1) % 100])
    ranks = ranks_by_index(image, torch.cat([image, twice]), links, k, block=64)
    assert ranks.image_to_text.unique().tolist() == [2]
    assert ranks.text_to_image[:100].unique().tolist() == [1]


@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_a_collapsed_model_ranks_last(scale: float) -> None:
    vector = scale * torch.nn.functional.normalize(torch.randn(1, 333, generator=torch.Generator().manual_seed(0)))
    image, caption, links = vector.expand(101, -1), vector.expand(203, -1), torch.arange(203) % 101
    encodings = one_vector(image), one_vector(caption)
    for ranks in (ranks_by_index(image, caption, links, 7), exact_ranks(inner_product, *whole(*encodings), links, 64)):
        assert ranks.text_to_image.unique().tolist() == [101]
        assert ranks.image_to_text.tolist() == [1 + 203 - int((links == i).sum()) for i in range(101)]


def test_real_scores_rank_alike_three_ways() -> None:
    generator = torch.Generator().manual_seed(0)
    image = torch.nn.functional.normalize(torch.randn(300, 64, generator=generator), dim=1)
    links = torch.arange(280).repeat_interleave(3)
    caption = torch.nn.functional.normalize(image[links] + 0.2 * torch.randn(840, 64, generator=generator), dim=1)
    exact = retrieval_ranks(image.double() @ caption.double().T, links)
    assert 20 < retrieval_scores(exact)["t2i_r1"] < 99
    for k in (1, 10, 1000):
        assert_same(ranks_by_index(image, caption, links, k, block=100), exact)
    blocks = exact_ranks(inner_product, *whole(one_vector(image), one_vector(caption)), links, 100, tolerance=0)
    assert retrieval_scores(blocks) == pytest.approx(retrieval_scores(exact), abs=0.2)


def test_sets_rank_in_blocks_and_each_block_is_small() -> None:
    images, captions, links = sets(0, 23, 50)
    largest = 0

    def watched(some_images: Encoding, some_captions: Encoding) -> Tensor:
        nonlocal largest
        scores = best_word_and_region(some_images, some_captions)
        largest = max(largest, scores.numel())
        return scores

    ranks = exact_ranks(watched, *whole(images, captions), links, block=8, tolerance=1e-5)
    assert_same(ranks, retrieval_ranks(best_word_and_region(images, captions), links))
    assert largest == 64


def sets(seed: int, images: int, captions: int) -> tuple[Encoding, Encoding, Tensor]:
    """Regions and words in quarters, so that products are exact; padded to the right."""
    generator = torch.Generator().manual_seed(seed)

    def encoding(rows: int, tokens: int) -> Encoding:
        lengths = 2 ** torch.randint(0, 3, (rows,), generator=generator)
        mask = torch.arange(tokens) < lengths[:, None]
        return torch.randint(-9, 10, (rows, tokens, 5), generator=generator) / 4 * mask[:, :, None], mask

    links = torch.arange(captions) % images
    return encoding(images, 5), encoding(captions, 6), links[torch.randperm(captions, generator=generator)]


def test_blocks_cover_the_matrix_once_or_only_what_is_wanted() -> None:
    image, caption, _ = vectors_with_duplicates(0, 10, 13)
    seen = torch.zeros(10, 13)
    for rows, columns, scores in block_similarity(inner_product, *whole(one_vector(image), one_vector(caption)), 4):
        seen[rows, columns] += 1
        assert torch.is_grad_enabled()
        torch.testing.assert_close(scores, image[rows] @ caption[columns].T)
    assert seen.eq(1).all()
    wanted = torch.zeros(3, 4, dtype=torch.bool)
    wanted[2, 1] = True
    found = list(block_similarity(inner_product, *whole(one_vector(image), one_vector(caption)), 4, wanted))
    assert [(rows.start, columns.start) for rows, columns, _ in found] == [(8, 4)]


def test_blocks_name_a_score_that_is_not_finite_by_its_place_in_the_whole() -> None:
    image, caption, _ = vectors_with_duplicates(0, 10, 13)
    caption[6] = torch.nan
    links = torch.arange(12, -1, -1) % 10
    with pytest.raises(ModelError, match=r"caption 6 \(column\)"):
        exact_ranks(inner_product, *whole(one_vector(image), one_vector(caption)), links, 4)
    with pytest.raises(ModelError, match="vector 6"):
        ranks_by_index(image, caption, links)


def test_the_first_captions_of_blocks_are_those_of_the_whole_matrix() -> None:
    torch.manual_seed(0)
    images, captions = one_vector(torch.randn(11, 6)), one_vector(torch.randn(37, 6))
    expected = inner_product(images, captions).argsort(dim=1, descending=True)
    for k, block in ((5, 4), (5, 512), (50, 8), (1, 3)):
        assert torch.equal(first_captions(inner_product, *whole(images, captions), k, block), expected[:, :k])
    captions[0][30, 0, 2] = torch.nan
    with pytest.raises(ModelError, match=r"image 0 \(row\) and caption 30 \(column\) is nan"):
        first_captions(inner_product, *whole(images, captions), 5, 8)


def test_no_caption_is_an_error() -> None:
    image, nothing, links = torch.ones(3, 4), torch.ones(0, 4), torch.zeros(0, dtype=torch.long)
    with pytest.raises(ModelError, match="no query"):
        ranks_by_index(image, nothing, links)
    with pytest.raises(ModelError, match="no query"):
        exact_ranks(inner_product, *whole(one_vector(image), one_vector(nothing)), links)


def part(encoding: Encoding, rows: Tensor) -> Encoding:
    """Rows of an encoding, cut to the longest, as a batch has them."""
    vectors, mask = encoding[0][rows], encoding[1][rows]
    longest = int(mask.sum(dim=1).max())
    return vectors[:, :longest], mask[:, :longest]


def feed(metric: GatheredTest, batches: list[list[int]], seed: int = 0) -> None:
    """Give batches of images with their captions; ids are not row numbers."""
    images, captions, links = sets(seed, 9, 20)
    for batch in batches:
        rows = torch.tensor(batch)
        texts = torch.isin(links, rows).nonzero()[:, 0]
        metric.update(part(images, rows), 100 - rows, part(captions, texts), 7 * texts, 100 - links[texts])


def whole_scores() -> dict[str, float]:
    images, captions, links = sets(0, 9, 20)
    return retrieval_scores(retrieval_ranks(best_word_and_region(images, captions), links))


@pytest.mark.filterwarnings("ignore:The ``compute`` method")
@pytest.mark.parametrize(
    "batches", [[list(range(9))], [[8, 3], [0, 1, 2, 4, 5], [6, 7]], [[0, 1, 2, 3, 4], [5, 6, 7, 8], [0, 1]]]
)
def test_metric_gathers_batches_and_drops_repeats(batches: list[list[int]]) -> None:
    metric = RetrievalMetric(best_word_and_region)
    feed(metric, batches)
    assert metric.compute() == pytest.approx(whole_scores())
    assert metric.ranks is not None
    assert len(metric.ranks.image_to_text) == 9
    metric.reset()
    with pytest.raises(ModelError, match="no image"):
        metric.compute()


def test_metric_ranks_by_index() -> None:
    image, caption, links = vectors_with_duplicates(0, 12, 30)
    metric = RetrievalMetric(inner_product, "inner product")
    metric.update(one_vector(image), torch.arange(12), one_vector(caption), torch.arange(30), links)
    with mock.patch("modules.search.ranking.ranks_by_index", wraps=ranks_by_index) as by_index:
        assert metric.compute() == retrieval_scores(retrieval_ranks(image @ caption.T, links))
    assert by_index.call_count == 1


@pytest.mark.filterwarnings("ignore:The ``compute`` method")
def test_the_gathered_test_has_all_scores_and_parts_of_its_images_with_their_captions() -> None:
    images, captions, links = sets(0, 9, 20)
    gathered = GatheredTest(best_word_and_region)
    feed(gathered, [[8, 3], [0, 1, 2, 4, 5], [6, 7], [0, 1]])
    test = gathered.compute()
    scores = best_word_and_region(images, captions)
    ascending = torch.arange(9).flip(0)  # their ids are 100 - row
    torch.testing.assert_close(test.scores(), scores[ascending])
    torch.testing.assert_close(test.scores(block=2), scores[ascending])
    assert torch.equal(test.links, ascending[links])
    for rows in (torch.tensor(rows) for rows in ([5, 1, 7], [0, 8, 2], [6, 4, 3])):
        columns = torch.isin(links, rows).nonzero()[:, 0]
        within = torch.stack([(rows == links[c]).nonzero()[0, 0] for c in columns])
        assert_same(test.part(ascending[rows]).ranks(), retrieval_ranks(scores[rows][:, columns], within))


@pytest.mark.filterwarnings("ignore:The ``compute`` method")
def test_a_test_of_one_image_and_one_caption_keeps_its_shape() -> None:
    gathered, one = GatheredTest(inner_product), one_vector(torch.ones(1, 4))
    gathered.update(one, torch.tensor([3]), one, torch.tensor([0]), torch.tensor([3]))
    assert gathered.compute().links.tolist() == [0]


def test_a_caption_of_an_image_that_never_came_is_an_error() -> None:
    metric = RetrievalMetric(inner_product)
    one = one_vector(torch.ones(1, 4))
    metric.update(one, torch.tensor([3]), one, torch.tensor([0]), torch.tensor([5]))
    with pytest.raises(ModelError, match="first 5"):
        metric.compute()


def one_process(rank: int, port: int, batches: list[list[list[int]]], answers: multiprocessing.Queue) -> None:
    """Feed this rank's batches, then compute together."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    metric = RetrievalMetric(best_word_and_region)
    feed(metric, batches[rank])
    answers.put(metric.compute())
    dist.destroy_process_group()


def test_metric_gathers_processes_of_unequal_share_and_drops_their_padding() -> None:
    batches = [[[0, 1, 2, 3], [4, 5], [0, 8]], [[6, 7, 8, 1]]]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    processes = [
        context.Process(target=one_process, args=(rank, port, batches, answers), daemon=True) for rank in range(2)
    ]
    for process in processes:
        process.start()
    found = [answers.get(timeout=20) for _ in processes]
    for process in processes:
        process.join(timeout=60)
    assert found == [pytest.approx(whole_scores())] * 2


def test_scores_that_differ_by_less_than_the_tolerance_tie() -> None:
    links = torch.tensor([0, 1, 1])
    scores = torch.full((3, 3), -4.0)  # image 2 has no caption
    scores[links, torch.arange(3)] += 8e-6
    exact, rough = (retrieval_ranks(scores, links, tolerance) for tolerance in (0.0, 5e-6))  # of 4
    assert exact.text_to_image.tolist() == [1, 1, 1]
    assert rough.text_to_image.tolist() == [3, 3, 3]
    assert (exact.image_to_text.tolist(), rough.image_to_text.tolist()) == ([1, 1, 0], [3, 2, 0])


@pytest.mark.parametrize("length", [100.0, 0.01])
def test_what_ties_by_index_is_a_share_of_the_lengths(length: float) -> None:
    links, caption = torch.tensor([0]), torch.tensor([[1.0, 0.0]])
    for less, rank in ((1e-7, 2), (4e-6, 1)):  # of four units in the last place
        image = torch.tensor([[1.0, 0.0], [1 - less, 0.0]])
        assert ranks_by_index(length * image, length * caption, links).text_to_image.tolist() == [rank]
        longer = torch.cat([image, torch.tensor([[0.0, 100.0]])])  # of the longest image: a tie in both cases
        assert ranks_by_index(length * longer, length * caption, links).text_to_image.tolist() == [2]


def test_a_score_below_1_ties_within_the_tolerance_itself() -> None:
    image, links = torch.tensor([[0.5], [0.5 - 8e-7]]), torch.tensor([0])
    for tolerance, rank in ((5e-7, 1), (1e-6, 2)):
        exact = exact_ranks(inner_product, *whole(one_vector(image), one_vector(torch.ones(1, 1))), links, 4, tolerance)
        assert exact.text_to_image.tolist() == [rank]
        assert_same(exact, retrieval_ranks(image, links, tolerance))


@pytest.mark.parametrize("link", [-1, 3])
def test_links_to_no_image_are_told_by_each_way(link: int) -> None:
    image, links = torch.eye(3), torch.tensor([0, link, 2])
    for rank in (lambda: ranks_by_index(image, image, links),
                 lambda: exact_ranks(inner_product, *whole(one_vector(image), one_vector(image)), links)):  # fmt: skip
        with pytest.raises(ModelError, match=f"caption 1 names image {link}, but there are 3"):
            rank()


def test_an_image_s_own_captions_that_tie_by_rounding_are_none_before_its_best_one() -> None:
    images = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    captions = torch.tensor([[1.0, 0.0], [1 - 1.2e-7, 0.0], [1 - 2.4e-7, 0.0], [0.0, 1.0]])
    links = torch.tensor([0, 0, 0, 1])
    by_index, by_blocks = (
        ranks_by_index(images, captions, links),
        exact_ranks(inner_product, *whole(one_vector(images), one_vector(captions)), links),
    )
    assert by_index.image_to_text.tolist() == by_blocks.image_to_text.tolist() == [1, 1]
