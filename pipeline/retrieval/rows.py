"""Rows of a table of retrieval models: what is trained, and how it is tested."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from data.corpora.scenes import ScenesSettings
from pipeline.engine.job import Job
from pipeline.engine.workspace import Workspace
from pipeline.recipes.settings import Recipe


@dataclass(frozen=True)
class Row:
    """One line of the table: models trained on some captions with some seed, and the job that ranks the test by them.

    Attributes:
        name: of `vse.rows`.
        seed: of its training.
        job: what ranks the test.
        trained: the jobs that train its models.
        system: the name of the line beside its figures: the model, the models fused, the model and its translator, or
        the model and the one whose results it reranks.
        languages: of its figures.
        unseen: which of them it was not trained on.
        analyses: name → what tells more of its one model; see `pipeline.analyses.registry`.
    """

    name: str
    seed: int
    job: Job
    trained: tuple[Job, ...]
    system: str
    languages: frozenset[str]
    unseen: frozenset[str]
    analyses: Mapping[str, Job] = field(default_factory=dict)

    @property
    def jobs(self) -> list[Job]:
        """What tests it: the ranks, and the analyses."""
        return [self.job, *self.analyses.values()]

    def title(self, language: str) -> str:
        """The label of its figures in a language; a language that it was not trained on is marked."""
        return f"{self.name} (not trained on {language})" if language in self.unseen else self.name


@dataclass(frozen=True)
class Trained:
    """A trained model, as an analysis of it needs it.

    Attributes:
        job: what trained it.
        corpus: the job that prepares its data.
        recipe: whose.
        languages: of its training captions.
    """

    job: Job
    corpus: Job
    recipe: Recipe
    languages: frozenset[str]

    @property
    def scenes(self) -> ScenesSettings | None:
        """The settings of the corpus, if it is `scenes`: no other one knows its objects."""
        options = self.recipe.corpus.options
        return options if isinstance(options, ScenesSettings) else None


Analysis = Callable[[Trained], Job | None]
"""Gives the job that analyses a model; None: there is nothing to analyse."""


@dataclass(frozen=True)
class Training:
    """What one row is trained on, before an evaluation decides which models are trained and how they are tested.

    Attributes:
        recipe: whose.
        workspace: its artifacts.
        corpus: the job that prepares its data.
        name: of `vse.rows`.
        seed: of the training.
        languages: of its training captions.
        train: the job that trains a model on them, by the model's name.
        translators: gives the recipe's translators by `system-direction`.
    """

    recipe: Recipe
    workspace: Workspace
    corpus: Job
    name: str
    seed: int
    languages: frozenset[str]
    train: Callable[[str], Job]
    translators: Callable[[], Mapping[str, Job]]

    def row(
        self, job: Job, trained: Collection[Job], system: str, languages: Collection[str] | None = None,
        unseen: Collection[str] | None = None,
    ) -> Row:  # fmt: skip
        """The line of the table.

        Args:
            job: what ranks the test.
            trained: the jobs that train the models it needs.
            system: what the line is called.
            languages: of its figures; None: all that are tested.
            unseen: which of them the models were not trained on; None: those without training captions.
        """
        shown = frozenset(self.recipe.vse.test if languages is None else languages)
        strange = shown - self.languages if unseen is None else frozenset(unseen)
        return Row(self.name, self.seed, job, tuple(trained), system, shown, strange)


def recall_headline(figures: Mapping[str, Any]) -> str:
    """Mean recall on test by language, as text."""
    scores = figures.get("test", {})
    return "mean recall " + ", ".join(f"{language} {scores[language]['mean_recall']:.1f}" for language in scores)


Evaluation = Callable[[Training], Row]
Cells = Sequence[tuple[str, str, Row]]
"""System, name and row of the lines of a table, seed by seed."""
