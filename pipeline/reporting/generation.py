"""What a model generates beside what is real: human, retrieved and generated captions, pictures and drawn ones."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from data.languages import language_name
from data.text_inputs import TextInput
from modules.retrieval_models import RetrievalModel
from pipeline.analyses.generated import SEARCH
from pipeline.retrieval.generation import drawn_pictures, written_captions
from pipeline.visualization.encoded import encoded_captions, encoded_images
from pipeline.visualization.pictures import BLACK, GREEN, GREY, Line, Shown, of_generator, picture_sheet

GENERATION = "generation"
"""Tag and file of the picture."""
GALLERY = 1000
"""Test images whose captions can be retrieved, at most."""
_SHOWN, _SEED = 6, 0  # images


def generation_sheet(
    model: RetrievalModel, text: TextInput, ids: Sequence[str], regions: NDArray[np.floating],
    pictures: Mapping[str, Path], captions: Mapping[str, Mapping[str, str]],
) -> Image.Image:  # fmt: skip
    """A contact sheet of the first images, each with what the model draws of its human caption, and its captions.

    Retrieved is the caption of the highest score among the human ones of all images.

    Args:
        model: writes captions, or draws pictures, or both.
        text: what it reads words with.
        ids: of test images.
        regions: (N, R, D) of them.
        pictures: image id → file; those that are not at hand are grey.
        captions: language → image id → a human caption.
    """
    lines: dict[str, list[Line]] = {image: [] for image in ids[:_SHOWN]}
    for language, known in captions.items():
        gallery = [(known[image], language) for image in ids if image in known]
        with torch.no_grad():
            images = encoded_images(model, regions[:_SHOWN])
            best = model.similarity(images, encoded_captions(model, text.encode, gallery)).argmax(1).tolist()
        written = written_captions(model, text, regions[:_SHOWN], language, SEARCH) if model.writes else []
        for place, image in enumerate(ids[:_SHOWN]):
            lines[image] += [
                (f"{language_name(language)}, human: {known.get(image, '–')}", BLACK),
                (f"retrieved: {gallery[best[place]][0]}", GREY),
                *((f"generated: {generated or '(empty)'}", GREEN) for generated in written[place : place + 1]),
            ]
    rows: list[tuple[list[Shown], list[Line]]] = []
    for image in ids[:_SHOWN]:
        shown: list[Shown] = [pictures.get(image)]
        if model.draws:
            language, caption = next((language, known[image]) for language, known in captions.items() if image in known)
            shown.append(of_generator(drawn_pictures(model, text, [(caption, language)], _SEED)[0]))
            lines[image].append((f"drawn: of the human caption in {language_name(language)}", GREEN))
        rows.append((shown, lines[image]))
    return picture_sheet(rows)
