"""Batches for translators: nothing is lost, nothing comes twice, and ranks and resumed epochs see what they should."""

from itertools import chain
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from data.batches.translation import (
    InOrder,
    SentenceBatches,
    Sentences,
    TokenBatches,
    TranslationData,
    cut,
    in_order_loader,
    loader,
)
from data.pictures.regions import RegionStore, write_regions
from data.text.tokenisation import BEGIN, END, PADDING

LENGTHS = np.random.default_rng(0).integers(1, 20, 157)
TOKENS = 60


def batches(epoch: int = 0, steps: int = 7, seed: int = 3, **place: int) -> list[list[int]]:
    sampler = TokenBatches(LENGTHS, TOKENS, steps, seed, **place)
    sampler.set_epoch(epoch)
    found = list(sampler)
    assert len(found) == len(sampler) == steps
    return found


def pass_length() -> int:
    """Batches it takes to see every sentence once."""
    seen, steps = 0, 0
    for batch in batches(steps=200):
        if seen == len(LENGTHS):
            return steps
        seen, steps = seen + len(batch), steps + 1
    raise AssertionError("the stream has no passes")


def test_every_sentence_once_a_pass() -> None:
    steps = pass_length()
    stream = batches(steps=3 * steps + 6)
    first = list(chain.from_iterable(stream[:steps]))
    assert sorted(first) == list(range(len(LENGTHS)))
    second_length = next(n for n in range(1, 99) if sum(map(len, stream[steps : steps + n])) == len(LENGTHS))
    second = list(chain.from_iterable(stream[steps : steps + second_length]))
    assert sorted(second) == list(range(len(LENGTHS)))
    assert first != second


def test_no_batch_is_larger_than_asked_for_and_few_are_much_smaller() -> None:
    sizes = [len(batch) * int(LENGTHS[batch].max()) for batch in batches(steps=pass_length())]
    assert max(sizes) <= TOKENS
    assert np.mean(sizes) > 0.7 * TOKENS
    assert sum(sizes) < 1.15 * LENGTHS.sum()  # lengths are alike: little padding


def test_batches_come_in_no_order_of_length() -> None:
    longest = [int(LENGTHS[batch].max()) for batch in batches(steps=pass_length())]
    assert longest != sorted(longest)
    assert longest != sorted(longest, reverse=True)


def test_a_sentence_longer_than_a_batch_stands_alone() -> None:
    lengths = np.array([3, 50, 2, 4])
    assert cut([2, 0, 3, 1], lengths, 9) == [[2, 0], [3], [1]]
    assert cut([], lengths, 9) == []


def test_an_epoch_is_a_piece_of_one_stream() -> None:
    whole = batches(steps=40)
    for epoch in (3, 0, 4, 1, 2):  # in any order, by a fresh sampler: as a resumed run asks
        assert batches(epoch, steps=8) == whole[8 * epoch : 8 * epoch + 8]
    sampler = TokenBatches(LENGTHS, TOKENS, 8, 3)
    seen = []
    for epoch in range(5):
        sampler.set_epoch(epoch)
        seen += list(sampler)
    assert seen == whole


def test_the_seed_makes_the_stream() -> None:
    assert batches(seed=3) == batches(seed=3)
    assert batches(seed=3) != batches(seed=4)


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_partition_each_batch(world: int) -> None:
    steps = pass_length()
    parts = [batches(steps=steps, rank=rank, world_size=world) for rank in range(world)]
    for batch, *shares in zip(batches(steps=steps), *parts, strict=True):
        assert all(shares), "a rank without a sentence cannot take part in the step"
        if len(batch) >= world:
            assert sorted(chain.from_iterable(shares)) == sorted(batch)
            assert max(map(len, shares)) - min(map(len, shares)) <= 1
        else:  # too few to go round: all ranks take all of it, and the mean over their words stays the same
            assert shares == [batch] * world
    assert any(len(batch) < world for batch in batches(steps=steps)) == (world == 3) or world == 2


@pytest.mark.parametrize("world", [1, 2, 3])
def test_in_order_covers_each_sentence_once(world: int) -> None:
    samplers = [InOrder(LENGTHS, TOKENS, rank, world) for rank in range(world)]
    parts = [list(sampler) for sampler in samplers]
    assert [len(sampler) for sampler in samplers] == [len(part) for part in parts]
    assert sorted(number for part in parts for batch in part for number in batch) == list(range(len(LENGTHS)))
    assert all(len(batch) * LENGTHS[batch].max() <= TOKENS for part in parts for batch in part)
    for part in parts:
        longest = [int(LENGTHS[batch].max()) for batch in part]
        assert longest == sorted(longest, reverse=True)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("world", [1, 2])
def test_batches_of_what_is_done_are_left_out_and_the_others_stay_as_they_are(world: int) -> None:
    whole = InOrder(LENGTHS, TOKENS, 0, world).batches
    done = {*whole[0], *whole[2], *whole[3][:1]}
    assert InOrder(LENGTHS, TOKENS, 0, world, done).batches == [whole[1], *whole[3:]]
    assert InOrder(LENGTHS, TOKENS, 0, world, range(len(LENGTHS))).batches == whole[-1:]
    known = set(range(0, len(LENGTHS), 2))  # of most batches some
    batches = [InOrder(LENGTHS, TOKENS, rank, world, known, known).batches for rank in range(world)]
    assert sorted(chain(*chain(*batches))) == list(range(1, len(LENGTHS), 2))
    assert len(InOrder(LENGTHS, TOKENS, 0, world, (), range(len(LENGTHS))).batches[0]) == 1


@pytest.fixture
def store(tmp_path) -> RegionStore:
    regions = np.arange(3 * 2 * 4).reshape(3, 2, 4).astype(np.float16)
    write_regions(tmp_path, ["a", "b", "c"], ((region, np.zeros((2, 4))) for region in regions))
    return RegionStore(tmp_path)


SENTENCES = Sentences([[5, 6, 7], [8], [9, 10]], [[15], [16, 17], [18, 19, 20]], ["c", "a", "c"])


def test_a_batch_is_padded_and_marked(store: RegionStore) -> None:
    batch = SentenceBatches(SENTENCES, store)[[2, 0, 1]]
    assert batch["index"].tolist() == [2, 0, 1]
    assert batch["source"].tolist() == [[9, 10, PADDING], [5, 6, 7], [8, PADDING, PADDING]]
    assert batch["source_lengths"].tolist() == [2, 3, 1]
    assert batch["target"].tolist() == [[BEGIN, 18, 19, 20], [BEGIN, 15, 0, 0], [BEGIN, 16, 17, 0]]
    assert batch["labels"].tolist() == [[18, 19, 20, END], [15, END, 0, 0], [16, 17, END, 0]]
    assert batch["target_lengths"].tolist() == [4, 2, 3]
    assert batch["regions"].dtype == torch.float16
    assert batch["regions"].tolist() == store.regions[[2, 2, 0]].tolist()


def test_a_gpu_s_batch_has_one_of_few_shapes(store: RegionStore) -> None:
    sentences = Sentences([[5, 6], [7]], [[8], [9, 4, 3, 5]], ["b", None])
    plain, few = SentenceBatches(sentences, store), SentenceBatches(sentences, store)
    few.few_shapes = True
    one, other = plain[[0, 1]], few[[0, 1]]
    assert (other["source"].shape, other["labels"].shape, other["regions"].shape[0]) == ((8, 4), (8, 8), 8)
    for name in ("source", "target", "labels", "regions", "source_lengths", "target_lengths", "index"):
        wide = other[name][:2]
        assert torch.equal(wide[:, : one[name].shape[1]] if wide.dim() == 2 else wide, one[name]), name
    assert (other["labels"][:, 5:] == PADDING).all()
    assert (other["source"][2:, 1:] == PADDING).all()
    assert (other["labels"][2:] == PADDING).all()
    assert (other["source_lengths"][2:] == 1).all()
    assert (other["target_lengths"][2:] == 1).all()
    assert not other["regions"][2:].any()
    assert (other["index"][2:] == -1).all()
    few.with_regions = False
    assert few[[0, 1]]["image_row"].tolist() == [1, *[-1] * 7]


def test_a_batch_may_have_regions_of_other_pictures(store: RegionStore) -> None:
    sentences = Sentences([[5], [6]], None, ["a", "b"], ["c", None])
    batch = SentenceBatches(sentences, store)[[1, 0]]
    assert batch["other_regions"].tolist() == [np.zeros((2, 4)).tolist(), store.regions[2].tolist()]
    assert "other_regions" not in SentenceBatches(sentences, None)[[1, 0]]


def test_each_process_loads_its_share(store: RegionStore) -> None:
    seen = []
    for rank in range(2):
        data = TranslationData(SENTENCES, SENTENCES, store, batch_tokens=100, steps=1, seed=0)
        data.trainer = SimpleNamespace(global_rank=rank, world_size=2, strategy=None)
        seen.append([number for batch in data.val_dataloader() for number in batch["index"].tolist()])
    assert sorted(chain(*seen)) == [0, 1, 2]
    assert all(seen)


def test_a_batch_without_translations_or_pictures_has_none() -> None:
    batch = SentenceBatches(Sentences([[5], [6, 7]], None, [None, None]), None)[[1, 0]]
    assert set(batch) == {"index", "source", "source_lengths"}
    assert "regions" not in SentenceBatches(SENTENCES, None)[[0]]
    assert len(SENTENCES) == 3


def test_the_loader_gives_every_sentence_once(store: RegionStore) -> None:
    found = [batch["index"].tolist() for rank in range(2) for batch in in_order_loader(SENTENCES, store, 3, rank, 2)]
    assert sorted(chain.from_iterable(found)) == [0, 1, 2]


def test_training_batches_count_the_longer_side_and_leave_the_global_generator_alone(store: RegionStore) -> None:
    data = TranslationData(SENTENCES, SENTENCES, store, batch_tokens=4, steps=6, seed=0)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    train = list(data.train_dataloader())
    assert torch.equal(torch.rand(3), expected)
    assert len(train) == 6
    for batch in train:
        assert batch["labels"].numel() <= 4
        assert batch["source"].numel() <= 4
    assert sorted(number for batch in train[:3] for number in batch["index"].tolist()) == [0, 1, 2]
    assert sorted(number for batch in data.val_dataloader() for number in batch["index"].tolist()) == [0, 1, 2]


class Unsendable:
    """What cannot be passed on, as if /dev/shm was full."""

    def __reduce__(self) -> tuple:
        raise RuntimeError("unable to allocate shared memory(shm) for file </torch_1_2>: No space left on device (28)")


@pytest.mark.whole
@pytest.mark.timeout(60)
def test_a_worker_that_cannot_pass_on_a_batch_ends() -> None:
    with pytest.raises(RuntimeError, match="DataLoader worker"):
        list(loader([Unsendable()] * 3, range(3), 1))
