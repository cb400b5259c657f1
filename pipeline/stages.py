"""The stages: what each performs, in which order, and what it says when it has ended.

A stage reads artifacts of the stages before it and leaves its own, so stages run one by one, on different machines too.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from data.captions.table import read_captions
from pipeline.analyses.forgetting import require_second_set
from pipeline.corpus.prepare import say_corpus
from pipeline.engine.console import debug, info
from pipeline.engine.job import Job, topological_order
from pipeline.engine.machine_errors import explained
from pipeline.engine.runner import Runner
from pipeline.engine.workspace import Workspace
from pipeline.graph import Graph
from pipeline.recipes.settings import Recipe
from pipeline.reporting.drawings import trained_drawings
from pipeline.reporting.paper_tables import table_jobs
from pipeline.reporting.rerank import show_comparisons
from pipeline.reporting.sts import sts_jobs
from pipeline.retrieval.preconditions import advise_on_languages
from pipeline.retrieval.vse import require_parts, require_written, say_recall
from pipeline.translation.augment import say_captions
from pipeline.translation.mmt import require_lenders, say_scores

Jobs = Sequence[Job]


def _nothing(graph: Graph) -> None:
    """Nothing is needed."""


@dataclass(frozen=True)
class Stage:
    """One step of the work.

    Attributes:
        name: `make stage-<name>` runs it.
        jobs: what it performs, in order: its own jobs, perhaps after some of other stages that they need.
        summary: says what its own jobs, all finished, have found.
        check: refuses, before anything runs, what the jobs would fail by.
        require: refuses, once the corpus is prepared, what they would fail by.
        of_translators: it works for the recipe that trains the translators.
    """

    name: str
    jobs: Callable[[Graph], list[Job]]
    summary: Callable[[Graph, Jobs], None]
    check: Callable[[Graph], None] = _nothing
    require: Callable[[Graph], None] = _nothing
    of_translators: bool = False

    def graph_of(self, graph: Graph) -> Graph:
        """The graph that it works on, of a recipe's own."""
        return graph.of_translators if self.of_translators else graph


def _translators(graph: Graph) -> list[Job]:
    return [*(job for job in graph.translators.values() if job.stage == "mmt"), *graph.incongruent.values()]


def _after_corpora(graph: Graph, jobs: Jobs) -> list[Job]:
    """Jobs, after what prepares other corpora that they read: that of borrowed captions, a second data set."""
    needed_jobs = [needed for job in jobs for needed in job.inputs.values()]
    others = {job.key: job for job in needed_jobs if job.stage == "prepare" and job.key != graph.corpus.key}
    return [*others.values(), *jobs]


def _rerankers(graph: Graph) -> list[Job]:
    """Tuned translators and comparisons, after the retrieval model of their features."""
    tuned = [job for job in graph.translators.values() if job.stage == "rerank"]
    wanted = topological_order([*tuned, *graph.comparisons.values()], "rerank")
    models = {model.key: model for job in wanted for model in job.inputs.values() if model.stage == "vse"}
    return [*models.values(), *wanted]


def _require_written(graph: Graph) -> None:
    corpus = graph.workspace.folder(graph.corpus)
    captions = read_captions(corpus / "captions.parquet")
    if graph.recipe.corpus.name == "folder":  # of a published set its reader wants some
        advise_on_languages(graph.recipe.vse, captions, graph.recipe.augment.paths)
    require_written(graph.recipe.vse, captions, corpus)
    require_second_set(graph.recipe, graph.workspace)


PREPARE = Stage(
    "prepare", lambda graph: [graph.corpus], lambda graph, jobs: say_corpus(graph.recipe, graph.workspace, graph.corpus)
)
_STAGES = (
    PREPARE,
    Stage(
        "mmt", _translators, lambda graph, jobs: say_scores(graph.workspace, jobs),
        require=lambda graph: require_lenders(graph.recipe, graph.workspace, graph.translators), of_translators=True,
    ),
    Stage(
        "augment",
        lambda graph: _after_corpora(graph, [job for job in graph.synthesis.values() if job.stage == "augment"]),
        lambda graph, jobs: say_captions(graph.workspace, jobs),
    ),
    Stage(
        "vse", lambda graph: _after_corpora(graph, graph.retrieval_jobs(graph.all_rows)),
        lambda graph, jobs: say_recall(graph.workspace, graph.all_rows, graph.recipe.vse.folds),
        lambda graph: require_parts(graph.recipe), _require_written,
    ),
    Stage("rerank", _rerankers, show_comparisons, of_translators=True),
)  # fmt: skip
STAGES = {stage.name: stage for stage in _STAGES}
"""The stages that perform jobs, in order; after them comes the report."""


@dataclass(frozen=True)
class _Part:
    """A stage of a run, the graph that it works on, and what it performs: one job or more."""

    stage: Stage
    graph: Graph
    jobs: list[Job]

    @property
    def own(self) -> list[Job]:
        """Its jobs without those of other stages that they need."""
        return [job for job in self.jobs if job.stage == self.stage.name]


def run_stages(names: Sequence[str], graph: Graph, runner: Runner, force: bool = False) -> None:
    """Perform stages, each job as soon as what it needs is done; the corpus is prepared first if it is not.

    Args:
        names: of `STAGES`, in their order.
        force: the stages' own jobs run again if they are done.

    Raises:
        RecipeError: an artifact of a stage that is not among them is missing; the message says which command makes it.
    """
    if PREPARE.name in names and len(names) > 1:  # its corpus says what the others can do
        run_stages([PREPARE.name], graph, runner, force)
    parts = [_part(name, graph) for name in names if name != PREPARE.name or len(names) == 1]
    parts = [part for part in parts if part.jobs]
    if not parts:
        info(f"{', '.join(names)}: no jobs with these settings")
    for recipe in [graph.recipe, *(part.graph.recipe for part in parts)]:
        graph.workspace.claim(recipe.name, recipe.file)
    for part in parts:
        runner.expect(part.jobs if part.stage is PREPARE else [part.graph.corpus])
    for part in parts:
        runner.expect(part.jobs, force)
    jobs = {job.key: job for part in parts for job in part.jobs}
    own = {job.key: job for part in parts for job in part.own}
    made = {*jobs, *(part.graph.corpus.key for part in parts)}
    wanted = [needed for job in jobs.values() for needed in job.inputs.values() if needed.key not in made]
    for needed in wanted:
        if needed.stage not in (PREPARE.name, *names):  # of these, `require` may say more
            graph.workspace.require(needed)
    for part in parts:
        if part.stage is not PREPARE and not graph.workspace.done(part.graph.corpus):
            run_stages([PREPARE.name], part.graph, runner)
        with explained(part.stage.name):
            part.stage.require(part.graph)
    for needed in wanted:
        graph.workspace.require(needed)
    try:
        runner.run([job for key, job in jobs.items() if key not in own])
        runner.run(own.values(), force)
    finally:
        for part in parts:
            if all(graph.workspace.done(job) for job in part.own):
                graph.workspace.note(part.graph.recipe.name, part.stage.name, {job.name: job for job in part.own})
    for part in parts:
        with explained(part.stage.name):
            part.stage.summary(part.graph, part.own)


def _part(name: str, graph: Graph) -> _Part:
    """A stage of a run, whose jobs can be done as far as that can be told before the corpus is there.

    Raises:
        RecipeError: they cannot.
    """
    with explained(name):
        stage, own_name = STAGES[name], graph.recipe.name
        graph = stage.graph_of(graph)
        jobs = stage.jobs(graph)
        if jobs:
            stage.check(graph)
            if graph.recipe.name != own_name:
                debug(f"the translators of {own_name} are those of {graph.recipe.name}")
        return _Part(stage, graph, jobs)


def all_jobs(graph: Graph) -> list[Job]:
    """The jobs of all stages, in the order in which they run.

    Raises:
        RecipeError: a row of `vse` cannot be trained.
    """
    graph.all_rows  # noqa: B018  # refuses what cannot be trained before anything else
    jobs = [job for stage in STAGES.values() for job in stage.jobs(stage.graph_of(graph))]
    return list({job.key: job for job in jobs}.values())


def jobs_of(command: str, recipe: Recipe, workspace: Workspace, table: str | None = None) -> list[Job]:
    """The jobs that a command performs unless they are done.

    Args:
        command: a stage, `report`, `all`, `table`, `sts` or `draw`.
        table: the name of the table, of `table`.

    Raises:
        RecipeError: what the command itself refuses before it performs the first job.
    """
    graph = Graph(recipe, workspace)
    if (stage := STAGES.get(command)) is not None:
        graph = stage.graph_of(graph)
        jobs = stage.jobs(graph)
        return [graph.corpus, *jobs] if jobs and stage is not PREPARE else jobs
    makers: dict[str, Callable[[], list[Job]]] = {
        "report": list, "all": lambda: all_jobs(graph), "sts": lambda: sts_jobs(graph),
        "draw": lambda: trained_drawings(graph), "table": lambda: topological_order(table_jobs(graph, table)),
    }  # fmt: skip
    return makers[command]()
