"""Caption mixes: how groups are written, and that batches are drawn as they are defined."""

import numpy as np
import pytest
from datasets import Dataset

from data.batches.mixing import Everything, MixedBatches
from data.batches.slots import Slot, parse_group
from data.captions.table import Caption, table_of
from data.errors import DataError
from tests.data.batches.test_retrieval_data import DE, EN, FR, epoch, kind


def test_groups_are_read() -> None:
    assert parse_group("en/human") == (Slot("en", "human", 1),)
    assert parse_group(" 2*en/human +de/mmt:en-de-en ") == (Slot("en", "human", 2), Slot("de", "mmt:en-de-en"))
    assert parse_group("12 * fr/mt:en-fr")[0].count == 12
    assert parse_group("de/mmt:en-de")[0].type == "de/mmt:en-de"
    assert parse_group("2*en/human + 0*de/human") == (Slot("en", "human", 2), Slot("de", "human", 0))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "en",
        "en/",
        "/human",
        "0*en/human",
        "00*en/human + de/human",
        "en/human +",
        "x*en/human",
        "EN/human",
        "en human",
    ],
)
def test_groups_that_cannot_be_read_are_named(text: str) -> None:
    with pytest.raises(DataError, match=r"caption group .*expected `language/source`"):
        parse_group(text)


def plain_epoch(table: Dataset, groups, size: int, seed: int, number: int, steps: int) -> list[list[tuple[int, ...]]]:
    """Batches by definition: image by image, a permutation of the captions of each slot; then one of all visits."""
    of_image: dict[str, dict[str, list[int]]] = {}
    for place in range(len(table)):
        of_image.setdefault(table[place]["image_id"], {}).setdefault(kind(table, place), []).append(place)

    def stream(of_group: int):
        cycle = 0
        while True:
            generator, visits = np.random.default_rng((seed, number, of_group, cycle)), []
            drawn = [slot for slot in groups[of_group] if slot.count]
            for own in of_image.values():
                orders = [generator.permutation(own.get(slot.type, [])) for slot in drawn]
                fits = all(bool(own.get(slot.type)) == bool(slot.count) for slot in groups[of_group])
                turns = max(-(-len(own.get(slot.type, ())) // slot.count) for slot in drawn) if fits else 0
                visits += [
                    tuple(int(order[place % len(order)]) for slot, order in zip(drawn, orders, strict=True)
                          for place in range(turn * slot.count, (turn + 1) * slot.count))
                    for turn in range(turns)
                ]  # fmt: skip
            yield from (visits[place] for place in generator.permutation(len(visits)))
            cycle += 1

    streams = [stream(of_group) for of_group in range(len(groups))]
    share = size // len(groups)
    return [[next(each) for each in streams for _ in range(share)] for _ in range(steps)]


@pytest.mark.parametrize("texts", [
    ["en/human"], ["en/human", "de/mmt:en-de"], ["2*en/human + de/mmt:en-de"], ["en/human + 0*fr/human", "2*fr/human"],
    ["3*en/human + 2*de/mmt:en-de + fr/human", "de/mmt:en-de + de/mmt:en-de"],
])  # fmt: skip
@pytest.mark.parametrize("seed", range(3))
def test_batches_are_drawn_image_by_image(texts: list[str], seed: int) -> None:
    rng = np.random.default_rng(seed)
    captions = [
        Caption(f"{image}.jpg", f"{image}-{slot.language}-{k}", slot.language, "a", "train", slot.source)
        for image in rng.permutation(12).tolist() for slot in (EN, DE, FR)
        for k in range(rng.integers(0, 4) if seed else 3)
    ]  # fmt: skip
    table, groups = (
        table_of([captions[place] for place in rng.permutation(len(captions))]),
        list(map(parse_group, texts)),
    )
    groups = [
        tuple(Slot(s.language, s.source, min(s.count, 2 if s is not FR else 1)) for s in group) for group in groups
    ]
    try:
        found = epoch(table, groups, 3, batch_size=6, seed=seed, steps=20)
    except DataError as error:
        assert "draws" in str(error) or "no training image" in str(error)  # noqa: PT017
        return
    assert found == plain_epoch(table, groups, 6, seed, 3, 20)


def test_types_that_an_image_must_have_and_must_not_have_are_named() -> None:
    table = table_of([Caption(f"{n}.jpg", f"{n}{code}", code, "a", "train") for n in range(3) for code in ("en", "de")])
    told = "no training image has captions of type en/human and none of type de/human; run the stage augment"
    with pytest.raises(DataError, match=told):
        MixedBatches(table, [parse_group("en/human + 0*de/human")], 2, 0)


def test_a_rank_without_an_image_takes_the_first_one_too() -> None:
    table = table_of([Caption(f"{n // 2}.jpg", f"{n}", "en", "a", "val") for n in range(4)])
    assert [list(Everything(table, 5, rank, 3)) for rank in range(3)] == [[[(0, 1)]], [[(2, 3)]], [[(0, 1)]]]


def test_an_epoch_of_batches_that_a_small_group_cannot_fill_is_longer() -> None:
    """A batch of 100 has 4 visits of one group, all that it has, and 50 of the other one: 100 are two batches."""
    rows = [Caption(f"{image}", f"{image}-en", "en", f"a {image}", "train") for image in range(96)]
    rows += [Caption(f"{image}", f"{image}-de", "de", f"ein {image}", "train") for image in range(4)]
    batches = MixedBatches(table_of(rows), [parse_group("en/human"), parse_group("de/human")], 100, seed=1)
    assert len(batches) == 2
    assert [[len(part) for part in batch] for batch in batches] == [[50, 4], [50, 4]]
