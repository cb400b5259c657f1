"""TensorBoard with the layout of all trainings in front."""

from pathlib import Path

from tensorboard import default, program
from tensorboard.plugins.custom_scalar.custom_scalars_plugin import CustomScalarsPlugin

from pipeline.errors import RecipeError


def show_board(folder: Path, address: str, port: int) -> int:
    """Serve TensorBoard until it is stopped; it opens on the layout that each training leaves in its files.

    TensorBoard opens on the first of its plugins that finds data, which is otherwise the one with a plot for every tag.

    Args:
        folder: of TensorBoard's files.
        address: to listen on.
        port: of the page; 0 takes a free one.

    Returns:
        TensorBoard's status.

    Raises:
        RecipeError: there is no such folder.
    """
    if not folder.is_dir():
        raise RecipeError(f"{folder}: no such folder; expected one with files of trainings, as stages leave them in "
                          "lightning_logs")  # fmt: skip
    plugins = sorted(default.get_plugins(), key=lambda plugin: plugin is not CustomScalarsPlugin)
    board = program.TensorBoard(plugins)
    board.configure(["tensorboard", "--logdir", str(folder), "--host", address, "--port", str(port)])
    return int(board.main())
