"""Stage report: every figure as a row, and tables of them in the terminal and in Markdown."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from data.text import words_of
from modules.metrics.rank_variance import mean_rank_variance, rank_variances
from modules.metrics.translation import NO_METEOR, TER_FORM, bleu_of, bleu_statistics, by_image, paired_gain
from pipeline.engine.console import info
from pipeline.engine.files import write_atomically
from pipeline.engine.job import Job
from pipeline.graph import Graph
from pipeline.recipes.systems import parse_path
from pipeline.reporting.analyses import analysis_tables
from pipeline.reporting.by_language import add_counts, language_figure
from pipeline.reporting.drawings import finished_drawings
from pipeline.reporting.page import report_page
from pipeline.reporting.paper_tables import paper_tables, variants_of
from pipeline.reporting.records import Result, add_records, read_records, write_results
from pipeline.reporting.rerank import rerank_tables
from pipeline.reporting.results import (
    COUNTS_OF_CAPTIONS,
    INTERVALS,
    NOT_RUN,
    ONE_SEED,
    R_AT_K,
    Figures,
    finished_records,
)
from pipeline.reporting.sts import sts_tables, sts_variants
from pipeline.retrieval.ranks import read_runs
from pipeline.retrieval.rows import Row
from pipeline.similarity.models import sts_rows
from pipeline.training.trainer import log_folder
from pipeline.translation.evaluation import read_translations
from pipeline.translation.incongruent_images import SHOWN
from pipeline.visualization.text_table import TextTable, shown_difference


class Written(NamedTuple):
    """A report that has been written.

    Attributes:
        folder: with `results.jsonl`, `report.md` and `report.html`.
        sheets: its tables.
        results: its figures.
    """

    folder: Path
    sheets: list[TextTable]
    results: list[Result]


def report(graph: Graph) -> None:
    """Run the stage and print all tables."""
    written = write_report(graph)
    folder = written.folder
    for sheet in written.sheets:
        sheet.show()
    for name in [*graph.recipe.refused, *(one for one in graph.recipe.tables if one not in graph.tables)]:
        info(f"table {name} cannot be made with these settings; `make table TABLE={name}` says why", colour="yellow")
    info(
        f"{len(written.results)} figures: {folder / 'results.jsonl'}; the tables: {folder / 'report.md'}, with plots: "
        f"{folder / 'report.html'}"
    )


def write_report(graph: Graph) -> Written:
    """Collect what has been run, write `results.jsonl`, `report.md` and `report.html`, record finished runs."""
    recipe, workspace, rows = graph.recipe, graph.workspace, graph.rows
    translators, looks, synthetic, compared = graph.translators, graph.incongruent, graph.synthesis, graph.comparisons
    translated = [job for job in synthetic.values() if job.stage == "augment"]
    similar = sts_rows(graph) if recipe.sts.sets else []
    variants = variants_of(graph) | sts_variants(similar)
    if recipe.report.record:
        of_tables = [row for cells in graph.tables.values() for _, _, row in cells]
        ranked = graph.retrieval_jobs([*rows, *of_tables])
        of_sentences = [row.job for row in similar if row.job is not None]
        kept = [*translators.values(), *looks.values(), *translated, *ranked, *of_sentences, *compared.values()]
        add_records(recipe.name, list(finished_records(workspace, kept, recipe, variants)))
    figures = _ReportTables(graph, read_records(recipe.name), variants)
    cut = recipe.vse.folds > 1 and not recipe.vse.ranked_by
    named = [(row.system, row.name, row) for row in rows]
    sheets = [
        figures.translators(translators),
        figures.gains(translators),
        figures.looks(looks),
        figures.diversity(synthetic),
        *(figures.retrieval(rows, language) for language in recipe.vse.test),
        *(figures.retrieval(rows, language, folds=True) for language in recipe.vse.test if cut),
        *(figures.differences_of_rows(rows, language) for language in recipe.vse.test),
        figures.across_languages(rows),
        *analysis_tables(figures, named, recipe.vse.test),
        *(sheet for name in graph.tables for sheet in paper_tables(name, figures)),
        *sts_tables(figures, similar),
        *rerank_tables(figures, compared),
        figures.costs(
            [
                graph.corpus,
                *translators.values(),
                *translated,
                *graph.retrieval_jobs(rows),
            ]
        ),
    ]
    sheets = [sheet for sheet in sheets if sheet.rows]
    add_counts(figures, rows)
    pictures = language_figure(figures.results, recipe.report.language_parameters)
    folder = workspace.root / recipe.name / "report"
    write_results(figures.results, folder / "results.jsonl")
    write_atomically(folder / "report.md", "\n\n".join(sheet.as_markdown() for sheet in sheets) + "\n")
    title, trained = f"{recipe.name}: {figures.label}", [*translators.values(), *(row.job for row in rows)]
    report_page(
        folder / "report.html", title, sheets, figures.results,
        lambda job: log_folder(recipe, job.name, job.key), trained, [*pictures, *finished_drawings(graph)],
    )  # fmt: skip
    return Written(folder, sheets, figures.results)


_SHOWN = ("val_bleu", "test_bleu", "test_bleu_tokenised", "test_chrf", "test_ter", "ambiguous", "swapped_ambiguous",
          "other_words")  # fmt: skip


_RATES = ("distinct_1", "distinct_2", "pairwise_bleu", "mean_words")
_MEASURES = (("bleu", "tokenised BLEU", 1), ("loglik", "log p a token", 3), ("ambiguous", "ambiguous words", 1))


class _ReportTables(Figures):
    """The report's tables."""

    def translators(self, jobs: dict[str, Job]) -> TextTable:
        """BLEU of each translator on test, and its accuracy on words that only the picture disambiguates."""
        table, twins = [], False
        for name, job in jobs.items():
            if name.startswith(("text-", "back-")):  # no translators
                continue
            system, _, direction = name.partition("-")
            target = direction.partition("-")[2]
            scores = self.scores(job)
            if not scores:
                table.append([name, *[NOT_RUN] * 8])
                continue
            for metric in sorted(scores):
                of_split = metric[1].partition("_")[2] in ("bleu", "bleu_tokenised", "chrf", "ter")
                if metric[0] == "" and (of_split or "ambiguous" in metric[1] or "other_words" in metric[1]):
                    split, _, rest = metric[1].partition("_") if of_split else ("twins", "", metric[1])
                    count = int(scores.get(("", f"{split}_sentences"), 0))
                    self.add(split, system, direction, target, rest, scores[metric], None, None, 1, count)
            shown = [scores.get(("", key)) for key in _SHOWN]
            twins = twins or shown[5] is not None
            table.append([name, *("–" if value is None else f"{value:.1f}" for value in shown)])
        heads = [
            "translator",
            "val BLEU",
            "test BLEU",
            "tokenised",
            "chrF",
            "TER",
            "ambiguous words %",
            "… with the twin's picture",
            "other words %",
        ]
        if not twins:
            heads, table = heads[:6], [row[:6] for row in table]
        signatures = [self._manifest_metric(job, "bleu_signature") for job in jobs.values() if self.workspace.done(job)]
        signature = next(filter(None, signatures), "sacreBLEU")
        title = f"Translation, {self.label} ({signature}; tokenised: Moses, lower-cased; {TER_FORM}; {NO_METEOR})"
        return TextTable(title, heads, table)

    def gains(self, jobs: dict[str, Job]) -> TextTable:
        """Test BLEU of each system less that of the first of its direction, on the same sentences; not of NMT."""
        table, first = [], dict[str, tuple[str, Tensor]]()
        for name, job in jobs.items():
            system, _, direction = name.partition("-")
            folder = self.workspace.folder(job)
            if name.startswith(("text-", "back-", "nmt")) or not (folder / "test.parquet").is_file():
                continue
            target, rows = direction.partition("-")[2], read_translations(folder, "test")
            references = [words_of(row["reference"], target) for row in rows]
            statistics = bleu_statistics([row["tokens"] for row in rows], references)
            ours = by_image(statistics, [row["image_id"] for row in rows])
            base, theirs = first.setdefault(direction, (system, ours))
            if base == system:
                continue
            d = paired_gain(ours, theirs, bleu_of, self.recipe.report.resamples)
            self.add("test", system, direction, target, f"bleu_tokenised-{base}", d.value, d.low, d.high, 1, len(rows))
            table.append([f"{name} − {base}", *shown_difference(d)])
        heads = ["difference", "tokenised BLEU", "95 %", "p"]
        return TextTable(f"Paired differences of translators over the same test images; 95 %, {ONE_SEED}", heads, table)

    def looks(self, jobs: dict[str, Job]) -> TextTable:
        """The incongruent-image test of each MMT: its own regions, and the loss with another image's and with zeros."""
        table = []
        for name, job in jobs.items():
            found = {metric: value for (_, metric), value in self.scores(job).items()}
            if "own_bleu" not in found:
                table += [] if self.workspace.done(job) else [[name, NOT_RUN, *[""] * 3]]
                continue
            system, _, direction = name.partition("-")
            target = direction.partition("-")[2]
            n = int(found["looks_sentences"])
            measures = [one for one in _MEASURES if f"own_{one[0]}" in found]
            for place, (measure, title, digits) in enumerate(measures):
                cells = []
                for shown in SHOWN:
                    value, gain = found[f"{shown}_{measure}"], f"own-{shown}_{measure}"
                    row = f"{direction}, {shown} regions"
                    self.add("test", system, row, target, measure, value, None, None, 1, n)
                    cells.append(f"{value:.{digits}f}")
                    if gain in found:
                        less, low, high = (found[gain + end] for end in ("", "_low", "_high"))
                        self.add("test", system, row, target, f"own-{shown} {measure}", less, low, high, 1, n)
                        low, less, high = (0.0 - bound for bound in (high, less, low))
                        cells[-1] += f"; {less:+.{digits}f} ({low:+.{digits}f} … {high:+.{digits}f})"
                title += f" of {found['choices']:.0f}" if measure == "ambiguous" else ""
                table.append(["" if place else name, title, *cells])
        heads = ["translator", "", "its own", "another image's", "zeros"]
        return TextTable(
            f"Incongruent-image test, {self.label}, by the regions it is shown; 95 %, {ONE_SEED}", heads, table
        )

    def diversity(self, jobs: dict[str, Job]) -> TextTable:
        """Different tokens of the training captions before and after adding each path's captions."""
        rows = []
        for path, job in jobs.items():
            found = {metric: value for (_, metric), value in self.scores(job).items()}
            if not found:
                rows.append([path, *[NOT_RUN] * 10])
                continue
            system, languages, _ = parse_path(path)
            measures = [(name, 0) for name in COUNTS_OF_CAPTIONS] + [(name, 1) for name in _RATES]
            count, cells = int(found["captions"]), []
            for name, digits in measures:
                self.add("train", system, path, languages[-1], name, found[name], None, None, 1, count)
                cells.append(f"{found[name]:,.{digits}f}")
            rows.append([path, *cells])
        heads = ["path", "captions", "before", "after", "new", "= parent", "= human", "dist-1", "dist-2", "pair BLEU",
                 "words"]  # fmt: skip
        title = "Lexical diversity of training captions: different tokens before, after, in the new ones alone"
        return TextTable(title, heads, rows)

    def retrieval(self, rows: Sequence[Row], language: str, folds: bool = False) -> TextTable:
        """R@K of each row in one language, mean over seeds, with a bootstrap interval of the mean recall.

        With `folds` the means over folds of the test images instead, without intervals.
        """
        table = []
        for name, named in _by_name(rows).items():
            jobs = [row.job for row in named]
            if language not in named[0].languages:
                table.append([name, "–", *[""] * 9])
                continue
            name = named[0].title(language)
            cell = self.cell(jobs, named[0].system, name, language, folds)
            table.append([name, *(cell.shown("mean_recall") if cell else [NOT_RUN, *[""] * 9])])
        heads = ["trained on", *R_AT_K, "mean recall", "95 %", "val rsum", "seeds"]
        where = (
            f"test, mean of {self.recipe.vse.folds} folds"
            if folds
            else f"test{self.size((row.job for row in rows), language)}"
        )
        over = "" if folds else f"; {INTERVALS}"
        return TextTable(
            f"Retrieval, {rows[0].system}, {language}, {where}, {self.label} ({self.task_of(language)}){over}",
            heads, table,
        )  # fmt: skip

    def differences_of_rows(self, rows: Sequence[Row], language: str) -> TextTable:
        """Mean recall of each row against the first one that has this language, on the same images and seeds."""
        jobs = {
            name: {row.seed: row.job for row in named if self.workspace.done(row.job)}
            for name, named in _by_name(rows).items()
            if language in named[0].languages - named[0].unseen
        }
        names = [name for name, finished in jobs.items() if finished]
        pairs = [
            (f"{name} − {base}", jobs[name], jobs[base])
            for place, base in enumerate(names[:2]) for name in names[place + 1 :]
        ]  # fmt: skip
        title = f"Paired differences over the same {language} test images ({self.task_of(language)})"
        return self.differences(title, pairs, language, "mean_recall")

    def across_languages(self, rows: Sequence[Row]) -> TextTable:
        """How unequally each row finds an image in the languages that it was trained on, and what a probe finds."""
        table, resamples = [], self.recipe.report.resamples
        for name, named in _by_name(rows).items():
            languages = sorted(named[0].languages - named[0].unseen)
            jobs = [row.job for row in named if self.workspace.done(row.job)]
            if len(languages) < 2 or not jobs:
                continue
            runs = read_runs([self.workspace.folder(job) for job in jobs], languages)
            if (found := mean_rank_variance(runs, resamples)) is None:
                continue
            n, among, system = len(rank_variances(runs[0])), "+".join(languages), named[0].system
            low, high = round(found.low, 4), round(found.high, 4)
            task = "+".join(sorted({self.task_of(language) for language in languages}))
            self.add("test", system, name, among, "rank_variance", found.value, low, high, len(runs), n, task)
            probed = [
                scores["", "language_probe"] for scores in map(self.scores, jobs) if ("", "language_probe") in scores
            ]
            if probed:
                value = sum(probed) / len(probed)
                self.add("test", system, name, among, "language_probe", value, None, None, len(probed), 0, task)
            shown = f"{value:.1f} (chance {100 / len(languages):.1f})" if probed else "–"
            table.append(
                [name, among, f"{found.value:.1f}", f"{low:.1f} … {high:.1f}", f"{n:,}", str(len(runs)), shown]
            )
        heads = ["trained on", "languages", "rank variance", "95 %", "images", "seeds", "language probe %"]
        title = (
            f"Across languages, {self.label}: variance of an image's rank (0: found equally well; 95 % over images), "
            "and how often a probe finds the language of a universal vector"
        )
        return TextTable(title, heads, table)

    def costs(self, jobs: Sequence[Job]) -> TextTable:
        """Wall time, CPU time and peak memory of each job that ran here."""
        rows = []
        for job in jobs:
            if self.workspace.done(job):
                m = self.workspace.manifest(job)
                wall = f"{m['wall_s']:.0f}" + (" (resumed)" if m["resumed"] else "")
                rows.append([job.stage, job.name, wall, f"{m['cpu_s']:.0f}", f"{m['peak_memory_mb']:.0f}"])
        return TextTable("Cost", ["stage", "job", "wall s", "CPU s", "peak MB"], rows)

    def _manifest_metric(self, job: Job, name: str) -> Any:
        return self.workspace.manifest(job)["metrics"].get(name)


def _by_name(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows of one name, seed by seed."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.name, []).append(row)
    return found
