"""Which pretrained networks can be had: a dual encoder, a backbone that finds regions, a translator."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from data.errors import DataError, one_line
from data.pictures.images import open_picture
from data.pictures.network_pixels import NetworkPixels
from modules.errors import ModelError
from modules.pretrained.dual_network import dual_network_arguments
from modules.pretrained.hub import ask_hub
from modules.pretrained.quiet import quiet
from modules.retrieval_models.dual_encoder import pretrained_encoder
from pipeline.engine.files import require_network
from pipeline.recipes.trainer_settings import TrainerSettings
from pipeline.training.model_files import device_of
from pipeline.translation.translator_files import load_pretrained

BUILT_IN = "built-in"
"""What asks for the built-in extractor."""
DUAL_ENCODERS = {
    "SigLIP 2 (Apache 2.0)": "google/siglip2-base-patch16-224",
    "SigLIP (Apache 2.0)": "google/siglip-base-patch16-224",
    "OpenAI's CLIP (MIT), trained on English alone": "openai/clip-vit-base-patch32",
}
"""Dual encoders of the hub, with their licenses, the first choice first."""
BACKBONES = {
    "SigLIP": "google/siglip-base-patch16-224", "DINOv2": "facebook/dinov2-base",
    "CLIP": "openai/clip-vit-base-patch32",
}  # fmt: skip
"""Networks of the hub that find regions where there is no dual encoder, the first choice first."""
OPUS = "Helsinki-NLP/opus-mt-{source}-{target}"
"""The translator of the hub that is used where none is named."""
NONE = "none"
_WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")
_PARTS = {
    "weights": ("model*.safetensors*", "pytorch_model*"),
    "image processor": ("preprocessor_config.json", "processor_config.json"),
    "tokenizer": ("tokenizer.json", "*.model", "vocab.*"),
}  # of a dual encoder → patterns of its files, one of which is there
_CONVERTER = "SFconvertbot"  # the hub's own, whose pull requests add weights in safetensors
_TIMEOUT = 10  # seconds
_OFFLINE = "where there is internet, `hf download {} --local-dir FOLDER`, then {} FOLDER"
_NOWHERE = "can be had from this machine's cache of the hub, nor from the hub"
GET_DUAL_ENCODER = _OFFLINE.format(next(iter(DUAL_ENCODERS.values())), "--backbone")
"""How to get a dual encoder."""


@dataclass
class Chosen:
    """A pretrained network, or that there is none.

    Attributes:
        model: its folder, or its name on the hub; None: there is none, so regions are those of the built-in extractor.
        why: it was chosen, or there is none.
        seconds: that it takes for a picture.
        regions: that it finds in a picture.
        revision: of it on the hub, where that is not the main branch.
    """

    model: str | None
    why: str
    seconds: float = 0.0
    regions: int = 0
    revision: str | None = None


def choose_dual_encoder(wanted: str | None, pictures: Sequence[Path]) -> Chosen:
    """The dual encoder to search with; its weights have been loaded, and it has read some pictures.

    Args:
        wanted: a folder, a name on the hub, or `BUILT_IN`; None: the first of `DUAL_ENCODERS` that is in the local
            cache of the hub, or else that the hub has; one that cannot be read is passed over. What is wanted may be
            a network of another kind.

    Raises:
        DataError: there is no such network, a dual encoder that is wanted cannot be read, or a picture cannot be.
        RecipeError: there is no such folder.
    """
    if wanted == BUILT_IN:
        return Chosen(None, "the built-in extractor was asked for")
    images = [open_picture(path) for path in pictures]
    if wanted is not None:
        place = _place(wanted, "--backbone", "dual encoder, or a network that finds regions,")
        if not _has_two_towers(place):
            return Chosen(None, f"{wanted} is no dual encoder")
        _require_whole(Path(place))
        return _tried_dual_encoder(place, "it was asked for", images)
    return _first_of(DUAL_ENCODERS, lambda name, why: _tried_dual_encoder(name, why, images), "no dual encoder")


def choose_backbone(wanted: str | None, pictures: Sequence[Path], built_in: int) -> Chosen:
    """The network that finds regions; it has been loaded, and has read some pictures.

    Args:
        wanted: a folder, a name on the hub, or `BUILT_IN`; None: the first of `BACKBONES` that is in the local cache of
            the hub, or else that the hub has; one that cannot be read is passed over.
        built_in: regions of the built-in extractor.

    Raises:
        DataError: the wanted network cannot be had or read, or a picture cannot be read.
        RecipeError: there is no such folder.
    """
    if wanted == BUILT_IN:
        return Chosen(None, "the built-in extractor, which was asked for", regions=built_in)
    images = [open_picture(path) for path in pictures]
    if wanted is not None:
        place = _place(wanted, "--backbone", "vision network")
        try:
            return _tried(place, "it was asked for", images)
        except DataError as error:
            reason = str(error).replace("regions.model", "--backbone", 1)
            raise DataError(f"{reason}; or take a dual encoder (SigLIP 2, CLIP …): {GET_DUAL_ENCODER}") from None
    lacking = "the built-in extractor, for pictures of few objects on an even background: no pretrained network"
    return _first_of(BACKBONES, lambda name, why: _tried(name, why, images), lacking, built_in)


def _first_of(
    known: Mapping[str, str], tried: Callable[[str, str], Chosen], lacking: str, built_in: int = 0
) -> Chosen:  # fmt: skip
    """The first network that is in the local cache of the hub and can be read, else that the hub has; or why none is.

    Args:
        known: kind → name on the hub.
        tried: gives the network of a name, and why it is chosen; DataError if it cannot be read.
        lacking: what is said where there is none.
        built_in: regions of the built-in extractor, where that finds them instead.
    """
    cached, reasons = [kind for kind, name in known.items() if _is_cached(name)], list[str]()
    for kind in dict.fromkeys([*cached, *known]):
        name, where = known[kind], "in this machine's cache of the hub" if kind in cached else "from the hub"
        if kind not in cached and (reason := _unreachable(name)):
            reasons.append(reason)
            continue
        try:
            return tried(name, f"{kind}, {where}")
        except DataError as error:
            reasons.append(str(error))
    return Chosen(None, f"{lacking} {_NOWHERE} ({reasons[0]})", regions=built_in)


def _has_two_towers(name: str) -> bool:
    """Is a network a dual encoder, by its configuration? DataError if there is none."""
    from transformers import AutoConfig  # takes seconds to import

    if not Path(name).is_dir():
        ask_hub()
    try:
        with quiet():
            config = AutoConfig.from_pretrained(name, trust_remote_code=False)
    except Exception as error:  # a damaged configuration can raise anything
        raise DataError(
            f"--backbone {name!r}: no network of transformers there ({one_line(error)}); expected a dual encoder "
            "(SigLIP 2, CLIP …), or one that finds regions, in a folder or on the hub; without internet, copy it into "
            "a folder (`hf download NAME --local-dir FOLDER`) and name that"
        ) from None
    return hasattr(config, "text_config") and hasattr(config, "vision_config")


def _require_whole(folder: Path) -> None:
    """Refuse a folder in which a part of a dual encoder is missing; a name on the hub is none."""
    for part, patterns in _PARTS.items() if folder.is_dir() else ():
        if not any(True for pattern in patterns for _ in folder.glob(pattern)):
            raise DataError(
                f"--backbone {str(folder)!r}: a dual encoder without its {part} (expected {patterns[0]}); copy that of "
                "the network into the folder, or get all of it (`hf download NAME --local-dir FOLDER`)"
            )


def _tried_dual_encoder(name: str, why: str, images: Sequence[Image.Image]) -> Chosen:
    try:
        reader = NetworkPixels(name)
        network = dual_network_arguments(name) | {"towers": "image"}
        model = pretrained_encoder(name, network, reader.size)[0].eval().to(device := device_of(TrainerSettings()))
        started = time.perf_counter()
        for image in images:
            pixels = torch.from_numpy(reader.extract(image)[0].astype(np.float32)).to(device)
            with torch.inference_mode():
                model.encode_images(pixels[None], torch.ones(1, 1, dtype=torch.bool, device=device))
    except (DataError, ModelError) as error:
        raise DataError(str(error).replace("vse.pretrained", "--backbone", 1)) from None
    except Exception as error:  # two towers that are put together in another way: a model that writes text
        raise DataError(
            f"--backbone {name!r}: it has a text and an image tower, but is no dual encoder that can be read "
            f"({one_line(error)}); expected one like SigLIP 2 or CLIP: {GET_DUAL_ENCODER}"
        ) from None
    return Chosen(name, why, (time.perf_counter() - started) / max(1, len(images)))


def _tried(name: str, why: str, images: Sequence[Image.Image]) -> Chosen:
    from data.pictures.vision import VisionNetwork  # transformers' models take seconds to import

    network = VisionNetwork(name, None)
    started = time.perf_counter()
    network(images)
    return Chosen(name, why, (time.perf_counter() - started) / max(1, len(images)), network.count)


def choose_translator(wanted: str | None, direction: str) -> Chosen:
    """A pretrained translator of a direction; it has been loaded.

    Args:
        wanted: a folder, a name on the hub, or `NONE`; None: OPUS-MT, if it is in the local cache of the hub or the hub
            has it.
        direction: `en-de` …

    Raises:
        DataError, ModelError: the wanted translator cannot be had or read, or OPUS-MT, which is there, cannot be read.
        RecipeError: there is no such folder.
    """
    if wanted == NONE:
        return Chosen(None, "none was asked for")
    revision, (source, target) = None, direction.split("-")
    if wanted is None:
        name = OPUS.format(source=source, target=target)
        if not (_is_cached(name) or _cached_request(name)) and (reason := _unreachable(name)):
            return Chosen(None, f"{name} is not in this machine's cache of the hub, which does not give it either "
                          f"({reason}); {_OFFLINE.format(name, '--translator')}")  # fmt: skip
    else:
        name = _place(wanted, "--translator", "translator")
    if not Path(name).is_dir():
        revision = _with_safetensors(name)
    try:
        load_pretrained({"name": name, "direction": direction, "codes": {}, "revision": revision})
    except (DataError, ModelError) as error:
        raise type(error)(str(error).replace("mmt.pretrained", "--translator", 1)) from None
    why = "it was asked for" if wanted else "OPUS-MT, a pretrained translator"
    return Chosen(name, why, revision=revision)


def _place(wanted: str, option: str, what: str) -> str:
    """The whole path of a folder, or a name on the hub as it is; RecipeError if it can only be a folder and is none."""
    folder = Path(wanted).expanduser()
    if folder.is_dir():
        return str(folder.absolute())
    require_network(wanted, option, what)
    return wanted


def _is_cached(name: str) -> bool:
    """Are the configuration and weights of a model in the local cache of the hub?"""
    return _has(name, "config.json") and any(_has(name, file) for file in _WEIGHTS)


def _has(name: str, file: str, revision: str | None = None) -> bool:
    from huggingface_hub import try_to_load_from_cache

    return isinstance(try_to_load_from_cache(name, file, revision=revision), str)


def _cached_request(name: str) -> str | None:
    """The pull request whose weights in safetensors are in the local cache of the hub, if there is one."""
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    refs = Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=name, repo_type="model") / "refs"
    requests = sorted(str(file.relative_to(refs)) for file in refs.glob("refs/pr/*"))
    return next((request for request in requests if _has(name, _WEIGHTS[0], request)), None)


@cache
def _unreachable(name: str) -> str:
    """Why the hub does not give a model; an empty text if it does."""
    from huggingface_hub import HfApi

    if reason := ask_hub():
        return reason
    try:
        HfApi().model_info(name, timeout=_TIMEOUT)
    except Exception as error:  # no network, offline mode, no such name, a proxy's answers …
        return one_line(error)
    return ""


def _with_safetensors(name: str) -> str | None:
    """The revision that has weights in safetensors, if `main` has none: the pull request of the hub's converter."""
    from huggingface_hub import HfApi

    if _has(name, _WEIGHTS[0]):
        return None
    try:
        if any(file.endswith(".safetensors") for file in HfApi().list_repo_files(name)):
            return None
        requests = HfApi().get_repo_discussions(name, author=_CONVERTER, discussion_type="pull_request")
        return next((f"refs/pr/{request.num}" for request in requests if request.status in ("open", "draft")), None)
    except Exception:  # the hub is away: what is in the cache decides
        return _cached_request(name)
