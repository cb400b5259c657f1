"""Image-text retrieval tasks of `mteb` (https://github.com/embeddings-benchmark/mteb), by its own protocol.

mteb is an optional extra and is imported when a task is asked for.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset, Image
from numpy.typing import NDArray

from data.errors import one_line
from data.evaluation.seen import TrainingHashes, picture_hash
from data.pictures.images import formats_restricted
from data.text.language_codes import NLLB, spellings
from modules.pretrained.hub import ask_hub
from pipeline.errors import RecipeError
from pipeline.evaluation.measure import Measured, known_languages, overlaps_of
from pipeline.export.exported_model import ExportedModel
from pipeline.export.training_hashes import exported_hashes

CATEGORIES = {"t2i": ("queries", "corpus"), "i2t": ("corpus", "queries")}
"""Category of a task → the parts of its data that hold captions, and images."""
NDCG = "ndcg_at_10"
"""mteb's own figure of these tasks, in percent."""
_CUTS = (1, 5, 10)


class BenchmarkEncoder:
    """An exported model as mteb's `EncoderProtocol`.

    Args:
        exported: the model; of one vector an item, compared by inner product.
        languages: subset of the task → the model's language of its captions.

    Raises:
        RecipeError: the model has no single vectors.
    """

    def __init__(self, exported: ExportedModel, languages: Mapping[str, str]) -> None:
        exported.require_single()
        self.exported, self.languages = exported, languages

    @property
    def mteb_model_meta(self) -> Any:
        """Name, fingerprint and modalities."""
        from mteb.models.model_meta import ModelMeta

        about = {"name": f"bildwort/{self.exported.name}", "revision": self.exported.fingerprint,
                 "modalities": ["text", "image"]}  # fmt: skip
        return ModelMeta.create_empty(overwrites=about)

    def encode(self, inputs: Iterable[Mapping[str, Any]], *, hf_subset: str, **_: Any) -> NDArray[np.float32]:
        """Vectors (N, H) of batches with `text`, or with `image` (pictures of Pillow).

        Args:
            hf_subset: whose language the captions are in.
        """
        vectors = []
        for batch in inputs:
            items = batch["image"] if "image" in batch else list(batch["text"])
            vectors.append(self.exported.encode(items, None if "image" in batch else self.languages[hf_subset]))
        return np.concatenate(vectors)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> torch.Tensor:
        """Inner products (N, M) of vectors (N, H) and (M, H)."""
        return torch.as_tensor(embeddings1) @ torch.as_tensor(embeddings2).T

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> torch.Tensor:
        """Inner products (N,) of vectors (N, H) and (N, H), pair by pair."""
        return (torch.as_tensor(embeddings1) * torch.as_tensor(embeddings2)).sum(dim=-1)


def benchmark_task(name: str) -> Any:
    """A task of mteb by its name, an `AbsTaskRetrieval`; nothing is loaded yet.

    Raises:
        RecipeError: mteb is not installed, or has no such task, or the task is not image-text retrieval.
    """
    try:
        import mteb
    except ImportError as error:
        raise RecipeError(
            f"--on mteb:{name}: not installed ({error}); `make setup EXTRA=benchmarks` adds mteb"
        ) from None
    try:
        task = mteb.get_task(name)
    except KeyError as error:
        reason = str(error.args[0]).removeprefix("KeyError: ")
        raise RecipeError(f"--on mteb:{name}: mteb {mteb.__version__} has no such task ({reason}); name one such as "
                          "XM3600T2IRetrieval or Multi30kI2TRetrieval") from None  # fmt: skip
    if task.metadata.category not in CATEGORIES or not str(task.metadata.type).endswith("Retrieval"):
        raise RecipeError(f"--on mteb:{name}: a task of kind {task.metadata.category}, {task.metadata.type}; expected "
                          "retrieval of images by text (t2i) or of text by images (i2t)")  # fmt: skip
    return task


def all_languages(task: Any) -> list[str]:
    """The languages of a task, as corpora write them (`de`) where they have two letters."""
    return sorted({*_by_subset(task, NLLB).values()})


def languages_of_task(exported: ExportedModel, task: Any) -> tuple[dict[str, str], list[str]]:
    """Subset → language, of the subsets of a task that are in languages of the model; the other subsets.

    Raises:
        RecipeError: there are no such subsets.
    """
    languages = _by_subset(task, exported.languages)
    known = known_languages(exported, {*languages.values()}, f"mteb:{task.metadata.name}")
    chosen = {subset: language for subset, language in languages.items() if language in known}
    return chosen, sorted(languages.keys() - chosen.keys())


def _by_subset(task: Any, known: Iterable[str]) -> dict[str, str]:
    """Subset → language, as it is written among the known ones; of another language a code of its own."""
    spelled = {code: language for language in known for code in spellings(language)}
    languages: dict[str, str] = {}
    for subset, scripts in task.metadata.hf_subsets_to_langscripts.items():
        codes = [subset, *(script.partition("-")[0] for script in scripts)]
        languages[subset] = next((spelled[code] for code in codes if code in spelled), codes[-1])
    return languages


def measure_task(exported: ExportedModel, task: Any, languages: Mapping[str, str], split: str | None) -> list[Measured]:
    """Run a task in some of its subsets: mteb ranks, and counts ties as they come.

    Args:
        languages: subset → language of the model.
        split: of the task; None: those that it is scored on.

    Raises:
        RecipeError: the model has no single vectors or reads no pictures, the task has no such split, or its data
            cannot be loaded.
    """
    encoder, seen = BenchmarkEncoder(exported, languages), exported_hashes(exported.folder)
    exported.require_pixels()
    if split is not None and split not in task.eval_splits:
        splits = ", ".join(task.eval_splits)
        raise RecipeError(
            f"--split {split}: mteb:{task.metadata.name} is scored on {splits}; name one of these, or none"
        )
    import mteb

    task.hf_subsets = list(languages)
    task.filter_eval_splits([split] if split else None)
    _load(task)
    with formats_restricted():
        result = mteb.evaluate(encoder, task, cache=None, co2_tracker=False, show_progress_bar=False)
    return [
        _measured(task, name, languages[scores["hf_subset"]], scores, seen)
        for name, of_subsets in result.task_results[0].scores.items()
        for scores in of_subsets
    ]


def _load(task: Any) -> None:
    """Load a task's data, from the hub or the cache."""
    ask_hub()
    try:
        task.load_data()
        task.convert_v1_dataset_format_to_v2(num_proc=None)
    except Exception as error:  # of mteb, datasets, the hub's client, the network
        reason = one_line(error)
        raise RecipeError(
            f"--on mteb:{task.metadata.name}: its data cannot be loaded ({reason}); it comes from the hub: run this "
            "where there is internet, or measure on pictures of your own, --on FOLDER"
        ) from None


def _measured(task: Any, split: str, language: str, scores: Mapping[str, Any], seen: TrainingHashes | None) -> Measured:
    """Figures of one subset, and what the model has seen of it."""
    data, (of_captions, of_images) = task.dataset[scores["hf_subset"]][split], CATEGORIES[str(task.metadata.category)]
    texts, images = list(data[of_captions]["text"]), data[of_images]
    figures = {NDCG: (100 * scores[NDCG], None, None)}
    figures |= {f"{task.metadata.category}_r{k}": (100 * scores[f"hit_rate_at_{k}"], None, None) for k in _CUTS}
    overlaps = overlaps_of(seen, None, [] if seen is None else list(_picture_hashes(images)), texts)
    return Measured(language, split, len(images), len(images), len(texts), figures, overlaps)


def _picture_hashes(images: Dataset) -> Iterator[int]:
    """The hash of each picture's file, as the data set holds it."""
    for row in images.select_columns(["image"]).cast_column("image", Image(decode=False)):
        held = row["image"]
        content = Path(held["path"]).read_bytes() if held["bytes"] is None else held["bytes"]
        yield picture_hash(hashlib.sha256(content).hexdigest())
