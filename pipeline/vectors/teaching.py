"""The jobs that encode, by a teacher, the sentences whose translations a student learns."""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset as Table
from numpy.typing import NDArray

from data.batches.slots import Slot
from data.batches.taught import (
    TEXT,
    TaughtPair,
    TaughtStore,
    pairs_of_captions,
    pairs_of_parallel,
    taught_captions,
    write_pairs,
)
from data.captions.table import HUMAN, read_captions, read_pairs, table_of
from data.pictures.pixels import VectorStore
from data.pictures.regions import RegionStore
from data.vectors.sentence_vectors import compute_vectors
from pipeline.engine.job import Job
from pipeline.errors import RecipeError, as_recipe_error
from pipeline.recipes.retrieval_settings import VseSettings
from pipeline.recipes.trainer_settings import TrainerSettings
from pipeline.training.model_files import device_of, load_model

VERSION = 1
_CORPUS, _SYNTHETIC, _TEACHER = "corpus", "synthetic", "teacher"


def is_text(slot: Slot) -> bool:
    """Are its captions sentences without pictures?"""
    return slot.source.startswith(TEXT)


def taught_jobs(
    slots: Collection[Slot], settings: VseSettings, teacher: Job | None, corpus: Job, synthetic: Mapping[str, Job]
) -> dict[str, Job]:  # fmt: skip
    """Source `text:…` of a row's slots → the job that encodes its originals; see `TaughtStore`.

    `text:mt:en-de` are the captions of a path of `augment.paths`, each with the human caption that it was made from;
    `text:human` human captions in the teacher's language themselves; `text:ORIGIN` parallel text about no image of the
    corpus, by its origin (`text:tatoeba`).

    Args:
        teacher: the job that trained it; None: there is none, and nothing is taught.
        synthetic: path → the job that writes its captions.
    """
    if teacher is None:
        return {}
    language, trainer = settings.teacher.get("language", "en"), settings.trainer
    sources = dict.fromkeys(slot.source for slot in slots if is_text(slot))
    return {source: _job(source, teacher, language, corpus, synthetic, trainer) for source in sources}


def require_taught(settings: VseSettings, row: str, groups: Sequence[tuple[Slot, ...]], corpus: Path) -> None:
    """Refuse, before anything is trained, sentences without pictures of a row that no job could give.

    Args:
        corpus: folder of the prepared corpus.

    Raises:
        RecipeError: human captions in another language than the teacher's, parallel text that is not there, or a group
            that draws such sentences and captions of pictures together.
    """
    language = settings.teacher.get("language", "en")
    for group in groups:
        kinds = {is_text(slot) for slot in group if slot.count}
        if len(kinds) > 1:
            raise RecipeError(
                f"vse.rows.{row} joins sentences without pictures and captions of pictures in one group; write two"
            )
        for slot in filter(is_text, group):
            kind = slot.source.removeprefix(TEXT)
            if kind == HUMAN and slot.language != language:
                raise RecipeError(
                    f"vse.rows.{row} has {slot.type!r}: human captions are taught in the teacher's language, "
                    f"{language}; name parallel text or translated captions (text:mt:en-de)"
                )
            if kind != HUMAN and ":" not in kind:
                _pairs({_CORPUS: corpus}, kind, language)


def taught_in(inputs: Mapping[str, Path]) -> dict[str, Path]:
    """Of the inputs of a training those that `taught_jobs` gave."""
    return {name: folder for name, folder in inputs.items() if name.startswith(TEXT)}


def with_taught(captions: list[Table], inputs: Mapping[str, Path], slots: Collection[Slot]) -> list[Table]:
    """Caption tables, and those of the sentences without pictures of a row's slots."""
    wanted: dict[str, set[str]] = {}
    for slot in slots:
        wanted.setdefault(slot.source, set()).add(slot.language)
    taught = [
        table_of(taught_captions(folder, source, wanted[source]), tokens=True)
        for source, folder in taught_in(inputs).items()
    ]
    return [*captions, *(table for table in taught if len(table))]


def teacher_of(trained: Job) -> Job | None:
    """The job that trained the teacher of a model, if it has one."""
    taught = next((job for name, job in trained.inputs.items() if name.startswith(TEXT)), None)
    if taught is not None:
        return taught.inputs[_TEACHER]
    return trained.inputs["images"].inputs.get("model") if "images" in trained.inputs else None


def with_sentences(store: RegionStore, inputs: Mapping[str, Path]) -> RegionStore:
    """What a training reads of images, with the teacher's vectors of sentences behind it, if it has a teacher."""
    if not (taught := taught_in(inputs)):
        return store
    assert isinstance(store, VectorStore)
    return TaughtStore(store, taught)


def _job(
    source: str, teacher: Job, language: str, corpus: Job, synthetic: Mapping[str, Job], trainer: TrainerSettings
) -> Job:  # fmt: skip
    kind = source.removeprefix(TEXT)
    inputs = {_CORPUS: corpus, _TEACHER: teacher} | ({_SYNTHETIC: synthetic[kind]} if kind in synthetic else {})

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Pair, encode the originals, and leave both."""
        pairs = _pairs(inputs, kind, language)
        if not pairs:
            raise RecipeError(f"{source}: no sentence in {language!r} with a translation; leave it out of vse.rows")
        count, dim = _encode([pair.original for pair in pairs], inputs[_TEACHER], language, trainer, folder)
        write_pairs(pairs, folder)
        return {"pairs": len(pairs), "sentences": count, "dim": dim}

    return Job(
        f"taught-{kind.replace(':', '-')}", "vse", VERSION, {"source": source, "language": language}, inputs, run,
        headline=lambda figures: f"{figures['pairs']:,} pairs of sentences",
    )  # fmt: skip


def _pairs(inputs: Mapping[str, Path], kind: str, language: str) -> list[TaughtPair]:
    """The pairs of a source without its `text:`: of translated or human captions, or of parallel text."""
    captions = read_captions(inputs[_CORPUS] / "captions.parquet")
    if kind == HUMAN:
        return pairs_of_captions(captions, language)
    if _SYNTHETIC in inputs:
        return pairs_of_captions(captions, language, read_captions(inputs[_SYNTHETIC] / "captions.parquet"))
    with as_recipe_error():
        return pairs_of_parallel(read_pairs(inputs[_CORPUS] / "pairs.parquet"), captions, kind, language)


def _encode(
    texts: Collection[str], teacher: Path, language: str, trainer: TrainerSettings, folder: Path
) -> tuple[int, int]:  # fmt: skip
    """Write the teacher's vectors of sentences; how many, and their size."""
    model, text = load_model(teacher)
    if language not in model.languages:
        raise RecipeError(
            f"vse.teacher.language is {language!r}, but the teacher reads {', '.join(model.languages)}; name one of "
            "these"
        )
    model.to(device_of(trainer))

    def encode(tokens: torch.Tensor) -> NDArray[np.float32]:
        """Vectors (B, H) of tokens (B, L)."""
        with torch.inference_mode():
            vectors = model.encode_sentences([row[row > 0].tolist() for row in tokens], language)[0][:, 0]
        array: NDArray[np.float32] = vectors.float().cpu().numpy()
        return array

    count = compute_vectors(texts, partial(text.encode, language=language), encode, folder, folder / "checkpoints")
    return count, int(np.load(folder / "vectors.npy", mmap_mode="r").shape[1])
