"""Stage rerank: re-ranked translators are tuned, and sets of features compared."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pipeline.retrieval.features  # noqa: F401 # gives re-ranked translators their retrieval model
from modules.intervals import Difference
from modules.surface_scores import SURFACE_MEASURES
from pipeline.drawing.text_table import TextTable, shown_difference
from pipeline.jobs.job import Job, chain
from pipeline.jobs.ranks import rank
from pipeline.jobs.workspace import Workspace
from pipeline.recipes.settings import Recipe
from pipeline.recipes.systems import CHANNEL, directions_of, members_of
from pipeline.reporting.records import add_records, read_records
from pipeline.reporting.results import NOT_RUN, ONE_SEED, Figures, finished_records
from pipeline.translation.choices import Scored, comparison_table
from pipeline.translation.mmt import translator_jobs, whose
from pipeline.translation.reranked import CHOICES, LOG_P, ORACLE, choices_job, lists_job


def rerank(recipe: Recipe, workspace: Workspace, force: bool = False) -> None:
    """Tune and test the re-ranked systems of `mmt.systems`, then compare sets of features and print the table.

    The retrieval model of the features is trained if stage vse has not trained it.

    Raises:
        RecipeError: a translator, or captions that the retrieval model learns from, are missing; the message says which
            command makes them.
    """
    recipe = whose(recipe)
    wanted, compared = rerank_jobs(recipe, workspace), choices_jobs(recipe, workspace)
    if not wanted:
        return
    workspace.expect(wanted, force)
    for job in wanted:  # before anything runs
        for other in job.inputs.values():
            if other.stage not in ("rerank", "vse"):
                workspace.require(other)
    models = [job for job in wanted if job.stage == "vse"]
    workspace.perform_many(models)
    workspace.perform_many([job for job in wanted if job.stage == "rerank"], force)
    workspace.note(recipe.name, "rerank", {job.name: job for job in wanted if job.stage == "rerank"})
    if rank() > 0:
        return
    if recipe.report.record:
        add_records(
            recipe.name, list(finished_records(workspace, [job for job in wanted if job.stage == "rerank"], recipe, {}))
        )
    for sheet in rerank_tables(Figures(recipe, workspace, read_records(recipe.name)), compared):
        sheet.show()


def rerank_jobs(recipe: Recipe, workspace: Workspace) -> list[Job]:
    """All jobs of the stage in order, before them the retrieval model of the features."""
    tuned = [job for job in translator_jobs(recipe, workspace).values() if job.stage == "rerank"]
    wanted = chain([*tuned, *choices_jobs(recipe, workspace).values()], "rerank")
    models = {one.key: one for job in wanted for one in job.inputs.values() if one.stage == "vse"}
    return [*models.values(), *wanted]


def choices_jobs(recipe: Recipe, workspace: Workspace) -> dict[str, Job]:
    """The comparisons of features: of the translators of each re-ranked system, else of the first, in each direction.

    There are none where `mmt.rerank` names neither a system nor a retrieval model.
    """
    mmt = recipe.mmt
    tuned = [one for one in mmt.systems if members_of(one)[1] not in (None, CHANNEL)]
    plain = [one for one in mmt.systems if members_of(one)[1] is None][:1] if mmt.rerank.retrieval else []
    jobs, found = translator_jobs(recipe, workspace), {}
    for system in dict.fromkeys("+".join(members_of(one)[0]) for one in tuned or plain):
        for direction in directions_of(mmt, system):
            job = choices_job(recipe, lists_job(recipe, workspace, system, direction, jobs))
            found[job.name] = job
    return found


def rerank_tables(figures: Figures, jobs: Mapping[str, Job]) -> list[TextTable]:
    """For each comparison BLEU, chrF and TER of each set of features, and what the own picture is worth."""
    found = []
    for name, job in jobs.items():
        system, _, direction = name.removeprefix("choices-").partition("-")
        scores = {metric: value for (_, metric), value in figures.scores(job).items()}
        if not scores:
            found.append(TextTable(f"Re-ranking {system}-{direction}", ["features"], [[NOT_RUN]]))
            continue
        count, seeds = int(scores["test_sentences"]), figures.recipe.mmt.rerank.seeds
        over = "95 % over images and over the seeds of MIRA" if len(seeds) > 1 else f"95 %, {ONE_SEED}"
        size = figures.recipe.mmt.rerank.list_size
        title = (
            f"Re-ranking the {size}-best lists of {system}-{direction}, test, {count:,} sentences, {figures.label}; "
            f"weights by MIRA, mean of {len(seeds)} seeds; lower-cased; gains: {over}"
        )
        rows = [row for row in (LOG_P, *CHOICES, ORACLE) if f"{row} | BLEU" in scores]
        scored = _read(scores, rows, "")
        for one in scored:
            low, high = (None, None) if one.gain is None else (round(one.gain.low, 4), round(one.gain.high, 4))
            metric = one.measure.lower() if one.gain is None else f"{one.measure.lower()}-gain"
            value, runs = one.value if one.gain is None else one.gain.value, 1 if one.gain is None else len(seeds)
            target = direction.partition("-")[2]
            figures.add("test", system, f"{direction}, {one.system}", target, metric, value, low, high, runs, count)
        sheet = comparison_table(title, scored)
        published = figures.recipe.mmt.rerank.published.get(direction, {})
        found.append(replace(sheet, rows=[*sheet.rows, *_published(published)]))
        if own := [row for row in rows if f"{row} | BLEU | own" in scores]:
            shown = [[one.measure, *shown_difference(one.gain)] for one in _read(scores, own, " | own") if one.gain]
            heads = ["own image − another", "difference", "95 %", "p"]
            title = f"Re-ranking {system}-{direction} by the own image or another one; {over}"
            found.append(TextTable(title, heads, shown))
    return found


def _published(systems: Mapping[str, Mapping[str, float]]) -> list[list[str]]:
    """Lines of published figures, each with its difference from the first system."""
    lines, first = [], next(iter(systems.values()), {})
    for system, figures in systems.items():
        for place, (measure, value) in enumerate(figures.items()):
            away = f"{value - first[measure]:+.1f}" if figures is not first and measure in first else ""
            lines.append(["" if place else f"{system}, published", measure, f"{value:.1f}", away, "", ""])
    return lines


def _read(scores: Mapping[str, float], rows: Sequence[str], end: str) -> list[Scored]:
    """Scores and gains of rows from a job's figures."""
    found = []
    for measure in SURFACE_MEASURES:
        for row in rows:
            name = f"{row} | {measure.name}{end}"
            parts = [scores.get(f"{name} {part}") for part in Difference._fields]
            known = [part for part in parts if part is not None]
            gain = Difference(*known) if len(known) == len(parts) else None
            found.append(Scored(row, measure.name, scores[name], gain))
    return found
