"""Several languages in the report: recall by training captions, and what one more language costs a model."""

from collections.abc import Sequence

from data.captions.table import HUMAN
from modules.retrieval_models import parameters_of_a_language
from pipeline.engine.artifacts import read_json
from pipeline.engine.job import Job
from pipeline.recipes.retrieval_settings import slots_in
from pipeline.reporting.records import Result
from pipeline.reporting.results import Figures, Subject
from pipeline.retrieval.rows import Row
from pipeline.training.model_files import NETWORK, refusing_other_code
from pipeline.visualization.plots import Point, as_svg, by_count
from pipeline.visualization.text_table import ONE_SEED, TextTable

CAPTIONS, PARAMETERS = "training_captions", "language_parameters"
"""Metrics of a row of the results: captions of a language to train on, parameters that one more language adds."""
_COUNTS = {"captions": [{"split": str, "language": str, "source": str, "captions": int}]}


def add_counts(figures: Figures, rows: Sequence[Row]) -> None:
    """Add to the results how many captions each row trains on in each tested language, and its model's parameters.

    Args:
        rows: of `vse.rows`; those of the recipe's tables join them.
    """
    written, lines = _written(figures), dict[tuple[str, str, str, frozenset[str]], Row]()  # once, whatever the seed
    for row in rows:
        lines.setdefault(("", row.system, row.name, row.languages), row)
    for table, of_table in figures.graph.tables.items():
        for row in of_table:
            shown = frozenset({figures.recipe.tables[table].language}) & row.languages
            lines.setdefault((table, row.system, row.name, shown), row)
    tested = {_line_of(result) for result in figures.results if _is_recall(result)}
    for (table, system, name, languages), row in lines.items():
        slots = {slot for job in row.trained for slot in slots_in(job.settings["groups"])}
        counts = written | _synthesised(figures, row.trained)
        for language in sorted(languages - row.unseen):
            own = {slot.type for slot in slots if slot.language == language}
            if (table, system, name, language) in tested and own and own <= counts.keys():
                count = sum(counts[kind] for kind in own)
                figures.add(Subject("train", system, name, language, table=table), CAPTIONS, count)
        if (more := _parameters(figures, row.trained)) is not None:
            figures.add(Subject("train", system, name, "", table=table), PARAMETERS, more)


def language_plots(results: Sequence[Result]) -> list[str]:
    """Recall by training captions, as SVG, with the counts that `add_counts` adds.

    There is no plot for one language, nor if all have as many captions.
    """
    captions = {_line_of(result): int(result.value) for result in results if result.metric == CAPTIONS}
    points = list(dict.fromkeys(  # a row may stand in several tables
        Point(result.language, f"{result.system}: {result.source}", count, result.value, result.low, result.high)
        for result in results
        if _is_recall(result) and (count := captions.get(_line_of(result)))
    ))  # fmt: skip
    if len({point.colour for point in points}) < 2 or len({point.count for point in points}) < 2:
        return []
    axes = ("captions of the language in training", f"mean recall, percent; lines: 95 % ({ONE_SEED})")
    return [as_svg(by_count("Mean recall on test by language", axes, points))]


def language_table(results: Sequence[Result], published: dict[str, float]) -> TextTable:
    """Parameters that one more language adds; no rows if the results, with what `add_counts` adds, are of one language.

    Args:
        published: those of a paper, by system.
    """
    more = dict.fromkeys((result.system, result.value) for result in results if result.metric == PARAMETERS)
    lines = [*more, *((f"{system}, published", value) for system, value in published.items())]
    if len({result.language for result in results if result.metric == CAPTIONS}) < 2:
        lines = []
    title = "Millions of parameters that one more language adds, without word vectors"
    return TextTable(title, ["system", "parameters"], [[name, f"{value / 1e6:.3g}"] for name, value in lines if value])


def _line_of(result: Result) -> tuple[str, str, str, str]:
    return result.table, result.system, result.source, result.language


def _is_recall(result: Result) -> bool:
    return (result.split, result.metric) == ("test", "mean_recall")


def _written(figures: Figures) -> dict[str, int]:
    """Type → human training captions, as the data report counts them; empty if the corpus is not here."""
    corpus = figures.graph.corpus
    if not figures.workspace.done(corpus):
        return {}
    report = read_json(figures.workspace.folder(corpus) / "report.json", _COUNTS)
    return {
        f"{row['language']}/{HUMAN}": row["captions"] for row in report["captions"]
        if (row["split"], row["source"]) == ("train", HUMAN)
    }  # fmt: skip


def _synthesised(figures: Figures, trained: Sequence[Job]) -> dict[str, int]:
    """Type → captions that the inputs of a row's models hold."""
    counts: dict[str, int] = {}
    for source, job in ((source, job) for model in trained for source, job in model.inputs.items()):
        if (count := figures.scores(job).get(("", "captions"))) and source != "corpus":
            slots = [slot for model in trained for slot in slots_in(model.settings["groups"])]
            counts |= {slot.type: int(count) for slot in slots if slot.source == source}
    return counts


def _parameters(figures: Figures, trained: Sequence[Job]) -> int | None:
    """What one more language adds to a row's models; None if one is not here, or not counted."""
    total = 0
    for job in trained:
        path = figures.workspace.folder(job) / "network.json"
        if not path.is_file():
            return None
        network = read_json(path, NETWORK)
        with refusing_other_code(path.parent, "vse", "--force"):
            more = parameters_of_a_language(network["model"], **network["arguments"])
        if more is None:
            return None
        total += more
    return total
