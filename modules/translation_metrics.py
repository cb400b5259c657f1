"""Scores of translations: sacreBLEU's BLEU, chrF and TER, and words that only the picture disambiguates."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from torch import Tensor

from modules.errors import ModelError
from modules.metrics import Difference, difference

NO_METEOR = "METEOR is not computed: nltk's downloads WordNet when it runs, and version 1.5 (Java) is not maintained"


@dataclass(frozen=True)
class TranslationScores:
    """Scores of a system, in percent; what is not among them says `NO_METEOR`.

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


def surface_bleu(characters: bool = False) -> BLEU:
    """sacreBLEU's BLEU-4 on surface text, lower-cased; of characters in a language written without spaces."""
    return BLEU(lowercase=True, tokenize="char" if characters else "13a")


def translation_scores(
    hypotheses: Sequence[str], references: Sequence[str],
    tokenised_hypotheses: Sequence[str], tokenised_references: Sequence[str], characters: bool = False,
) -> TranslationScores:  # fmt: skip
    """Score translations against one reference each, in surface form and Moses-tokenised.

    Args:
        hypotheses: translations in surface form.
        references: human ones.
        tokenised_hypotheses: the same translations, tokenised.
        tokenised_references: and the human ones.
        characters: the language is written without spaces.
    """
    if len(hypotheses) != len(references):  # sacreBLEU would cut the longer list without a word
        raise ModelError(
            f"scores of {len(hypotheses)} translations against {len(references)} references; give one each"
        )
    surface, tokens = surface_bleu(characters), BLEU(lowercase=True, tokenize="none", force=True)
    sacre = surface.corpus_score(list(hypotheses), [list(references)]).score
    tokenised = tokens.corpus_score(list(tokenised_hypotheses), [list(tokenised_references)]).score
    chrf, ter = (
        metric.corpus_score(list(hypotheses), [list(references)]).score
        for metric in (CHRF(lowercase=True), TER(normalized=True, asian_support=characters, case_sensitive=False))
    )
    return TranslationScores(sacre, str(surface.get_signature()), tokenised, chrf, ter)


def bleu_statistics(hypotheses: Sequence[str], references: Sequence[str]) -> Tensor:
    """What corpus BLEU adds up, sentence by sentence, on tokens as they are, lower-cased.

    Returns:
        (N, 10): n-grams matched and counted for n = 1 … 4, length, length of the reference.
    """
    bleu, rows = BLEU(lowercase=True, tokenize="none", force=True), []
    for counted, reference in zip(hypotheses, references, strict=True):
        one = bleu.corpus_score([counted], [[reference]])
        rows.append([*one.counts, *one.totals, one.sys_len, one.ref_len])
    return torch.tensor(rows, dtype=torch.float64).view(-1, 10)


def bleu_of(statistics: Tensor) -> Tensor:
    """BLEU-4 (…,) in percent of summed `bleu_statistics` (…, 10), orders without a match smoothed as sacreBLEU does."""
    found, counted = statistics[..., :4], statistics[..., 4:8]
    length, reference = statistics[..., 8], statistics[..., 9]
    none = found == 0
    precision = torch.where(none, 0.5 ** none.cumsum(-1), found) / counted
    penalty = (1 - reference / length.clamp(min=1)).clamp(max=0).exp()
    score = 100 * precision.log().mean(-1).exp() * penalty
    return torch.where((counted > 0).all(-1) & ~none.all(-1), score, 0.0)


def by_image(statistics: Tensor, image_ids: Sequence[str]) -> Tensor:
    """Statistics (N, k) of sentences summed over each image, (I, k): sentences of one are drawn together, or not."""
    number = {image_id: place for place, image_id in enumerate(dict.fromkeys(image_ids))}
    of_image = torch.tensor([number[image_id] for image_id in image_ids])
    return statistics.new_zeros(len(number), statistics.shape[1]).index_add(0, of_image, statistics)


def paired_gain(
    system: Tensor, baseline: Tensor, score: Callable[[Tensor], Tensor], resamples: int = 1000, seed: int = 0
) -> Difference:
    """Compare two systems on the same sentences by paired bootstrap (Koehn 2004).

    Args:
        system: (N, k) statistics of each sentence, or image (`by_image`).
        baseline: the same of the other system, row by row.
        score: of summed statistics (…, k), a number (…,).
        resamples: how many.
        seed: of the resampling.
    """
    count = len(system)
    drawn = torch.randint(count, (resamples, count), generator=torch.Generator().manual_seed(seed))
    weights = torch.zeros(resamples, count, dtype=system.dtype)
    weights.scatter_add_(1, drawn, torch.ones(drawn.shape, dtype=system.dtype))
    ours, theirs = system.sum(0), baseline.sum(0)
    return difference(float(score(ours) - score(theirs)), score(weights @ system) - score(weights @ baseline))


def distinct(sentences: Sequence[str]) -> dict[str, float]:
    """`distinct_1` and `distinct_2`: different words, and pairs of words, as shares of all (Li et al. 2016), in %."""
    scores = {}
    words = [sentence.split() for sentence in sentences]
    for n in (1, 2):
        grams = [tuple(one[i : i + n]) for one in words for i in range(len(one) - n + 1)]
        scores[f"distinct_{n}"] = 100 * len(set(grams)) / max(1, len(grams))
    return scores


def pairwise_bleu(groups: Sequence[Sequence[str]]) -> float:
    """Similarity of the sentences of a group: mean BLEU-4 of one against another of its group, in %; 0 if there is
    none.

    Self-BLEU (Zhu et al. 2018) takes all others as references, and so grows with their number; this does not.
    """
    bleu = BLEU(tokenize="none", force=True, effective_order=True)
    found = [
        bleu.sentence_score(one, [other]).score
        for group in groups
        for i, one in enumerate(group)
        for j, other in enumerate(group)
        if i != j
    ]
    return sum(found) / max(1, len(found))


def ambiguity_scores(
    hypotheses: Sequence[str], references: Sequence[str], twin_references: Sequence[str],
    words: Sequence[str], expected: Sequence[str],
) -> dict[str, float]:  # fmt: skip
    """How often a word that only the picture disambiguates is translated as this picture requires, in percent.

    Args:
        hypotheses: Moses-tokenised lower-cased translations.
        references: the human translation of each, tokenised alike.
        twin_references: the human translation of the same sentence about the twin picture.
        words: the ambiguous source word of each, to report apart.
        expected: the right translation of that word.

    Returns:
        `ambiguous`: share of hypotheses with the expected word; `ambiguous:<word>`: the same of one source word;
        `other_words`: share of the words on which both references agree that the hypothesis has too (if there are any).
    """
    right: dict[str, list[bool]] = {}
    agreed = found = 0
    for hypothesis, reference, twin, word, noun in zip(
        hypotheses, references, twin_references, words, expected, strict=True
    ):
        counted = Counter(hypothesis.split())
        right.setdefault(word, []).append(noun.lower() in counted)
        common = Counter(reference.split()) & Counter(twin.split())
        agreed += common.total()
        found += (common & counted).total()
    scores = {f"ambiguous:{word}": 100 * sum(hits) / len(hits) for word, hits in sorted(right.items())}
    hits = [hit for word in right.values() for hit in word]
    others = {"other_words": 100 * found / agreed} if agreed else {}
    return {"ambiguous": 100 * sum(hits) / len(hits)} | others | scores
