"""`export`: the best model as a folder, and if wanted as ONNX and on the hub, from the shell."""

from pathlib import Path

from pipeline.engine.console import info
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.export.export import export
from pipeline.export.exported_files import model_of
from pipeline.export.hub import check_push, push
from pipeline.export.onnx_export import require_onnx, write_onnx
from pipeline.graph import Graph
from pipeline.recipes.settings import Recipe


def export_and_share(
    recipe: Recipe, workspace: Workspace, output: Path | None, license_id: str | None, hub_name: str | None,
    private: bool, onnx: Path | None,
) -> None:  # fmt: skip
    """Export the recipe's best model; then write it as ONNX, and upload it, where that is asked for.

    Args:
        recipe: whose model.
        workspace: its artifacts.
        output: the model's folder; None: the recipe's.
        license_id: for the model card; None: nobody has named one.
        hub_name: `USER/NAME` on the hub; None: it is not uploaded.
        private: only its owner can read it on the hub.
        onnx: a folder for the ONNX files; None: none are written.

    Raises:
        RecipeError: there is no model, or one of these cannot be done; what can be checked is checked first.
    """
    if hub_name is not None:
        check_push(hub_name)
    elif private:
        raise RecipeError("export: --private needs --push USER/NAME")
    output = output or model_of(recipe, workspace)
    if onnx is not None:
        require_onnx(onnx, output)
    exported = export(Graph(recipe, workspace), output, license_id, hub_name)
    if onnx is not None:
        difference = write_onnx(exported, onnx)
        info(f"{onnx}: ONNX; vectors differ from torch's by at most {difference:.1e}")
    if hub_name is not None:
        info(push(exported.folder, hub_name, private))
