"""Scores of generated captions against all captions of their image, and of baselines, which need no decoder."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset as Table
from torch import Tensor

from data.captions.table import human_cells, read_captions, references_of
from data.pictures.regions import RegionStore
from data.text.tokenisation import plain_words
from modules.metrics.captions import CaptionScores, caption_scores, most_frequent_caption, nearest_images
from modules.metrics.cider import CiderD, document_frequencies
from modules.retrieval_models import model_class
from modules.translators.beam import BeamSettings
from pipeline.analyses.description import Analysis, Line, read_values
from pipeline.engine.files import write_atomically
from pipeline.engine.job import Job
from pipeline.recipes.overlays import MEASURES
from pipeline.retrieval.generation import captions_of_corpus
from pipeline.retrieval.rows import Trained
from pipeline.vectors.images import images_in, test_inputs

VERSION = 1
NEAREST, FREQUENT = "nearest", "frequent"
BASELINES = {NEAREST: "caption of the nearest training image", FREQUENT: "most frequent training caption"}
"""Prefix of a baseline's figures → what it is."""
GENERATED = "generated"
"""Prefix of the figures of generated captions: `generated_cider`."""
CAPTIONS = "captions.jsonl"
SEARCH = BeamSettings(5)
"""How the captions that are scored are searched for."""
_BLOCK = 1024


def generated_job(model: Trained) -> Job | None:
    """Write a caption of each test image in each language, and score those that have human captions beside them.

    Leaves `captions.jsonl` (image id, language, caption) and `generated-<language>.npz` with CIDEr-D × 100 of each
    caption. The baselines (`baselines_job`) are an input, so that they are there too.

    Returns:
        None for a model without a decoder.
    """
    trained, corpus, settings, listed = model.job, model.corpus, model.recipe.vse, sorted(model.languages)
    if not model_class(settings.model).writes_with(**settings.options):
        return None

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Write, keep and score."""
        captions = read_captions(inputs["corpus"] / "captions.parquet")
        images = list(dict.fromkeys(image for (image,) in human_cells(captions, "test", "image_id")))
        written = captions_of_corpus(inputs["model"], images_in(inputs), images, listed, SEARCH, settings.trainer)
        write_atomically(folder / CAPTIONS, "".join(
            json.dumps({"image_id": image, "language": language, "caption": text}, ensure_ascii=False) + "\n"
            for language, texts in written.items() for image, text in texts.items()
        ))  # fmt: skip
        figures: dict[str, Any] = {"test": {}}
        for language in (language for language in _scored(captions) if language in listed):
            known = references_of(captions, language, "test")
            words = {image: plain_words(text, language) for image, text in written[language].items() if image in known}
            scores = generated_scores(captions, language, words)
            np.savez(folder / f"{GENERATED}-{language}.npz", cider=scores.cider)
            counts = {"images": float(len(words)), "empty": float(sum(not caption for caption in words.values()))}
            figures["test"][language] = {
                f"{GENERATED}_{key}": value for key, value in {**scores.figures(), **counts}.items()
            }
        return figures

    name = trained.name.replace("vse-", "generated-", 1)
    plain = {"languages": listed, "search": asdict(SEARCH)}
    inputs = test_inputs(trained, corpus) | {"baselines": baselines_job(corpus)}
    return Job(name, "vse", VERSION, plain, inputs, run, False, asdict(settings.trainer), _headline)


def baselines_job(corpus: Job) -> Job:
    """Score both baselines in each language that has human captions in training and test; they are those of all models.

    Leaves `nearest-<language>.npz` and `frequent-<language>.npz` with CIDEr-D × 100 of each image's caption.
    """

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Score and keep."""
        figures: dict[str, dict[str, float]] = {}
        for language in _scored(read_captions(inputs["corpus"] / "captions.parquet")):
            figures[language] = {}
            for name, scores in caption_baselines(inputs["corpus"], language).items():
                np.savez(folder / f"{name}-{language}.npz", cider=scores.cider)
                figures[language] |= {f"{name}_{key}": value for key, value in scores.figures().items()}
                figures[language][f"{name}_images"] = float(len(scores.cider))
        return {"test": figures}

    return Job("caption-baselines", "vse", VERSION, {}, {"corpus": corpus}, run,
               headline=lambda figures: _ciders(figures, NEAREST))  # fmt: skip


def caption_baselines(corpus: Path, language: str) -> dict[str, CaptionScores]:
    """Score two baselines as `generated_scores` scores generated captions.

    The nearest training image is that of the highest cosine of the mean regions, and its caption is its first one. The
    most frequent caption is the same for every image.

    Args:
        corpus: folder of the job that prepared it.
        language: of the captions; there are human ones in training and test.

    Returns:
        `NEAREST` and `FREQUENT` → scores of the test images in the order of the caption table.
    """
    captions, store = read_captions(corpus / "captions.parquet"), RegionStore(corpus / "regions", check_values=False)
    training, tested = (references_of(captions, language, split) for split in ("train", "test"))
    images = list(tested)
    rows = nearest_images(_mean_regions(store, images), _mean_regions(store, list(training)))
    known = list(training.values())
    frequent = most_frequent_caption(words for of_image in known for words in of_image)
    written = {NEAREST: [known[row][0] for row in rows.tolist()], FREQUENT: [frequent] * len(images)}
    return {
        name: generated_scores(captions, language, dict(zip(images, texts, strict=True)))
        for name, texts in written.items()
    }


def generated_scores(captions: Table, language: str, generated: dict[str, list[str]]) -> CaptionScores:
    """Score a generated caption of each test image against all human captions of the image, one or more.

    Args:
        language: of the captions; there are human ones in training.
        generated: image id → words, as `data.text.tokenisation.plain_words` has them; an empty caption scores 0.
    """
    references, documents = (references_of(captions, language, split) for split in ("test", "train"))
    metric = CiderD([references[image_id] for image_id in generated], document_frequencies(documents.values()))
    return caption_scores(list(generated.values()), metric, range(len(generated)))


def _mean_regions(store: RegionStore, images: list[str]) -> Tensor:
    """The mean of each image's regions, (I, D)."""
    rows = store.rows(images)
    blocks = np.split(rows, range(_BLOCK, len(rows), _BLOCK))
    return torch.cat([torch.from_numpy(store.take(block).astype(np.float32)).mean(dim=1) for block in blocks])


def _scored(captions: Table) -> list[str]:
    """The languages with human captions in training and test."""
    trained, tested = ({*human_cells(captions, split, "language")} for split in ("train", "test"))
    return sorted(language for (language,) in trained & tested)


def _ciders(figures: Mapping[str, Any], of: str) -> str:
    """CIDEr-D by language, as text."""
    return ", ".join(
        f"CIDEr-D {language} {scores[f'{of}_cider']:.1f}" for language, scores in sorted(figures["test"].items())
    )


def _headline(figures: Mapping[str, Any]) -> str:
    """CIDEr-D by language, and how many captions are empty, as text."""
    shown = _ciders(figures, GENERATED) or "no human captions to compare with"
    empty = sum(int(scores[f"{GENERATED}_empty"]) for scores in figures["test"].values())
    return shown + (f"; empty captions, which score 0: {empty:,}" if empty else "")


def _line_of(prefix: str, label: str) -> Line:
    """The figures of captions with some prefix."""
    metrics = [f"{prefix}_{measure}" for measure in MEASURES]
    return Line(label, metrics, f"{prefix}_images", partial(read_values, file=prefix, array="cider"), most=1000.0)


GENERATED_CAPTIONS = Analysis(
    generated_job,
    "Generated captions, {system}, {language}, {corpus}: compared with all captions of the image; CIDEr-D × 100",
    ["BLEU-1", "2", "3", "4", "CIDEr-D"],
    lambda job: [_line_of(GENERATED, "")],
    tested=4,
    baselines=[_line_of(prefix, name) for prefix, name in BASELINES.items()],
    counted=("empty", f"{GENERATED}_empty"),
)
