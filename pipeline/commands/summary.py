"""What a run of all stages ends with: the main figures, where the rest is, and what to try next."""

import shlex
from collections.abc import Mapping, Sequence

from pipeline.engine.console import command, info, is_verbose
from pipeline.engine.machine import process_rank
from pipeline.gallery.gallery import gallery_of
from pipeline.graph import Graph
from pipeline.recipes.systems import parse_system
from pipeline.reporting.records import Result, own_results
from pipeline.reporting.report import write_report
from pipeline.retrieval.rows import Row
from pipeline.visualization.text_table import TextTable


def summary(graph: Graph, chosen: Sequence[str]) -> None:
    """Write the report and print its main figures, with `--verbose` all of its tables.

    Args:
        chosen: words of a command that name the same recipe and settings; none for the default.
    """
    written = write_report(graph)
    if process_rank() > 0:
        return
    for sheet in written.sheets if is_verbose() else ():
        sheet.show()
    own = {(row.system, row.title(language)): row for row in graph.rows for language in graph.recipe.vse.test}
    figures = own_results(written.results)
    for table in (translation_table(figures), retrieval_table(figures, own)):
        if table.rows:
            table.show_lines()
    for sentence in written.sentences:
        info(sentence)
    settings = [word for word in chosen if word.startswith("--")]
    of_recipe = [f"RECIPE={word}" for word in chosen if word not in (*settings, "scenes")]
    of_make = [*of_recipe, *([f"ARGS={shlex.join(settings)}"] if settings else [])]
    report, index = (command(name, *chosen, target=[name, *of_make]) for name in ("report", "index"))
    page = command("app", str(gallery_of(graph.recipe, graph.workspace)), target=["app", *of_recipe])
    info(f"report: {written.folder / 'report.html'} (tables: report.md, or `{report}`)")
    curves = command("tensorboard", target=["tensorboard"])
    info(f"next: `{index} && {page}` (search page), `{curves}` (training curves)")


def translation_table(results: Sequence[Result]) -> TextTable:
    """Test BLEU of each translator that is no pre-training, and its accuracy on ambiguous words, by direction."""
    heads = {("test", "bleu"): "BLEU", ("twins", "ambiguous"): "ambiguous words %"}
    scores = [score for score in results if (score.split, score.metric) in heads and "," not in score.source]
    scores = [score for score in scores if parse_system(score.system)[0] != "nmt"]
    cells: dict[str, dict[str, str]] = {}
    for score in scores:
        cells.setdefault(score.system, {})[f"{score.source} {heads[score.split, score.metric]}"] = f"{score.value:.1f}"
    directions = dict.fromkeys(score.source for score in scores)
    return _table("translation, test", cells, [f"{source} {head}" for source in directions for head in heads.values()])


def retrieval_table(results: Sequence[Result], own: Mapping[tuple[str, str], Row]) -> TextTable:
    """Mean recall on test of each row of a recipe, by language.

    Args:
        results: figures of the recipe.
        own: system and title in a language → its rows.
    """
    scores = [score for score in results if score.split == "test" and score.metric == "mean_recall"]
    cells: dict[str, dict[str, str]] = {}
    marked = False
    for score in scores:
        if (row := own.get((score.system, score.source))) is None:
            continue
        unseen = score.language in row.unseen
        cells.setdefault(row.name, {})[score.language] = f"{score.value:.1f}{'*' if unseen else ''}"
        marked = marked or unseen
    note = "; * without captions of that language" if marked else ""
    return _table(f"mean recall, test{note}", cells, list(dict.fromkeys(score.language for score in scores)))


def _table(title: str, cells: dict[str, dict[str, str]], heads: Sequence[str]) -> TextTable:
    heads = [head for head in heads if any(head in row for row in cells.values())]
    return TextTable(
        title, [title, *heads], [[name, *(row.get(head, "–") for head in heads)] for name, row in cells.items()]
    )
