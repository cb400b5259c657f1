"""The sets of sentence pairs of a recipe, and what a job leaves of each."""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from data.batches.taught import rows_of
from data.evaluation.sts import SentencePairs, gold_file, read_sts
from data.text.sentences import sentence_hash
from modules.metrics.sentence_similarity import Scores, pearson
from pipeline.engine.artifacts import read_arrays
from pipeline.engine.job import Job
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.recipes.settings import Recipe

VERSION = 1
CLEAN = "-clean"
"""Behind a set's name: only the pairs without a sentence of the training captions."""
Predict = Callable[[Mapping[str, Path], Mapping[str, SentencePairs], Sequence[str], str], Mapping[str, Scores]]
"""From the folders of a job's inputs, the pairs of each set, training captions and the language of the pairs, a
similarity of each pair."""
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


def digests_of_sets(recipe: Recipe, workspace: Workspace) -> dict[str, str | None]:
    """Name → a digest of the files' contents; None where they are not at hand, so that nothing is known of the set."""
    fingerprints: dict[str, str | None] = {}
    for name, path in set_files(recipe).items():
        files = [path, gold_file(path)]
        at_hand = recipe.corpus.root is not None and all(file.is_file() for file in files)
        fingerprints[name] = workspace.fingerprint(files) if at_hand else None
    return fingerprints


def sts_job(
    name: str,
    recipe: Recipe,
    settings: Mapping[str, Any],
    inputs: dict[str, Job],
    types: Collection[str],
    predict: Predict,
) -> Job:
    """A job that predicts the similarity of the pairs of each set, and leaves `<set>.npz`.

    Its figures are by set, and by set with `CLEAN`, then by language: `pairs`, and `pearson` unless it is undefined.

    Args:
        settings: of the job, beside the language of the pairs.
        inputs: the corpus, what wrote synthetic captions, and what `predict` needs.
        types: of training captions (`en/human`); a pair that holds a sentence of one of these is not clean.
    """
    language, sources = recipe.sts.language, {kind.partition("/")[2] for kind in types}

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Leave the predictions for each set."""
        folders = {source: path for source, path in inputs.items() if source == "corpus" or source in sources}
        training = _training_text(folders, types)
        pairs, figures = read_sets(recipe), {}
        predictions, seen = predict(inputs, pairs, training, language), {sentence_hash(text) for text in training}
        for title, of_set in pairs.items():
            hashes = zip(map(sentence_hash, of_set.first), map(sentence_hash, of_set.second), strict=True)
            clean = np.array([seen.isdisjoint(pair) for pair in hashes])
            tested = Tested(predictions[title], np.array(of_set.gold), clean)
            np.savez(folder / f"{title}.npz", **tested._asdict())
            figures[title] = {language: _scores(*tested.part(clean=False))}
            figures[title + CLEAN] = {language: _scores(*tested.part(clean=True))}
        return figures

    return Job(name, "sts", VERSION, {"language": language, **settings}, inputs, run, headline=_headline)


def _training_text(folders: Mapping[str, Path], types: Collection[str]) -> list[str]:
    """The training captions of some types in jobs' folders, by their source."""
    rows = rows_of(folders, types)
    return [row["text"] for row in rows if row["split"] == "train" and f"{row['language']}/{row['source']}" in types]


def _scores(prediction: Scores, gold: Scores) -> dict[str, float]:
    r = pearson(prediction, gold)
    return ({} if r is None else {"pearson": r}) | {"pairs": float(len(gold))}


def read_tested(folder: Path, name: str) -> Tested:
    """What an `sts_job` left of a set.

    Raises:
        RecipeError: the file is missing or damaged.
    """
    return Tested(*read_arrays(folder / f"{name}.npz", _ARRAYS))


def _headline(figures: Mapping[str, Any]) -> str:
    """Pearson's r of each set as text."""
    shown = []
    for name, by_language in figures.items():
        for scores in by_language.values():
            shown.append(f"{name} {scores['pearson']:.1f}" if "pearson" in scores else f"{name} undefined")
    return "r " + ", ".join(shown)
