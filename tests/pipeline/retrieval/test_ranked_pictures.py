"""All rows rank the same pictures, where some have captions in one language alone."""

from pathlib import Path

import torch
from torch import Tensor

from modules.search.encoded_test import EncodedTest
from pipeline.graph import Graph
from pipeline.retrieval import fusion
from pipeline.retrieval.ranks import read_ranks
from tests.pipeline.tiny import Tiny, at, without_english


def test_a_fusion_ranks_pictures_with_captions_in_another_language_alone(
    tiny: Tiny, tmp_path: Path, monkeypatch
) -> None:
    recipe = tiny.recipe("--vse.only=[human]")
    (row,) = Graph(recipe, tiny.workspace).rows
    job = fusion.fusion_job("fusion", [row.job], row.job.inputs["corpus"], recipe.vse)
    inputs = {name: tiny.workspace.folder(source) for name, source in job.inputs.items()}
    inputs["corpus"] = without_english(inputs["corpus"], tmp_path / "corpus")
    ranked, shapes = fusion.retrieval_ranks, []
    monkeypatch.setattr(
        fusion, "retrieval_ranks", lambda scores, *more: [shapes.append(scores.shape), ranked(scores, *more)][1]
    )
    with at(tmp_path):
        job.run(tmp_path, inputs)
    assert [images for images, _ in shapes] == [4] * (len(recipe.vse.select) + len(recipe.vse.test))
    assert len(set(read_ranks(tmp_path, "en").caption_image.tolist())) == 3  # the fourth has no caption in English


def test_a_fusion_counts_scores_that_differ_by_rounding_alone_as_ties(tiny: Tiny, tmp_path: Path, monkeypatch) -> None:
    """The same sentence of two images, in blocks of other widths, has scores that differ in the last bit."""

    def scores(test: EncodedTest) -> Tensor:
        equal = torch.full((len(test.images), len(test.captions)), 0.7)
        equal[test.links, torch.arange(len(test.links))] += 6e-8
        return equal

    recipe = tiny.recipe("--vse.only=[human]")
    (row,) = Graph(recipe, tiny.workspace).rows
    job = fusion.fusion_job("fusion", [row.job], row.job.inputs["corpus"], recipe.vse)
    monkeypatch.setattr(EncodedTest, "scores", scores)
    with at(tmp_path):
        figures = job.run(tmp_path, {name: tiny.workspace.folder(source) for name, source in job.inputs.items()})
    assert figures["test"]["en"]["t2i_r1"] == figures["test"]["en"]["i2t_r1"] == 0
    assert read_ranks(tmp_path, "en").text_to_image.unique().tolist() == [len(read_ranks(tmp_path, "en").image_to_text)]


def test_members_of_a_fusion_have_the_seeds_that_they_name(fresh: Tiny) -> None:
    (row,) = Graph(fresh.recipe("--vse.only=[human]", "--vse.fuse=[san@7, dan, san@2]"), fresh.workspace).rows
    trained = [row.job.inputs[f"{number}:model"] for number in range(3)]
    assert [job.name for job in trained] == ["vse-san-human-7", "vse-dan-human-1", "vse-san-human-2"]
    assert [job.settings["seed"] for job in trained] == [7, 1, 2]
