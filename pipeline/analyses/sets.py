"""What a model is tested on beside its own test: human captions and pictures of a folder, or of a recipe's corpus."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from data.captions.table import listed_captions
from data.corpora.registry import CORPORA
from data.errors import DataError
from data.evaluation.evaluation_set import EvaluationSet
from data.findings.report import data_report
from data.own_captions.corpus import read_found
from data.own_captions.detection import look_at
from data.pictures.images import unreadable
from pipeline.corpus.doctor import read_corpus
from pipeline.corpus.prepare import about_corpus, corpus_job, pictures_digest, pictures_of
from pipeline.engine.console import counted, info_aside
from pipeline.engine.job import Job
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.recipes.loading import load_recipe
from pipeline.recipes.settings import Recipe

RECIPE = "recipe:"
"""What the name of a data set begins with where it is the corpus of a recipe."""
_SECOND = "second"


def set_of_folder(folder: Path, split: str | None) -> EvaluationSet:
    """The pictures and captions of a folder, found as `init` finds them; what cannot be read is told and left out.

    Args:
        folder: of both; a file `captions.tsv` in it comes before others.
        split: train, val or test, as the captions name them or, without splits, as `init` draws them; None: all
            captions.

    Raises:
        DataError: something is missing, or a line does not fit.
        RecipeError: there is no such folder, or nothing in the split.
    """
    if not folder.is_dir():
        raise RecipeError(
            f"--on {folder}: no such folder; expected one with pictures and captions, recipe:NAME, or mteb:TASK"
        )
    captions = folder / "captions.tsv"
    _, corpus = read_found(look_at(folder, captions if captions.is_file() else None))
    corpus.require_pictures()
    on = EvaluationSet.of_split(str(folder), split, corpus.captions, corpus.pictures)
    unread = unreadable({name: on.pictures[name] for name in on.images if name in on.pictures}, whole=True)
    if broken := list(unread.values()):
        if len(broken) == len(on.images):
            raise DataError(broken[0])
        info_aside(f"{folder}: left out {counted(len(broken), 'pictures')} that cannot be read, with their captions: "
                   f"{'; '.join(broken[:3])}{' …' if len(broken) > 3 else ''}")  # fmt: skip
    return replace(on, captions=[caption for caption in on.captions if caption.image_id not in unread])


def set_of_recipe(recipe: Recipe, workspace: Workspace, split: str | None) -> EvaluationSet:
    """The corpus of a recipe, as stage `prepare` has left it; a corpus that is a test set as its files are.

    Args:
        split: of the corpus; None: test.

    Raises:
        DataError: the files of a test set do not fit.
        RecipeError: it has not been prepared, has no captions by people in this split, or, a test set, would spoil
            results.
    """
    if CORPORA[recipe.corpus.name].test_only:
        return _of_test_set(recipe, split or "test")
    return _of_corpus(workspace.require(corpus_job(recipe, workspace)), split or "test")


@dataclass(frozen=True)
class SecondSet:
    """A data set beside the recipe's own, that a job reads: the test of another recipe, or all captions of a folder.

    Attributes:
        settings: what of it changes the key of the job: digests of its files.
        inputs: the job that prepares it, by the name of the input; none of files that are read as they are.
        read: gives it, from the folders of the inputs.
    """

    settings: Mapping[str, Any]
    inputs: Mapping[str, Job]
    read: Callable[[Mapping[str, Path]], EvaluationSet]


def second_set(name: str, lent: Sequence[str], workspace: Workspace) -> SecondSet:
    """The data set that a setting names.

    Args:
        name: a folder of pictures and captions, or `recipe:NAME`.
        lent: overrides that the other recipe gets too (`Recipe.lent`).

    Raises:
        DataError: a file is missing.
        RecipeError: there is no such folder or recipe.
    """
    if not name.startswith(RECIPE):
        folder = Path(name)
        if not folder.is_dir():
            raise RecipeError(f"{name}: no such folder; expected one with pictures and captions, or recipe:NAME")
        files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
        return SecondSet({"files": workspace.fingerprint(files)}, {}, lambda inputs: set_of_folder(folder, None))
    if name == RECIPE:
        raise RecipeError(f"{name} names no recipe; expected the name of one behind it, or its YAML file")
    recipe = load_recipe(name.removeprefix(RECIPE), lent, networks=False)
    corpus, reader = recipe.corpus, CORPORA[recipe.corpus.name]
    if not reader.test_only:
        pictures = {"pictures": pictures_digest(recipe, workspace)}
        inputs = {_SECOND: corpus_job(recipe, workspace)}
        return SecondSet(pictures, inputs, lambda inputs: _of_corpus(inputs[_SECOND], "test"))
    sources = reader.sources(corpus.options, None if corpus.root is None else Path(corpus.root))
    settings = {"corpus": corpus.name, "options": asdict(corpus.options), "files": workspace.fingerprint(sources)}
    return SecondSet(settings, {}, lambda inputs: _of_test_set(recipe, "test"))


def _of_corpus(corpus: Path, split: str) -> EvaluationSet:
    """Of a prepared corpus, by its folder."""
    label, captions = about_corpus(corpus)["label"], listed_captions(corpus / "captions.parquet")
    return EvaluationSet.of_split(label, split, captions, pictures_of(corpus), corpus / "regions")


def _of_test_set(recipe: Recipe, split: str) -> EvaluationSet:
    content = read_corpus(recipe, Path())  # a test set makes no pictures
    report = data_report(replace(content, pictures={}), None)  # pictures and regions are checked when they are read
    if report.errors:
        worst = report.errors[0]
        raise RecipeError(
            f"{content.label}: {worst.what} ({worst.count}×, {worst.where}: {', '.join(worst.examples[:3])}); correct "
            "the data; `bildwort doctor` with the same recipe and settings shows all findings"
        )
    regions = content.regions if isinstance(content.regions, Path) else None
    return EvaluationSet.of_split(content.label, split, content.captions, content.pictures, regions)
