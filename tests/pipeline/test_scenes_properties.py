"""What the picture is worth, on scenes and five seeds: the property tests of the corpus (`make test-long`).

Trained jobs are kept in BILDWORT_ARTIFACTS (or `artifacts`), so a second run costs nothing.
"""

import random
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import torch

from data.corpora.scenes import ScenesSettings, plan
from data.corpora.scenes_grammar import SENSES, Thing, sentence
from modules.intervals import paired_difference
from modules.metrics import RetrievalRanks
from pipeline.cli import main
from pipeline.corpus.prepare import corpus_job
from pipeline.jobs.workspace import Workspace
from pipeline.recipes.loading import load_recipe
from pipeline.retrieval.ranks import read_ranks
from pipeline.retrieval.vse import vse_rows
from pipeline.search.gallery import Gallery
from pipeline.translation.mmt import translator_jobs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]
SEEDS = (1, 2, 3, 4, 5)
NOUNS = ("bat", "bow", "fan", "key", "nut", "seal")


@pytest.fixture(scope="module", params=SEEDS)
def trained(request):
    """The whole pipeline with one seed: (recipe, workspace)."""
    seed = [f"--seed={request.param}", f"--vse.seeds=[{request.param}]"]
    overrides = [*seed, "--vse.only=[mt-f,mmt-f]", "--vse.reranker.model=null"]
    for stage in ("mmt", "augment", "vse"):
        assert main([stage, "--recipe", "scenes", *overrides]) == 0
    return load_recipe("scenes", overrides), Workspace()


def figures(trained, name: str) -> dict[str, float]:
    recipe, workspace = trained
    return workspace.manifest(translator_jobs(recipe, workspace)[name])["metrics"]


def test_text_alone_cannot_know_but_translates_the_rest(trained):
    scores = figures(trained, "mt-en-de")
    assert scores["ambiguous"] <= 50 + 1e-9  # one English sentence for two pictures: by construction
    assert scores["other_words"] >= 98


def test_the_translator_looks(trained):
    scores = figures(trained, "mmt-en-de")
    assert scores["ambiguous"] >= 95
    for noun in NOUNS:
        assert scores[f"ambiguous:{noun}"] >= 90, noun
    assert scores["swapped_ambiguous"] <= 5
    assert scores["other_words"] >= 98


def test_equal_pairs_and_steps(trained):
    mt, mmt = figures(trained, "mt-en-de"), figures(trained, "mmt-en-de")
    assert (mt["train_pairs"], mt["steps"]) == (mmt["train_pairs"], mmt["steps"])


def ranks_of(trained, row: str, language: str) -> RetrievalRanks:
    recipe, workspace = trained
    job = next(one.job for one in vse_rows(recipe, workspace) if one.name == row)
    return read_ranks(workspace.folder(job), language)


def ambiguous_only(ranks: RetrievalRanks, texts: list[str], words: set[str]) -> RetrievalRanks:
    """The captions with an ambiguous noun; the other direction is left out."""
    keep = np.array([bool(words & set(text.lower().split())) for text in texts])
    images = torch.zeros_like(ranks.image_to_text)  # 0: no query
    links = ranks.caption_image[keep]
    images[links.unique()] = ranks.image_to_text[links.unique()]
    return RetrievalRanks(ranks.text_to_image[keep], images, links)


def test_looking_helps_german_retrieval(trained):
    recipe, workspace = trained
    twins = {row: np.load(folder_of(trained, row) / "twins-de.npy") for row in ("mt-f", "mmt-f")}
    assert twins["mmt-f"].mean() > twins["mt-f"].mean()
    texts, words = german_test_captions(workspace.folder(corpus_job(recipe, workspace)))
    subsets = [ambiguous_only(ranks_of(trained, row, "de"), texts, words) for row in ("mmt-f", "mt-f")]
    assert paired_difference(*subsets)["t2i_r1"].low > 0


def folder_of(trained, row: str) -> Path:
    recipe, workspace = trained
    return workspace.folder(next(one.job for one in vse_rows(recipe, workspace) if one.name == row))


def german_test_captions(corpus: Path) -> tuple[list[str], set[str]]:
    """German test captions in the order of their ranks, and the German words that pictures of twins settle."""
    import json

    from data.captions import read_captions

    rows = [row for row in read_captions(corpus / "captions.parquet").to_list() if row["split"] == "test"]
    about = json.loads((corpus / "about.json").read_text(encoding="utf-8"))
    words = {row["expected"].lower() for row in about["twins"]}
    return [row["text"] for row in rows if row["language"] == "de"], words


@pytest.fixture(scope="module")
def gallery(tmp_path_factory) -> Gallery:
    """The gallery of the demo."""
    place = tmp_path_factory.mktemp("demo") / "gallery"
    assert main(["all", "scenes"]) == 0
    assert main(["index", "--recipe", "scenes", "--gallery", str(place)]) == 0
    return Gallery.open(place)


@pytest.mark.parametrize("language", ["en", "de"])
def test_the_first_answer_is_right(gallery: Gallery, language: str) -> None:
    """200 queries of one and of two objects of the gallery's scenes; right is every picture that shows them."""
    scenes, rng = {scene.image_id: scene for scene in plan(ScenesSettings()).scenes}, random.Random(1)
    right = []
    for number in range(200):
        scene = scenes[rng.choice(sorted(scenes))]
        asked = rng.sample(scene.things, 1 + number % 2)
        (hit,) = gallery.search(sentence(asked, language, rng), 1, language)
        shown = {looks(thing, language) for thing in scenes[hit.name].things}
        right.append({looks(thing, language) for thing in asked} <= shown)
    print(f"pictures for 200 queries, {language}: the first is right for {np.mean(right):.1%}")
    assert np.mean(right) >= 0.95


@pytest.mark.parametrize("language", ["en", "de"])
def test_the_first_caption_of_a_picture_is_right(gallery: Gallery, language: str) -> None:
    """A caption is right if some picture of the same objects has it; 200 test pictures."""
    scenes = [scene for scene in plan(ScenesSettings()).scenes if scene.split == "test"][:200]
    right = [
        gallery.describe_known(scene.image_id, 1)[language][0].name in fitting(scene.things, language)
        for scene in scenes
    ]
    print(f"captions for 200 pictures, {language}: the first is right for {np.mean(right):.1%}")
    assert np.mean(right) >= 0.95


def looks(thing: Thing, language: str) -> tuple[str, str, str, str]:
    """What a sentence says of an object; senses of one word are alike."""
    sense = SENSES[thing.sense]
    noun = sense.en[0] if language == "en" else getattr(sense, language)[0]
    return noun, thing.colour, thing.size, thing.place


def fitting(things: Sequence[Thing], language: str) -> set[str]:
    """All sentences of one or two of the objects, with all synonyms that some draws meet."""
    chosen = [[one] for one in things] + [list(pair) for pair in permutations(things, 2)]
    return {sentence(one, language, random.Random(seed)) for one in chosen for seed in range(64)}
