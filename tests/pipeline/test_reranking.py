"""Indexes of a trained model, and its lists re-ranked by another: as the models rank, and of no other checkpoint."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from modules.search.index import VectorIndex
from pipeline.graph import Graph
from pipeline.retrieval.ranks import read_ranks
from pipeline.training.model_files import model_fingerprint
from tests.pipeline.test_bad_artifacts import cut_short, told
from tests.pipeline.tiny import Tiny

pytestmark = pytest.mark.whole

ARGUMENTS = ("--vse.first=san", "--vse.model=scan-t2i-avg", "--vse.first_k=2", "--vse.only=[human]")
RERANK, WHOLE = "rerank-san-scan-t2i-avg-human-1", "similarity-scan-t2i-avg-human-1"


@pytest.fixture(scope="module")
def searched(tiny: Tiny, tmp_path_factory) -> Tiny:
    """The tiny recipe, re-ranked within the first two, and SCAN's whole matrices by a fusion."""
    here = tiny.without(tmp_path_factory.mktemp("searched"), "nothing")
    assert here.main("vse", *ARGUMENTS) == 0
    assert here.main("vse", "--vse.fuse=[scan-t2i-avg,san]", "--vse.only=[human]") == 0
    return here


def test_indexes_hold_the_test_by_the_trained_model(searched: Tiny) -> None:
    folder = searched.job("index-san-human-1")
    made_of = model_fingerprint(searched.job("vse-san-human-1"))
    for language in ("en", "de"):
        images, captions = (VectorIndex.load(folder / part, made_of) for part in ("images", f"captions-{language}"))
        with np.load(searched.job("similarity-san-human-1") / f"similarity-test-{language}.npz") as saved:
            np.testing.assert_allclose(images.vectors() @ captions.vectors().T, saved["scores"], atol=1e-6)
            assert json.loads((folder / "images" / "ids.json").read_text()) == saved["images"].tolist()
            ids = json.loads((folder / f"captions-{language}" / "ids.json").read_text())
            assert ids == saved["captions"].tolist()


def test_the_first_two_stand_in_the_second_model_s_order(searched: Tiny) -> None:
    for language in ("en", "de"):
        first, found = (read_ranks(searched.job(name), language) for name in ("vse-san-human-1", RERANK))
        with np.load(searched.job("similarity-san-human-1") / f"similarity-test-{language}.npz") as saved:
            indexed = torch.from_numpy(saved["scores"])
        with np.load(searched.job(WHOLE) / f"similarity-test-{language}.npz") as saved:
            scores, links = torch.from_numpy(saved["scores"]), torch.from_numpy(saved["links"])
        assert torch.equal(found.caption_image, links)
        expected = first.text_to_image.clone()
        for caption, image in enumerate(links.tolist()):
            if expected[caption] <= 2:
                (other,) = set(indexed[:, caption].topk(2).indices.tolist()) - {image}
                expected[caption] = 1 + int(scores[other, caption] >= scores[image, caption] - 5e-7)
        assert torch.equal(found.text_to_image, expected)


def test_lists_of_the_whole_test_rank_as_the_second_model_does(searched: Tiny) -> None:
    """In this model's own folder: the indexes are there already."""
    before = searched.job("index-san-human-1").stat().st_mtime_ns
    assert searched.main("vse", *ARGUMENTS, "--vse.first_k=1000") == 0
    assert searched.job("index-san-human-1").stat().st_mtime_ns == before
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
    assert row.job.inputs["first"].key == plain.job.key
    assert row.job.inputs["index"].key == more.job.inputs["index"].key
    assert row.job.inputs["model"].key == more.job.inputs["model"].key
    assert row.job.key != more.job.key


def retrained(copy: Tiny) -> Path:
    """The first model has other weights under the same key, as --force may leave on a GPU."""
    path = copy.job("vse-san-human-1") / "network.json"
    path.write_text(path.read_text() + " ")
    return copy.job("index-san-human-1") / "images"


def damaged(copy: Tiny) -> Path:
    path = copy.job("index-san-human-1") / "captions-de"
    cut_short(path / "index.faiss")
    return path


def of_another_order(copy: Tiny) -> Path:
    path = copy.job("index-san-human-1") / "captions-en" / "ids.json"
    path.write_text(json.dumps(json.loads(path.read_text())[::-1]))
    return path


def without_ids(copy: Tiny) -> Path:
    path = copy.job("index-san-human-1") / "images" / "ids.json"
    path.unlink()
    return path


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (retrained, "built from another checkpoint"),
        (damaged, "index.faiss does not match its checksum"),
        (of_another_order, "not the captions-en of this test"),
        (without_ids, "not readable"),
    ],
)
def test_indexes_that_do_not_fit(searched: Tiny, tmp_path: Path, capsys, spoil, expected: str) -> None:
    copy = searched.without(tmp_path, "rerank-*")
    where = spoil(copy)
    line = told(copy, capsys, "vse", *ARGUMENTS)
    assert expected in line
    assert str(where) in line
    advised = copy.job("index-san-human-1")
    assert f"delete {advised} and run " in line
    for path in sorted(advised.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    assert copy.main("vse", *ARGUMENTS) == 0  # what the line advises helps


def test_a_first_model_that_lacks_its_words(searched: Tiny, tmp_path: Path, capsys) -> None:
    copy = searched.without(tmp_path, "rerank-*")
    path = copy.job("vse-san-human-1") / "words.json"
    path.unlink()
    assert f"{path}: no such file; delete {path.parent}" in told(copy, capsys, "vse", *ARGUMENTS)
