"""A picture of a model's word vectors: chosen words in the plane, by t-SNE (GXN, Gu et al. 2018, Fig. 6)."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from data.text_inputs import WordVocabulary
from modules.retrieval_models import RetrievalModel
from pipeline.visualization.joint_space import WORDS, Groups, plane_figure

HOW = "Each word by its word vector, with which the model begins to read captions; near is similar."
LEAST = 4  # words: t-SNE of fewer says nothing


def known_words(words: Mapping[str, Sequence[str]], vocabulary: WordVocabulary) -> dict[str, list[str]]:
    """Those of some words, by language, that the vocabulary has, in lower case; languages without one are left out."""
    entries = {language: vocabulary.words_of(language) for language in words}
    known = {language: [word for word in map(str.lower, some) if word in entries[language]]
             for language, some in words.items()}  # fmt: skip
    return {language: some for language, some in known.items() if some}


def word_vectors_figure(
    title: str, model: RetrievalModel, vocabulary: WordVocabulary, words: Mapping[str, Sequence[str]]
) -> Figure:
    """The word vectors of known words in the plane, languages by colour.

    Args:
        title: of the model.
        model: with word vectors of its own.
        vocabulary: its words.
        words: language -> words that the vocabulary has, `LEAST` or more in all.
    """
    table = model.word_tables[0].weight.detach().float().cpu().numpy()
    groups: Groups = {}
    for language, some in words.items():
        number = vocabulary.words_of(language)
        vectors = table[[number[word] for word in some]]
        groups[WORDS, language] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True).clip(1e-12)
    return plane_figure(f"{title}: its word vectors by t-SNE", HOW, groups, words)
