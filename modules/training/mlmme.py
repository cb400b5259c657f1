"""Training of multilingual multimodal embeddings (MLMME, Calixto et al. 2017)."""

from dataclasses import replace
from typing import Any

from torch import Tensor

from modules.losses.captions import between_captions
from modules.losses.pairs import Pairs
from modules.retrieval_models.base import Batch, Encoding
from modules.training.retrieval import Retrieval


class MlmmeTraining(Retrieval):
    """The losses of MLMME's Eq. 1-3, by whatever ranking loss the recipe sets."""

    model: Any  # an `Mlmme`, whose file imports this one

    def gather(self, batch: Batch, images: Encoding, captions: Encoding) -> Pairs:
        """Gather the encodings of all devices, captions in an order of their own, so that draws are by content."""
        pairs = super().gather(batch, images, captions)
        order = pairs.sentences.argsort(stable=True)
        order = order[pairs.caption_image[order].argsort(stable=True)]
        vectors, mask = pairs.captions
        return replace(
            pairs, captions=(vectors[order], mask[order]), caption_image=pairs.caption_image[order],
            positives=pairs.positives[:, order], negatives=pairs.negatives[:, order], types=pairs.types[order],
            languages=pairs.languages[order], sentences=pairs.sentences[order],
        )  # fmt: skip

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Return β S_I as `ranking` and (1 − β) S_S as `between_captions`, without those whose weight is 0."""
        model, pairs = self.model, self.gather(batch, *self.encode(batch))
        losses = {}
        if model.beta > 0:
            losses["ranking"] = model.beta * self.ranking_loss(pairs)
        if model.beta < 1:
            languages = len(model.languages)
            term = between_captions(pairs, model.caption_similarity, self.loss_of_captions, languages)
            losses["between_captions"] = (1 - model.beta) * model.each_pair * term
        return self.with_auxiliary(losses, batch, pairs)
