"""`app`: the page runs until it is stopped."""

from collections.abc import Sequence
from pathlib import Path

from streamlit.web import cli

from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.gallery.gallery import gallery_of
from pipeline.gallery.generation import POINTER
from pipeline.gallery.hits import no_gallery
from pipeline.recipes.settings import Recipe
from pipeline.serve.hosts import listening, names_of


def open_page(
    recipe: Recipe, workspace: Workspace, gallery: Path | None, address: str, port: int, hosts: Sequence[str]
) -> None:
    """Run the page. The arguments are those of the command.

    Raises:
        RecipeError: there is no gallery, the address or port cannot be used, or a name is none.
    """
    folder = gallery or gallery_of(recipe, workspace)
    if not (folder / POINTER).is_file():
        raise RecipeError(no_gallery(folder))
    options = [f"--server.address={address}", f"--server.port={port}"]
    options += [f"--server.allowedHosts={name}" for name in names_of(address, hosts)]
    if ":" in address:  # for the line that tells where the page is
        options.append(f"--browser.serverAddress=[{address}]")
    listening("app", address, port).close()  # Streamlit's own words say neither what is wrong nor what to do
    page = Path(__file__).with_name("page.py")
    cli.main(["run", str(page), *options, "--", str(folder)], standalone_mode=False)
