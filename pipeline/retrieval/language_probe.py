"""How much the universal vectors of a retrieval model still tell of the language, after its training."""

from collections.abc import Collection

from datasets import Dataset as Table

from data.captions import HUMAN
from data.text import TextInput
from modules.language_probe import probe, universal_vectors
from modules.retrieval_models import RetrievalModel

MOST = 1000
"""Captions of a language and split that are read: one of each image, the first images of the table."""


def language_probe(
    model: RetrievalModel, captions: Table, text: TextInput, languages: Collection[str]
) -> dict[str, float]:
    """`language_probe`: how often a separate classifier finds the language of human test captions, in percent.

    The classifier is trained on training captions. Nothing for a model without universal vectors, and for languages
    that do not have captions in both splits where fewer than two remain.

    Args:
        model: trained.
        captions: the caption table.
        text: the model's text input.
        languages: that it was trained on.
    """
    sentences: dict[tuple[str, str], list[list[int]]] = {}
    seen = set[tuple[str, str]]()
    columns = (captions[name][:] for name in ("split", "language", "source", "image_id", "text"))
    for split, language, source, image, words in zip(*columns, strict=True):
        wanted = split in ("train", "test") and source == HUMAN and language in languages
        if wanted and (image, language) not in seen and len(sentences.get((split, language), ())) < MOST:
            seen.add((image, language))
            sentences.setdefault((split, language), []).append(text.encode(words, language))
    both = [one for one in sorted(languages) if ("train", one) in sentences and ("test", one) in sentences]
    model.eval()
    found = {place: universal_vectors(model, sentences[place], place[1])
             for language in both for place in (("train", language), ("test", language))}  # fmt: skip
    if len(both) < 2 or any(vectors is None for vectors in found.values()):
        return {}
    sides = ({one: found[split, one] for one in both} for split in ("train", "test"))
    return {"language_probe": probe(*sides)}  # type: ignore[arg-type]
