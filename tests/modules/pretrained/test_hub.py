"""The hub as its client leaves it in the cache, and when it does not answer."""

import os
from pathlib import Path

import pytest
import transformers as hf
from huggingface_hub import constants
from huggingface_hub.utils import are_progress_bars_disabled

from modules.pretrained.hub import ask_hub, revision_of
from modules.pretrained.quiet import quiet
from tests.modules.dual_networks import save


def test_bars_of_downloads_are_shown_where_those_of_loading_weights_are_not() -> None:
    hf.utils.logging.enable_progress_bar()
    with quiet():
        assert not hf.utils.logging.is_progress_bar_enabled()
        assert not are_progress_bars_disabled()
    assert hf.utils.logging.is_progress_bar_enabled()


def test_the_revision_of_a_name_on_the_hub_is_its_commit_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    repository, commit = tmp_path / "models--people--clip", "a" * 40
    save("clip", repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    assert revision_of("people/clip") == commit
    assert revision_of("people/none") is None
    assert revision_of(str(repository / "snapshots" / commit)) is None


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch):
    """The hub has not been asked yet, and is asked by a client that is not offline."""
    ask_hub.cache_clear()
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    yield monkeypatch
    ask_hub.cache_clear()


@pytest.mark.timeout(20)  # the client alone would ask for longer
def test_a_hub_that_does_not_answer_is_not_asked_again(asked: pytest.MonkeyPatch) -> None:
    asked.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # where nobody listens
    assert "refused" in ask_hub()
    assert constants.is_offline_mode()
    assert os.environ["HF_HUB_OFFLINE"] == "1"
    with pytest.raises(OSError, match="in the cached files"):
        hf.AutoConfig.from_pretrained("people/no-such-network")


def test_a_hub_that_answers_is_used(asked: pytest.MonkeyPatch) -> None:
    seen = []

    class Session:
        def head(self, address: str, timeout: float) -> None:
            seen.append((address, timeout))

    asked.setattr("huggingface_hub.get_session", Session)
    for _ in range(2):
        assert ask_hub() == ""
    assert seen == [(constants.ENDPOINT, 5)]
    assert not constants.is_offline_mode()
