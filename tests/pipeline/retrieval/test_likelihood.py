"""Reranking by log p(caption | image) of a model's own decoder, in the pipeline."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from data.captions.table import read_captions
from data.pictures.regions import RegionStore
from modules.metrics.retrieval import retrieval_ranks
from modules.search.ranking import exact_ranks
from modules.training.ranked import EncodedModule
from pipeline.errors import RecipeError
from pipeline.graph import Graph
from pipeline.recipes.trainer_settings import TrainerSettings
from pipeline.retrieval import reranking
from pipeline.retrieval.ranks import ModelTest, encode_split, read_ranks
from pipeline.training.model_files import load_model
from tests.modules.search.test_ranking import assert_same
from tests.pipeline.test_two_processes import run_on_two
from tests.pipeline.tiny import GXN, Tiny, at, without_english

pytestmark = pytest.mark.whole

ON = "--vse.by_likelihood=true"


@pytest.fixture(scope="module")
def made(gxn: Tiny, tmp_path_factory) -> Tiny:
    """The trained models, one of which reranks the whole gallery of four images."""
    made = gxn.without(tmp_path_factory.mktemp("likelihood"), "nothing")
    assert made.main("vse", *GXN, ON) == 0
    return made


def test_nothing_is_trained_again_and_the_job_names_the_model(made: Tiny, gxn: Tiny) -> None:
    names = [{path.name for path in (one.workspace.root / "jobs").iterdir()} for one in (made, gxn)]
    assert names[0] - names[1] == {"likelihood-gxn-both-1"}
    (row,) = Graph(made.recipe(*GXN, ON, "--vse.first_k=7"), made.workspace).rows
    assert row.system == "gxn, its first 7 by log p(caption | image)"
    assert row.job.inputs["model"].key == json.loads((made.job(row.job.name) / "manifest.json").read_text())[
        "inputs"]["model"]["key"]  # fmt: skip


def test_pictures_with_captions_in_another_language_alone_are_ranked_too(made: Tiny, tmp_path: Path) -> None:
    """A row that was trained on English alone ranks the same test images as one that reads both."""
    (row,) = Graph(made.recipe(*GXN, "--vse.rows.both=[en/human]", ON, "--vse.start=[]"), made.workspace).rows
    (both,) = Graph(made.recipe(*GXN, ON), made.workspace).rows
    inputs = {name: made.workspace.folder(source) for name, source in both.job.inputs.items()}
    inputs["corpus"] = without_english(inputs["corpus"], tmp_path / "corpus")
    (tmp_path / "ranked").mkdir()
    with at(tmp_path):
        row.job.run(tmp_path / "ranked", inputs)
    ranks = read_ranks(tmp_path / "ranked", "en").image_to_text
    assert (len(ranks), int((ranks > 0).sum())) == (4, 3)  # the fourth image has no caption in English


def test_ranks_of_the_whole_gallery_are_those_of_the_decoder_alone(made: Tiny, gxn: Tiny) -> None:
    folder, corpus = made.job("likelihood-gxn-both-1"), made.job("corpus")
    inputs = json.loads((folder / "manifest.json").read_text())["inputs"]
    (trained,) = (made.workspace.root / "jobs" / "vse-gxn-both-1").glob(f"{inputs['model']['key']}")
    captions, store = read_captions(corpus / "captions.parquet"), RegionStore(corpus / "regions")
    rows = captions.to_list()
    training = list(dict.fromkeys(row["image_id"] for row in rows if row["split"] == "train"))
    for language in ("en", "de"):
        model, text = load_model(trained)
        settings = TrainerSettings("cpu", threads=1, progress=False)
        data, encoded = encode_split(ModelTest(EncodedModule(model, [language]), text, captions, store, settings))
        images, ids = data.ranked("test", language)
        words = {row["caption_id"]: text.encode(row["text"], language) for row in rows}

        def log_p(image: str, sentence: list[int], model=model, language: str = language) -> float:
            seen = torch.from_numpy(store.take(store.rows([image]))).float()
            with torch.no_grad():
                return model.caption_likelihoods(
                    seen, torch.ones(seen.shape[:2]).bool(), torch.zeros(1).long(),
                    *model.tensors_of([sentence], language),
                ).item()  # fmt: skip

        scores = torch.tensor([[log_p(image, words[one]) for one in ids] for image in images])
        usual = torch.tensor([[log_p(image, words[one]) for one in ids] for image in training]).exp().mean(0).log()
        links, found = encoded[language].links, read_ranks(folder, language)
        assert torch.equal(found.text_to_image, retrieval_ranks(scores, links).text_to_image)
        assert torch.equal(found.image_to_text, retrieval_ranks(scores - usual, links).image_to_text)
        one = encoded[language]
        plain = exact_ranks(one.similarity, one.images, one.captions, links)
        assert_same(plain, read_ranks(trained, language))


def test_of_two_the_others_keep_their_ranks(made: Tiny, tmp_path: Path) -> None:
    two = made.without(tmp_path / "two", "likelihood-*")
    assert two.main("vse", *GXN, ON, "--vse.first_k=2") == 0
    folder = two.job("likelihood-gxn-both-1")
    key = json.loads((folder / "manifest.json").read_text())["inputs"]["model"]["key"]
    for language in ("en", "de"):
        found = read_ranks(folder, language)
        plain = read_ranks(two.workspace.root / "jobs" / "vse-gxn-both-1" / key, language)
        for ours, theirs in ((found.text_to_image, plain.text_to_image), (found.image_to_text, plain.image_to_text)):
            assert torch.equal(ours > 2, theirs > 2)
            assert torch.equal(ours[theirs > 2], theirs[theirs > 2])


def test_what_is_usual_is_estimated_by_training_images(made: Tiny, tmp_path: Path, monkeypatch) -> None:
    samples, rank = [], reranking.likelihood_ranks

    def watched(likelihood, first, images, sample):
        samples.append(sample.tolist())
        return rank(likelihood, first, images, sample)

    monkeypatch.setattr(reranking, "likelihood_ranks", watched)
    monkeypatch.setattr(reranking, "SAMPLE", 5)
    (row,) = Graph(made.recipe(*GXN, ON), made.workspace).rows
    with at(tmp_path):
        row.job.run(tmp_path, {name: made.workspace.folder(source) for name, source in row.job.inputs.items()})
    training = list(dict.fromkeys(one["image_id"] for one in made.captions("corpus") if one["split"] == "train"))
    places = np.linspace(0, len(training) - 1, 5).round().astype(int)
    ids = RegionStore(made.job("corpus") / "regions").ids
    assert [[ids[number] for number in sample] for sample in samples] == 2 * [[training[place] for place in places]]


def test_the_report_names_it_and_lists_no_captions(made: Tiny) -> None:
    assert made.main("report", *GXN, ON) == 0
    text = (made.workspace.root / "tiny" / "report" / "report.md").read_text()
    assert "**Retrieval, gxn, its first 100 by log p(caption | image), en" in text
    assert "enerated captions" not in text


@pytest.mark.slow
def test_two_processes_leave_what_one_leaves(made: Tiny, tmp_path: Path) -> None:
    two = made.without(tmp_path / "two", "likelihood-*")
    run_on_two(two, "vse", *GXN, ON)
    for language in ("en", "de"):
        ours, theirs = (read_ranks(one.job("likelihood-gxn-both-1"), language) for one in (two, made))
        assert_same(ours, theirs)


@pytest.mark.parametrize(("more", "says"), [
    (["--vse.first=san"], "vse.by_likelihood and vse.first are both set; leave one out"),
    (["--vse.options.generate=[t2i]", "--vse.start=[]"], "vse.by_likelihood is set, but gxn has no decoder; set"),
    (["--vse.first_k=0"], "vse.first_k is 0; expected 1 or more"),
])  # fmt: skip
def test_settings_that_do_not_fit_are_one_line(tiny: Tiny, more: list[str], says: str) -> None:
    with pytest.raises(RecipeError) as error:
        Graph(tiny.recipe(*GXN, ON, *more), tiny.workspace).rows
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_languages_that_the_decoder_never_learned_are_left_out(tiny: Tiny) -> None:
    more = ["--vse.rows.both=[en/human]", "--vse.start=[]", "--vse.select=[de]"]
    (row,) = Graph(tiny.recipe(*GXN, ON, *more), tiny.workspace).rows
    (plain,) = Graph(tiny.recipe(*GXN, *more), tiny.workspace).rows
    assert (row.languages, row.job.settings["test"]) == ({"en"}, ["en"])
    assert row.job.inputs["model"].key == plain.job.key
    with pytest.raises(RecipeError, match=r"vse\.rows\.both has no captions in de, .* name one of en in vse\.test"):
        Graph(tiny.recipe(*GXN, ON, *more, "--vse.test=[de]"), tiny.workspace).rows
