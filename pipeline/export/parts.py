"""Parts of an exported model: its network, the pretrained network that it is made on, and what encodes its images."""

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from safetensors.torch import load_file, save_file

from data.errors import one_line
from modules.pretrained.quiet import quiet
from modules.retrieval_models.base import RetrievalModel
from modules.retrieval_models.dual_encoder import image_tower_alone
from modules.transformers_files import write_dual_encoder
from pipeline.engine.artifacts import copy_whole, read_json
from pipeline.engine.files import rename_atomically
from pipeline.errors import RecipeError, as_recipe_error
from pipeline.export.exported_files import require_outside
from pipeline.export.picture_reading import VISION
from pipeline.recipes.typed import located
from pipeline.training.model_files import MODEL_FILES, NETWORK, TEXT

_SIDE = "image_side"


def copy_model(source: Path, target: Path, images: Path | None = None) -> dict[str, Any]:
    """Copy a retrieval model, the text model that it was made on, and the model that its image vectors are by.

    Args:
        source: of the job that trained it.
        images: of the job that left the vectors of images which it was trained on; None: it encodes images itself.

    Returns:
        the arguments that it is made with there.

    Raises:
        RecipeError: a pretrained part is no longer where it was.
    """
    for name in MODEL_FILES:
        copy_whole(source / name, target / name)
    network = read_json(target / "network.json", NETWORK)
    arguments: dict[str, Any] = network["arguments"]
    if pretrained := arguments.get("pretrained"):
        if "network" in arguments:  # whose weights are the model's own
            _copy("dual encoder", pretrained, target / TEXT, "AutoTokenizer", "AutoConfig")
        else:
            _copy("text model", pretrained, target / TEXT, "AutoTokenizer", "AutoModel")
        arguments["pretrained"] = TEXT
        words = read_json(target / "words.json")
        (target / "words.json").write_text(json.dumps(words | {"pretrained": TEXT}), encoding="utf-8")
    if images is not None:
        _join(target, arguments, images)
    elif pretrained and "network" in arguments:
        _copy_reader(pretrained, target / VISION)
    (target / "network.json").write_text(json.dumps(network, indent=1), encoding="utf-8")
    return arguments


def require_empty(target: Path, model: Path) -> None:
    """Refuse a folder for `--transformers` that holds something, or lies in the model's, by a RecipeError."""
    require_outside("--transformers", target, model)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise RecipeError(f"--transformers {target}: holds something; name a folder that is not there")


def write_for_transformers(folder: Path, exported: RetrievalModel, target: Path) -> int:
    """Write a dual encoder as `transformers` reads it; the folder is there when it is whole.

    Args:
        folder: of the exported model.
        target: a folder that is not there, or is empty.

    Returns:
        how many parameters it has.

    Raises:
        RecipeError: it is no dual encoder, its images are another model's, or `require_empty` refuses.
    """
    require_empty(target, folder)
    beside = target.absolute().parent
    beside.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f"{target.name}.", dir=beside) as made, located("--transformers"), as_recipe_error():
        count = write_dual_encoder(exported, folder / TEXT, folder / VISION, whole := Path(made) / "network")
        rename_atomically(whole, target.absolute())
    return count


def of_images(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of the arguments of an exported model those of what encodes its images."""
    side: Mapping[str, Any] = arguments.get(_SIDE, {}).get("arguments", arguments)
    return side


def _join(target: Path, arguments: dict[str, Any], images: Path) -> None:
    """Make the model of image vectors a part of the one that reads them."""
    side = read_json(images / "network.json", NETWORK)
    own, of_side = side["arguments"], load_file(images / "weights.safetensors")
    pretrained: str | None = own.pop("pretrained", None)
    if "network" in own and pretrained is not None:
        _copy_reader(pretrained, target / VISION)
        own, of_side = image_tower_alone(own, of_side)
    elif pretrained is not None:
        raise RecipeError(
            f"export: the teacher {side['model']} reads words by the text model {pretrained!r}, which is not copied "
            "with its student; use a teacher without vse.pretrained, or a dual-encoder"
        )
    arguments |= {
        _SIDE: {"model": side["model"], "arguments": own}, "vector_dim": arguments["region_dim"],
        "region_dim": own["region_dim"],
    }  # fmt: skip
    weights = load_file(target / "weights.safetensors")
    weights |= {f"{_SIDE}.{name}": tensor for name, tensor in of_side.items()}
    save_file(weights, target / "weights.safetensors")


def _copy(what: str, name: str, folder: Path, *kinds: str, **options: Any) -> None:
    """Copy parts of a pretrained network of `transformers`, by the names of its Auto classes, wherever they lie."""
    import transformers

    try:
        with quiet():
            for kind in kinds:
                part = getattr(transformers, kind).from_pretrained(name, trust_remote_code=False, **options)
                part.save_pretrained(folder)
    except (OSError, ValueError) as error:
        raise RecipeError(f"export: the {what} {name!r} is no longer there ({one_line(error)}); put it back") from None


def _copy_reader(name: str, folder: Path) -> None:
    """What reads pictures for a dual encoder."""
    _copy("dual encoder", name, folder, "AutoImageProcessor", backend="pil")
