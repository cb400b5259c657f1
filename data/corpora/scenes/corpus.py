"""The corpus `scenes`: small pictures, rendered here, in which some words can only be translated by looking."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import combinations
from pathlib import Path

from data.captions.table import Caption, Pair
from data.corpora import Corpus
from data.corpora.scenes.grammar import (
    AMBIGUOUS,
    COLOURS,
    LANGUAGES,
    PLACES,
    PLAIN,
    SENSES,
    SIZES,
    WORDS,
    Telling,
    Thing,
    sentences,
)
from data.corpora.scenes.render import render
from data.errors import DataError
from data.processes import in_parallel
from data.progress import shown

_FEW, _MANY = 3, 4  # objects in a scene
# Ambiguous words are the purpose of the corpus, so they are drawn twice as often as plain ones.
_WEIGHTS = {word: len(senses) for word, senses in WORDS.items()}
# Which objects of a shuffled scene a caption names: the first two captions together name all of them.
_NAMED = {
    _FEW: ((0, 1), (2, 0), (1, 2)),
    _MANY: ((0, 1), (2, 3), (0, 2), (1, 3), (0, 3), (1, 2)),
}

_WORD_OF = {sense: word for word, senses in WORDS.items() for sense in senses}
_SHORT_TEXT = 4  # without `varied`: one of so many sentences without an image names one object
_OTHER_ORDER = Telling(usual=False)
_IN_OTHER_ORDER = 0.25  # share of the whole sentences of a training image
_TRIES = 1000
_CHUNK = 256  # scenes that a process renders at a time
_Look = tuple[str, str, str, str]  # word, colour, size, place


@dataclass
class ScenesSettings:
    """How many scenes are made, and from which seed.

    Validation and test images have `captions` sentences a language too: no two objects that stand together in one of
    these images stand together in any other image or sentence of the corpus, so no sentence of theirs fits two of
    them. A twin image has one sentence, the one that it shares with its twin.

    Attributes:
        train: images for translation.
        retrieval: how many of them are also the training images of retrieval.
        validation: images to choose checkpoints on.
        test: images of the retrieval gallery, no two alike.
        twins: pairs of one English sentence and two pictures that differ in one sense.
        captions: for each image and language, how many sentences name two objects: 1 to 3.
        short: further sentences of a training image that name one object, 0 to 3; so search and translation know short
            queries.
        varied: sentences of training images, and those without an image, are as people type them: short ones lack
            some parts, and object and place stand in either order. False: all are whole, in the usual order.
        text_pairs: parallel sentences without an image, to pre-train translators on.
        seed: of everything drawn.
    """

    train: int = 3000
    retrieval: int = 400
    validation: int = 200
    test: int = 300
    twins: int = 300
    captions: int = 2
    short: int = 1
    varied: bool = True
    text_pairs: int = 6000
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Scene:
    """A picture before it is rendered: objects, the seed of its pixels, and sentences, each a text a language."""

    image_id: str
    split: str
    things: tuple[Thing, ...]
    seed: int
    texts: tuple[dict[str, str], ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """All that `read` renders and writes, as words and numbers only.

    Attributes:
        scenes: every image, twins side by side.
        text_pairs: sentences without an image, a text a language.
        twins: rows of `Corpus.twins`.
    """

    scenes: list[Scene]
    text_pairs: list[dict[str, str]]
    twins: list[dict[str, str]]


def read(settings: ScenesSettings, root: Path | None, folder: Path) -> Corpus:
    """Make the corpus.

    Args:
        settings: how much of it.
        root: not used; other corpora are read from there.
        folder: the pictures go into `folder/pictures`.

    Raises:
        DataError: settings contradict each other.
    """
    drawn = plan(settings)
    captions = [caption for scene in drawn.scenes for caption in _captions(scene)]
    pairs = [_pair(scene, n) for scene in drawn.scenes for n in range(len(scene.texts))]
    pairs += [Pair(f"text-{n:05d}", None, "train", "scenes-text", texts) for n, texts in enumerate(drawn.text_pairs)]
    pictures = _render_all(drawn.scenes, folder / "pictures")
    return Corpus(captions, pairs, pictures, None, task="scenes", label="scenes", twins=drawn.twins)


def plan(settings: ScenesSettings) -> Plan:
    """Draw all scenes and sentences; nothing is rendered.

    Raises:
        DataError: settings contradict each other.
    """
    _check(settings)
    train = [
        _scene("train" if index < settings.retrieval else "translation", index, draw_things(rng), settings, rng)
        for index, rng in _streams("train", settings.train, settings.seed)
    ]
    trained = {meeting for scene in train for meeting in _meetings(scene.things)}
    seen = set(trained)
    held_out = [
        _scene(split, index, _unseen(seen, rng), settings, rng)
        for split, count in (("val", settings.validation), ("test", settings.test))
        for index, rng in _streams(split, count, settings.seed)
    ]
    pairs_of_twins = [_twins(index, seen, rng) for index, rng in _streams("twins", settings.twins, settings.seed)]
    twins = [scene for pair in pairs_of_twins for scene in pair]
    rows = [_twin_row(*pair) for both in pairs_of_twins for pair in (both, both[::-1])]
    # Text may repeat sentences of training images, but none of evaluation images.
    held_out_only = seen - trained
    text_pairs = [
        _text(index, settings, held_out_only, rng)
        for index, rng in _streams("text", settings.text_pairs, settings.seed)
    ]
    return Plan([*train, *held_out, *twins], text_pairs, rows)


def draw_things(rng: random.Random, count: int | None = None, words: Sequence[str] = ()) -> tuple[Thing, ...]:
    """Draw the objects of a scene, each of another word; sense, colour, size and place independently of each other.

    Args:
        rng: the source of chance.
        count: how many objects; three or four if not given.
        words: keys of `WORDS` that must be among them; they come first.
    """
    chosen = list(words)
    count = count or rng.choice((_FEW, _MANY))
    while len(chosen) < count:
        word = rng.choices(list(_WEIGHTS), weights=list(_WEIGHTS.values()))[0]
        if word not in chosen:
            chosen.append(word)
    places = rng.sample(list(PLACES), count)
    return tuple(
        Thing(rng.choice(WORDS[word]), rng.choice(list(COLOURS)), rng.choice(list(SIZES)), place)
        for word, place in zip(chosen, places, strict=True)
    )


def _scene(split: str, index: int, things: tuple[Thing, ...], settings: ScenesSettings, rng: random.Random) -> Scene:
    image_id = f"{'train' if split == 'translation' else split}-{index:05d}"
    order = rng.sample(things, len(things))
    named = [[order[place] for place in pair] for pair in _NAMED[len(things)][: settings.captions]]
    texts, pixels = [sentences(pair, rng) for pair in named], rng.getrandbits(32)
    if split in ("train", "translation"):
        if settings.varied:
            texts = [_in_either_order(pair, text, rng) for pair, text in zip(named, texts, strict=True)]
        for thing in order[: settings.short]:
            texts.append(_phrase([thing], rng) if settings.varied else sentences([thing], rng))
    return Scene(image_id, split, things, pixels, tuple(texts))


def _twins(index: int, seen: set[frozenset[_Look]], rng: random.Random) -> tuple[Scene, Scene]:
    """Two scenes that differ in the sense of their first object, which their one sentence names beside a plain one."""
    word = AMBIGUOUS[index % len(AMBIGUOUS)]
    things = _unseen(seen, rng, (word, rng.choice(PLAIN)))
    other = (replace(things[0], sense=next(sense for sense in WORDS[word] if sense != things[0].sense)), *things[1:])
    backwards, state, pixels = rng.random() < 0.5, rng.getrandbits(32), rng.getrandbits(32)
    scenes = []
    for letter, objects in (("a", things), ("b", other)):
        named = objects[1::-1] if backwards else objects[:2]
        texts = (sentences(named, random.Random(state)),)  # the same English synonyms in both
        scenes.append(Scene(f"twins-{index:05d}{letter}", "twins", objects, pixels, texts))
    return scenes[0], scenes[1]


def _twin_row(scene: Scene, twin: Scene) -> dict[str, str]:
    sense, other = SENSES[scene.things[0].sense], SENSES[twin.things[0].sense]
    return {
        "image_id": scene.image_id,
        "twin_id": twin.image_id,
        "caption_id": f"{scene.image_id}#en0",
        "word": sense.en[0],
        "expected": sense.de[0],
        "other": other.de[0],
    }


def _in_either_order(things: Sequence[Thing], text: dict[str, str], rng: random.Random) -> dict[str, str]:
    return sentences(things, rng, _OTHER_ORDER) if rng.random() < _IN_OTHER_ORDER else text


def _phrase(things: Sequence[Thing], rng: random.Random) -> dict[str, str]:
    """A sentence as people type it: half of them whole in one of both orders, half with parts left out."""
    if rng.random() < 0.5:
        return _part(things, rng)
    return sentences(things, rng, Telling(usual=rng.random() < 0.5))


def _part(things: Sequence[Thing], rng: random.Random) -> dict[str, str]:
    """A sentence of which each part but the nouns is left out by the toss of a coin."""
    return sentences(things, rng, Telling(*(rng.random() < 0.5 for _ in fields(Telling))))


def _text(
    index: int, settings: ScenesSettings, forbidden: set[frozenset[_Look]], rng: random.Random
) -> dict[str, str]:  # fmt: skip
    """A sentence without an image, which tells nothing of those that are held out."""
    if not settings.varied and settings.short and index % _SHORT_TEXT == 0:
        return sentences(draw_things(rng, 1), rng)
    things = draw_things(rng, 2)
    while _meetings(things) & forbidden:
        things = draw_things(rng, 2)
    return _part(things[: rng.choice((1, 2))], rng) if settings.varied else sentences(things, rng)


def _unseen(seen: set[frozenset[_Look]], rng: random.Random, words: Sequence[str] = ()) -> tuple[Thing, ...]:
    """Draw objects of which no two have met in `seen`, and add their meetings to it."""
    for _ in range(_TRIES):
        things = draw_things(rng, words=words)
        meetings = _meetings(things)
        if not meetings & seen:
            seen |= meetings
            return things
    raise DataError("scenes: no unseen scene left to draw; ask for fewer images in train, validation, test or twins")


def _meetings(things: Sequence[Thing]) -> set[frozenset[_Look]]:
    """Each pair of objects of a scene, by what a sentence says of them: senses of a word are not distinguished."""
    looks = [(_WORD_OF[thing.sense], thing.colour, thing.size, thing.place) for thing in things]
    return {frozenset(pair) for pair in combinations(looks, 2)}


def _streams(split: str, count: int, seed: int) -> Iterator[tuple[int, random.Random]]:
    """A generator for each scene, so that asking for more of them leaves the first ones as they were."""
    return ((index, random.Random(f"scenes/{seed}/{split}/{index}")) for index in range(count))


def _captions(scene: Scene) -> Iterator[Caption]:
    for n, texts in enumerate(scene.texts):
        for language in LANGUAGES:
            yield Caption(scene.image_id, f"{scene.image_id}#{language}{n}", language, texts[language], scene.split)


def _pair(scene: Scene, n: int) -> Pair:
    split = "train" if scene.split == "translation" else scene.split
    return Pair(f"{scene.image_id}#{n}", scene.image_id, split, "scenes", scene.texts[n])


def _render_all(scenes: Sequence[Scene], folder: Path) -> dict[str, Path]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = in_parallel(partial(_render_some, folder=folder), scenes, _CHUNK)
    return dict(zip([scene.image_id for scene in scenes], shown(paths, "rendering scenes", len(scenes)), strict=True))


def _render_some(scenes: Sequence[Scene], folder: Path) -> list[Path]:
    paths = [folder / f"{scene.image_id}.png" for scene in scenes]
    for scene, path in zip(scenes, paths, strict=True):
        picture, _ = render(scene.things, scene.seed)
        picture.save(path, compress_level=0)  # compressed they are a quarter smaller, and slower to write and read
    return paths


def _check(settings: ScenesSettings) -> None:
    if settings.retrieval > settings.train:
        raise DataError(
            f"scenes: retrieval {settings.retrieval} is more than train {settings.train}; "
            "the retrieval images are some of the training images"
        )
    if not 1 <= settings.captions <= len(_NAMED[_FEW]):
        raise DataError(f"scenes: captions is {settings.captions}, expected 1 to {len(_NAMED[_FEW])} an image")
    if not 0 <= settings.short <= _FEW:
        raise DataError(f"scenes: short is {settings.short}, expected 0 to {_FEW} an image")
    counts = {
        name: getattr(settings, name) for name in ("train", "retrieval", "validation", "test", "twins", "text_pairs")
    }
    for name, count in counts.items():
        if count < 0:
            raise DataError(f"scenes: {name} is {count}, expected 0 or more")
