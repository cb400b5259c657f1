"""Which pretrained networks can be had: a backbone that finds regions, a translator."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from data.errors import DataError
from data.images import open_picture
from modules.errors import ModelError
from pipeline.translation.translator_files import load_pretrained

BUILT_IN = "built-in"
"""What asks for the built-in extractor."""
BACKBONES = {
    "SigLIP": "google/siglip-base-patch16-224", "DINOv2": "facebook/dinov2-base",
    "CLIP": "openai/clip-vit-base-patch32",
}  # fmt: skip
"""Networks of the hub, the first choice first."""
OPUS = "Helsinki-NLP/opus-mt-{source}-{target}"
"""The translator of the hub that is used where none is named."""
NONE = "none"
_WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")
_CONVERTER = "SFconvertbot"  # the hub's own, whose pull requests add weights in safetensors
_TIMEOUT = 10  # seconds
_OFFLINE = "where there is internet, `hf download {} --local-dir FOLDER`, then {} FOLDER"


@dataclass
class Backbone:
    """What finds the regions: `model` (None: the built-in extractor), how many, why, and seconds for a picture."""

    model: str | None
    regions: int
    why: str
    seconds: float = 0.0


@dataclass
class Translator:
    """A translator's `model` and `revision` (both None: there is none), and why."""

    model: str | None
    revision: str | None
    why: str


def choose_backbone(wanted: str | None, pictures: Sequence[Path], built_in: int) -> Backbone:
    """The network that finds regions; it has been loaded, and has read some pictures.

    Args:
        wanted: a folder, a name on the hub, or `BUILT_IN`; None: the first of `BACKBONES` that is in the local cache of
            the hub, or else that the hub has; one that cannot be read is passed over.
        pictures: to try it on.
        built_in: regions of the built-in extractor.

    Raises:
        DataError: the wanted network cannot be had or read, or a picture cannot be read.
    """
    if wanted == BUILT_IN:
        return Backbone(None, built_in, "the built-in extractor, which was asked for")
    images, reasons = [open_picture(path) for path in pictures], list[str]()
    if wanted is not None:
        place = _place(wanted, "--backbone", "a vision network")
        try:
            return _tried(place, "it was asked for", images)
        except DataError as error:
            raise DataError(str(error).replace("regions.model", "--backbone", 1)) from None
    cached = [kind for kind, name in BACKBONES.items() if _is_cached(name)]
    for kind in dict.fromkeys([*cached, *BACKBONES]):
        name, where = BACKBONES[kind], "in this machine's cache of the hub" if kind in cached else "from the hub"
        if kind not in cached and (reason := _unreachable(name)):
            reasons.append(reason)
            continue
        try:
            return _tried(name, f"{kind}, {where}", images)
        except DataError as error:
            reasons.append(str(error))
    why = (
        "the built-in extractor, which is for pictures of few objects on an even background: no pretrained network can "
        f"be had from this machine's cache of the hub, nor from the hub ({reasons[0]}). For photographs: "
        + _OFFLINE.format(BACKBONES["SigLIP"], "--backbone")
    )
    return Backbone(None, built_in, why)


def _tried(name: str, why: str, images: Sequence[Image.Image]) -> Backbone:
    from data.vision import VisionNetwork  # transformers' models take seconds to import

    network = VisionNetwork(name, None)
    started = time.perf_counter()
    network(images)
    return Backbone(name, network.count, why, (time.perf_counter() - started) / max(1, len(images)))


def choose_translator(wanted: str | None, direction: str) -> Translator:
    """A pretrained translator of a direction; it has been loaded.

    Args:
        wanted: a folder, a name on the hub, or `NONE`; None: OPUS-MT, if it is in the local cache of the hub or the hub
            has it.
        direction: `en-de` …

    Raises:
        DataError, ModelError: the wanted translator cannot be had or read, or OPUS-MT, which is there, cannot be read.
    """
    if wanted == NONE:
        return Translator(None, None, "none was asked for")
    revision, (source, target) = None, direction.split("-")
    if wanted is None:
        name = OPUS.format(source=source, target=target)
        if not _is_cached(name) and (reason := _unreachable(name)):
            return Translator(None, None, f"{name} is not in this machine's cache of the hub, which does not give it "
                              f"either ({reason}); {_OFFLINE.format(name, '--translator')}")  # fmt: skip
        revision = _with_safetensors(name)
    else:
        name = _place(wanted, "--translator", "a translator")
    try:
        load_pretrained({"name": name, "direction": direction, "codes": {}, "revision": revision})
    except (DataError, ModelError) as error:
        raise type(error)(str(error).replace("mmt.pretrained", "--translator", 1)) from None
    return Translator(name, revision, "it was asked for" if wanted else "OPUS-MT, a pretrained translator")


def _place(wanted: str, option: str, what: str) -> str:
    """The whole path of a folder, or a name on the hub as it is; DataError if it can only be a folder and is none."""
    folder = Path(wanted).expanduser()
    if not folder.is_dir() and wanted.startswith(("/", "./", "../", "~")):
        raise DataError(f"{option}: no folder {wanted}; expected one with {what} of transformers")
    return str(folder.absolute()) if folder.is_dir() else wanted


def _is_cached(name: str) -> bool:
    """Are the configuration and weights of a model in the local cache of the hub?"""
    return _has(name, "config.json") and any(_has(name, file) for file in _WEIGHTS)


def _has(name: str, file: str) -> bool:
    from huggingface_hub import try_to_load_from_cache

    return isinstance(try_to_load_from_cache(name, file), str)


def _unreachable(name: str) -> str:
    """Why the hub does not give a model; an empty text if it does."""
    from huggingface_hub import HfApi

    try:
        HfApi().model_info(name, timeout=_TIMEOUT)
    except Exception as error:  # no network, offline mode, no such name, a proxy's answers …
        return " ".join(str(error).split())[:200].rstrip(" .")
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
        return None
