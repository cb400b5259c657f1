"""How good translations are: BLEU, chrF, TER as sacreBLEU counts them, and words that only the picture can settle."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from modules.errors import ModelError


@dataclass(frozen=True)
class TranslationScores:
    """Scores of a system, in percent; METEOR is not among them, as every kept implementation downloads its word lists.

    Attributes:
        sacre: sacreBLEU's BLEU-4 on surface text, lower-cased.
        signature: how it was computed.
        tokenised: BLEU-4 on Moses-tokenised lower-cased text, as multimodal translation papers report it.
        chrf: chrF2 on surface text, lower-cased.
        ter: translation edit rate on surface text, lower-cased; lower is better.
    """

    sacre: float
    signature: str
    tokenised: float
    chrf: float
    ter: float


def translation_scores(
    hypotheses: Sequence[str], references: Sequence[str],
    tokenised_hypotheses: Sequence[str], tokenised_references: Sequence[str],
) -> TranslationScores:  # fmt: skip
    """Score translations against one reference each, in surface form and Moses-tokenised."""
    if len(hypotheses) != len(references):  # sacreBLEU would cut the longer list without a word
        raise ModelError(
            f"scores of {len(hypotheses)} translations against {len(references)} references; give one each"
        )
    surface, tokens = BLEU(lowercase=True), BLEU(lowercase=True, tokenize="none", force=True)
    sacre = surface.corpus_score(list(hypotheses), [list(references)]).score
    tokenised = tokens.corpus_score(list(tokenised_hypotheses), [list(tokenised_references)]).score
    chrf, ter = (
        metric.corpus_score(list(hypotheses), [list(references)]).score
        for metric in (CHRF(lowercase=True), TER(case_sensitive=False, normalized=True))
    )
    return TranslationScores(sacre, str(surface.get_signature()), tokenised, chrf, ter)


def ambiguity_scores(
    hypotheses: Sequence[str], references: Sequence[str], twin_references: Sequence[str],
    words: Sequence[str], expected: Sequence[str],
) -> dict[str, float]:  # fmt: skip
    """How often a word that only the picture can settle is translated as this picture demands, in percent.

    Args:
        hypotheses: Moses-tokenised lower-cased translations.
        references: the human translation of each, tokenised alike.
        twin_references: the human translation of the same sentence about the twin picture.
        words: the ambiguous source word of each, to report apart.
        expected: the right translation of that word.

    Returns:
        `ambiguous`: share of hypotheses with the expected word; `ambiguous:<word>`: the same of one source word;
        `other_words`: share of the words on which both references agree that the hypothesis has too.
    """
    right: dict[str, list[bool]] = {}
    agreed = found = 0
    for hypothesis, reference, twin, word, noun in zip(
        hypotheses, references, twin_references, words, expected, strict=True
    ):
        said = Counter(hypothesis.split())
        right.setdefault(word, []).append(noun.lower() in said)
        common = Counter(reference.split()) & Counter(twin.split())
        agreed += common.total()
        found += (common & said).total()
    scores = {f"ambiguous:{word}": 100 * sum(hits) / len(hits) for word, hits in sorted(right.items())}
    hits = [hit for word in right.values() for hit in word]
    return {"ambiguous": 100 * sum(hits) / len(hits), "other_words": 100 * found / agreed} | scores
