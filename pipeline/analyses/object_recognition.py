"""The job that recognises, in the pictures that a model draws of captions, the objects that these captions name."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset as Table
from numpy.typing import NDArray
from torch import Tensor

from data.captions.table import human_cells, read_captions
from data.corpora.scenes.objects import TRAINING, AtPlaces, Recogniser, objects_of, right
from data.pictures.pixels import middle_square
from modules.retrieval_models import model_class
from modules.retrieval_models.generated import drawn_pictures
from pipeline.analyses.description import Analysis, Line, read_values
from pipeline.corpus.prepare import pictures_of
from pipeline.engine.job import Job
from pipeline.retrieval.rows import Trained
from pipeline.training.model_files import device_of, load_model

VERSION = 1
MEASURES = ("objects", "nouns", "colours")
"""What is right of an object that is recognised: noun and colour, the noun, the colour."""
DRAWN, OTHER, REAL = "drawn", "other", "real"
PICTURES = {DRAWN: "drawn of the caption", OTHER: "drawn of another image's caption", REAL: "the real picture"}
"""Prefix of figures → in which pictures a caption's objects are looked for."""
_SEED = 0


def recognised_job(tested: Trained) -> Job | None:
    """Draw each human test caption, and look for the objects that it names in the picture and in two others.

    The others are the picture drawn of another image's caption, a baseline, and the real picture, a ceiling. It leaves
    `recognised-<language>.npz`: of each test image, in each of `PICTURES`, the mean over its captions of `MEASURES`.

    Returns:
        None for a model that draws no pictures, or of another corpus than `scenes`, whose objects are not known.
    """
    trained, settings, scenes, listed = tested.job, tested.recipe.vse, tested.scenes, sorted(tested.languages)
    if scenes is None or not model_class(settings.model).draws_with(**settings.options):
        return None

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Draw, recognise, score."""
        model, text = load_model(inputs["model"], settings.pretrained)
        model.to(device_of(settings.trainer))
        size = model.pixels_with(**trained.settings["options"]) or 0
        files = pictures_of(inputs["corpus"])
        known = objects_of(scenes, TRAINING)
        recogniser = Recogniser(_pixels(files, list(known), size), list(known.values()))
        objects, figures = objects_of(scenes, ["test"]), dict[str, dict[str, float]]()
        real = dict(zip(objects, recogniser.recognise(_pixels(files, list(objects), size)), strict=True))
        for language, tested in _tested(read_captions(inputs["corpus"] / "captions.parquet"), listed).items():
            drawn = recogniser.recognise(
                drawn_pictures(model, text.encode, [(caption, language) for _, caption in tested], _SEED)
            )
            other = [drawn[place - len(drawn) // 2] for place in range(len(drawn))]  # captions are sorted by image
            seen = {DRAWN: drawn, OTHER: other, REAL: [real[image] for image, _ in tested]}
            shares: dict[str, Any] = {
                name: _by_image(things, objects, tested, language) for name, things in seen.items()
            }
            np.savez(folder / f"recognised-{language}.npz", **shares)
            figures[language] = {"recognised_images": float(len(shares[DRAWN]))}
            for picture, values in shares.items():
                means = zip(MEASURES, values.mean(0).tolist(), strict=True)
                figures[language] |= {name_of(picture, measure): mean for measure, mean in means}
        return {"test": figures}

    name = trained.name.replace("vse-", "recognised-", 1)
    inputs = {"corpus": tested.corpus, "model": trained}
    return Job(name, "vse", VERSION, {"languages": listed}, inputs, run, False, asdict(settings.trainer), _headline)


def name_of(picture: str, measure: str) -> str:
    """The name of a figure: `recognised_objects_drawn`."""
    return f"recognised_{measure}_{picture}"


def _pixels(files: Mapping[str, Path], images: Sequence[str], size: int) -> NDArray[np.uint8]:
    """Pictures (N, 3, S, S) of images."""
    return np.stack([middle_square(files[image], size) for image in images])


def _tested(captions: Table, languages: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
    """Language → image id and text of each human test caption, in the table's order; only languages that have some."""
    pairs: dict[str, list[tuple[str, str]]] = {}
    for language, image, text in human_cells(captions, "test", "language", "image_id", "text"):
        if language in languages:
            pairs.setdefault(language, []).append((image, text))
    return pairs


def _by_image(
    seen: Sequence[AtPlaces], objects: Mapping[str, AtPlaces], tested: Sequence[tuple[str, str]], language: str
) -> NDArray[np.float64]:
    """Means over the captions of each image (I, 3) of what is right, images in the order of their first captions.

    Args:
        seen: what is recognised in the picture of each caption.
        objects: of each image.
        tested: image id and text of each caption.
    """
    shares: dict[str, list[list[float]]] = {}
    for at_places, (image, text) in zip(seen, tested, strict=True):
        shares.setdefault(image, []).append(right(at_places, objects[image], text, language))
    return np.array([np.mean(of_image, 0) for of_image in shares.values()])


def _headline(figures: Mapping[str, Any]) -> str:
    """Recognised objects by language, of the caption and of another one, as text."""
    shown = [
        f"{language} {scores[name_of(DRAWN, 'objects')]:.1f} % (of another caption "
        f"{scores[name_of(OTHER, 'objects')]:.1f})"
        for language, scores in figures["test"].items()
    ]
    return f"objects recognised: {', '.join(shown)}" if shown else "no human test captions in these languages"


def _objects(folder: Path, language: str, picture: str) -> Tensor:
    """Shares (I,) of whole objects in some pictures."""
    return read_values(folder, language, "recognised", picture)[:, 0]


def _gain(folder: Path, language: str) -> Tensor:
    """How many more objects (I,) are in the picture drawn of the caption than in that of another one."""
    return _objects(folder, language, DRAWN) - _objects(folder, language, OTHER)


def _lines(job: Job) -> Sequence[Line]:
    """The pictures that are drawn, those of another caption, the difference, and real pictures."""
    count, objects = "recognised_images", MEASURES[0]
    drawn, other, real = (
        Line(title, [name_of(picture, measure) for measure in MEASURES], count, partial(_objects, picture=picture))
        for picture, title in PICTURES.items()
    )
    gain = Line("the difference", [name_of(DRAWN, objects)], count, _gain, name_of(OTHER, objects))
    return [drawn, other, gain, real]


RECOGNISED = Analysis(
    recognised_job,
    "Objects in drawn pictures, {language}, {corpus}: share in % of the objects of a caption that the nearest training "
    "region recognises at their places",
    MEASURES,
    _lines,
    label="pictures",
    systems=True,
    beside_recall=True,
)
