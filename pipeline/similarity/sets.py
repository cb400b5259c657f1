"""The sets of sentence pairs of a recipe, and what a job leaves of each."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from data.captions import read_captions
from data.sentences import sentence_hash
from data.sts import SentencePairs, gold_file, read_sts
from modules.metrics.sentence_similarity import Scores, pearson
from pipeline.engine.artifacts import read_arrays
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.recipes.settings import Recipe

CLEAN = "-clean"
"""Behind a set's name: only the pairs without a sentence of the training captions."""
_ARRAYS = ("prediction", "gold", "clean")


class Tested(NamedTuple):
    """A set as a job left it.

    Attributes:
        prediction: (N,) similarity of each pair.
        gold: (N,) its gold score.
        clean: (N,) bool, whether neither sentence is one of the training captions.
    """

    prediction: Scores
    gold: Scores
    clean: np.ndarray

    def part(self, clean: bool) -> tuple[Scores, Scores]:
        """Predictions and gold scores of all pairs, or of the clean ones."""
        return (self.prediction[self.clean], self.gold[self.clean]) if clean else (self.prediction, self.gold)


def set_files(recipe: Recipe) -> dict[str, Path]:
    """Name → file of the pairs."""
    return {name: Path(recipe.corpus.root or "") / path for name, path in recipe.sts.sets.items()}


def read_sets(recipe: Recipe) -> dict[str, SentencePairs]:
    """All sets of a recipe.

    Raises:
        DataError: a file is missing or not as expected.
        RecipeError: there is no data root.
    """
    if recipe.corpus.root is None:
        raise RecipeError("sts.sets: no data root; set BILDWORT_DATA=FOLDER or pass --corpus.root=FOLDER")
    return {name: read_sts(path) for name, path in set_files(recipe).items()}


def digests(recipe: Recipe, workspace: Workspace) -> dict[str, str | None]:
    """Name → a digest of the files' contents; None where they are not at hand, so that nothing is known of the set."""
    found: dict[str, str | None] = {}
    for name, path in set_files(recipe).items():
        files = [path, gold_file(path)]
        at_hand = recipe.corpus.root is not None and all(file.is_file() for file in files)
        found[name] = workspace.fingerprint(files) if at_hand else None
    return found


def training_text(folders: Iterable[Path], types: Collection[str]) -> list[str]:
    """The training captions of some types (`en/human`) in jobs' folders."""
    rows = (row for folder in folders for row in read_captions(folder / "captions.parquet").to_list())
    return [row["text"] for row in rows if row["split"] == "train" and f"{row['language']}/{row['source']}" in types]


def write_sets(
    folder: Path, pairs: Mapping[str, SentencePairs], predictions: Mapping[str, Scores], training: Sequence[str],
    language: str,
) -> dict[str, Any]:  # fmt: skip
    """Write the predictions for each set to `<set>.npz`.

    Args:
        folder: of the job.
        pairs: by set.
        predictions: (N,) by set.
        training: sentences of the training captions; a pair that holds one of them is not clean.
        language: of the pairs.

    Returns:
        figures by set, and by set with `CLEAN`, then by language: `pairs`, and `pearson` unless it is undefined.
    """
    seen, figures = {sentence_hash(text) for text in training}, {}
    for name, one in pairs.items():
        hashes = zip(map(sentence_hash, one.first), map(sentence_hash, one.second), strict=True)
        clean = np.array([seen.isdisjoint(pair) for pair in hashes])
        tested = Tested(predictions[name], np.array(one.gold), clean)
        np.savez(folder / f"{name}.npz", **tested._asdict())
        for title, part in ((name, tested.part(False)), (name + CLEAN, tested.part(True))):
            r = pearson(*part)
            figures[title] = {language: ({} if r is None else {"pearson": r}) | {"pairs": float(len(part[1]))}}
    return figures


def read_tested(folder: Path, name: str) -> Tested:
    """What `write_sets` wrote of a set.

    Raises:
        RecipeError: the file is missing or damaged.
    """
    return Tested(*read_arrays(folder / f"{name}.npz", _ARRAYS))


def headline(figures: Mapping[str, Any]) -> str:
    """Pearson's r of each set as text."""
    shown = []
    for name, by_language in figures.items():
        for scores in by_language.values():
            shown.append(f"{name} {scores['pearson']:.1f}" if "pearson" in scores else f"{name} undefined")
    return "r " + ", ".join(shown)
