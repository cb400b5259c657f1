"""Trained models on disk: their weights, and all that is needed to build a retrieval model again."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save
from torch import nn

from data.errors import one_line
from data.text.text_inputs import TextInput, load_text_input
from modules.errors import ModelError
from modules.layers.shapes import shapes_alone
from modules.retrieval_models import RetrievalModel, build_model
from pipeline.engine.artifacts import damaged, read_json
from pipeline.engine.console import stage_command
from pipeline.engine.files import fingerprint
from pipeline.errors import RecipeError
from pipeline.recipes.trainer_settings import TrainerSettings

OF_NETWORK = ("network.json", "weights.safetensors")
MODEL_FILES = (*OF_NETWORK, "words.json")
TEXT = "text"
"""Folder of the text model that an exported model was made on, in the folder of that model."""

_UNREADABLE = "not a readable safetensors file"
NETWORK = {"model": str, "arguments": {"languages": [str]}}
"""The form of `network.json` of a retrieval model."""


def save_model(folder: Path, name: str, arguments: Mapping[str, Any], model: RetrievalModel) -> None:
    """Write what `load_model` needs beside the text input's `words.json`."""
    (folder / "network.json").write_text(json.dumps({"model": name, "arguments": arguments}, indent=1), "utf-8")
    save_weights(model, folder / "weights.safetensors")


def load_model(folder: Path, pretrained: str | None = None) -> tuple[RetrievalModel, TextInput]:
    """A trained retrieval model, ready to be used, and its text input.

    Args:
        folder: of the job that trained it, or an exported model's.
        pretrained: where the text model that it was made on lies now, if it has one; None: in `TEXT`, if that is there,
            else where it was.

    Raises:
        RecipeError: the folder holds no model, or its parts do not fit.
    """
    network = read_json(folder / "network.json", NETWORK)
    name, arguments = network["model"], network["arguments"]
    if pretrained is None and (folder / TEXT / "config.json").is_file():
        pretrained = str(folder / TEXT)
    if pretrained is not None:
        arguments = arguments | {"pretrained": pretrained}
    text = load_text_input(folder / "words.json", pretrained)
    if len(text) != arguments.get("vocabulary_size"):
        raise RecipeError(f"{folder}: words.json has {len(text)} entries, the model {arguments.get('vocabulary_size')}")
    with refusing_other_code(folder, "vse", "--force"):
        own = not (arguments.get("pretrained") or arguments.get("image_encoder") or arguments.get("image_side"))
        model = build_with_weights(lambda: build_model(name, **arguments), folder / "weights.safetensors", own)
    model.load_text_model()
    return model.eval(), text


@contextmanager
def refusing_other_code(folder: Path, stage: str, *options: str) -> Iterator[None]:
    """Turn errors of building a network from a folder into a `RecipeError`, which names the stage that makes it.

    A class or an option that is not there is told as it is: its package may not be installed.
    """
    try:
        yield
    except (ModelError, RecipeError):
        raise
    except (TypeError, ValueError, LookupError, ArithmeticError, RuntimeError, AttributeError) as error:
        raise RecipeError(
            f"{folder / 'network.json'}: not of this code ({error}); run {stage_command(stage, *options)}"
        ) from None


def model_fingerprint(folder: Path) -> str:
    """A digest of a trained model's weights, settings and text input; models with the same digest give the same
    vectors.

    Raises:
        RecipeError: a file is missing.
    """
    paths = [folder / name for name in MODEL_FILES]
    for path in paths:
        if not path.is_file():
            raise RecipeError(f"{path}: no such file; delete {folder} and run {stage_command('vse')}")
    return fingerprint(paths)


Network = TypeVar("Network", bound=nn.Module)


def load_best(module: nn.Module, checkpoint: Path) -> int:
    """Put the weights of a Lightning checkpoint into the module that it was made of; its epoch, the first is 1."""
    content = torch.load(checkpoint, map_location="cpu", weights_only=True)
    module.load_state_dict(content["state_dict"])
    return int(content["epoch"]) + 1


def save_weights(module: nn.Module, path: Path) -> None:
    """Write a network's weights as safetensors."""
    path.write_bytes(save({name: tensor.contiguous() for name, tensor in module.state_dict().items()}))


def build_with_weights(build: Callable[[], Network], path: Path, sized: bool = True) -> Network:
    """A network with the weights of a file; no memory is taken for one of another size than these.

    Args:
        build: makes the network with start values.
        path: a file that `save_weights` wrote.
        sized: compare sizes first; False: it has a pretrained part, whose size its own files bound.

    Raises:
        RecipeError: as `load_weights`, or torch's default type is not float32.
    """
    require_float32()
    if sized:
        _require_sizes(build, path)
    with torch.random.fork_rng(devices=[]):  # its start values are of no use; the caller's random numbers stay
        network = build()
    load_weights(network, path)
    return network


def require_float32() -> None:
    """Refuse another default type of torch, by a RecipeError: networks are built in it."""
    if torch.get_default_dtype() != torch.float32:
        raise RecipeError(f"torch's default type is {torch.get_default_dtype()}; call "
                          "torch.set_default_dtype(torch.float32) first")  # fmt: skip


def _require_sizes(build: Callable[[], nn.Module], path: Path) -> None:
    """Refuse weights of other sizes than the network's, before either takes memory."""
    try:
        with safe_open(path, "pt") as file:
            shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118  # no dictionary
    except Exception as error:
        raise damaged(path, error, _UNREADABLE) from None
    try:
        with shapes_alone():
            sizes = {name: list(tensor.shape) for name, tensor in build().state_dict().items()}
    except RuntimeError as error:  # more than the machine could ever lend
        raise RecipeError(f"{path}: weights of another network (the network is too large: {one_line(error)})") from None
    for name in sorted(shapes.keys() & sizes.keys()):
        if shapes[name] != sizes[name]:
            raise RecipeError(
                f"{path}: weights of another network ({name} is {shapes[name]}, the network's {sizes[name]})"
            )


def load_weights(module: nn.Module, path: Path, strict: bool = True) -> None:
    """Read a network's weights.

    Args:
        path: a file that `save_weights` wrote.
        strict: refuse weights that lack a part of the network; else that part keeps its start values.

    Raises:
        RecipeError: the file is no safetensors file, or its weights do not fit or are not finite.
    """
    try:
        weights = load_file(path)
    except Exception as error:  # safetensors raises its own error, and OSError
        raise damaged(path, error, _UNREADABLE) from None
    try:
        unexpected = module.load_state_dict(weights, strict=strict).unexpected_keys
    except RuntimeError as error:
        raise RecipeError(f"{path}: weights of another network ({str(error).splitlines()[-1].strip()})") from None
    if unexpected:
        raise RecipeError(f"{path}: weights of another network (it has {unexpected[0]})")
    for name, values in module.named_parameters():
        if name in weights and not bool(torch.isfinite(values).all()):
            raise RecipeError(f"{path}: {name} has NaN or infinity; train again, or get the model again")


def device_of(settings: TrainerSettings) -> torch.device:
    """A GPU if the recipe allows one and there is one; else the CPU, with the recipe's threads."""
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    return torch.device("cuda" if settings.accelerator != "cpu" and torch.cuda.is_available() else "cpu")
