"""Commands that run until they are stopped: the page and the service."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from pipeline.commands.options import ONLY_NAMED, PORT, Address, RecipeOption, named_recipe, open_workspace
from pipeline.errors import RecipeError

GalleryArgument = Annotated[
    Path | None, typer.Argument(help="the gallery's folder; the recipe's own if none", show_default=False)
]
Hosts = Annotated[str, typer.Option(help="further host names that it answers to: 'photos.example other.example'")]

app = typer.Typer()


@app.command("app", epilog=ONLY_NAMED)
def page(
    ctx: typer.Context, gallery: GalleryArgument = None, named: RecipeOption = None, address: Address = "127.0.0.1",
    port: Annotated[int, typer.Option(help="of the page", **PORT)] = 8501, hosts: Hosts = "",
) -> None:  # fmt: skip
    """Open a page that searches a gallery by words and pictures."""
    loaded = named_recipe(ctx, named)
    _require("app", "streamlit")
    from pipeline.app.command import open_page as run

    run(loaded, open_workspace(), gallery, address, port, hosts.split())


@app.command(epilog=ONLY_NAMED)
def serve(
    ctx: typer.Context, gallery: GalleryArgument = None, named: RecipeOption = None, address: Address = "127.0.0.1",
    port: Annotated[int, typer.Option(help="of the service", **PORT)] = 8000, hosts: Hosts = "",
) -> None:  # fmt: skip
    """Answer programs over HTTP: search, describe, embed, translate."""
    loaded = named_recipe(ctx, named)
    _require("serve", "fastapi", "uvicorn", "python_multipart")
    from pipeline.serve.command import serve as run

    run(loaded, open_workspace(), gallery, address, port, hosts.split())


def _require(extra: str, *packages: str) -> None:
    """Refuse to start without the packages of an extra."""
    if missing := [package for package in packages if find_spec(package) is None]:
        raise RecipeError(f"{extra}: {missing[0]} is not installed; run `make setup EXTRA={extra}`")
