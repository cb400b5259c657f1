"""`serve`: the service runs until it is stopped."""

import gc
from collections.abc import Sequence
from pathlib import Path

import uvicorn

from pipeline.engine.console import info
from pipeline.engine.workspace import Workspace
from pipeline.gallery.gallery import gallery_of
from pipeline.recipes.settings import Recipe
from pipeline.serve.answers import Answers
from pipeline.serve.hosts import listening, names_of
from pipeline.serve.protocol import MOST_CONNECTIONS, InTime
from pipeline.serve.service import create_app

_CONNECTIONS = 256  # at a time; further ones are told to come later (503)
_BACKLOG = MOST_CONNECTIONS // 8  # connections that are accepted at a time, before those too many are closed
_GRACE = 10  # seconds that requests have to end when the service is stopped


def serve(
    recipe: Recipe, workspace: Workspace, gallery: Path | None, address: str, port: int, hosts: Sequence[str]
) -> None:
    """Serve a gallery. The arguments are those of the command; port 0 is one that is free.

    Raises:
        RecipeError: there is no gallery, the address or port cannot be used, or a name is none.
    """
    names = names_of(address, hosts)
    with listening("serve", address, port) as place:
        app = create_app(Answers(gallery or gallery_of(recipe, workspace)), names)
        shown = f"[{address}]" if ":" in address else address
        info(f"http://{shown}:{place.getsockname()[1]}/docs shows what can be asked; Ctrl-C ends the service")
        gc.freeze()  # objects of libraries are not looked at again: a full collection would hold up all requests
        config = uvicorn.Config(
            app, http=InTime, ws="none", log_level="warning", access_log=False, limit_concurrency=_CONNECTIONS,
            timeout_graceful_shutdown=_GRACE, lifespan="off", backlog=_BACKLOG,
        )  # fmt: skip
        uvicorn.Server(config).run(sockets=[place])
