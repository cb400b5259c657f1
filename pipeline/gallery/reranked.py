"""Pictures that were found, put in the order of a second model: for several queries, each picture is read once."""

from collections.abc import Callable, Sequence

import torch
from numpy.typing import NDArray

from pipeline.errors import RecipeError
from pipeline.export.exported_model import ExportedModel

_AT_ONCE = 8192  # pictures that are encoded and in memory at a time, or those of one query


def reranked(
    reranker: ExportedModel,
    queries: Sequence[tuple[str, str]],
    found: Sequence[Sequence[int]],
    regions_at: Callable[[Sequence[int]], NDArray],
) -> list[list[tuple[int, float]]]:
    """What was found for each query, best first, with the second model's scores.

    Args:
        reranker: the second model.
        queries: sentences, each with its language.
        found: for each query the row numbers of pictures.
        regions_at: regions (N, R, D) of pictures by row number.
    """
    captions = reranker.encode_captions([text for text, _ in queries], [language for _, language in queries])
    ordered: list[list[tuple[int, float]]] = []
    together = max(1, _AT_ONCE // max(map(len, found)))
    for start in range(0, len(found), together):
        group = found[start : start + together]
        rows = list(dict.fromkeys(row for some in group for row in some))
        place_of = {row: place for place, row in enumerate(rows)}
        images = reranker.encode_regions(regions_at(rows))
        for place, some in enumerate(group, start):
            own = images.select(torch.tensor([place_of[row] for row in some], dtype=torch.long))
            scores = reranker.score(own, captions.select(slice(place, place + 1)))[:, 0]
            order = scores.argsort(descending=True, stable=True).tolist()
            ordered.append([(some[one], float(scores[one])) for one in order])
    return ordered


def require_alike(first: ExportedModel, second: ExportedModel) -> None:
    """Refuse, by a RecipeError, a second model that reads other regions than those of the first one's gallery."""
    if second.reads != first.reads:
        raise RecipeError(
            f"{second.folder}: it reads other regions than {first.name}; a second model must be trained on the same "
            "corpus with the same `regions`"
        )
