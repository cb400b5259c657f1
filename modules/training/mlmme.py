"""Training of multilingual multimodal embeddings (MLMME, Calixto et al. 2017)."""

from typing import Any

from torch import Tensor

from modules.losses.captions import between_captions
from modules.retrieval_models.base import Batch
from modules.training.retrieval import Retrieval


class MlmmeTraining(Retrieval):
    """The losses of MLMME's Eq. 1-3, by whatever ranking loss the recipe sets."""

    model: Any  # an `Mlmme`, whose file imports this one

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
