"""Finished translators on disk."""

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from data.text import UNKNOWN, JointBPE
from modules.ensemble import Ensemble
from modules.errors import ModelError
from modules.noisy_channel import NoisyChannel
from modules.translators import Searched, build_translator
from pipeline.errors import RecipeError
from pipeline.jobs.weights import load_weights
from pipeline.recipes.settings import CHANNEL, ChannelSettings

TRANSLATOR_FILES = ("network.json", "bpe.json", "weights.safetensors")


def save_network(folder: Path, network: dict[str, Any], bpe: JointBPE) -> None:
    """Write what `load_translator` needs beside `weights.safetensors`."""
    (folder / "network.json").write_text(json.dumps(network, indent=1), encoding="utf-8")
    bpe.save(folder / "bpe.json")


def save_several(
    folder: Path, members: Mapping[str, Path], channel: Path | None, settings: ChannelSettings, direction: str
) -> None:
    """Copy finished translators of a direction, and the channel of the opposite direction that reranks their output.

    They are in folders of their own, so that all can be moved and loaded as one.
    """
    about: dict[str, Any] = {"ensemble": list(members)}
    parts = dict(members)
    if channel is not None:
        about[CHANNEL] = {"direction": direction, **asdict(settings)}
        parts[CHANNEL] = channel
    for name, part in parts.items():
        (folder / name).mkdir(exist_ok=True)
        for file in TRANSLATOR_FILES:
            shutil.copyfile(part / file, folder / name / file)
    (folder / "network.json").write_text(json.dumps(about, indent=1), encoding="utf-8")


def load_translator(folder: Path) -> tuple[Searched, JointBPE]:
    """A finished translator, or an ensemble, and its vocabulary.

    Raises:
        RecipeError: the folder holds no translator, or its parts do not fit.
    """
    try:
        network = json.loads((folder / "network.json").read_text(encoding="utf-8"))
        members, channel = network.get("ensemble", []), network.get(CHANNEL)
        if not all(re.fullmatch(r"mm?t\d*", one) for one in members):
            raise ValueError("its members are no translators")
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise RecipeError(f"{folder}: no translator here ({error}); run `make stage-mmt`") from None
    if members:
        loaded = [load_translator(folder / name) for name in members]
        (first, bpe), *others = loaded
        direct = Ensemble([one for one, _ in loaded]) if others else first
        return (direct if channel is None else _load_channel(folder, channel, direct, bpe)), bpe
    bpe = JointBPE.load(folder / "bpe.json")
    if len(bpe) != network.get("vocabulary_size"):
        raise RecipeError(f"{folder}: bpe.json has {len(bpe)} entries, the network {network.get('vocabulary_size')}")
    try:
        translator = build_translator(**network)
    except (TypeError, ValueError, KeyError, RuntimeError, ModelError) as error:
        raise RecipeError(f"{folder / 'network.json'}: not of this code ({error}); run `make stage-mmt`") from None
    load_weights(translator, folder / "weights.safetensors")
    return translator, bpe


def _load_channel(folder: Path, about: Any, direct: Searched, bpe: JointBPE) -> NoisyChannel:
    """The channel in a translator's folder, `about` it what `save_several` wrote; raises as `load_translator`."""
    try:
        source, target = about["direction"].split("-")
        weight, beam_size = float(about["weight"]), int(about["beam_size"])
    except (ValueError, AttributeError, TypeError, KeyError) as error:
        raise RecipeError(f"{folder}: its channel is not of this code ({error}); run `make stage-mmt`") from None
    channel, its_bpe = load_translator(folder / CHANNEL)
    alike = bpe.tokenizer.to_str() == its_bpe.tokenizer.to_str()

    def recode(language: str, sentences: Sequence[Sequence[int]]) -> Sequence[Sequence[int]]:
        """From the translator's token numbers to the channel's: by way of the text, where the vocabularies differ."""
        if alike:
            return [tokens or [UNKNOWN] for tokens in sentences]
        return its_bpe.encode_all([bpe.decode(tokens, language) for tokens in sentences], language)

    return NoisyChannel(direct, channel, partial(recode, source), partial(recode, target), weight, beam_size)
