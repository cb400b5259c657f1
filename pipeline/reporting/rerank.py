"""Tables of stage rerank: sets of features compared, beside published figures."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from modules.translators.nbest import scored_in
from pipeline.engine.job import Job
from pipeline.engine.machine import process_rank
from pipeline.graph import Graph
from pipeline.reporting.records import record, records_of, rounded
from pipeline.reporting.results import NOT_RUN, Figures, Subject
from pipeline.translation.nbest import comparison_table
from pipeline.translation.reranked import CHOICES, LOG_P, ORACLE
from pipeline.visualization.text_table import ONE_SEED, TextTable, shown_difference


def show_comparisons(graph: Graph, jobs: Sequence[Job]) -> None:
    """Record finished jobs of the stage, if the recipe asks for it, and print the comparisons of features."""
    if process_rank() > 0:
        return
    record(graph, jobs, {})
    for sheet in rerank_tables(Figures(graph, records_of(graph.recipe)), graph.comparisons):
        sheet.show()


def rerank_tables(figures: Figures, jobs: Mapping[str, Job]) -> list[TextTable]:
    """For each comparison BLEU, chrF and TER of each set of features, and what the own picture is worth."""
    tables, of_jobs = [], figures.own_scores(jobs.values())
    for name, job in jobs.items():
        system, _, direction = name.removeprefix("ablation-").partition("-")
        scores = of_jobs[job.key]
        if not scores:
            tables.append(TextTable(f"Re-ranking {system}-{direction}", ["features"], [[NOT_RUN]]))
            continue
        count, seeds = int(scores["test_sentences"]), figures.recipe.mmt.rerank.seeds
        over = "95 % over images and over the seeds of MIRA" if len(seeds) > 1 else f"95 %, {ONE_SEED}"
        size = figures.recipe.mmt.rerank.list_size
        title = (
            f"Re-ranking the {size}-best lists of {system}-{direction}, test, {count:,} sentences, {figures.label}; "
            f"weights by MIRA, mean of {len(seeds)} seeds; lower-cased; gains: {over}"
        )
        rows = [row for row in (LOG_P, *CHOICES, ORACLE) if f"{row} | BLEU" in scores]
        scored = scored_in(scores, rows)
        target = direction.partition("-")[2]
        for score in scored:
            metric, value, runs = score.measure.lower(), score.value, 1
            if score.gain is not None:
                metric, value, runs = f"{metric}-gain", score.gain.value, len(seeds)
            subject = Subject("test", system, f"{direction}, {score.system}", target, count)
            figures.add(subject, metric, value, rounded(score.gain), runs)
        sheet = comparison_table(title, scored)
        published = figures.recipe.mmt.rerank.published.get(direction, {})
        tables.append(replace(sheet, rows=[*sheet.rows, *_published(published)]))
        if own := [row for row in rows if f"{row} | BLEU | own" in scores]:
            by_image = scored_in(scores, own, " | own")
            shown = [[score.measure, *shown_difference(score.gain)] for score in by_image if score.gain]
            heads = ["own image − another", "difference", "95 %", "p"]
            title = f"Re-ranking {system}-{direction} by the own image or another one; {over}"
            tables.append(TextTable(title, heads, shown))
    return tables


def _published(systems: Mapping[str, Mapping[str, float]]) -> list[list[str]]:
    """Lines of published figures, each with its difference from the first system."""
    lines, first = [], next(iter(systems.values()), {})
    for system, figures in systems.items():
        for place, (measure, value) in enumerate(figures.items()):
            away = f"{value - first[measure]:+.1f}" if figures is not first and measure in first else ""
            lines.append(["" if place else f"{system}, published", measure, f"{value:.1f}", away, "", ""])
    return lines
