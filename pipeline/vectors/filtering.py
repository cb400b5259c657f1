"""Filters of synthetic captions: those that score highest are kept (`mt:en-de@NAME`)."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from data.captions.table import Caption, listed_captions, refuse_held_out
from data.errors import DataError
from data.pictures.regions import RegionStore
from data.text.characters import lowered
from data.text.languages import language_evidence
from modules.metrics.translation import sentence_chrf
from modules.retrieval_models.encoded import all_images, sorted_captions
from modules.search.encodings import Encodings
from modules.search.margins import own_image_margins
from modules.translators.beam import BeamSettings
from pipeline.engine.job import Job
from pipeline.errors import RecipeError
from pipeline.recipes.settings import Recipe
from pipeline.recipes.systems import parse_path
from pipeline.recipes.trainer_settings import TrainerSettings, job_settings
from pipeline.training.model_files import device_of, load_model
from pipeline.translation.augment import leave_captions
from pipeline.translation.leakage import lenders_of, refuse_seen_images
from pipeline.translation.translating import TranslationMemory, translate_all, translator_identity
from pipeline.translation.translator_files import load_translator
from pipeline.vectors.images import images_in, test_inputs

VERSION = 1
SCORES = "scores.csv"
"""Every caption of the path with its score, best first, and whether it is kept."""
_IMAGES = 256  # encoded at once


def filter_job(recipe: Recipe, corpus: Job, path: str, captions: Job, back: Job | None, model: Job | None) -> Job:
    """Keep the captions of a path that score highest; it leaves `captions.parquet`, as translators do.

    It is of stage `augment`, or of stage `vse` where a retrieval model scores.

    Args:
        path: `mt:en-de@NAME`, where NAME is a filter.
        captions: the job that leaves all captions of `mt:en-de`.
        back: the translator that translates them back, if the filter scores by it.
        model: the retrieval model, if the filter scores by it.
    """
    (whole, _, name), (_, languages, _) = path.partition("@"), parse_path(path)
    settings = recipe.augment.filters[name]
    inputs = {"corpus": corpus, "captions": captions}
    if model is not None:
        inputs = test_inputs(model, corpus) | inputs
    if back is not None:
        inputs |= {"translator": back} | lenders_of([back], corpus)

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Score, and leave those that are kept."""
        human, new = (listed_captions(inputs[name] / "captions.parquet") for name in ("corpus", "captions"))
        refuse_held_out(new, human)
        originals = {caption.caption_id: caption for caption in human}
        scores = np.asarray(_scores(recipe, settings.by, new, originals, inputs, folder))
        order = np.argsort(-scores, kind="stable").tolist()
        kept = set(order[: max(1, round(settings.keep * len(new)))])
        _write_scores(folder / SCORES, [(scores[row], row in kept, new[row]) for row in order], originals)
        chosen = [
            replace(caption, source=path, caption_id=caption.caption_id.replace(f"|{whole}", f"|{path}", 1))
            for row, caption in enumerate(new) if row in kept
        ]  # fmt: skip
        figures = leave_captions(folder, chosen, inputs["corpus"], languages[0], 0)
        return figures | {"removed": len(new) - len(chosen), "least_score": float(scores[order[len(kept) - 1]])}

    plain: dict[str, Any] = {"path": path, "by": settings.by, "keep": settings.keep}
    if settings.by == "chance":
        plain["seed"] = recipe.seed
    if back is not None:
        plain |= {key: job_settings(recipe.augment)[key] for key in ("beam_size", "length_penalty", "trainer")}
    stage, trainer = ("augment", recipe.augment.trainer) if model is None else ("vse", recipe.vse.trainer)
    return Job(
        f"synthetic-{path.replace(':', '-')}", stage, VERSION, plain, inputs, run, back is not None, asdict(trainer),
        lambda figures: f"{figures['captions']:,} captions kept, {figures['removed']:,} removed",
    )  # fmt: skip


def _scores(
    recipe: Recipe, by: str, new: Sequence[Caption], originals: Mapping[str, Caption], inputs: Mapping[str, Path],
    folder: Path,
) -> Sequence[float]:  # fmt: skip
    """The score of each caption; `originals` are the human ones by id, `folder` and `inputs` those of the job."""
    if by == "image":
        return _by_image(new, inputs, recipe.vse.trainer)
    if by == "back-translation":
        return _by_back_translation(new, originals, inputs, folder, recipe)
    if by == "language":
        try:
            return [language_evidence(caption.text, caption.language) for caption in new]
        except DataError as error:
            raise RecipeError(f"augment.filters: {error}; filter by image or by back-translation") from None
    drawn: list[float] = np.random.default_rng(recipe.seed).permutation(len(new)).astype(float).tolist()
    return drawn


def _by_image(new: Sequence[Caption], inputs: Mapping[str, Path], trainer: TrainerSettings) -> Sequence[float]:
    """How much better each caption fits its own image than the nearest other images of these captions."""
    model, text = load_model(inputs["model"])
    model.to(device_of(trainer)).eval()
    ids = list(dict.fromkeys(caption.image_id for caption in new))
    place = {image: number for number, image in enumerate(ids)}
    store = images_in(inputs)
    rows = store.rows(ids)
    parts = (store.take(rows[start : start + _IMAGES]) for start in range(0, len(rows), _IMAGES))
    images = Encodings.joined([all_images(model, part) for part in parts])
    captions = sorted_captions(model, text.encode, [(caption.text, caption.language) for caption in new])
    own = torch.tensor([place[caption.image_id] for caption in new])
    margins: list[float] = own_image_margins(model.cpu().similarity, images, captions, own).tolist()
    return margins


def _by_back_translation(
    new: Sequence[Caption], originals: Mapping[str, Caption], inputs: Mapping[str, Path], folder: Path, recipe: Recipe
) -> Sequence[float]:  # fmt: skip
    """chrF of each caption's translation back, against the human caption that it was made from."""
    refuse_seen_images(inputs)
    settings = recipe.augment
    network, bpe = load_translator(inputs["translator"])
    store = RegionStore(inputs["corpus"] / "regions", check_values=False)
    search = BeamSettings(settings.beam_size, settings.length_penalty)
    humans = [originals[caption.parent or ""] for caption in new]
    back = translate_all(
        network, bpe, bpe.encode_all([caption.text for caption in new], new[0].language),
        [caption.image_id for caption in new], store, humans[0].language, search, settings.batch_tokens,
        settings.trainer, kept=folder / "checkpoints",
        memory=TranslationMemory(folder, translator_identity(inputs["translator"])),
    )  # fmt: skip
    texts = ([best.text for best, *_ in back], [human.text for human in humans])
    return sentence_chrf(*([lowered(text, humans[0].language) for text in side] for side in texts))


def _write_scores(
    path: Path, rows: Sequence[tuple[float, bool, Caption]], originals: Mapping[str, Caption]
) -> None:  # fmt: skip
    """Leave every caption with its score and its original, best first, to be looked at."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["score", "kept", "image", "caption", "original"])
    for score, kept, caption in rows:
        original = originals[caption.parent].text if caption.parent is not None else ""
        writer.writerow([f"{score:.4f}", "yes" if kept else "no", caption.image_id, caption.text, original])
    path.write_text(text.getvalue(), encoding="utf-8")
