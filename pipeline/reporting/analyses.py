"""Tables of the analyses of trained models (`pipeline.analyses.registry`), by the name of the analysis."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from pipeline.reporting.generated import generated_tables
from pipeline.reporting.object_recognition import recognised_tables
from pipeline.reporting.results import Figures
from pipeline.reporting.retrieved import retrieved_tables
from pipeline.reporting.senses import senses_tables
from pipeline.retrieval.rows import Cells
from pipeline.visualization.text_table import TextTable

AnalysisTables = Callable[[Figures, Cells, str], Iterator[TextTable]]
"""Tables of a language, by figures, and system, name and row of each line, seed by seed."""
TABLES: Mapping[str, AnalysisTables] = {
    "retrieved": retrieved_tables,
    "generated": generated_tables,
    "recognised": recognised_tables,
    "senses": senses_tables,
}
BESIDE_RECALL = ("recognised", "senses")
"""Those that stand below a paper's table of recall."""


def analysis_tables(
    figures: Figures, cells: Cells, languages: Sequence[str], names: Sequence[str] = tuple(TABLES)
) -> Iterator[TextTable]:
    """The tables of some analyses, each of all languages.

    Args:
        figures: of the recipe.
        cells: system, name and row of each line, seed by seed.
        languages: of the captions.
        names: of the analyses.
    """
    for name in names:
        for language in languages:
            yield from TABLES[name](figures, cells, language)
