"""Exported models on the hub of Hugging Face: loaded by their name, and pushed."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from data.errors import one_line
from modules.pretrained.hub import ask_hub
from pipeline.errors import RecipeError
from pipeline.export.exported_files import ABOUT, OF_OWNERS, check_files, read_about

_OFFLINE = "copy the model where there is a network (`hf download {name} --local-dir FOLDER`) and name that folder"
_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*", re.ASCII)


def folder_of(name: str | Path, revision: str | None = None) -> Path:
    """The folder of an exported model; one on the hub is first copied into the cache of `huggingface_hub`.

    Args:
        name: a folder, or a name on the hub, `USER/NAME`.
        revision: a branch, tag or commit on the hub; None: its main branch.

    Raises:
        RecipeError: there is no such model, or the hub cannot be reached and the cache does not hold it.
    """
    text = name.as_posix() if isinstance(name, Path) else name
    if Path(name).exists():
        if revision is not None:
            raise RecipeError(f"{text}: a folder, which has no revision {revision!r}; leave the revision out")
        return Path(name)
    if not _NAME.fullmatch(text):
        raise RecipeError(f"{text}: no exported model here; expected a folder, or a name on the hub, USER/NAME")
    from huggingface_hub import snapshot_download

    ask_hub()
    with _explained(text, f"no folder of this name either; {_OFFLINE.format(name=text)}", revision):
        first = Path(snapshot_download(text, revision=revision, allow_patterns=[ABOUT]))
        if not (first / ABOUT).is_file():
            raise RecipeError(f"{text}: has no {ABOUT} on the hub, so it is no model that Bildwort exported")
        read_about(first)  # before the rest is loaded
        return Path(snapshot_download(text, revision=revision))


def check_push(name: str) -> None:
    """Refuse a push that cannot succeed, before anything is exported.

    Raises:
        RecipeError: the name is not `USER/NAME`, or this machine has no access token of the hub.
    """
    if not _NAME.fullmatch(name):
        raise RecipeError(f"--push {name!r}: expected USER/NAME, the model's name on the hub")
    from huggingface_hub import get_token

    if get_token() is None:
        raise RecipeError(f"--push {name}: not logged in to the hub; run `.venv/bin/hf auth login`, or set HF_TOKEN")


def push(folder: Path, name: str, private: bool = False) -> str:
    """Upload an exported model to the hub; files of an older model there are replaced (the card too) or deleted.

    Hidden files in the folder are left out.

    Args:
        name: on the hub, `USER/NAME`; it is made if it is not there.
        private: only its owner can read it; a model that is there and public is refused.

    Returns:
        the model's address.

    Raises:
        RecipeError: not logged in, no right to write there, no network, the folder holds what was not exported, or the
            name something else.
    """
    check_push(name)
    about = check_files(folder)
    from huggingface_hub import HfApi

    api = HfApi()
    with _explained(name, f"the model is in {folder}: push it later"):
        address = api.create_repo(name, private=private or None, exist_ok=True)
        info = api.model_info(name)
        if private and not info.private:
            raise RecipeError(f"--push {name}: is public; make it private on the hub, or leave --private out")
        held = {file.rfilename for file in info.siblings or []}
        foreign = sorted(file for file in held - OF_OWNERS if not file.startswith("."))
        if foreign and ABOUT not in held:
            raise RecipeError(f"--push {name}: holds {foreign[0]}, which is no part of an exported model; choose "
                              "another name")  # fmt: skip
        stale = [file for file in foreign if file not in {ABOUT, *about["files"]}]
        api.upload_folder(
            repo_id=name, folder_path=folder, commit_message=f"Bildwort: {about['name']}", delete_patterns=stale,
            allow_patterns=sorted({ABOUT, *OF_OWNERS, *about["files"]}),
        )  # fmt: skip
    return str(address)


@contextmanager
def _explained(name: str, offline: str, revision: str | None = None) -> Iterator[None]:
    """Turn errors of the hub's client into a `RecipeError` of one line; `offline`: what to do without a network."""
    from huggingface_hub import errors

    try:
        yield
    except errors.RevisionNotFoundError:
        raise RecipeError(f"{name}: has no revision {revision!r} on the hub; name a branch, tag or commit") from None
    except errors.RepositoryNotFoundError:
        raise RecipeError(f"{name}: no such folder, and no such model on the hub, or a private one; check the name, "
                          "or log in (`.venv/bin/hf auth login`)") from None  # fmt: skip
    except errors.HFValidationError as error:
        raise RecipeError(f"{name}: not a name on the hub ({one_line(error)})") from None
    except errors.HfHubHTTPError as error:
        if error.response.status_code in (401, 403):
            raise RecipeError(f"{name}: the hub refuses access; log in (`.venv/bin/hf auth login`) with a token that "
                              "has the right to it") from None  # fmt: skip
        raise RecipeError(f"{name}: the hub refuses ({one_line(error)})") from None
    except (errors.LocalEntryNotFoundError, errors.HTTPError, ConnectionError, TimeoutError) as error:
        raise RecipeError(f"{name}: the hub cannot be reached ({one_line(error)}); {offline}") from None
