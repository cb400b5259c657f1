"""Image-major batches: every caption once an epoch, kinds in equal shares, ranks that partition, links that hold."""

from collections import Counter
from itertools import chain

import numpy as np
import pytest
import torch
from datasets import Dataset
from torch.utils.data import DistributedSampler

from data.batches.captions import CaptionBatches
from data.batches.mixing import Everything, MixedBatches
from data.batches.retrieval import RetrievalData
from data.batches.slots import Slot, parse_group
from data.batches.translation import InOrder, TokenBatches
from data.captions.table import Caption, read_captions, write_captions
from data.errors import DataError
from data.pictures.regions import RegionStore, write_regions
from data.text.tokens import Tokens

IMAGES = [f"i{number:02}" for number in range(10)]
EN, DE, FR = Slot("en", "human"), Slot("de", "mmt:en-de"), Slot("fr", "human")


def rows() -> list[Caption]:
    """Each image: three English captions (number 9: two), as many synthetic German ones, one French (not number 0)."""
    found = []
    for number, image in enumerate(IMAGES):
        split = "train"
        for k in range(2 if number == 9 else 3):
            name, german = f"{image}-{k}", f"Ein Wort {image}-{k} ."
            found.append(Caption(image, f"{name}-en", "en", f"A word {name} .", split))
            found.append(Caption(image, f"{name}-de", "de", german, split, "mmt:en-de", f"{name}-en", -1.0))
        if number:
            found.append(Caption(image, f"{image}-fr", "fr", "le même mot !" if number < 3 else f"mot {image}", split))
    for image in ("v0", "v1", "v2"):
        found += [Caption(image, f"{image}-{k}", "en", f"Held out {image} {k}", "val") for k in range(2)]
        found.append(Caption(image, f"{image}-de", "de", f"Zurück {image}", "val", "mmt:en-de", f"{image}-0", -1.0))
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    write_captions(rows(), folder / "captions.parquet")
    ids = ["v2", *IMAGES, "v0", "v1"]  # in another order than the table
    regions = np.random.default_rng(0).normal(size=(len(ids), 2, 3))
    write_regions(folder, ids, ((region, np.zeros((2, 4))) for region in regions))
    return folder


@pytest.fixture(scope="module")
def captions(folder) -> Dataset:
    return read_captions(folder / "captions.parquet")


@pytest.fixture(scope="module")
def train(captions) -> Dataset:
    return captions.select([number for number, row in enumerate(captions.to_list()) if row["split"] == "train"])


def kind(table: Dataset, number: int) -> str:
    row = table[int(number)]
    return f"{row['language']}/{row['source']}"


def kinds(table: Dataset, batch: list[tuple[int, ...]]) -> Counter:
    return Counter(kind(table, number) for visit in batch for number in visit)


@pytest.mark.parametrize("kind", [MixedBatches, Everything, TokenBatches, InOrder])
def test_lightning_shares_nothing_out_that_is_of_one_rank_already(kind: type) -> None:
    assert issubclass(kind, DistributedSampler)


def epoch(table: Dataset, groups, number: int = 0, **settings) -> list[list[tuple[int, ...]]]:
    sampler = MixedBatches(table, groups, **({"batch_size": 8, "seed": 5} | settings))
    sampler.set_epoch(number)
    found = [visits_in(batch) for batch in sampler]
    assert len(found) == len(sampler)
    return found


def visits_in(batch) -> list[tuple[int, ...]]:
    return [tuple(visit) for part in batch for visit in part.tolist()]


def test_an_epoch_of_one_slot_is_every_caption_once(train: Dataset) -> None:
    found = list(chain.from_iterable(chain.from_iterable(epoch(train, [(EN,)], batch_size=29))))
    assert sorted(found) == [number for number in range(len(train)) if kind(train, number) == EN.type]
    assert len(found) == 29


def test_where_the_last_batch_is_not_full_it_is_filled_afresh(train: Dataset) -> None:
    batches = epoch(train, [(EN,)], batch_size=8)
    assert [len(batch) for batch in batches] == [8] * 4
    found = list(chain.from_iterable(chain.from_iterable(batches)))
    assert len(set(found[:29])) == 29
    assert set(found[29:]) <= set(found[:29])


def test_two_groups_share_each_batch_in_half(train: Dataset) -> None:
    batches = epoch(train, [(EN,), (DE,)])
    assert len(batches) == 8  # 29 + 29 visits in eights
    for batch in batches:
        assert kinds(train, batch) == {EN.type: 4, DE.type: 4}
    counts = Counter(number for batch in batches for visit in batch for number in visit)
    assert len(counts) == 58
    assert set(counts.values()) == {1, 2}


def test_a_small_group_goes_round_while_of_a_large_one_a_part_is_seen(train: Dataset) -> None:
    batches = epoch(train, [(EN,), (FR,)])
    assert all(kinds(train, batch) == {EN.type: 4, FR.type: 4} for batch in batches)
    seen = Counter(number for batch in batches for visit in batch for number in visit)
    french = [count for number, count in seen.items() if kind(train, number) == FR.type]
    assert len(french) == 9
    assert set(french) == {2, 3}
    english = [count for number, count in seen.items() if kind(train, number) == EN.type]
    assert set(english) == {1}
    assert sum(english) == sum(french)


@pytest.mark.parametrize(("size", "groups"), [(7, [(EN,), (DE,)]), (8, [(EN,), (DE,), (FR,)])])
def test_what_does_not_divide_evenly_goes_round(train: Dataset, size: int, groups) -> None:
    batches = epoch(train, groups, batch_size=size, steps=2 * len(groups))
    assert all(len(batch) == size for batch in batches)
    for batch in batches:
        counts = kinds(train, batch).values()
        assert max(counts) - min(counts) == 1
    total = sum((kinds(train, batch) for batch in batches), Counter())
    assert set(total.values()) == {2 * size}


def test_a_group_of_several_slots_gives_captions_of_one_image_together(train: Dataset) -> None:
    group = parse_group("2*en/human + fr/human")
    batches = epoch(train, [group], batch_size=6)
    visits = list(chain.from_iterable(batches))
    assert len(visits) == 18  # nine images with French; 3 English captions are 2 turns, and 2 are 1: 17, rounded up
    for visit in visits:
        assert len({train[number]["image_id"] for number in visit}) == 1
        assert [kind(train, number) for number in visit] == [EN.type, EN.type, FR.type]
        assert visit[0] != visit[1]
    english = {number for visit in visits for number in visit[:2]}
    assert english == {
        number for number, row in enumerate(train.to_list()) if row["language"] == "en" and row["image_id"] != "i00"
    }


def test_an_image_with_fewer_captions_than_a_slot_wants_repeats_them(train: Dataset) -> None:
    visits = list(chain.from_iterable(epoch(train, [parse_group("3*en/human")], batch_size=10)))
    assert len(visits) == 10
    different = {train[visit[0]]["image_id"]: len(set(visit)) for visit in visits}
    assert different == dict.fromkeys(IMAGES[:9], 3) | {"i09": 2}


def test_slots_of_one_type_may_repeat_captions_on_purpose(train: Dataset) -> None:
    """A control: the same captions again."""
    for text, visits in (("fr/human + fr/human", 9), ("2*en/human + en/human", 29)):
        assert MixedBatches(train, [parse_group(text)], 9, 0).steps == -(-visits // 9)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5*fr/human", "`5*fr/human` draws 5 captions of an image at once, but no training image of its group has more"
                       " than 1 of this type; ask for at most 1 in vse.rows"),
        ("2*en/human + 2*fr/human", "`2*fr/human` draws 2 .*more than 1 "),
        ("4*en/human + de/mmt:en-de", "`4*en/human` draws 4 .*more than 3 "),
        ("2*en/human + 4*de/mmt:en-de + 0*fr/human", "`4*de/mmt:en-de` draws 4 .*more than 3 "),
    ],
)  # fmt: skip
def test_more_captions_than_any_image_has_are_refused(train: Dataset, text: str, expected: str) -> None:
    with pytest.raises(DataError, match=expected.replace("*", r"\*", 1)):
        MixedBatches(train, [parse_group("en/human"), parse_group(text)], 8, 0)


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("size", [8, 9])
def test_ranks_partition_each_batch_and_each_sees_each_kind(train: Dataset, world: int, size: int) -> None:
    groups = [(EN,), (DE,)]
    parts = [epoch(train, groups, batch_size=size, rank=rank, world_size=world) for rank in range(world)]
    for whole, *shares in zip(epoch(train, groups, batch_size=size), *parts, strict=True):
        assert Counter(chain.from_iterable(shares)) == Counter(whole)
        assert all(set(kinds(train, part)) == {EN.type, DE.type} for part in shares)


def test_seed_and_epoch_make_the_batches_and_nothing_else(train: Dataset) -> None:
    groups = [(EN,), (DE,)]
    np.random.seed(1)  # noqa: NPY002
    once = epoch(train, groups, 3)
    np.random.seed(2)  # noqa: NPY002
    sampler = MixedBatches(train, groups, 8, 5)
    for number in (0, 3):
        sampler.set_epoch(number)
        again = [visits_in(batch) for batch in sampler]
    assert again == once == [visits_in(batch) for batch in sampler]
    assert epoch(train, groups, 4) != once
    assert epoch(train, groups, 3, seed=6) != once


def test_steps_make_an_epoch_shorter_or_longer(train: Dataset) -> None:
    assert len(epoch(train, [(EN,)], steps=2)) == 2
    assert len(epoch(train, [(EN,)], steps=20)) == 20


def test_what_cannot_be_filled_is_named(train: Dataset) -> None:
    with pytest.raises(DataError, match="no training image has captions of type de/human"):
        MixedBatches(train, [(EN,), (Slot("de", "human"),)], 8, 0)
    with pytest.raises(DataError, match="batch_size is 3, for 2 caption groups on 2 devices"):
        MixedBatches(train, [(EN,), (DE,)], 3, 0, world_size=2)
    MixedBatches(train, [(EN,), (DE,)], 4, 0, world_size=2)


@pytest.mark.parametrize("world", [1, 2, 3])
def test_everything_is_every_image_and_caption_once(train: Dataset, world: int) -> None:
    samplers = [Everything(train, 3, rank, world) for rank in range(world)]
    visits = [visit for sampler in samplers for batch in sampler for visit in batch]
    assert sorted(chain.from_iterable(visits)) == list(range(len(train)))
    assert len(visits) == len(IMAGES)
    for visit in visits:
        assert len({train[number]["image_id"] for number in visit}) == 1
    for sampler in samplers:
        assert len(sampler) == len(list(sampler))
        assert all(len(batch) <= 3 for batch in sampler)


def encode(text: str, language: str) -> list[int]:
    return [len(word) for word in text.split()] + ([99] if language == "de" else [])


class Lengths:
    """A text input: the lengths of words."""

    def encode_all(self, captions: Dataset) -> Tokens:
        return Tokens.of(map(encode, captions["text"][:], captions["language"][:]))


@pytest.fixture(scope="module")
def batches(train: Dataset, folder) -> CaptionBatches:
    return CaptionBatches(train, RegionStore(folder), Lengths(), ["en", "de"], [DE.type, EN.type])


def test_a_batch_holds_each_image_once_and_links_each_caption_to_its_own(train: Dataset, folder, batches) -> None:
    visits = [(2,), (0, 1), (7,), (4, 2)]  # images 0, 0, 1, 0
    batch = batches[visits]
    store = RegionStore(folder)
    numbers = [2, 0, 1, 7, 4, 2]
    assert batch["caption_key"].tolist() == numbers
    assert batch["image_key"].tolist() == store.rows(["i00", "i01"]).tolist()
    assert batch["regions"].shape == (2, 2, 3)
    assert batch["region_mask"].all()
    assert batch["region_mask"].shape == (2, 2)
    for place, number in enumerate(numbers):
        row = train[number]
        image = int(batch["image_index"][place])
        assert store.ids[int(batch["image_key"][image])] == row["image_id"]
        np.testing.assert_array_equal(batch["regions"][image].numpy(), store.regions[store.rows([row["image_id"]])[0]])
        words = encode(row["text"], row["language"])
        assert batch["tokens"][place].tolist() == words + [0] * (batch["tokens"].shape[1] - len(words))
        assert int(batch["lengths"][place]) == len(words)
        assert int(batch["language"][place]) == ["en", "de"].index(row["language"])
        assert int(batch["type"][place]) == [DE.type, EN.type].index(kind(train, number))


def test_a_gpu_s_batch_has_one_of_few_shapes(batches, monkeypatch) -> None:
    plain = batches[[np.arange(6)]]
    monkeypatch.setattr(batches, "few_shapes", True)
    few = batches[[np.arange(6)]]
    assert few["tokens"].shape[1] % 8 == few["image_sentences"].shape[0] % 64 == 0
    for name, tensor in plain.items():
        wide = few[name]
        same = wide[:, : tensor.shape[1]] if name == "tokens" else wide[: len(tensor)]
        assert torch.equal(same, tensor), name
    assert not few["tokens"][:, plain["tokens"].shape[1] :].any()
    assert (few["image_sentences"][len(plain["image_sentences"]) :] == -1).all()


def test_equal_sentences_share_a_hash_and_others_do_not(train: Dataset, batches) -> None:
    french = [number for number in range(len(train)) if kind(train, number) == FR.type]
    hashes = batches[[(number,) for number in french]]["sentence"]
    assert hashes[0] == hashes[1]
    assert len(hashes.unique()) == 8
    assert batches.languages[french[0]] == batches.types[french[0]] == -1  # neither is this model's


def test_no_sentence_of_an_image_is_a_negative_of_it_whatever_is_in_the_batch(train: Dataset, batches) -> None:
    owned: dict[int, set[int]] = {}
    for number in range(len(train)):
        owned.setdefault(int(batches.rows[number]), set()).add(int(batches.sentences[number]))
    for visits in MixedBatches(train, [(EN,), (DE,)], 4, seed=3):
        batch = batches[visits]
        pairs = [tuple(pair) for pair in batch["image_sentences"].tolist()]
        assert len(pairs) == len(set(pairs))
        assert {key for key, _ in pairs} == set(batch["image_key"].tolist())
        for key in batch["image_key"].tolist():
            assert {sentence for image, sentence in pairs if image == key} == owned[key]


@pytest.fixture
def data(captions: Dataset, folder) -> RetrievalData:
    groups = [(EN,), (DE,)]
    return RetrievalData(
        captions, RegionStore(folder), Lengths(), groups, ["de", "en"], {"val": ["en"], "test": ["en"]}, 8
    )


def test_the_data_module_trains_on_its_types_and_holds_out_human_captions(captions: Dataset, data) -> None:
    assert data.types == [EN.type, DE.type]
    seen = set()
    for batch in data.train_dataloader():
        assert Counter(batch["type"].tolist()) == {0: 4, 1: 4}
        seen |= set(batch["caption_key"].tolist())
    ids = data.caption_ids("train")
    assert {ids[number] for number in seen} == {
        row.caption_id for row in rows() if row.split == "train" and row.language != "fr"
    }
    held_out = list(data.val_dataloader())
    ids = data.caption_ids("val")
    found = [ids[number] for batch in held_out for number in batch["caption_key"].tolist()]
    assert sorted(found) == [f"v{image}-{k}" for image in range(3) for k in range(2)]


def test_loading_does_not_touch_the_global_generator(data) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    for _ in data.train_dataloader():
        pass
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_batch_has_at_most_the_visits_there_are(train, ranks: int) -> None:
    """A batch size for thousands of images, on ten: no image is visited again and again until the memory is full."""
    groups = [(EN,), (DE,)]
    visits = sum(len(train.filter(lambda row, s=slot: row["language"] == s.language)) for (slot,) in groups)
    batches = [MixedBatches(train, groups, 100_000, seed=1, rank=rank, world_size=ranks) for rank in range(ranks)]
    (first, *more), *others = [[visits_in(batch) for batch in one] for one in batches]
    assert not more
    drawn = [number for visit in chain(first, *chain(*others)) for number in visit]
    assert len(drawn) == visits == len(set(drawn))


def test_one_image_alone_is_refused(train) -> None:
    with pytest.raises(DataError, match="one training image alone"):
        MixedBatches(train.filter(lambda row: row["image_id"] == "i01"), [(EN,)], 4, seed=1)
