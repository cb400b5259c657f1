"""The parallel text of a job: tables that the jobs before it have left."""

from collections.abc import Mapping
from pathlib import Path

from data.batches.parallel_text import BACK_COLUMNS, ParallelText
from data.pictures.regions import RegionStore
from pipeline.corpus.prepare import about_corpus
from pipeline.engine.artifacts import read_rows
from pipeline.recipes.translator_settings import MmtSettings

BACK = "back.parquet"  # of a back-translation


def parallel_text_of(inputs: Mapping[str, Path], direction: str, settings: MmtSettings) -> ParallelText:
    """The parallel table of a job with the inputs `corpus`, and `text` and `back` if it has them, with its regions."""
    corpus, tokens, back = inputs["corpus"], None, []
    if "text" in inputs:
        tokens = read_rows(inputs["text"] / "tokens.parquet", direction.split("-")).to_pydict()
    if "back" in inputs:
        back = read_rows(inputs["back"] / BACK, BACK_COLUMNS).to_pylist()
    store = RegionStore(corpus / "regions", check_values=False)
    twins = about_corpus(corpus)["twins"]
    return ParallelText(corpus, direction, store, twins, settings.without_regions, tokens, back)
