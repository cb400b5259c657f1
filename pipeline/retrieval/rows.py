"""Rows of a table of retrieval models: what is trained, and how it is tested."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from data.corpora.scenes.corpus import ScenesSettings
from pipeline.engine.job import Job
from pipeline.engine.workspace import Workspace
from pipeline.recipes.retrieval_settings import VseSettings, slots_in
from pipeline.recipes.settings import Recipe


@dataclass(frozen=True)
class Row:
    """One line of the table: models trained on some captions with some seed, and the job that ranks the test by them.

    Attributes:
        name: of `vse.rows`.
        job: what ranks the test.
        trained: the jobs that train its models.
        system: the name of the line beside its figures: the model, the models fused, the model and its translator, the
        model and the one whose results it reranks; or what a table of the recipe calls it.
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


def languages_of(settings: VseSettings, row: str) -> list[str]:
    """Those that a row of `vse.rows` is trained on; of one that is not those that are tested: nobody knows better."""
    known = (
        {slot.language for slot in slots_in(settings.rows[row])} if settings.of_row(row).epochs else {*settings.test}
    )
    return sorted(known)


@dataclass(frozen=True)
class Trained:
    """A trained model, as an analysis of it needs it.

    Attributes:
        languages: of its training captions.
        shared: what analyses of the other rows of the table have found out, for this one.
    """

    job: Job
    corpus: Job
    recipe: Recipe
    languages: frozenset[str]
    workspace: Workspace
    shared: dict[str, Any] = field(default_factory=dict)

    @property
    def scenes(self) -> ScenesSettings | None:
        """The settings of the corpus, if it is `scenes`: no other one knows its objects."""
        options = self.recipe.corpus.options
        return options if isinstance(options, ScenesSettings) else None


def recall_headline(figures: Mapping[str, Any]) -> str:
    """Mean recall on test by language, and the epoch that was chosen if there was a training, as text."""
    scores = figures.get("test", {})
    recalls = ", ".join(f"{language} {scores[language]['mean_recall']:.1f}" for language in scores)
    chosen = f", epoch {figures['epoch']} of {figures['epochs']}" if "epoch" in figures else ""
    return f"mean recall {recalls}{chosen}"
