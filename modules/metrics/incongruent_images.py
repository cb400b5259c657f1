"""The same sentences translated with one kind of image and with others: what the image changes."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from modules.metrics.ambiguity import Choice, hits
from modules.metrics.translation import bleu_of, bleu_statistics, by_image, paired_gain


def gains_of_own_images(
    translated: Mapping[str, tuple[Sequence[str], Tensor]], references: Sequence[str],
    to_choose: Sequence[Sequence[Choice]], images: Sequence[str],
) -> dict[str, float]:  # fmt: skip
    """Score translations with each kind of image, and what the first kind gains over each other one.

    Args:
        translated: kind of image → N tokenised translations, and (N, 2) the log-probability of each human translation
            with its number of tokens.
        references: human translations, tokenised.
        to_choose: ambiguous words of each sentence; where there are none at all, they are not scored.
        images: of the sentences, whose sentences are resampled together.

    Returns:
        for BLEU, the log-probability of a token, and ambiguous words translated as the human did in percent:
        `<kind>_<measure>`, and `<first>-<kind>_<measure>` with `_low`, `_high` and `_p`.

    Examples:
        >>> own, other = (["ein hund", "ein ball"], torch.ones(2, 2)), (["ein hund", "ein tier"], torch.ones(2, 2))
        >>> scores = gains_of_own_images({"own": own, "other": other}, own[0], [[], []], ["1.jpg", "2.jpg"])
        >>> scores["own_loglik"], scores["own-other_loglik"], "own_ambiguous" in scores
        (1.0, 0.0, False)
    """
    statistics = {
        name: {
            "bleu": bleu_statistics(tokens, references),
            "loglik": likelihood,
            "ambiguous": torch.tensor(
                [[hits(words, text.split()), len(words)] for words, text in zip(to_choose, tokens, strict=True)],
                dtype=torch.float64,
            ),
        }
        for name, (tokens, likelihood) in translated.items()
    }
    rate = {"bleu": bleu_of, "loglik": lambda sums: sums[..., 0] / sums[..., 1],
            "ambiguous": lambda sums: 100 * sums[..., 0] / sums[..., 1].clamp(min=1)}  # fmt: skip
    if not any(to_choose):
        del rate["ambiguous"]
    figures: dict[str, float] = {}
    first, *others = translated
    for measure, score in rate.items():
        summed = {name: by_image(values[measure], images) for name, values in statistics.items()}
        for name in translated:
            figures[f"{name}_{measure}"] = float(score(summed[name].sum(0)))
        for other in others:
            gain = paired_gain(summed[first], summed[other], score)
            name = f"{first}-{other}_{measure}"
            figures |= {name: gain.value, f"{name}_low": gain.low, f"{name}_high": gain.high, f"{name}_p": gain.p_value}
    return figures
