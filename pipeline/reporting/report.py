"""Stage report: every figure as a row, and tables of them in the terminal and in Markdown."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from torch import Tensor

from data.text.languages import language_name
from data.text.tokenisation import words_of
from modules.metrics.rank_variance import mean_rank_variance, rank_variances
from modules.metrics.translation import NO_METEOR, TER_FORM, bleu_of, bleu_statistics, by_image, paired_gain
from pipeline.engine.console import info
from pipeline.engine.job import Job
from pipeline.graph import Graph
from pipeline.recipes.systems import parse_path, parse_system
from pipeline.reporting.analyses import analysis_tables
from pipeline.reporting.by_language import add_counts, language_table
from pipeline.reporting.drawings import finished_drawings
from pipeline.reporting.opening import as_reranked, on_regions, sentences, trained_on
from pipeline.reporting.page import Page, write_pages
from pipeline.reporting.paper_tables import paper_tables, variants_of
from pipeline.reporting.records import COUNTS_OF_CAPTIONS, own_results, record, records_of, rounded, write_results
from pipeline.reporting.rerank import rerank_tables
from pipeline.reporting.results import INTERVALS, NOT_RUN, R_AT_K, Figures, Seeds, Subject, by_line
from pipeline.reporting.sts import sts_tables, sts_variants
from pipeline.retrieval.ranks import read_runs
from pipeline.similarity.models import sts_rows
from pipeline.training.trainer import log_folder
from pipeline.translation.evaluation import read_translations
from pipeline.translation.incongruent_images import SHOWN
from pipeline.visualization.text_table import ONE_SEED, TextTable, shown_difference, shown_interval


def report(graph: Graph) -> None:
    """Run the stage and print all tables."""
    page = write_report(graph)
    folder = page.folder
    for sheet in page.sheets:
        sheet.show()
    for sentence in page.sentences:
        info(sentence)
    for name, why in graph.refused_tables.items():
        info(f"table {name} cannot be made with these settings: {why}", colour="yellow")
    info(
        f"{len(page.results)} figures: {folder / 'results.jsonl'}; the tables: {folder / 'report.md'}, with plots: "
        f"{folder / 'report.html'}"
    )


def write_report(graph: Graph) -> Page:
    """Collect what has been run, write `results.jsonl`, `report.md` and `report.html`, record finished runs.

    Raises:
        RecipeError: nothing has been run, and an earlier report has figures; or --force is replacing a job.
    """
    recipe, workspace, rows = graph.recipe, graph.workspace, graph.rows
    translators, looks, synthetic, compared = graph.translators, graph.incongruent, graph.synthesis, graph.comparisons
    translated = [job for job in synthetic.values() if job.stage == "augment"]
    similar = sts_rows(graph) if recipe.sts.sets else []
    made = [*translators.values(), *looks.values(), *synthetic.values(), *compared.values()]
    workspace.require_settled([*made, *graph.retrieval_jobs(graph.all_rows)])
    variants = variants_of(graph) | sts_variants(similar)
    if recipe.report.record:
        ranked = graph.retrieval_jobs([*rows, *chain.from_iterable(graph.tables.values())])
        ranked += filter(None, (row.job for row in similar))
        kept = [*translators.values(), *looks.values(), *translated, *ranked, *compared.values()]
        record(graph, kept, variants)
    figures = _ReportTables(graph, records_of(recipe), variants)
    cut = recipe.vse.folds > 1 and not recipe.vse.ranked_by
    lines, second = by_line(rows), by_line(filter(None, [graph.reranker]))
    sheets = [
        figures.translators(translators),
        figures.gains(translators),
        figures.looks(looks),
        figures.diversity(synthetic),
        *(figures.retrieval(some, language) for some in (lines, second) for language in recipe.vse.test),
        *(figures.retrieval(lines, language, folds=True) for language in recipe.vse.test if cut),
        *(figures.differences_of_rows(lines, language) for language in recipe.vse.test),
        figures.across_languages(lines),
        *analysis_tables(figures, rows, recipe.vse.test),
        *(sheet for name in graph.tables for sheet in paper_tables(name, figures)),
        *sts_tables(figures, similar),
        *rerank_tables(figures, compared),
        figures.costs([graph.corpus, *translators.values(), *translated, *graph.retrieval_jobs(graph.all_rows)]),
    ]
    add_counts(figures, rows)
    sheets.append(language_table(figures.results, recipe.report.language_parameters))
    sheets = [sheet for sheet in sheets if sheet.rows]
    folder = workspace.of_recipe(recipe.name, recipe.file) / "report"
    write_results(figures.results, folder / "results.jsonl")
    trained = [*translators.values(), *(row.job for row in rows)]
    dates = [workspace.manifest(job).get("finished", "")[:10] for job in trained if workspace.done(job)]
    title = recipe.name if recipe.name == figures.label else f"{recipe.name}: {figures.label}"
    own = own_results(figures.results)
    page = Page(
        folder, title, max(dates, default=""),
        [
            *sentences(recipe.vse, lines, own, figures.compared),
            *as_reranked(graph, second, own),
            *on_regions(recipe, {row.name for row in rows}),
        ],
        {row.name: trained_on(recipe.vse.rows[row.name]) for row in rows}, sheets, figures.signatures, figures.results,
    )  # fmt: skip
    write_pages(page, lambda job: log_folder(recipe, job.name, job.key), trained, finished_drawings(graph))
    return page


_SHOWN = {
    "val_bleu": "val BLEU",
    "test_bleu": "test BLEU",
    "test_bleu_tokenised": "tokenised",
    "test_chrf": "chrF",
    "test_ter": "TER",
    "ambiguous": "ambiguous words %",
    "swapped_ambiguous": "… with the twin's picture",
    "other_words": "other words %",
}
"""Figures of a translator, and the heads of their columns."""
_DIVERSITY = {
    **dict(zip(COUNTS_OF_CAPTIONS, ("captions", "before", "after", "new", "= parent", "= human"), strict=True)),
    "distinct_1": "dist-1",
    "distinct_2": "dist-2",
    "pairwise_bleu": "pair BLEU",
    "mean_words": "words",
}
"""Figures of synthetic captions, and the heads of their columns."""
_MEASURES = (
    ("bleu", "bleu_tokenised", "tokenised BLEU", 1), ("loglik", "loglik", "log p a token", 3),
    ("ambiguous", "ambiguous", "ambiguous words", 1),
)  # fmt: skip
"""Figures of the incongruent-image test: in the job, in `results.jsonl`, in the table, and decimals there."""


class _ReportTables(Figures):
    """The report's tables; `signatures` say how their figures are computed."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.signatures: list[str] = []

    def translators(self, jobs: dict[str, Job]) -> TextTable:
        """BLEU of each translator on test, and its accuracy on words that only the picture disambiguates."""
        table, of_jobs = [], self.own_scores(jobs.values())
        for name, job in jobs.items():
            if name.startswith(("bpe-", "back-")):  # no translators
                continue
            scores = of_jobs[job.key]
            if not scores:
                table.append([name, *[NOT_RUN] * len(_SHOWN)])
                continue
            system, direction, target = _parts(name)
            for metric in sorted(scores):
                split, _, rest = metric.partition("_")
                if rest not in ("bleu", "bleu_tokenised", "chrf", "ter"):
                    if "ambiguous" not in metric and "other_words" not in metric:
                        continue
                    split, rest = "twins", metric
                self.mean(Subject(split, system, direction, target, int(scores.get(f"{split}_sentences", 0))), rest,
                          [scores[metric]])  # fmt: skip
            table.append([name, *(f"{scores[metric]:.1f}" if metric in scores else "–" for metric in _SHOWN)])
        heads = ["translator", *_SHOWN.values()]
        if all(row[6] in ("–", NOT_RUN) for row in table):  # without twins
            heads, table = heads[:6], [row[:6] for row in table]
        if table:
            self.signatures += [*self._signatures(jobs), TER_FORM, NO_METEOR]
        return TextTable(f"Translation, {self.label}", heads, table)

    def _signatures(self, jobs: Mapping[str, Job]) -> list[str]:
        """That of each BLEU, with the languages that it is of where there are several."""
        targets: dict[str, dict[str, None]] = {}
        for name, job in jobs.items():
            metrics = self.workspace.manifest(job)["metrics"] if self.workspace.done(job) else {}
            if "bleu_signature" in metrics:
                targets.setdefault(metrics["bleu_signature"], {})[language_name(_parts(name)[2])] = None
        lines = []
        for signature, of in (targets or {"sacreBLEU": {}}).items():
            into = f" into {', '.join(of)}" if len(targets) > 1 else ""
            lines.append(f"BLEU{into}: {signature}; tokenised: Moses, lower-cased")
        return lines

    def gains(self, jobs: dict[str, Job]) -> TextTable:
        """Test BLEU of each system less that of the first of its direction, on the same sentences; not of NMT."""
        table, first = [], dict[str, tuple[str, Tensor]]()
        for name, job in jobs.items():
            system, direction, target = _parts(name)
            folder = self.workspace.folder(job)
            if parse_system(system)[0] in ("bpe", "back", "nmt") or not (folder / "test.parquet").is_file():
                continue
            rows = read_translations(folder, "test")
            references = [words_of(row["reference"], target) for row in rows]
            statistics = bleu_statistics([row["tokens"] for row in rows], references)
            ours = by_image(statistics, [row["image_id"] or row["pair_id"] for row in rows])
            base, theirs = first.setdefault(direction, (system, ours))
            if base == system:
                continue
            d = paired_gain(ours, theirs, bleu_of, self.recipe.report.resamples)
            subject = Subject("test", system, direction, target, len(rows))
            self.mean(subject, f"bleu_tokenised-{base}", [d.value], (d.low, d.high))
            table.append([f"{name} − {base}", *shown_difference(d)])
        heads = ["difference", "tokenised BLEU", "95 %", "p"]
        return TextTable(f"Paired differences of translators over the same test images; 95 %, {ONE_SEED}", heads, table)

    def looks(self, jobs: dict[str, Job]) -> TextTable:
        """The incongruent-image test of each MMT: its own regions, and the loss with another image's and with zeros."""
        table, of_jobs = [], self.own_scores(jobs.values())
        for name, job in jobs.items():
            scores = of_jobs[job.key]
            if "own_bleu" not in scores:
                table += [] if self.workspace.done(job) else [[name, NOT_RUN, *[""] * 3]]
                continue
            system, direction, target = _parts(name)
            measures = [figure for figure in _MEASURES if f"own_{figure[0]}" in scores]
            for place, (measure, named, title, digits) in enumerate(measures):
                cells = []
                for shown in SHOWN:
                    value, gain = scores[f"{shown}_{measure}"], f"own-{shown}_{measure}"
                    row = f"{direction}, {shown} regions"
                    subject = Subject("test", system, row, target, int(scores["incongruent_sentences"]))
                    self.mean(subject, named, [value])
                    cells.append(f"{value:.{digits}f}")
                    if gain in scores:
                        less, low, high = (scores[gain + end] for end in ("", "_low", "_high"))
                        self.mean(subject, f"own-{shown} {named}", [less], (low, high))
                        low, less, high = (0.0 - bound for bound in (high, less, low))
                        cells[-1] += f"; {less:+.{digits}f} ({low:+.{digits}f} … {high:+.{digits}f})"
                title += f" of {scores['choices']:.0f}" if measure == "ambiguous" else ""
                table.append(["" if place else name, title, *cells])
        heads = ["translator", "", "its own", "another image's", "zeros"]
        title = f"Incongruent-image test, {self.label}, by the regions it is shown; 95 %, {ONE_SEED}"
        return TextTable(title, heads, table)

    def diversity(self, jobs: dict[str, Job]) -> TextTable:
        """Different tokens of the training captions before and after adding each path's captions."""
        rows, of_jobs = [], self.own_scores(jobs.values())
        for path, job in jobs.items():
            scores = of_jobs[job.key]
            if not scores:
                rows.append([path, *[NOT_RUN] * len(_DIVERSITY)])
                continue
            system, languages, _ = parse_path(path)
            subject = Subject("train", system, path, languages[-1], int(scores["captions"]))
            for name in _DIVERSITY:
                self.mean(subject, name, [scores[name]])
            digits = {name: 0 if name in COUNTS_OF_CAPTIONS else 1 for name in _DIVERSITY}
            rows.append([path, *(f"{scores[name]:,.{digits[name]}f}" for name in _DIVERSITY)])
        title = "Lexical diversity of training captions: different tokens before, after, in the new ones alone"
        return TextTable(title, ["path", *_DIVERSITY.values()], rows)

    def retrieval(self, lines: Seeds, language: str, folds: bool = False) -> TextTable:
        """R@K of each row in one language, mean over seeds, with a bootstrap interval of the mean recall.

        With `folds` the means over folds of the test images instead, without intervals.
        """
        table = []
        for (system, name), rows in lines.items():
            if language not in rows[0].languages:
                table.append([name, "–", *[""] * 9])
                continue
            title = rows[0].title(language)
            cell = self.cell([row.job for row in rows], system, title, language, folds)
            table.append([title, *(cell.shown("mean_recall") if cell else [NOT_RUN, *[""] * 9])])
        heads = ["trained on", *R_AT_K, "mean recall", "95 %", "val rsum", "seeds"]
        where, over = f"test, mean of {self.recipe.vse.folds} folds", ""
        if not folds:
            size = self.size((row.job for rows in lines.values() for row in rows), language)
            where, over = f"test{size}", f"; {INTERVALS}"
        system = ", ".join(dict.fromkeys(system for system, _ in lines))
        title = f"Retrieval, {system}, {language}, {where}, {self.label} ({self.task_of(language)}){over}"
        return TextTable(title, heads, table)

    def differences_of_rows(self, lines: Seeds, language: str) -> TextTable:
        """Mean recall of each row against the first two that have this language, on the same images and seeds."""
        jobs = {
            name: {row.seed: row.job for row in rows if self.workspace.done(row.job)}
            for (_, name), rows in lines.items()
            if language in rows[0].languages - rows[0].unseen
        }
        names = [name for name, finished in jobs.items() if finished]
        pairs = [
            (name, base, jobs[name], jobs[base])
            for place, base in enumerate(names[:2]) for name in names[place + 1 :]
        ]  # fmt: skip
        title = f"Paired differences over the same {language} test images ({self.task_of(language)})"
        return self.differences(title, pairs, language, "mean_recall")

    def across_languages(self, lines: Seeds) -> TextTable:
        """How unequally each row finds an image in the languages that it was trained on, and what a probe finds."""
        table, resamples = [], self.recipe.report.resamples
        for (system, name), rows in lines.items():
            languages = sorted(rows[0].languages - rows[0].unseen)
            jobs = list({row.job.key: row.job for row in rows if self.workspace.done(row.job)}.values())
            if len(languages) < 2 or not jobs:
                continue
            runs = read_runs([self.workspace.folder(job) for job in jobs], languages)
            if (found := mean_rank_variance(runs, resamples)) is None:
                continue
            n, among, ends = len(rank_variances(runs[0])), "+".join(languages), rounded(found)
            task = "+".join(sorted({self.task_of(language) for language in languages}))
            self.add(Subject("test", system, name, among, n, task=task), "rank_variance", found.value, ends, len(runs))
            probed, shown = [scores["language_probe"] for scores in self.run(jobs, "", "language_probe")[1]], "–"
            if probed:
                probe = self.mean(Subject("test", system, name, among, task=task), "language_probe", probed)
                shown = f"{probe.value:.1f} (chance {100 / len(languages):.1f})"
            cells = [f"{found.value:.1f}", shown_interval(*ends), f"{n:,}", str(len(runs)), shown]
            table.append([name, among, *cells])
        heads = ["trained on", "languages", "rank variance", "95 %", "images", "seeds", "language probe %"]
        title = (
            f"Across languages, {self.label}: variance of an image's rank (0: found equally well; {INTERVALS}), "
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


def _parts(name: str) -> tuple[str, str, str]:
    """System, direction and target language of a translator: `mmt`, `en-de` and `de` of `mmt-en-de`."""
    system, _, direction = name.partition("-")
    return system, direction, direction.partition("-")[2]
