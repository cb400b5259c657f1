"""Human captions that others are compared with, as words without punctuation; their document frequencies."""

from datasets import Dataset as Table

from data.captions import HUMAN
from data.text import plain_words
from modules.metrics.cider import DocumentFrequencies, document_frequencies


def references_of(captions: Table, language: str, split: str) -> dict[str, list[list[str]]]:
    """Image id → words of each of its human captions in a language and split, in the table's order; may be empty."""
    references: dict[str, list[list[str]]] = {}
    columns = (captions[name][:] for name in ("image_id", "text", "language", "split", "source"))
    for image_id, text, *about in zip(*columns, strict=True):
        if about == [language, split, HUMAN]:
            references.setdefault(image_id, []).append(plain_words(text, language))
    return references


def training_frequencies(captions: Table, language: str) -> DocumentFrequencies | None:
    """Document frequencies of the human training captions in a language, a document an image; None: it has none."""
    documents = references_of(captions, language, "train")
    return document_frequencies(documents.values()) if documents else None
