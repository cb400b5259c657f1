"""MS-COCO in three languages: YJ Captions' and COCO-CN's layouts, MULE's split, and how its groups fill batches."""

import json
from collections import Counter, defaultdict
from itertools import chain, combinations
from math import ceil
from pathlib import Path

import pytest
from datasets import Dataset

from data.batches.mixing import MixedBatches
from data.batches.slots import parse_group
from data.captions.table import read_captions, write_captions
from data.corpora.coco.karpathy import KarpathySettings, read, sources
from data.errors import DataError
from pipeline.recipes.loading import load_recipe
from tests.data.layouts import entries, write_json
from tests.data.official import pack

THREE = {
    "captions": "dataset.json", "languages": ["en", "ja", "zh"], "translated": {"ja": "yj.json", "zh": "cn.txt"},
}  # fmt: skip
SPLITS = ("train", "val", "test")


def coco_name(number: int) -> str:
    return f"COCO_train2014_{number:012d}"


def japanese(found: list[dict], each: int = 5) -> list[dict]:
    """`annotations` as in `yjcaptions26k_clean.json`."""
    return [
        {"id": 10 * place + k, "image_id": image["cocoid"], "caption": f"犬{k}が公園の{image['cocoid']}にいる",
         "tokenized_caption": "犬 が 公園"}
        for place, image in enumerate(found) for k in range(each)
    ]  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Ten images with five English captions; the last eight have five Japanese ones, the first seven a Chinese one."""
    found = entries({"train": 6, "val": 2, "test": 2}, each=5)
    for image in found:
        image["filename"] = f"{coco_name(image['cocoid'])}.jpg"
    write_json(tmp_path / "dataset.json", found)
    (tmp_path / "yj.json").write_text(json.dumps({"info": {}, "images": [], "annotations": japanese(found[2:])}))
    pack(tmp_path / "cn.txt", [f"{coco_name(100 + number)}#0\t一只狗在公园{number}里" for number in range(7)])
    return tmp_path


def load(root: Path, **changed):
    return read(KarpathySettings(**THREE | changed), root, root)


def images_of(corpus) -> dict[str, set[str]]:
    return {split: {c.image_id for c in corpus.captions if c.split == split} for split in SPLITS}


def test_captions_of_three_languages_and_their_places(root: Path) -> None:
    corpus = load(root)
    assert Counter(c.language for c in corpus.captions) == {"en": 50, "ja": 40, "zh": 7}
    third = [c for c in corpus.captions if c.image_id == coco_name(102)]
    assert [c.language for c in third] == ["en"] * 5 + ["ja"] * 5 + ["zh"]
    assert (third[5].text, third[5].caption_id) == ("犬0が公園の102にいる", f"{coco_name(102)}#ja1")
    assert corpus.place(third[6], "ja") == f"{root / 'yj.json'}: annotations[1].caption"
    assert corpus.place(third[10], "zh") == f"{root / 'cn.txt'}:3"
    assert third[10].text == "一只狗在公园2里"


def test_several_chinese_captions_of_an_image(root: Path) -> None:
    pack(root / "cn.txt", [f"{coco_name(100)}#0\t狗", f"{coco_name(100)}#1\t猫", f"{coco_name(101)}#0\t "])
    corpus = load(root)
    assert [(c.image_id, c.text) for c in corpus.captions if c.language == "zh"] == [
        (coco_name(100), "狗"), (coco_name(100), "猫"),
    ]  # fmt: skip
    assert corpus.empty == [f"{root / 'cn.txt'}:3"]


def test_mules_split_is_drawn_from_images_with_captions_in_all_languages(root: Path) -> None:
    whole = {coco_name(100 + n) for n in range(2, 7)}
    drawn = images_of(load(root, drawn=2))
    assert [len(drawn[split]) for split in SPLITS] == [6, 2, 2]
    assert drawn["val"] | drawn["test"] <= whole
    assert not any(drawn[one] & drawn[other] for one, other in combinations(SPLITS, 2))
    write_json(root / "dataset.json", json.loads((root / "dataset.json").read_text())["images"][::-1])
    assert images_of(load(root, drawn=2)) == drawn  # the order of the file decides nothing
    others = {tuple(sorted(images_of(load(root, drawn=2, drawn_seed=seed))["test"])) for seed in range(2, 8)}
    assert len(others) > 2
    tested = load(root, drawn=2).captions
    assert Counter(c.language for c in tested if c.split == "test") == {"en": 10, "ja": 10, "zh": 2}
    assert images_of(load(root)) != drawn  # without, the file's own split


def test_split_lists_are_read_and_all_others_train(root: Path) -> None:
    pack(root / "lists" / "coco-cn_val.txt", [coco_name(101), "103"])
    pack(root / "lists" / "coco-cn_test.txt", [f"{coco_name(104)}.jpg"])
    splits = {split: f"lists/coco-cn_{split}.txt" for split in ("val", "test")}
    found = images_of(load(root, splits=splits))
    assert found == {
        "val": {coco_name(101), coco_name(103)}, "test": {coco_name(104)},
        "train": {coco_name(n) for n in (100, 102, 105, 106, 107, 108, 109)},
    }  # fmt: skip
    pack(root / "lists" / "train.txt", ["100"])
    assert images_of(load(root, splits=splits | {"train": "lists/train.txt"})) == found | {"train": {coco_name(100)}}
    named = {path.name for path in sources(KarpathySettings(**THREE, splits=splits), root)}
    assert named == {"dataset.json", "yj.json", "cn.txt", "coco-cn_val.txt", "coco-cn_test.txt"}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"drawn": 3}, "drawn is 3, for val and test, but only 5 images have captions in en, ja, zh; draw fewer"),
        ({"drawn": -1}, "drawn is -1; expected 0 or more"),
        ({"drawn": 1, "splits": {"val": "v", "test": "t"}}, "drawn is 1; .* and 0 where splits are named"),
        ({"splits": {"val": "v"}}, "splits names val; expected val and test"),
        ({"splits": {"val": "v", "test": "t", "dev": "d"}}, "splits names val, test, dev; expected"),
        ({"splits": {"val": "nowhere.txt", "test": "t"}}, r"nowhere\.txt: no such file; .*images of val"),
        ({"splits": {"val": "good.txt", "test": "good.txt"}}, r"good\.txt:1: image .* stands twice, first in .*:1"),
        ({"splits": {"val": "good.txt", "test": "bad.txt"}}, r"bad\.txt:2: image '999' is not in the JSON"),
        ({"splits": {"val": "good.txt", "test": "none.txt"}}, r"none\.txt: no lines, expected images"),
    ],
)
def test_splits_that_do_not_fit(root: Path, changed: dict, message: str) -> None:
    for name, lines in (("good", ["100"]), ("bad", ["101", "999"]), ("none", [""])):
        pack(root / f"{name}.txt", lines)
    with pytest.raises(DataError, match=message):
        load(root, **changed)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"annotations": [{"image_id": 999, "caption": "犬"}]}, r"annotations\[0\]\.caption: image '999' is not in"),
        ({"annotations": [{"image_id": 102}]}, r"annotations\[0\]: expected `image_id`, a number, and `caption`"),
        ({"annotations": [{"image_id": [102], "caption": "犬"}]}, r"annotations\[0\]: expected `image_id`, a number"),
        ({"annotations": ["犬"]}, r"annotations\[0\]: expected `image_id`"),
        ({"annotations": [{"image_id": 102, "caption": "\ud83d"}]}, r"annotations\[0\]\.caption: .* half a character"),
        ({"annotations": []}, "no list of `annotations` in it; expected JSON"),
        (["犬"], "no list of `annotations`"),
        (None, "not JSON that can be read"),
    ],
)
def test_annotations_that_do_not_fit(root: Path, content: object, message: str) -> None:
    (root / "yj.json").write_text("{cut" if content is None else json.dumps(content))
    with pytest.raises(DataError, match=message) as caught:
        load(root)
    assert str(caught.value).startswith(str(root / "yj.json"))
    assert "\n" not in str(caught.value)


def test_a_number_behind_the_image_is_coco_cns_alone(root: Path) -> None:
    pack(root / "cn.tsv", [f"{coco_name(100)}#0\t狗"])
    with pytest.raises(DataError, match=r"cn\.tsv:1: image 'COCO_train2014_000000000100#0' is not in the JSON"):
        load(root, languages=["en", "zh"], translated={"zh": "cn.tsv"})


@pytest.fixture
def train(root: Path) -> Dataset:
    """Captions; of training images six have English alone, three Japanese too, three Chinese too, one all three."""
    found = entries({"train": 13, "val": 1, "test": 1}, each=5)
    for image in found:
        image["filename"] = f"{coco_name(image['cocoid'])}.jpg"
    write_json(root / "dataset.json", found)
    (root / "yj.json").write_text(json.dumps({"annotations": japanese(found[6:9] + found[12:])}))
    pack(root / "cn.txt", [f"{coco_name(100 + number)}#0\t一只狗在公园{number}里" for number in range(9, 15)])
    write_captions(load(root).captions, root / "captions.parquet")
    return read_captions(root / "captions.parquet")


GROUPS = [("en", "en"), ("en", "en", "ja", "ja"), ("en", "en", "zh")]


@pytest.mark.whole
def test_groups_of_languages_are_equally_often_and_bring_two_two_and_one_caption(train: Dataset) -> None:
    """MULE, supplement: English only, English-Japanese, English-Chinese; two, two and one caption an image."""
    groups = [parse_group(text) for text in load_recipe("coco-3").vse.rows["all"]]
    own = train.select([number for number, one in enumerate(train["split"][:]) if one == "train"])
    image, language = own["image_id"][:], own["language"][:]
    of_image = {one: {language[number] for number, name in enumerate(image) if name == one} for one in set(image)}
    assert Counter("".join(sorted(found)) for found in of_image.values()) == {
        "en": 6,
        "enja": 3,
        "enzh": 3,
        "enjazh": 1,
    }
    drawn, visited = Counter[tuple[str, ...]](), defaultdict[tuple[str, ...], Counter[str]](Counter)
    for parts in MixedBatches(own, groups, batch_size=9, seed=1, steps=20):
        batch = [tuple(visit) for part in parts for visit in part.tolist()]
        kinds = Counter(tuple(language[number] for number in visit) for visit in batch)
        assert kinds == dict.fromkeys(GROUPS, 3)
        drawn += kinds
        assert Counter(language[number] for number in chain.from_iterable(batch)) == {"en": 18, "ja": 6, "zh": 3}
        for visit in batch:
            (name,) = {image[number] for number in visit}
            visited[tuple(language[number] for number in visit)][name] += 1
            assert len(set(visit)) == len(visit)
    assert drawn == dict.fromkeys(GROUPS, 60)
    alone, with_japanese, with_chinese = (
        {one for one, found in of_image.items() if wanted(found)}
        for wanted in (lambda found: found == {"en"}, lambda found: "ja" in found, lambda found: "zh" in found)
    )
    assert [set(visited[group]) for group in GROUPS] == [alone, with_japanese, with_chinese]
    assert [len(visited[group]) for group in GROUPS] == [6, 4, 4]  # so images of the smaller groups come more often
    assert [sum(visited[group].values()) for group in GROUPS] == [60, 60, 60]


def test_images_with_other_captions_are_left_out_of_a_group(train: Dataset) -> None:
    own = train.select([number for number, one in enumerate(train["split"][:]) if one == "train"])
    every = MixedBatches(own, [parse_group("2*en/human")], 4, 1)
    alone = MixedBatches(own, [parse_group("2*en/human + 0*ja/human + 0*zh/human")], 4, 1)
    assert (len(every), len(alone)) == (ceil(13 * 3 / 4), ceil(6 * 3 / 4))
    with pytest.raises(DataError, match="no training image has captions of type ja/human and none of type en/human;"):
        MixedBatches(own, [parse_group("ja/human + 0*en/human")], 4, 1)
