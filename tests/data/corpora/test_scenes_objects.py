"""What stands where in pictures of scenes, and what captions name."""

from itertools import permutations

import numpy as np
import pytest

from data.corpora.scenes.corpus import ScenesSettings, plan
from data.corpora.scenes.grammar import PLACES, Thing, sentence
from data.corpora.scenes.objects import TRAINING, cells, named, objects_of, same_noun
from data.corpora.scenes.render import render

SETTINGS = ScenesSettings(train=20, retrieval=8, validation=4, test=6, twins=2, text_pairs=0, varied=False)


@pytest.mark.parametrize("language", ["en", "de", "fr", "cs"])
def test_a_caption_names_the_objects_that_it_was_made_of(language: str) -> None:
    objects = objects_of(SETTINGS, [*TRAINING, "val", "test", "twins"])
    scenes = plan(SETTINGS).scenes
    assert set(objects) == {scene.image_id for scene in scenes}
    for scene in scenes:
        at_places = objects[scene.image_id]
        assert {thing for thing in at_places if thing is not None} == set(scene.things)
        assert all(thing is None or thing.place == place for thing, place in zip(at_places, PLACES, strict=True))
        for texts in scene.texts:
            things = [thing for place in named(at_places, texts["de"], "de") if (thing := at_places[place])]
            assert named(at_places, texts[language], language) == named(at_places, texts["de"], "de")
            assert texts["de"] in [sentence(order, "de") for order in permutations(things)]


def test_only_the_splits_that_are_asked_for() -> None:
    assert {name.partition("-")[0] for name in objects_of(SETTINGS, ["test"])} == {"test"}
    assert len(objects_of(SETTINGS, TRAINING)) == 20


def test_a_noun_is_the_same_where_the_language_has_one_word() -> None:
    bat, club, ball = (Thing(sense, "red", "big", "left") for sense in ("bat.animal", "bat.club", "ball"))
    assert same_noun(bat, club, "en")
    assert not same_noun(bat, club, "de")
    assert not same_noun(bat, ball, "en")


@pytest.mark.parametrize("size", [8, 32, 64, 128])
def test_a_cell_holds_its_own_object_and_no_other(size: int) -> None:
    """A picture with an object, the last that is drawn, and one without it differ in one cell, but for noise."""
    whole = [Thing("ball", "black", "big", place) for place in PLACES]
    for row, last in enumerate(whole):
        others = [one for one in whole if one is not last]
        pictures = (render(things, 7)[0].resize((size, size)) for things in ([*others, last], others))
        found = cells(np.stack([np.asarray(one).transpose(2, 0, 1) for one in pictures]))
        assert found.shape[:2] == (2, 5)
        assert 0 <= found.min() <= found.max() <= 1
        away = np.abs(found[1] - found[0]).mean(-1)
        assert away[row] > 0.2
        assert (np.delete(away, row) < 0.1 * away[row]).all()
