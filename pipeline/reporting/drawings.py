"""Pictures of what trained retrieval models look at, of their joint space (t-SNE), and of what they generate."""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from data.captions.described_images import DescribedImages
from data.text.characters import lowered
from data.text.languages import language_name
from data.text.text_inputs import TextInput, WordVocabulary
from modules.retrieval_models import RetrievalModel, model_class
from modules.retrieval_models.encoded import encoded_captions, encoded_images
from modules.retrieval_models.generated import drawn_pictures
from modules.search.joint_space import encoded_contents
from pipeline.analyses.generated import SEARCH
from pipeline.corpus.prepare import pictures_of
from pipeline.engine.console import command, info, stage_command
from pipeline.engine.job import Job
from pipeline.engine.machine import process_rank
from pipeline.engine.runner import Runner
from pipeline.errors import RecipeError
from pipeline.graph import Graph
from pipeline.recipes.retrieval_settings import slots_in
from pipeline.recipes.settings import Recipe
from pipeline.retrieval.generation import written_captions
from pipeline.similarity.models import models_of
from pipeline.training.model_files import load_model
from pipeline.training.trainer import log_folder
from pipeline.vectors.images import images_in, test_inputs
from pipeline.visualization.dashboards import log_pictures
from pipeline.visualization.grounding import grounded, grounding_figure
from pipeline.visualization.joint_space import known_words, plane_figure, word_vectors
from pipeline.visualization.pictures import (
    BLACK,
    GREEN,
    GREY,
    Line,
    Shown,
    cut_out,
    of_generator,
    picture_sheet,
    read_thumbnail,
)
from pipeline.visualization.plots import as_pixels, png_of

VERSION = 3
JOINT_SPACE = "joint space/t-SNE"
WORD_VECTORS = "word vectors/t-SNE"
GENERATION = "generation"
"""Tag and file of the picture of what a model generates."""
GALLERY = 1000
"""Test images whose captions can be retrieved, at most."""
_GENERATED, _SEED = 6, 0  # images
_LANGUAGES = 2  # at most, side by side
_GROUNDED = 3  # images
_SPACE = 150  # images of the joint space, their captions of a language, and regions
_WORDS = 25  # of a language
_LEAST = 4  # words in the plane: t-SNE of fewer says nothing
_SIZE = 320  # pixels of the longer side of a picture
_OF_SPACE = "Each region is encoded as an image of one region, each word as a caption of one word; near is similar."
_OF_WORDS = "Each word by its word vector, with which the model begins to read captions; near is similar."


def draw(graph: Graph, runner: Runner, force: bool = False) -> None:
    """Draw all retrieval models of a recipe that have been trained.

    Raises:
        RecipeError: none has been trained.
    """
    workspace, trained = graph.workspace, trained_drawings(graph)
    runner.expect(trained, force)
    runner.run(trained, force)
    if process_rank() > 0:
        return
    workspace.note(graph.recipe.name, "draw", {job.name: job for job in trained})
    info("the pictures:")
    for job in trained:
        info(f"  {workspace.folder(job)}")
    if left := len(drawing_jobs(graph)) - len(trained):
        again = command("draw", target=["draw"])
        info(f"{left} not drawn: run {stage_command('vse')}, then again `{again}`")


def trained_drawings(graph: Graph) -> list[Job]:
    """Those of `drawing_jobs` whose model has been trained.

    Raises:
        RecipeError: none has been.
    """
    trained = [job for job in drawing_jobs(graph) if graph.workspace.done(job.inputs["model"])]
    if not trained:
        raise RecipeError(f"no retrieval model of these settings has been trained; run {stage_command('vse')}")
    return trained


def drawing_jobs(graph: Graph) -> list[Job]:
    """A job for each retrieval model of a recipe's rows, trained or not."""
    jobs = dict[tuple[str, str], Job]()
    for settings, row, trained, table in models_of(graph):
        if not table and (trained.name, trained.key) not in jobs:
            title = f"{trained.settings['model']} trained on {row.name}, seed {row.seed}"
            drawing = _drawing_job(graph.recipe, graph.corpus, trained, title, settings.pretrained)
            jobs[trained.name, trained.key] = drawing
    return list(jobs.values())


def finished_drawings(graph: Graph) -> list[tuple[str, bytes]]:
    """Title and PNG file of what has been drawn, model by model."""
    workspace = graph.workspace
    jobs = [job for job in drawing_jobs(graph) if workspace.done(job)]
    paths = [(job, path) for job in jobs for path in sorted(workspace.folder(job).glob("*.png"))]
    return [(f"{job.inputs['model'].name}, {path.stem}", path.read_bytes()) for job, path in paths]


def _drawing_job(recipe: Recipe, corpus: Job, trained: Job, title: str, pretrained: str | None) -> Job:
    """Draw one model, and show the same in the TensorBoard folder of its training."""
    learned = {slot.language for slot in slots_in(trained.settings["groups"])}
    languages = [language for language in recipe.vse.test if language in learned][:_LANGUAGES] or recipe.vse.test[:1]

    kind, options = model_class(trained.settings["model"]), trained.settings["options"]
    generates = kind.writes_with(**options) or kind.draws_with(**options)
    chosen = {language: words for language, words in recipe.report.words.items() if language in languages}

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Leave the pictures."""
        model, text = load_model(inputs["model"], pretrained)
        prepared = inputs["corpus"]
        images = DescribedImages(prepared / "captions.parquet", images_in(inputs), pictures_of(prepared), languages)
        frequent = images.frequent_words(_WORDS, text.by)
        figures, known = {JOINT_SPACE: _joint_space(model, text, images, frequent, title)}, dict[str, list[str]]()
        if isinstance(text, WordVocabulary):
            known = known_words(chosen or frequent, text)
            if sum(map(len, known.values())) >= _LEAST:
                vectors = word_vectors(model, text, known)
                figures[WORD_VECTORS] = plane_figure(f"{title}: its word vectors", _OF_WORDS, vectors, known)
        lacks = images.lacks_places()
        if not lacks:
            for number, image_id in enumerate(images.ids[:_GROUNDED], 1):
                figures[f"grounding/{number}"] = _grounding(model, text, images, image_id, title)
        pictures = {tag: as_pixels(figure) for tag, figure in figures.items()}
        if generates:
            ids = images.ids[:GALLERY]
            regions = images.store.take(images.store.rows(ids))
            sheet = generation_sheet(model, text, ids, regions, images.pictures, images.captions)
            pictures[GENERATION] = np.asarray(sheet)
        for tag, pixels in pictures.items():
            (folder / _file_of(tag)).write_bytes(png_of(pixels))
        log_pictures(log_folder(recipe, trained.name, trained.key), pictures)
        unknown = [
            word
            for language, words in chosen.items()
            for word in words
            if lowered(word, language) not in known.get(language, [])
        ]
        return {"grounded": 0 if lacks else len(images.ids[:_GROUNDED]), "lacks": lacks, "unknown_words": unknown}

    name, inputs = trained.name.replace("vse-", "draw-", 1), test_inputs(trained, corpus)
    plain = {"languages": languages, "words": chosen} | ({GENERATION: True} if generates else {})
    return Job(name, "draw", VERSION, plain, inputs, run, headline=_headline)


def _file_of(tag: str) -> str:
    """The file of a picture that TensorBoard shows by this tag: `joint-space.png`, `grounding-1.png` …"""
    return f"{tag.removesuffix('/t-SNE').replace('/', '-').replace(' ', '-')}.png"


def _headline(figures: Mapping[str, Any]) -> str:
    """What was drawn, as text."""
    lacks, count = figures["lacks"], figures["grounded"]
    unknown = figures["unknown_words"]
    drawn = f"t-SNE; no grounding: {lacks}" if lacks else f"t-SNE, grounding of {count} images"
    return drawn + (f"; no word vectors of {', '.join(unknown)}" if unknown else "")


def _picture(images: DescribedImages, image_id: str) -> Image.Image | None:
    """The picture of an image; None where it is not at hand."""
    return read_thumbnail(images.pictures.get(image_id), _SIZE)


def _grounding(model: RetrievalModel, text: TextInput, images: DescribedImages, image_id: str, title: str) -> Figure:
    """What a model looks at in one image."""
    (row,) = images.store.rows([image_id])
    regions, boxes = images.store.regions[row], images.store.boxes[row]
    captions = [(known[image_id], language) for language, known in images.captions.items() if image_id in known]
    shown = grounded(model, text.encode, regions, captions, text.by)
    return grounding_figure(f"{title}: what it looks at in {image_id}", _picture(images, image_id), boxes, *shown)


def _joint_space(
    model: RetrievalModel, text: TextInput, images: DescribedImages, words: Mapping[str, Sequence[str]], title: str
) -> Figure:
    """Images, captions, words and regions in the plane."""
    ids = images.ids[:_SPACE]
    rows, count = images.store.rows(ids), images.store.num_regions
    regions, boxes = images.store.regions[rows], images.store.boxes[rows]
    total = len(ids) * count if count > 1 else 0  # the region of an image that has no other is the image
    some = random.Random(0).sample(range(total), min(_SPACE, total))

    def crop(place: int) -> Image.Image | None:
        """The picture of a region."""
        image, region = divmod(some[place], count)
        return cut_out(_picture(images, ids[image]), boxes[image, region])

    some_regions = regions.reshape(-1, images.store.dim)[some]
    captions = {language: [known[image] for image in ids if image in known]
                for language, known in images.captions.items()}  # fmt: skip
    vectors = encoded_contents(model, text.encode, regions, some_regions, captions, words)
    return plane_figure(f"{title}: its joint space", _OF_SPACE, vectors, words, crop)


def generation_sheet(
    model: RetrievalModel, text: TextInput, ids: Sequence[str], regions: NDArray[np.floating],
    pictures: Mapping[str, Path], captions: Mapping[str, Mapping[str, str]],
) -> Image.Image:  # fmt: skip
    """A contact sheet of the first images, each with what the model draws of its human caption, and its captions.

    Retrieved is the caption of the highest score among the human ones of all images.

    Args:
        model: writes captions, or draws pictures, or both.
        ids: of test images.
        regions: (N, R, D) of them.
        pictures: image id → file; those that are not at hand are grey.
        captions: language → image id → a human caption.
    """
    lines: dict[str, list[Line]] = {image: [] for image in ids[:_GENERATED]}
    for language, known in captions.items():
        if not (gallery := [(known[image], language) for image in ids if image in known]):
            continue
        with torch.no_grad():
            images = encoded_images(model, regions[:_GENERATED])
            best = model.similarity(images, encoded_captions(model, text.encode, gallery)).argmax(1).tolist()
        written = written_captions(model, text, regions[:_GENERATED], language, SEARCH) if model.writes else []
        for place, image in enumerate(ids[:_GENERATED]):
            lines[image] += [
                (f"{language_name(language)}, human: {known.get(image, '–')}", BLACK),
                (f"retrieved: {gallery[best[place]][0]}", GREY),
                *((f"generated: {generated or '(empty)'}", GREEN) for generated in written[place : place + 1]),
            ]
    rows: list[tuple[list[Shown], list[Line]]] = []
    for image in ids[:_GENERATED]:
        shown: list[Shown] = [pictures.get(image)]
        if model.draws:
            language, caption = next((language, known[image]) for language, known in captions.items() if image in known)
            shown.append(of_generator(drawn_pictures(model, text.encode, [(caption, language)], _SEED)[0]))
            lines[image].append((f"drawn: of the human caption in {language_name(language)}", GREEN))
        rows.append((shown, lines[image]))
    return picture_sheet(rows)
