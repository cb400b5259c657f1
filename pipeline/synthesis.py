"""Translating many sentences with a finished translator: what testing translators and augmentation share."""

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from data.captions import TRAINING_SPLITS, read_captions, read_pairs
from data.regions import RegionStore
from data.text import BEGIN, END, UNKNOWN, JointBPE, spaced
from data.translation import Sentences, in_order_loader
from modules.beam import Hypothesis
from modules.distributed import gather_objects
from modules.ensemble import Ensemble
from modules.errors import ModelError
from modules.noisy_channel import NoisyChannel
from modules.translation import Search, Searched, Synthesis, build_translator
from pipeline.errors import RecipeError
from pipeline.jobs import Job
from pipeline.settings import CHANNEL, ChannelSettings, TrainerSettings
from pipeline.training import load_weights, make_trainer, stopping

TRANSLATOR_FILES = ("network.json", "bpe.json", "weights.safetensors")


@dataclass(frozen=True)
class Translated:
    """One translation: in surface form, Moses-tokenised, and its score (`modules.beam.Hypothesis`)."""

    text: str
    tokens: str
    score: float


def save_network(folder: Path, network: dict[str, Any], bpe: JointBPE) -> None:
    """Write what `load_translator` needs beside `weights.safetensors`."""
    (folder / "network.json").write_text(json.dumps(network, indent=1), encoding="utf-8")
    bpe.save(folder / "bpe.json")


def save_several(
    folder: Path, members: Mapping[str, Path], channel: Path | None, settings: ChannelSettings, direction: str
) -> None:
    """Copy finished translators of a direction, and the channel of the opposite one that reranks what they find.

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
    """A finished translator, or several in one, and its vocabulary.

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


def lenders_of(translator: Job, corpus: Job) -> dict[str, Job]:
    """The other corpora that a translator learned from, itself or through one that back-translated for it.

    Returns:
        inputs `lender`, `lender2` … for `refuse_seen_images`; none if all it has read is of this corpus.
    """
    others = {key: job for key, job in _corpora(translator).items() if key != corpus.key}
    return {f"lender{number if number > 1 else ''}": job for number, job in enumerate(others.values(), 1)}


def _corpora(job: Job) -> dict[str, Job]:
    found = {job.key: job} if job.name == "corpus" else {}
    for other in job.inputs.values():
        found |= _corpora(other)
    return found


def refuse_seen_images(inputs: Mapping[str, Path]) -> None:
    """Refuse a translator that learned from another corpus's sentences about validation or test images of this one.

    Args:
        inputs: of a job: `corpus`, and `lenders_of` its translator.

    Raises:
        RecipeError: it did.
    """
    lenders = [folder for name, folder in inputs.items() if name.startswith("lender")]
    learned = {image_id for folder in lenders for image_id in _images(folder, "pairs", training=True)}
    held_out = (image_id for table in ("captions", "pairs") for image_id in _images(inputs["corpus"], table, False))
    if seen := learned.intersection(held_out) if learned else set():
        raise RecipeError(
            f"the borrowed translators learned from sentences about {len(seen)} val or test "
            f"images of this corpus, first {min(seen)!r}; borrow from a recipe whose split leaves them out"
        )


def _images(corpus: Path, table: str, training: bool) -> set[str]:
    """The images that a table of a prepared corpus has in training splits, or in the others."""
    rows = (read_pairs if table == "pairs" else read_captions)(corpus / f"{table}.parquet")
    of_rows = zip(rows["image_id"][:], rows["split"][:], strict=True)
    return {image_id for image_id, split in of_rows if image_id and (split in TRAINING_SPLITS) == training}


def translate_all(
    translator: Searched, bpe: JointBPE, source: Sequence[Sequence[int]], image_ids: Sequence[str | None],
    regions: RegionStore | None, target: str, search: Search, batch_tokens: int, settings: TrainerSettings,
    n_best: int = 1,
) -> list[list[Translated]]:  # fmt: skip
    """Translate sentences (token numbers) into language `target`, in their order, on all devices of `settings`.

    A text-only translator is not shown the regions, whatever is given.

    Returns:
        for each sentence its translations, best first, at most `n_best`.
    """
    trainer = make_trainer(settings)
    regions = regions if translator.regions is not None else None
    sentences = Sentences(source, None, image_ids)
    loader = in_order_loader(sentences, regions, batch_tokens, trainer.global_rank, trainer.world_size)
    synthesis = Synthesis(translator.eval(), search, BEGIN, END, n_best)
    with stopping():
        trainer.predict(synthesis, loader, return_predictions=False)
    found = dict(gather_objects(list(synthesis.found.items()), trainer.world_size))
    return [[_read(one, bpe, target) for one in found[number]] for number in range(len(source))]


def _read(one: Hypothesis, bpe: JointBPE, target: str) -> Translated:
    return Translated(bpe.decode(one.tokens, target), spaced(bpe.decode_tokens(one.tokens), target), one.score)
