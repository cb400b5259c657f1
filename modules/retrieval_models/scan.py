"""SCAN, stacked cross attention network (Lee et al. 2018), in its four forms."""

from typing import Any, ClassVar

from torch import Tensor
from torch.nn import functional as F

from modules.errors import ModelError
from modules.layers.encoders import CaptionEncoder, region_layer
from modules.layers.recurrent import widen
from modules.retrieval_models.base import Encoding, RetrievalModel, register
from modules.search.scores import cross_attention


class SCAN(RetrievalModel):
    """Each word attends to the regions (text to image), or each region to the words, for every image and caption.

    A linear layer over regions, a Bi-GRU over words whose directions are averaged, all of unit norm; the score is
    `modules.search.scores.cross_attention`. λ1 and λ2 are the paper's (LSE from images: 5 on Flickr30K, 20 on COCO).

    Args:
        lambda_softmax: λ1, inverse temperature of attention.
        lambda_lse: λ2 of log-sum-exp pooling; None: mean pooling.
        common: see `RetrievalModel`.
    """

    score = "sets"
    words_attend: ClassVar[bool] = True
    """True: words are queries and regions are the context (t2i); False: the reverse (i2t)."""

    def __init__(self, lambda_softmax: float, lambda_lse: float | None, **common: Any) -> None:
        for name, value in (("lambda_softmax", lambda_softmax), ("lambda_lse", lambda_lse)):
            if value is not None and value <= 0:
                raise ModelError(f"scan: {name} is {value:g}; expected a number above 0")
        super().__init__(**common)
        self.lambda_softmax, self.lambda_lse = lambda_softmax, lambda_lse
        self.regions = region_layer(self.region_dim, self.dim)
        words = self.make_words()
        self.captions = CaptionEncoder(words, words.embedding_dim, self.dim, self.dropout, cell="gru")

    def encode_images(self, regions: Tensor, mask: Tensor) -> Encoding:
        """Encode images as sets of unit vectors (B, R, H), one per region."""
        return F.normalize(widen(self.regions(regions)), dim=-1), mask

    def encode_captions(self, tokens: Tensor, lengths: Tensor, languages: Tensor) -> Encoding:
        """Encode captions as sets of unit vectors (B, L, H), one per word; one encoder for all languages."""
        states, mask = self.captions(tokens, lengths)
        return F.normalize(widen(states), dim=-1), mask

    def similarity(self, images: Encoding, captions: Encoding) -> Tensor:
        """Return scores (I, C) by cross attention."""
        if self.words_attend:
            return cross_attention(captions, images, self.lambda_softmax, self.lambda_lse).t()
        return cross_attention(images, captions, self.lambda_softmax, self.lambda_lse)


@register("scan-t2i-avg")
class ScanT2IMean(SCAN):
    """Words attend to regions; mean over words. Options: see `SCAN`."""

    def __init__(self, lambda_softmax: float = 9.0, **common: Any) -> None:
        super().__init__(lambda_softmax, None, **common)


@register("scan-t2i-lse")
class ScanT2ILogSumExp(SCAN):
    """Words attend to regions; log-sum-exp over words. Options: see `SCAN`."""

    def __init__(self, lambda_softmax: float = 9.0, lambda_lse: float = 6.0, **common: Any) -> None:
        super().__init__(lambda_softmax, lambda_lse, **common)


@register("scan-i2t-avg")
class ScanI2TMean(SCAN):
    """Regions attend to words; mean over regions. Options: see `SCAN`."""

    words_attend = False

    def __init__(self, lambda_softmax: float = 4.0, **common: Any) -> None:
        super().__init__(lambda_softmax, None, **common)


@register("scan-i2t-lse")
class ScanI2TLogSumExp(SCAN):
    """Regions attend to words; log-sum-exp over regions. Options: see `SCAN`."""

    words_attend = False

    def __init__(self, lambda_softmax: float = 4.0, lambda_lse: float = 5.0, **common: Any) -> None:
        super().__init__(lambda_softmax, lambda_lse, **common)
