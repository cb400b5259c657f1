"""Translation metrics: BLEU, chrF and TER from sacreBLEU, diversity, and accuracy on visually ambiguous words."""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from torch import Tensor

from modules.errors import ModelError
from modules.metrics.intervals import Difference, difference, gain_shifts

TER_FORM = "TER: sacreBLEU's with norm:yes, tok:tercom, case:lc; of text without spaces by letters, with asian:yes"
_MARKS = "".join(mark for mark in map(chr, range(0x300, 0xFE00)) if unicodedata.category(mark).startswith("M"))
_LETTER = re.compile(rf"[^\x00-\u024f\s{_MARKS}][{_MARKS}]*")
NO_METEOR = "METEOR is not computed: nltk's version downloads WordNet when run, and version 1.5 (Java) is unmaintained"


@dataclass(frozen=True)
class TranslationScores:
    """Scores of a system, in percent; `NO_METEOR` gives the reason why METEOR is missing.

    Attributes:
        sacre: sacreBLEU's BLEU-4 on surface text, lower-cased.
        signature: the sacreBLEU signature of it.
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
    """Return sacreBLEU's BLEU-4 on lower-cased surface text, by words or (for text without spaces) by characters."""
    return BLEU(lowercase=True, tokenize="char" if characters else "13a")


def translation_scores(
    hypotheses: Sequence[str], references: Sequence[str],
    tokenised_hypotheses: Sequence[str], tokenised_references: Sequence[str], characters: bool = False,
) -> TranslationScores:  # fmt: skip
    """Score translations against one reference each, in surface form and Moses-tokenised.

    Args:
        hypotheses: translations in surface form.
        references: human translations in surface form.
        tokenised_hypotheses: the same translations, tokenised.
        tokenised_references: the same references, tokenised.
        characters: the language is written without spaces.

    Raises:
        ModelError: there are not as many references as translations.

    Examples:
        >>> said, wanted = ["Ein Hund rennt schnell."], ["Ein Hund rennt sehr schnell."]
        >>> tokens = ["ein hund rennt schnell ."], ["ein hund rennt sehr schnell ."]
        >>> scores = translation_scores(said, wanted, *tokens)
        >>> [round(score) for score in (scores.sacre, scores.tokenised, scores.chrf, scores.ter)]
        [41, 41, 76, 17]
    """
    if len(hypotheses) != len(references):  # sacreBLEU would cut the longer list silently
        raise ModelError(
            f"scores of {len(hypotheses)} translations against {len(references)} references; give one each"
        )
    surface, tokens = surface_bleu(characters), BLEU(lowercase=True, tokenize="none", force=True)
    sacre = surface.corpus_score(list(hypotheses), [list(references)]).score
    tokenised = tokens.corpus_score(list(tokenised_hypotheses), [list(tokenised_references)]).score
    chrf = CHRF(lowercase=True).corpus_score(list(hypotheses), [list(references)]).score
    said, wanted = (letters_apart(texts) if characters else list(texts) for texts in (hypotheses, references))
    ter = surface_ter(characters).corpus_score(said, [wanted]).score
    return TranslationScores(sacre, str(surface.get_signature()), tokenised, chrf, ter)


def surface_ter(characters: bool) -> TER:
    """Return sacreBLEU's TER of lower-cased surface text.

    Args:
        characters: the language is written without spaces, and texts are those of `letters_apart`.

    Examples:
        >>> surface_ter(False).corpus_score(["a dog runs"], [["a dog sleeps well"]]).score  # two edits of four words
        50.0
    """
    return TER(normalized=True, asian_support=characters, case_sensitive=False)


def letters_apart(texts: Sequence[str]) -> list[str]:
    """Return sentences with spaces around each letter that is not Latin, whose marks stay with it.

    sacreBLEU's own way (`asian_support`) leaves out Thai, Khmer, Lao and Burmese.

    Examples:
        >>> letters_apart(["ผู้ชาย vs ein grüner Ball"])
        [' ผู้  ช  า  ย  vs ein grüner Ball']
    """
    return [_LETTER.sub(r" \g<0> ", text) for text in texts]


def sentence_chrf(hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
    """Return chrF2 of each sentence against its reference, in percent, on lower-cased surface text.

    Examples:
        >>> [round(score) for score in sentence_chrf(["EIN HUND", "eine Katze"], ["ein Hund", "ein Hund"])]
        [100, 15]
    """
    metric = CHRF(lowercase=True)
    return [
        metric.sentence_score(said, [wanted]).score for said, wanted in zip(hypotheses, references, strict=True)
    ]  # fmt: skip


def bleu_statistics(hypotheses: Sequence[str], references: Sequence[str]) -> Tensor:
    """Return the statistics of each sentence that corpus BLEU sums, on lower-cased tokens.

    Returns:
        (N, 10): n-gram matches and n-gram counts for n = 1 … 4, length, length of the reference.

    Examples:
        >>> bleu_statistics(["a dog runs"], ["a dog sleeps well"]).tolist()
        [[2.0, 1.0, 0.0, 0.0, 3.0, 2.0, 1.0, 0.0, 3.0, 4.0]]
    """
    bleu, rows = BLEU(lowercase=True, tokenize="none", force=True), []
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        score = bleu.corpus_score([hypothesis], [[reference]])
        rows.append([*score.counts, *score.totals, score.sys_len, score.ref_len])
    return torch.tensor(rows, dtype=torch.float64).view(-1, 10)


def bleu_of(statistics: Tensor) -> Tensor:
    """Return BLEU-4 (…,) in percent from summed `bleu_statistics` (…, 10), with the smoothing of sacreBLEU.

    Examples:
        >>> rows = bleu_statistics(["a dog runs on grass", "a cat"], ["a dog runs on grass", "a cat sleeps"])
        >>> bleu_of(rows).round().tolist(), float(bleu_of(rows.sum(0)).round())  # of both: not the mean of each
        ([100.0, 0.0], 87.0)
    """
    matches, total = statistics[..., :4], statistics[..., 4:8]
    length, reference = statistics[..., 8], statistics[..., 9]
    none = matches == 0
    precision = torch.where(none, 0.5 ** none.cumsum(-1), matches) / total
    penalty = (1 - reference / length.clamp(min=1)).clamp(max=0).exp()
    score = 100 * precision.log().mean(-1).exp() * penalty
    return torch.where((total > 0).all(-1) & ~none.all(-1), score, 0.0)


def by_image(statistics: Tensor, image_ids: Sequence[str]) -> Tensor:
    """Sum statistics (N, k) of sentences over each image, (I, k), so that its sentences are resampled together."""
    number = {image_id: index for index, image_id in enumerate(dict.fromkeys(image_ids))}
    of_image = torch.tensor([number[image_id] for image_id in image_ids])
    return statistics.new_zeros(len(number), statistics.shape[1]).index_add(0, of_image, statistics)


def paired_gain(
    system: Tensor | Sequence[Tensor], baseline: Tensor | Sequence[Tensor], score: Callable[[Tensor], Tensor],
    resamples: int = 1000, seed: int = 0,
) -> Difference:  # fmt: skip
    """Compare two systems on the same sentences by paired bootstrap (Koehn 2004).

    Several runs of a system are resampled alike, and treated as `modules.metrics.intervals.paired_difference` does.

    Args:
        system: (N, k) statistics of each sentence, or of each image (`by_image`); of one run or of several.
        baseline: statistics of the other system, in the same rows; if of as many runs, of the same seeds in the same
            order.
        score: computes scores (…,) from summed statistics (…, k).
        resamples: number of resamples.
        seed: random seed of the resampling.

    Examples:
        >>> wanted = ["a dog runs on grass", "a dog runs fast today"] * 40
        >>> images = [f"{place // 2}.jpg" for place in range(80)]  # two sentences each
        >>> ours, theirs = (bleu_statistics(said, wanted) for said in (wanted, ["a dog runs on ice"] * 80))
        >>> gain = paired_gain(by_image(ours, images), by_image(theirs, images), bleu_of)
        >>> round(gain.value), gain.low > 0
        (52, True)
    """
    ours, theirs = ([side] if isinstance(side, Tensor) else list(side) for side in (system, baseline))
    count, dtype = len(theirs[0]), theirs[0].dtype
    drawn = torch.randint(count, (resamples, count), generator=torch.Generator().manual_seed(seed))
    weights = torch.zeros(resamples, count, dtype=dtype).scatter_add_(1, drawn, torch.ones(drawn.shape, dtype=dtype))
    our_scores, their_scores = (torch.stack([score(run.sum(0)) for run in runs]) for runs in (ours, theirs))
    resampled = [torch.stack([score(weights @ run) for run in runs]).mean(0) for runs in (ours, theirs)]
    gain = float(our_scores.mean() - their_scores.mean())
    return difference(gain, resampled[0] - resampled[1] + gain_shifts(our_scores, their_scores, resamples, seed))


def distinct(sentences: Sequence[str]) -> dict[str, float]:
    """Return `distinct_1` and `distinct_2`: the share of distinct words and word pairs, in % (Li et al. 2016).

    Examples:
        >>> distinct(["a dog", "a cat"])
        {'distinct_1': 75.0, 'distinct_2': 100.0}
    """
    scores = {}
    words = [sentence.split() for sentence in sentences]
    for n in (1, 2):
        grams = [tuple(tokens[i : i + n]) for tokens in words for i in range(len(tokens) - n + 1)]
        scores[f"distinct_{n}"] = 100 * len(set(grams)) / max(1, len(grams))
    return scores


def pairwise_bleu(groups: Sequence[Sequence[str]]) -> float:
    """Return the mean BLEU-4 between two sentences of a group, in %; 0 if no group has two sentences.

    Self-BLEU (Zhu et al. 2018) uses all other sentences as references, so it grows with their number; this does not.

    Examples:
        >>> round(pairwise_bleu([["a dog runs", "a dog runs"], ["alone"]])), pairwise_bleu([["alone"]])
        (100, 0.0)
    """
    bleu = BLEU(tokenize="none", force=True, effective_order=True)
    scores = [
        bleu.sentence_score(sentence, [other]).score
        for group in groups
        for i, sentence in enumerate(group)
        for j, other in enumerate(group)
        if i != j
    ]
    return sum(scores) / max(1, len(scores))


def ambiguity_scores(
    hypotheses: Sequence[str], references: Sequence[str], twin_references: Sequence[str],
    words: Sequence[str], expected: Sequence[str],
) -> dict[str, float]:  # fmt: skip
    """Return how often a visually ambiguous word is translated correctly for its image, in percent.

    Args:
        hypotheses: Moses-tokenised lower-cased translations.
        references: the human translation of each, tokenised in the same way.
        twin_references: the human translation of the same source sentence for the twin image.
        words: the ambiguous source word of each; scores are also given for each word.
        expected: the correct translation of that word.

    Returns:
        `ambiguous`: share of hypotheses with the expected word; `ambiguous:<word>`: the same for one source word;
        `other_words`: share of the words common to both references that the hypothesis contains (if there are any).

    Examples:
        >>> references, twins = ["ein roter schläger"] * 2, ["eine rote fledermaus"] * 2
        >>> said = ["ein roter schläger", "eine rote fledermaus"]
        >>> ambiguity_scores(said, references, twins, ["bat", "bat"], ["Schläger", "Schläger"])
        {'ambiguous': 50.0, 'ambiguous:bat': 50.0}
    """
    right: dict[str, list[bool]] = {}
    agreed = contained = 0
    for hypothesis, reference, twin, word, noun in zip(
        hypotheses, references, twin_references, words, expected, strict=True
    ):
        output = Counter(hypothesis.split())
        right.setdefault(word, []).append(noun.lower() in output)
        common = Counter(reference.split()) & Counter(twin.split())
        agreed += common.total()
        contained += (common & output).total()
    scores = {f"ambiguous:{word}": 100 * sum(hits) / len(hits) for word, hits in sorted(right.items())}
    hits = [hit for word in right.values() for hit in word]
    other_words = {"other_words": 100 * contained / agreed} if agreed else {}
    return {"ambiguous": 100 * sum(hits) / len(hits)} | other_words | scores
