"""The Hugging Face hub: whether it answers, and which commit a name there stands for."""

import os
from functools import cache
from pathlib import Path

from modules.errors import one_line
from modules.pretrained.quiet import quiet

_SECONDS = 5  # to wait for an answer


@cache
def ask_hub() -> str:
    """Why the hub does not answer; an empty text if it does. It is asked once.

    If it does not, its client reads the cache alone, here and in processes that are started here. Otherwise the client
    would ask again and again, for a minute each time that a network is loaded.
    """
    import huggingface_hub
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    try:
        huggingface_hub.get_session().head(constants.ENDPOINT, timeout=_SECONDS)
    except Exception as error:  # no network, no such address, a proxy that is away
        constants.HF_HUB_OFFLINE = True
        os.environ["HF_HUB_OFFLINE"] = "1"
        return one_line(error)
    return ""


@cache
def revision_of(name: str) -> str | None:
    """The commit that a name on the hub stands for now; None for a folder, and where nothing is known of the name."""
    try:
        return commit_of(name)
    except Exception:  # whoever loads the network says what is wrong
        return None


def commit_of(name: str, revision: str = "main") -> str | None:
    """The commit that a revision of a name on the hub stands for now; None for a folder.

    Raises:
        OSError: neither the hub nor its cache has such a network.
    """
    from transformers.utils.hub import cached_file, extract_commit_hash

    if Path(name).is_dir():
        return None
    ask_hub()
    with quiet():
        commit: str | None = extract_commit_hash(cached_file(name, "config.json", revision=revision), None)
    return commit
