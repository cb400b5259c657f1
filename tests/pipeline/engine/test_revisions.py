"""Networks on the hub: a new commit there is another network, whose jobs run anew."""

from pathlib import Path

import pytest

from modules.pretrained.hub import revision_of
from pipeline.corpus.prepare import _extractor_settings
from pipeline.engine.workspace import Workspace
from pipeline.recipes.loading import load_recipe
from pipeline.retrieval.words import files_read


def test_the_revision_of_each_network_on_the_hub_is_in_the_keys_of_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    repository, commits = tmp_path / "models--some--network", ["1" * 40, "2" * 40]
    (repository / "refs").mkdir(parents=True)
    for commit in commits:  # as the hub's client leaves them
        (repository / "snapshots" / commit).mkdir(parents=True)
        (repository / "snapshots" / commit / "config.json").write_text("{}")
    workspace = Workspace(tmp_path / "artifacts")
    settings = ["--vse.pretrained=some/network", "--vse.image_encoder=some/network", "--regions.model=some/network"]
    recipe = load_recipe("scenes", settings)
    for commit in commits:
        (repository / "refs" / "main").write_text(commit)
        revision_of.cache_clear()  # as in another process
        named = f"some/network@{commit}"
        assert _extractor_settings(recipe, workspace)["model"] == named
        assert files_read(recipe.vse, workspace) == {"pretrained": named, "image_encoder": named}
    revision_of.cache_clear()
