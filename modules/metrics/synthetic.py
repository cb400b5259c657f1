"""Lexical diversity of synthetic captions beside the human ones that they were made from."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from modules.metrics.translation import distinct, pairwise_bleu

_BLEU_IMAGES, _BLEU_CAPTIONS = 500, 5
Sentence = tuple[str, str]
"""A language, and words with spaces between them."""


def lexical_diversity(
    human: Mapping[str, Sentence], synthetic: Mapping[str, Sentence], images: Sequence[str],
    parents: Sequence[str | None], origin: str,
) -> dict[str, Any]:  # fmt: skip
    """Count different words before and after, as the paper does, a count for each language.

    Words of different languages count apart, as the paper's 8,830 → 19,960 (English + German) do. Beside it: the
    share of different words and pairs of words in all (distinct-1, -2; Li et al. 2016), how similar the new captions of
    one image are (mean BLEU of one against another; of 500 images, five captions each), and how many repeat a human
    caption. Distinct-n and BLEU are of one caption a source and of pairs: more captions do not lower them.

    Args:
        human: training captions of all languages, by id.
        synthetic: made from them, by id; that of a second caption of one source ends in #2.
        images: of the synthetic captions.
        parents: of them, the ids of the human captions that they were made from.
        origin: the language that the path starts from; `before` counts its captions alone.

    Examples:
        >>> human = {"a": ("en", "a dog")}
        >>> scores = lexical_diversity(human, {"b": ("de", "ein hund")}, ["1.jpg"], ["a"], "en")
        >>> scores["unique_source"], scores["unique_with_synthetic"], scores["copies_of_parent"]
        (2, 4, 0)
    """
    new, texts, of_image = list(synthetic.values()), [text for _, text in synthetic.values()], dict[str, list[str]]()
    before = {(language, word) for language, text in human.values() if language == origin for word in text.split()}
    after = {(language, word) for language, text in new for word in text.split()}
    for image_id, text in zip(images, texts, strict=True):
        of_image.setdefault(image_id, []).append(text)
    chosen = random.Random(0).sample(sorted(of_image), min(_BLEU_IMAGES, len(of_image)))
    by_people, of_parents = set(human.values()), [human.get(parent or "", ("", None))[1] for parent in parents]
    return {
        "captions": len(new),
        "unique_source": len(before),
        "unique_synthetic": len(after),
        "unique_with_synthetic": len(before | after),
        "unique_by_language": dict(Counter(language for language, _ in before | after)),
        "copies_of_parent": sum(text == parent for text, parent in zip(texts, of_parents, strict=True)),
        "copies_of_human": sum(sentence in by_people for sentence in new),
        **distinct([text for name, (_, text) in synthetic.items() if "#" not in name.split("|")[-1]]),
        "pairwise_bleu": pairwise_bleu([of_image[image_id][:_BLEU_CAPTIONS] for image_id in chosen]),
    }
