"""Finished translators on disk."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from data.text.tokenisation import BEGIN, END, UNKNOWN, JointBPE, SubWords, spaced
from data.translators.answer_tokens import AnswerTokens
from data.translators.translator_tokens import TranslatorTokens
from modules.translators.ensemble import Ensemble
from modules.translators.image_text import ImageTextTranslator
from modules.translators.noisy_channel import Channel
from modules.translators.pretrained import PretrainedTranslator, require_translator
from modules.translators.registry import Searched, build_translator
from modules.translators.rerankers import Feature, Length, LogProbability, Reranker, Similarity
from pipeline.engine.artifacts import copy_whole, read_json
from pipeline.engine.console import stage_command
from pipeline.errors import RecipeError, as_recipe_error
from pipeline.recipes.systems import CHANNEL
from pipeline.recipes.translator_settings import CONTROL, OF_RETRIEVAL
from pipeline.recipes.typed import located
from pipeline.training.model_files import MODEL_FILES, build_with_weights, load_model, refusing_other_code

LOGP, RERANKING, RETRIEVAL, PRETRAINED = "logp", "reranking", "retrieval", "pretrained"
TRANSLATOR_FILES = ("network.json", "bpe.json", "weights.safetensors")
SOURCE_WORDS = "source_words.json"
"""The words of the sentences that a translator was trained to read; older translators have no such file."""


def save_network(folder: Path, network: dict[str, Any], bpe: JointBPE) -> None:
    """Write what `load_translator` needs beside `weights.safetensors`."""
    (folder / "network.json").write_text(json.dumps(network, indent=1), encoding="utf-8")
    bpe.save(folder / "bpe.json")
    if bpe.source_words is not None:
        content = json.dumps(sorted(bpe.source_words), ensure_ascii=False)
        (folder / SOURCE_WORDS).write_text(content, encoding="utf-8")


def save_several(
    folder: Path, inputs: Mapping[str, Path], members: Sequence[str], parts: Sequence[str], about: Mapping[str, Any]
) -> None:
    """Copy finished translators of a direction, and what re-ranks their output.

    They are in folders of their own, so that all can be moved and loaded as one.

    Args:
        inputs: folders of the members and parts, by name.
        members: finished translators of the direction, which search together.
        parts: the `channel` of the opposite direction, and the retrieval model of the features, if they are needed.
        about: what `network.json` says of the re-ranking.
    """
    for name in (*members, *parts):
        (folder / name).mkdir(exist_ok=True)
        for file in MODEL_FILES if name == RETRIEVAL else files_of_translator(inputs[name]):
            copy_whole(inputs[name] / file, folder / name / file)
    (folder / "network.json").write_text(json.dumps({"ensemble": list(members), **about}, indent=1), encoding="utf-8")


def load_translator(folder: Path) -> tuple[Searched, SubWords]:
    """A finished translator, an ensemble, a pretrained translator, or one of them re-ranked, and its sub-words.

    Raises:
        DataError, ModelError: a pretrained translator is no longer where it was.
        RecipeError: the folder holds no translator, or its parts do not fit.
    """
    network, members, how = _read(folder)
    if PRETRAINED in network:
        return load_pretrained(network[PRETRAINED])
    if members:
        direct, bpe = load_members([folder / name for name in members])
        return (load_reranker(direct, bpe, how, folder / CHANNEL, folder / RETRIEVAL) if how.direction else direct), bpe
    bpe = load_sub_words(folder)
    if len(bpe) != network.get("vocabulary_size"):
        raise RecipeError(f"{folder}: bpe.json has {len(bpe)} entries, the network {network.get('vocabulary_size')}")
    with refusing_other_code(folder, "mmt"):
        translator = build_with_weights(lambda: build_translator(**network), folder / "weights.safetensors")
    return translator, bpe


def load_sub_words(folder: Path) -> JointBPE:
    """The sub-words of a translator that was trained here, with the words that it was trained to read if known."""
    bpe = JointBPE.load(folder / "bpe.json")
    if (folder / SOURCE_WORDS).is_file():
        bpe.source_words = frozenset(read_json(folder / SOURCE_WORDS, [str]))
    return bpe


def load_pretrained(
    about: Mapping[str, Any],
) -> tuple[PretrainedTranslator, TranslatorTokens] | tuple[ImageTextTranslator, AnswerTokens]:
    """A translator of transformers, by `name`, `direction`, `codes` and `revision`, and its sub-words.

    With a `prompt` (and `longest`) it is a vision-language model.

    Raises:
        DataError: its tokenizer is missing, or does not know the languages.
        ModelError: there is no such translator.
    """
    name = about["name"]
    if "prompt" in about:
        seeing = ImageTextTranslator(name, about["prompt"], about["longest"], about["revision"])
        return seeing, AnswerTokens(seeing.processor.tokenizer, about["direction"].split("-")[1])
    revision = require_translator(name, about["revision"]) or about["revision"]
    tokens = TranslatorTokens(name, about["direction"], about["codes"], revision)  # before the weights, which are large
    return PretrainedTranslator(name, tokens.first, revision), tokens


def load_members(folders: Sequence[Path]) -> tuple[Searched, SubWords]:
    """Finished translators as one, and their sub-words; raises as `load_translator`."""
    loaded = [load_translator(folder) for folder in folders]
    (first, bpe), *others = loaded
    return (Ensemble([translator for translator, _ in loaded]) if others else first), bpe


@dataclass(frozen=True)
class Reranking:
    """How n-best lists of a direction are re-ranked.

    Attributes:
        direction: of the translator.
        weights: of the features (`modules.translators.rerankers`), by name.
        beam_size: least size of the beam.
        length_penalty: of the search whose lists the weights belong to; None (not recorded): that of each search.
    """

    direction: str
    weights: Mapping[str, float]
    beam_size: int
    length_penalty: float | None = None


def files_of_translator(folder: Path) -> set[str]:
    """What `load_translator` reads in a folder, relative to it; of a retrieval model without its text model.

    The members of a whole are ours: what re-ranks a pretrained translator is not moved.

    Raises:
        RecipeError: the folder holds no translator.
    """
    network, members, how = _read(folder)
    if not members:
        return {"network.json"} if PRETRAINED in network else _own_files(folder)
    parts = {part: _own_files(folder / part) for part in [*members, *_channel(how)]}
    if {*how.weights} & {*OF_RETRIEVAL}:
        parts[RETRIEVAL] = {*MODEL_FILES}
    return {"network.json", *(f"{part}/{file}" for part, files in parts.items() for file in files)}


def _own_files(folder: Path) -> set[str]:
    """The files of a translator that is no ensemble."""
    return {*TRANSLATOR_FILES, *([SOURCE_WORDS] if (folder / SOURCE_WORDS).is_file() else [])}


def needs_regions(folder: Path) -> bool:
    """Does a finished translator read the regions of a picture, by itself or to re-rank? Its weights are not loaded.

    Raises:
        RecipeError: the folder holds no translator.
    """
    network, members, how = _read(folder)
    if members:
        return any(needs_regions(folder / name) for name in members) or "image" in how.weights
    return network.get("region_dim") is not None


def lies_elsewhere(folder: Path) -> bool:
    """Is a finished translator, or a part of it, a pretrained one, whose weights are not in its folder?

    Raises:
        RecipeError: the folder holds no translator.
    """
    network, members, how = _read(folder)
    return PRETRAINED in network or any(lies_elsewhere(folder / part) for part in [*members, *_channel(how)])


def _channel(how: Reranking) -> list[str]:
    """The folder of the channel, if the re-ranking has one."""
    return [CHANNEL] if CHANNEL in how.weights else []


def _read(folder: Path) -> tuple[dict[str, Any], list[str], Reranking]:
    """The contents of `network.json`, the names of its members, and how their lists are re-ranked.

    Raises:
        RecipeError: the folder holds no translator, or its re-ranking is damaged.
    """
    try:
        network = read_json(folder / "network.json")
        members = network.get("ensemble", [])
        if not isinstance(members, list) or not all(re.fullmatch(r"[a-z]\w*", member) for member in members):
            raise ValueError("its members are no translators")
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise RecipeError(f"{folder}: no translator here ({error}); run {stage_command('mmt')}") from None
    try:
        return network, members, _reranking(network)
    except (ValueError, AttributeError, TypeError, KeyError) as error:
        raise RecipeError(f"{folder}: its re-ranking is not of this code ({error}); run it again") from None


def _reranking(network: Mapping[str, Any]) -> Reranking:
    """What `network.json` says of re-ranking, without a direction if there is none.

    A channel alone is two features with weights 1 and λ.
    """
    if (about := network.get(CHANNEL)) is not None:
        weights = {LOGP: 1.0, CHANNEL: float(about["weight"])}
    elif (about := network.get(RERANKING)) is not None:
        weights = {str(name): float(value) for name, value in about["weights"].items()}
    else:
        return Reranking("", {}, 0)
    source, target = about["direction"].split("-")
    alpha = about.get("length_penalty")
    return Reranking(f"{source}-{target}", weights, int(about["beam_size"]), None if alpha is None else float(alpha))


def load_reranker(direct: Searched, bpe: SubWords, about: Reranking, channel: Path, retrieval: Path) -> Reranker:
    """A translator with the features that re-rank its lists.

    Args:
        direct: makes the lists.
        channel: folder of the translator of the opposite direction; read if a feature needs it.
        retrieval: folder of the retrieval model; likewise.

    Raises:
        RecipeError: a folder does not hold what it should, or the retrieval model does not know a language.
    """
    source, target = about.direction.split("-")
    features: dict[str, Feature] = {}
    looked = {"image": "regions", CONTROL: "other_regions", "source": "source"}
    model, text = load_model(retrieval) if looked.keys() & about.weights.keys() else (None, None)

    def read(language: str, tokens: Sequence[int]) -> list[int]:
        """From the translator's token numbers to the retrieval model's."""
        assert text is not None
        return text.encode(bpe.decode(tokens, language), language)

    for name in about.weights:
        if name == LOGP:
            features[name] = LogProbability()
        elif name == "length":
            features[name] = Length(lambda tokens: len(spaced(bpe.decode_tokens(tokens), target).split()))
        elif name == CHANNEL:
            features[name] = _load_channel(channel, bpe, source, target)
        elif name in looked and model is not None:
            with located(str(retrieval)), as_recipe_error():
                features[name] = Similarity(
                    model, looked[name], partial(read, target), target, partial(read, source), source
                )
        else:
            raise RecipeError(f"{about.direction}: no feature {name!r} of re-ranking; there are {LOGP}, length, "
                              f"{CHANNEL}, {', '.join(looked)}")  # fmt: skip
    return Reranker(direct, features, about.weights, about.beam_size, about.length_penalty)


def _load_channel(folder: Path, bpe: SubWords, source: str, target: str) -> Channel:
    """The channel of a translator with this vocabulary; raises as `load_translator`."""
    channel, its_bpe = load_translator(folder)
    both = [vocabulary.tokenizer.to_str() for vocabulary in (bpe, its_bpe) if isinstance(vocabulary, JointBPE)]
    alike = len(both) == 2 and both[0] == both[1]

    def recode(language: str, sentences: Sequence[Sequence[int]]) -> Sequence[Sequence[int]]:
        """From the translator's token numbers to the channel's: by way of the text, where the vocabularies differ."""
        if alike:
            return [tokens or [UNKNOWN] for tokens in sentences]
        return its_bpe.encode_all([bpe.decode(tokens, language) for tokens in sentences], language)

    return Channel(channel, partial(recode, source), partial(recode, target), BEGIN, END)
