"""What a dual encoder forgets in training: its mean recall on a second data set, before and after."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from data.evaluation.evaluation_set import EvaluationSet
from data.pictures.network_pixels import NetworkPixels
from data.pictures.pixels import VectorStore, files_of
from data.text.text_inputs import TextInput
from modules.metrics.intervals import Difference, paired_difference
from modules.metrics.retrieval import RetrievalRanks, retrieval_scores
from modules.retrieval_models import RetrievalModel, model_class
from modules.retrieval_models.encoded import sorted_captions
from modules.search.ranking import ranks_by_index
from pipeline.analyses.description import Analysis, Line
from pipeline.analyses.sets import SecondSet, second_set
from pipeline.engine.job import Job
from pipeline.engine.workspace import Workspace
from pipeline.errors import as_recipe_error
from pipeline.recipes.settings import Recipe
from pipeline.recipes.trainer_settings import TrainerSettings
from pipeline.recipes.typed import located
from pipeline.retrieval.ranks import read_ranks, write_ranks
from pipeline.retrieval.rows import Trained
from pipeline.training.model_files import device_of, load_model
from pipeline.vectors.image_vectors import DUAL, whole_network, write_vectors
from pipeline.vectors.images import IMAGES

VERSION = 1
BEFORE, AFTER = "before", "after"
"""Folders of the ranks by the network as it was, and by the trained one."""
CHANGE = f"{AFTER}-{BEFORE}"
_MEASURE = "mean_recall"
_START, _SECOND, _SETTING = "start", "second", "vse.forgetting"


def forgetting_job(tested: Trained) -> Job | None:
    """Rank a second data set (`vse.forgetting`) by a trained dual encoder, beside the ranks of the untrained one.

    The ranks of each language of the set are left in `before` and `after`: in a gallery of all its images.

    Returns:
        None without such a set, for a model that is no dual encoder, that is not trained, or whose images are vectors
        of another network.

    Raises:
        RecipeError: there is no such set.
    """
    trained, settings = tested.job, tested.recipe.vse
    if settings.forgetting is None or settings.model != DUAL or not settings.epochs:
        return None
    network, name = str(trained.settings["pretrained"]), str(settings.pretrained)  # a folder by its files; its name
    frozen = model_class(DUAL).vectors_with(**settings.options)
    if frozen and trained.inputs[IMAGES].settings.get("pretrained") != network:
        return None
    if _SECOND not in tested.shared:
        tested.shared[_SECOND] = _second(tested.recipe, tested.workspace)
    second: SecondSet = tested.shared[_SECOND]
    start = _start_job(name, network, second, settings.trainer)

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Encode, rank, compare."""
        on = second.read(inputs)
        model, text = load_model(inputs["model"], name)
        model.to(device_of(settings.trainer))
        if not frozen:
            write_vectors(folder, model, NetworkPixels(name), _pictures(on), {})
        images = VectorStore(inputs[_START] if frozen else folder)
        before = {language: read_ranks(inputs[_START], language) for language in on.languages}
        after = _ranks(model, text, images, on)
        for part, ranks in ((BEFORE, before), (AFTER, after)):
            (folder / part).mkdir(exist_ok=True)
            write_ranks(folder / part, ranks)
        return {"test": {language: _figures(before[language], ranks) for language, ranks in after.items()}}

    inputs = {"model": trained, _START: start, **second.inputs}
    job_name = trained.name.replace("vse-", "forgetting-", 1)
    return Job(job_name, "vse", VERSION, dict(second.settings), inputs, run, False, asdict(settings.trainer), _headline)


def _start_job(name: str, network: str, second: SecondSet, trainer: TrainerSettings) -> Job:
    """Encode the pictures of a second set by a network as it is, and rank the set by it: once for all rows and seeds.

    Args:
        network: what stands for it in the key.
    """

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Encode and rank."""
        on = second.read(inputs)
        model, text, reader = whole_network(name, on.languages)
        model.to(device_of(trainer))
        write_vectors(folder, model, reader, _pictures(on), {})
        write_ranks(folder, _ranks(model, text, VectorStore(folder), on))
        return {"images": len(on.images), "captions": len(on.captions)}

    settings = {"network": network, **second.settings}
    return Job("forgetting-start", "vse", VERSION, settings, dict(second.inputs), run, False, asdict(trainer),
               lambda figures: f"{figures['captions']:,} captions of {figures['images']:,} images")  # fmt: skip


def require_second_set(recipe: Recipe, workspace: Workspace) -> None:
    """Refuse, before the first row is trained, a second data set that cannot be read or has images without pictures.

    That of a corpus is looked at if it is prepared.
    """
    settings = recipe.vse
    rows = [settings.of_row(row) for row in settings.only or settings.rows]
    if settings.forgetting is None or settings.ranked_by or not any(row.model == DUAL and row.epochs for row in rows):
        return
    second = _second(recipe, workspace)
    if all(map(workspace.done, second.inputs.values())):
        with located(_SETTING), as_recipe_error():
            on = second.read({name: workspace.folder(job) for name, job in second.inputs.items()})
        _pictures(on)


def _second(recipe: Recipe, workspace: Workspace) -> SecondSet:
    with located(_SETTING), as_recipe_error():
        return second_set(str(recipe.vse.forgetting), recipe.lent, workspace)


def _pictures(on: EvaluationSet) -> dict[str, Path]:
    """Image id → file of the images with captions; RecipeError where one has none."""
    images = on.images
    with located(_SETTING), as_recipe_error():
        return dict(zip(images, files_of(on.pictures, images, "name another data set"), strict=True))


def _ranks(model: RetrievalModel, text: TextInput, store: VectorStore, on: EvaluationSet) -> dict[str, RetrievalRanks]:
    """Language → ranks in the gallery of all images of a set; a dual encoder reads all languages by the same tower."""
    images, ranks = on.images, dict[str, RetrievalRanks]()
    place = {name: row for row, name in enumerate(images)}
    vectors = torch.from_numpy(store.regions[store.rows(images)][:, 0].copy())
    for language in on.languages:
        own = [caption for caption in on.captions if caption.language == language]
        read = [(caption.text, model.languages[0]) for caption in own]
        captions = sorted_captions(model, text.encode, read).single().float()
        ranks[language] = ranks_by_index(vectors, captions, torch.tensor([place[one.image_id] for one in own]))
    return ranks


def _figures(before: RetrievalRanks, after: RetrievalRanks) -> dict[str, float]:
    """Mean recall before and after, and the difference; how many images have captions."""
    ends = {part: retrieval_scores(ranks)[_MEASURE] for part, ranks in ((BEFORE, before), (AFTER, after))}
    figures = {f"{_MEASURE}_{part}": value for part, value in ends.items()}
    figures[f"{_MEASURE}_{CHANGE}"] = ends[AFTER] - ends[BEFORE]
    return figures | {"forgetting_images": float((after.image_to_text > 0).sum())}


def _headline(figures: Mapping[str, Any]) -> str:
    """Mean recall on the second set before and after by language, as text."""
    shown = [f"{language} {scores[f'{_MEASURE}_{BEFORE}']:.1f} → {scores[f'{_MEASURE}_{AFTER}']:.1f}"
             for language, scores in figures["test"].items()]  # fmt: skip
    return f"mean recall on the second set {', '.join(shown)}"


def change(folders: Sequence[Path], language: str, resamples: int) -> Difference:
    """The paired difference of mean recall, after − before, over the images of the second set and over seeds.

    Raises:
        RecipeError: a file is missing or damaged.
    """
    after, before = ([read_ranks(folder / part, language) for folder in folders] for part in (AFTER, BEFORE))
    return paired_difference(after, before, resamples)[_MEASURE]


def _lines(job: Job) -> Sequence[Line]:
    return [
        Line("", [f"{_MEASURE}_{part}" for part in (BEFORE, AFTER, CHANGE)], "forgetting_images", None, ends=change)
    ]


FORGETTING = Analysis(
    forgetting_job,
    "Forgetting, {corpus}: mean recall of dual encoders on this second data set before and after training",
    [BEFORE, AFTER, "difference"],
    _lines,
    tested=2,
    label="language",
    systems=True,
    optional=True,
    split="second set",
    beside_recall=True,
    of_second_set=True,
)
