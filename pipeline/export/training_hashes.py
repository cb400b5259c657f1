"""What an exported model has seen in training, so that a figure on other data says how much of it is among that.

What pretrained networks and translators have learned from is not in it.
"""

from pathlib import Path
from typing import Any

from data.batches.taught import rows_of
from data.captions.table import HUMAN
from data.evaluation.seen import TRAIN, VAL, TrainingHashes
from data.text.sentences import RULE
from pipeline.corpus.prepare import pictures_of
from pipeline.engine.console import info_aside
from pipeline.engine.job import Job
from pipeline.engine.machine_errors import of_machine
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.recipes.retrieval_settings import slots_in
from pipeline.vectors.teaching import teacher_of

SEEN = "seen.safetensors"


def hashes_of(trained: Job, workspace: Workspace) -> TrainingHashes | None:
    """What the training of a retrieval model, and of its teacher, has seen: captions, their images, validation.

    Pictures that are not at hand, or cannot be read, have no hash. None if a table of captions is gone.
    """
    split: dict[str, list[dict[str, Any]]] = {TRAIN: [], VAL: []}
    for training in filter(None, (trained, teacher_of(trained))):
        if training.settings["epochs"] and not _add(training, workspace, split):
            return None
    corpus = workspace.folder(trained.inputs["corpus"])
    images, pictures = {row["image_id"] for own in split.values() for row in own}, pictures_of(corpus)
    digest_of = workspace.digests(path for name, path in pictures.items() if name in images)
    return TrainingHashes.of_rows(
        split, {name: digest_of[path] for name, path in pictures.items() if path in digest_of}
    )


def exported_hashes(folder: Path) -> TrainingHashes | None:
    """What the model of a folder has seen; None if it was exported without.

    Raises:
        RecipeError: they are damaged.
    """
    path = folder / SEEN
    if not path.is_file():
        return None
    try:
        seen = TrainingHashes.load(path)
    except Exception as error:  # safetensors raises its own error
        step = "get the model folder again, or export it again"
        raise of_machine(error, path) or RecipeError(f"{path}: not readable ({error!r}); {step}") from None
    if seen.rule != RULE:
        info_aside(f"{folder}: exported by another version, which compared sentences in another way: which ones it has "
                   "seen is not known; export it again")  # fmt: skip
    return seen


def _add(trained: Job, workspace: Workspace, split: dict[str, list[dict[str, Any]]]) -> bool:
    """Add the rows of the captions that a training has seen; false if a table of captions is gone."""
    slots = slots_in(trained.settings["groups"])
    types, sources = {slot.type for slot in slots}, {slot.source for slot in slots} - {HUMAN}
    tables = {name: trained.inputs[name] for name in ("corpus", *sorted(sources))}
    if not all(map(workspace.done, tables.values())):
        return False
    for row in rows_of({name: workspace.folder(job) for name, job in tables.items()}, types):
        if row["split"] == VAL or (row["split"] == TRAIN and f"{row['language']}/{row['source']}" in types):
            split[row["split"]].append(row)
    return True
