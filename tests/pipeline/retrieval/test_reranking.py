"""The first results of a trained model re-ranked by another: as the models rank."""

from pathlib import Path

import pytest
import torch

from pipeline.graph import Graph
from pipeline.retrieval.ranks import read_ranks
from tests.pipeline.test_bad_artifacts import told
from tests.pipeline.tiny import Tiny, encoded, relisted

pytestmark = pytest.mark.whole

ARGUMENTS = ("--vse.first=san", "--vse.model=scan-t2i-avg", "--vse.first_k=2", "--vse.only=[human]")
RERANK = "rerank-san-scan-t2i-avg-human-1"


@pytest.fixture(scope="module")
def searched(tiny: Tiny, tmp_path_factory) -> Tiny:
    """The tiny recipe, re-ranked within the first two."""
    here = tiny.without(tmp_path_factory.mktemp("searched"), "nothing")
    assert here.main("vse", *ARGUMENTS) == 0
    return here


def test_the_first_two_stand_in_the_second_model_s_order(searched: Tiny) -> None:
    ours, theirs = (encoded(searched, f"vse-{model}-human-1") for model in ("san", "scan-t2i-avg"))
    for language in ("en", "de"):
        first, found = (read_ranks(searched.job(name), language) for name in ("vse-san-human-1", RERANK))
        indexed, scores, links = ours[language].scores(), theirs[language].scores(), theirs[language].links
        assert torch.equal(found.caption_image, links)
        expected = first.text_to_image.clone()
        for caption, image in enumerate(links.tolist()):
            if expected[caption] <= 2:
                (other,) = set(indexed[:, caption].topk(2).indices.tolist()) - {image}
                expected[caption] = 1 + int(scores[other, caption] >= scores[image, caption] - 5e-7)
        assert torch.equal(found.text_to_image, expected)


def test_lists_of_the_whole_test_rank_as_the_second_model_does(searched: Tiny) -> None:
    assert searched.main("vse", *ARGUMENTS, "--vse.first_k=1000") == 0
    (row,) = Graph(searched.recipe(*ARGUMENTS, "--vse.first_k=1000"), searched.workspace).rows
    for language in ("en", "de"):
        ours = read_ranks(searched.workspace.folder(row.job), language)
        theirs = read_ranks(searched.job("vse-scan-t2i-avg-human-1"), language)
        assert torch.equal(ours.text_to_image, theirs.text_to_image)
        assert torch.equal(ours.image_to_text, theirs.image_to_text)


def test_the_report_names_both_models(searched: Tiny) -> None:
    assert searched.main("report", *ARGUMENTS) == 0
    text = (searched.workspace.root / "tiny" / "report" / "report.md").read_text()
    own = text.partition("**Retrieval, scan-t2i-avg on the first 2 of san, en, test")[2].splitlines()
    assert next(line for line in own if line.startswith("| human |")).split("|")[2].strip() not in ("–", "not run")


def test_training_is_shared_with_rows_that_do_not_rerank(tiny: Tiny) -> None:
    (plain,) = Graph(tiny.recipe("--vse.only=[human]"), tiny.workspace).rows
    (row,) = Graph(tiny.recipe(*ARGUMENTS), tiny.workspace).rows
    (more,) = Graph(tiny.recipe(*ARGUMENTS, "--vse.first_k=3"), tiny.workspace).rows
    assert row.job.inputs["0:model"].key == plain.job.key
    assert row.job.inputs["1:model"].key == more.job.inputs["1:model"].key
    assert row.job.key != more.job.key


def test_a_first_model_that_lacks_its_words(searched: Tiny, tmp_path: Path, capsys) -> None:
    copy = searched.without(tmp_path, "rerank-*")
    path = copy.job("vse-san-human-1") / "words.json"
    path.unlink()
    relisted(path.parent)
    line = told(copy, capsys, "vse", *ARGUMENTS)
    assert f"{path}: not a text input" in line
    assert "delete its folder and run the stage vse again" in line
