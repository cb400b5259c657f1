"""The corpus `scenes`: counts, chance that is fair, twins, and nothing told twice."""

import random
from collections import Counter
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from data.corpora import Corpus
from data.corpora.scenes.corpus import Plan, ScenesSettings, draw_things, plan, read
from data.corpora.scenes.glyphs import GLYPHS
from data.corpora.scenes.grammar import AMBIGUOUS, LANGUAGES, PLACES, SENSES, WORDS, Thing
from data.corpora.scenes.render import PIXELS, render
from data.errors import DataError
from tests.pipeline.phrases import fitting

SMALL = ScenesSettings(train=30, retrieval=10, validation=8, test=12, twins=12, text_pairs=20)


@pytest.fixture(scope="module")
def full() -> Plan:
    return plan(ScenesSettings())


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return read(SMALL, None, tmp_path_factory.mktemp("scenes"))


def test_sizes(corpus: Corpus) -> None:
    images = {caption.image_id: caption.split for caption in corpus.captions}
    assert Counter(images.values()) == {"train": 10, "translation": 20, "val": 8, "test": 12, "twins": 24}
    per_image = 4 * 2
    assert Counter(caption.split for caption in corpus.captions) == {
        "train": 10 * (per_image + 4),
        "translation": 20 * (per_image + 4),
        "val": 8 * per_image,
        "test": 12 * per_image,
        "twins": 24 * 4,
    }
    assert set(corpus.pictures) == set(images)
    assert Counter((pair.origin, pair.split) for pair in corpus.pairs) == {
        ("scenes", "train"): 90,
        ("scenes", "val"): 16,
        ("scenes", "test"): 24,
        ("scenes", "twins"): 24,
        ("scenes-text", "train"): 20,
    }
    assert all((pair.image_id is None) == (pair.origin == "scenes-text") for pair in corpus.pairs)
    assert len({pair.pair_id for pair in corpus.pairs}) == len(corpus.pairs)
    assert len(corpus.twins) == 24


def test_captions_and_pairs_say_the_same(corpus: Corpus) -> None:
    captions = {caption.caption_id: caption for caption in corpus.captions}
    assert len(captions) == len(corpus.captions)
    told = [pair for pair in corpus.pairs if pair.image_id is not None]
    assert len(captions) == len(told) * len(LANGUAGES)
    for pair in told:
        image_id, n = pair.pair_id.split("#")
        for language in LANGUAGES:
            caption = captions[f"{image_id}#{language}{n}"]
            assert (caption.image_id, caption.text, caption.source) == (image_id, pair.texts[language], "human")
            assert caption.language == language


def test_pictures(corpus: Corpus) -> None:
    for path in corpus.pictures.values():
        with Image.open(path) as image:
            assert (image.format, image.mode, image.size) == ("PNG", "RGB", (PIXELS, PIXELS))


def test_the_same_seed_gives_the_same_corpus(corpus: Corpus, tmp_path: Path) -> None:
    again = read(SMALL, None, tmp_path)
    assert (again.captions, again.pairs, again.twins) == (corpus.captions, corpus.pairs, corpus.twins)
    assert list(again.pictures) == list(corpus.pictures)
    assert all(again.pictures[key].read_bytes() == path.read_bytes() for key, path in corpus.pictures.items())


def test_another_seed_gives_another_corpus_and_more_scenes_begin_with_the_same() -> None:
    first = plan(SMALL)
    assert plan(ScenesSettings(**{**vars(SMALL), "seed": 1})).scenes != first.scenes
    longer = plan(ScenesSettings(**{**vars(SMALL), "train": 40}))
    assert longer.scenes[:30] == first.scenes[:30]


def chi_square(table: np.ndarray) -> tuple[float, int]:
    """Pearson's statistic of a contingency table, and its degrees of freedom."""
    expected = table.sum(1, keepdims=True) * table.sum(0, keepdims=True) / table.sum()
    return float(((table - expected) ** 2 / expected).sum()), (table.shape[0] - 1) * (table.shape[1] - 1)


def test_sense_is_uniform_and_independent_of_all_else() -> None:
    rng = random.Random(7)
    scenes = [draw_things(rng) for _ in range(6000)]
    word_of = {sense: word for word, senses in WORDS.items() for sense in senses}
    for senses in WORDS.values():
        if len(senses) == 1:
            continue
        rows = [(scene, thing) for scene in scenes for thing in scene if thing.sense in senses]
        first = np.array([thing.sense == senses[0] for _, thing in rows])
        assert abs(first.mean() - 0.5) < 4 * 0.5 / len(rows) ** 0.5
        for read_off in (
            lambda scene, thing: thing.colour,
            lambda scene, thing: thing.size,
            lambda scene, thing: thing.place,
            lambda scene, thing: len(scene),
            lambda scene, thing: scene.index(thing),
        ):
            check_independent(first, [read_off(scene, thing) for scene, thing in rows])
        partners = [(one, other) for one, (scene, thing) in enumerate(rows) for other in scene if other is not thing]
        sides = first[[one for one, _ in partners]]
        check_independent(sides, [other.sense for _, other in partners])
        check_independent(sides, [word_of[other.sense] for _, other in partners])


def check_independent(sense: np.ndarray, values: list[object]) -> None:
    kinds = sorted(set(values), key=str)
    table = np.array(
        [[sum(sense[i] == s for i, v in enumerate(values) if v == kind) for kind in kinds] for s in (0, 1)]
    )
    statistic, freedom = chi_square(table)
    # Four deviations of the statistic's own spread: chance alone passes it about once in ten thousand tables.
    assert statistic < freedom + 4 * (2 * freedom) ** 0.5 + 6


def test_no_two_objects_of_a_held_out_picture_meet_anywhere_else(full: Plan) -> None:
    met: dict[frozenset, str] = {}
    held_out = [scene for scene in full.scenes if scene.split in ("val", "test", "twins")]
    word_of = {sense: word for word, senses in WORDS.items() for sense in senses}

    def meetings(things: tuple[Thing, ...]) -> set[frozenset]:
        looks = [(word_of[thing.sense], thing.colour, thing.size, thing.place) for thing in things]
        return {frozenset(pair) for pair in combinations(looks, 2)}

    for scene in held_out:
        for meeting in meetings(scene.things):
            name = scene.image_id[:-1] if scene.split == "twins" else scene.image_id
            assert met.setdefault(meeting, name) == name
    for scene in full.scenes:
        if scene.split in ("train", "translation"):
            assert not meetings(scene.things) & set(met)
    said = {texts[language] for scene in held_out for texts in scene.texts for language in LANGUAGES}
    assert not said & {texts[language] for texts in full.text_pairs for language in LANGUAGES}


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_two_test_captions_are_alike(full: Plan, language: str) -> None:
    texts = [texts[language] for scene in full.scenes if scene.split == "test" for texts in scene.texts]
    assert len(texts) == len(set(texts)) == 600


def test_a_caption_names_two_objects_and_two_captions_name_all() -> None:
    for scene in plan(ScenesSettings(train=200, retrieval=0, captions=3, short=0)).scenes[:200]:
        assert len({texts["de"] for texts in scene.texts}) == 3
        for texts in scene.texts:
            assert texts["de"].count(" und ") == texts["en"].count(" and ") == 1
        nouns = [noun for thing in scene.things for noun in [SENSES[thing.sense].de[0]]]
        assert all(any(noun in texts["de"].split() for texts in scene.texts[:2]) for noun in nouns)


def test_training_images_have_short_captions_too_and_nothing_else_changes() -> None:
    sizes = {"train": 40, "retrieval": 10, "validation": 5, "test": 5, "twins": 6, "text_pairs": 8}
    without, with_two = (plan(ScenesSettings(**sizes, short=short, varied=False)) for short in (0, 2))
    for before, after in zip(without.scenes, with_two.scenes, strict=True):
        assert (before.things, before.seed) == (after.things, after.seed)
        assert after.texts[: len(before.texts)] == before.texts
        short = after.texts[len(before.texts) :]
        assert len(short) == (2 if after.split in ("train", "translation") else 0)
        for texts in short:
            assert " and " not in texts["en"]
            assert any(SENSES[thing.sense].de[0] in texts["de"].split() for thing in after.things)
    assert sum(" and " not in texts["en"] for texts in with_two.text_pairs) == 2  # one of four
    assert all(" and " in texts["en"] for texts in without.text_pairs)


def test_training_sentences_are_as_people_type_them_and_nothing_else_changes(full: Plan) -> None:
    whole = plan(ScenesSettings(varied=False))
    assert [(one.things, one.seed) for one in whole.scenes] == [(one.things, one.seed) for one in full.scenes]
    assert whole.twins == full.twins
    held_out = [scene for scene in full.scenes if scene.split in ("val", "test", "twins")]
    assert [one.texts for one in whole.scenes if one.split in ("val", "test", "twins")] == [s.texts for s in held_out]
    training = [scene for scene in full.scenes if scene.split in ("train", "translation")]
    for scene in training[:40]:
        for language in LANGUAGES:
            assert {texts[language].lower() for texts in scene.texts} <= fitting(scene.things, language)
    first_words = Counter(texts["de"].split()[0] for scene in training for texts in scene.texts[:2])
    places = {forms["de"].split()[0] for forms in PLACES.values()}
    assert 0.7 < sum(count for word, count in first_words.items() if word in places) / first_words.total() < 0.8
    for texts in ([scene.texts[-1] for scene in training], full.text_pairs):
        words = Counter(len(one["de"].split()) for one in texts)
        assert words[1] > 0.01 * len(texts)  # a noun alone
        in_the_middle = [one["de"] for one in texts if "in der Mitte" in one["de"] and " und " not in one["de"]]
        behind = [text for text in in_the_middle if text.endswith("in der Mitte")]
        assert 0.4 < len(behind) / len(in_the_middle) < 0.6


def test_twins_share_the_english_sentence_and_split_all_others(corpus: Corpus) -> None:
    texts = {caption.caption_id: caption.text for caption in corpus.captions}
    senses_of_german = {SENSES[key].de[0]: key for word in AMBIGUOUS for key in WORDS[word]}
    assert Counter(row["word"] for row in corpus.twins) == dict.fromkeys(AMBIGUOUS, 4)
    other_words = [noun for word, keys in WORDS.items() if len(keys) > 1 for key in keys for noun in SENSES[key].en]
    for row in corpus.twins:
        assert set(row) == {"image_id", "twin_id", "caption_id", "word", "expected", "other"}
        english = texts[row["caption_id"]]
        assert english == texts[f"{row['twin_id']}#en0"]
        assert [noun for noun in english.split() if noun in other_words] == [row["word"]]
        for language in ("de", "fr", "cs"):
            assert texts[f"{row['image_id']}#{language}0"] != texts[f"{row['twin_id']}#{language}0"]
        german = texts[f"{row['image_id']}#de0"].split()
        assert row["expected"] in german
        assert row["other"] not in german
        assert {senses_of_german[row["expected"]], senses_of_german[row["other"]]} == set(WORDS[row["word"]])
    expected = {row["image_id"]: row["expected"] for row in corpus.twins}
    assert all(expected[row["twin_id"]] == row["other"] for row in corpus.twins)


def test_twins_differ_only_where_the_object_is(corpus: Corpus) -> None:
    scenes = {scene.image_id: scene for scene in plan(SMALL).scenes}
    for row in corpus.twins:
        scene, twin = scenes[row["image_id"]], scenes[row["twin_id"]]
        assert [a == b for a, b in zip(scene.things, twin.things, strict=True)] == [False] + [True] * (
            len(scene.things) - 1
        )
        first, second = (np.asarray(Image.open(corpus.pictures[key])) for key in (scene.image_id, twin.image_id))
        differs = (first != second).any(2)
        assert differs.any()
        for one in (scene, twin):
            x1, y1, x2, y2 = np.rint(render(one.things, one.seed)[1][0] * PIXELS).astype(int)
            differs[max(y1 - 1, 0) : y2 + 1, max(x1 - 1, 0) : x2 + 1] = False
        assert not differs.any()


def test_every_sense_has_a_glyph_and_its_box_is_inside() -> None:
    assert set(GLYPHS) == set(SENSES)
    for seed, sense in enumerate(SENSES):
        image, boxes = render([Thing(sense, "red", "big", "left"), Thing(sense, "yellow", "small", "top")], seed)
        assert image.size == (PIXELS, PIXELS)
        assert ((boxes >= 0) & (boxes <= 1)).all()
        big, small = (boxes[:, 2:] - boxes[:, :2]).max(1) * PIXELS
        assert small < 29 < big


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"train": 5, "retrieval": 6}, "retrieval 6 is more than train 5"),
        ({"captions": 4}, "captions is 4, expected 1 to 3"),
        ({"test": -1}, "test is -1"),
    ],
)
def test_settings_that_cannot_be(wrong: dict[str, int], message: str) -> None:
    with pytest.raises(DataError, match=message):
        plan(ScenesSettings(**wrong))
