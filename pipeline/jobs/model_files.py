"""A trained retrieval model on disk."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from data.text import PretrainedTokens, TextInput, load_text_input
from modules.retrieval_models import RetrievalModel, build_model
from pipeline.errors import RecipeError
from pipeline.jobs.artifact_files import read_json
from pipeline.jobs.files import fingerprint
from pipeline.jobs.weights import build_with_weights, save_weights

MODEL_FILES = ("network.json", "weights.safetensors", "words.json")
TEXT = "text"
"""Folder of the text model that an exported model was made on, in the folder of that model."""

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
    name, arguments, text = read_network(folder, pretrained)
    with refusing_other_code(folder):
        own = not (arguments.get("pretrained") or arguments.get("image_encoder"))
        model = build_with_weights(lambda: build_model(name, **arguments), folder / "weights.safetensors", own)
    model.load_text_model()
    return model.eval(), text


def read_network(folder: Path, pretrained: str | None = None) -> tuple[str, dict[str, Any], TextInput]:
    """The name and arguments of a trained model, and its text input; arguments and errors as for `load_model`."""
    path = folder / "network.json"
    network = read_json(path, NETWORK)
    name, arguments = network["model"], network["arguments"]
    if pretrained is None and (folder / TEXT / "config.json").is_file():
        pretrained = str(folder / TEXT)
    if pretrained is not None:
        arguments = arguments | {"pretrained": pretrained}
    text = load_text_input(folder / "words.json") if pretrained is None else PretrainedTokens(pretrained)
    if len(text) != arguments.get("vocabulary_size"):
        raise RecipeError(f"{folder}: words.json has {len(text)} entries, the model {arguments.get('vocabulary_size')}")
    return name, arguments, text


@contextmanager
def refusing_other_code(folder: Path) -> Iterator[None]:
    """Turn errors of building a network from a folder into a `RecipeError`."""
    try:
        yield
    except RecipeError:
        raise
    except (TypeError, ValueError, LookupError, ArithmeticError, RuntimeError, AttributeError) as error:
        raise RecipeError(
            f"{folder / 'network.json'}: not of this code ({error}); run `make stage-vse` with ARGS=--force"
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
            raise RecipeError(f"{path}: no such file; delete {folder} and run `make stage-vse`")
    return fingerprint(paths)
