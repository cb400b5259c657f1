"""All rows rank the same pictures, where some have captions in one language alone."""

from pathlib import Path

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
        fusion, "retrieval_ranks", lambda scores, links: [shapes.append(scores.shape), ranked(scores, links)][1]
    )
    with at(tmp_path):
        job.run(tmp_path, inputs)
    assert [images for images, _ in shapes] == [4] * (len(recipe.vse.select) + len(recipe.vse.test))
    assert len(set(read_ranks(tmp_path, "en").caption_image.tolist())) == 3  # the fourth has no caption in English
