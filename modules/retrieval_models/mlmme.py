"""Multilingual multimodal embeddings (MLMME, Calixto et al. 2017)."""

from typing import Any, Literal, get_args

from torch import Tensor, nn
from torch.nn import functional as F

from modules.errors import ModelError
from modules.layers.encoders import LanguageEncoders, LastState, masked_mean
from modules.layers.recurrent import widen
from modules.pretrained.pretrained_text import read_words
from modules.retrieval_models.base import Compared, Encoding, RetrievalModel, one_vector, register

Map = Literal["own", "shared"]


@register("mlmme")
class Mlmme(RetrievalModel):
    """The last state of a GRU for each language, and the mean region, each mapped linearly to the joint space; cosine.

    Loss (Eq. 3): β · S_I of images and sentences + (1 − β) · S_S of sentences in every two languages, hinges against
    contrastive examples that are drawn at random. β = 1 in one language is VSE (Kiros et al. 2014).

    Args:
        beta: β, from 0 to 1.
        state_dim: size of the GRUs' states; None: H / 2, the paper's 1024 for H = 2048.
        map: `own`: each language has its own map to the joint space; `shared`: one for all (the published code).
        each_pair: how often S_S counts a pair of languages: 2, as Eq. 2 is printed, or 1 (the published code).
        common: see `RetrievalModel`; `dropout` is of the state and of the image, before they are mapped.
    """

    loss = "random"
    languages_apart = True
    takes_caption_loss = False

    def __init__(
        self, beta: float = 1.0, state_dim: int | None = None, map: Map = "own", each_pair: int = 2, **common: Any
    ) -> None:
        super().__init__(**common)
        _require_options(beta, map, each_pair)
        self.beta, self.each_pair = beta, each_pair
        state_dim = state_dim or max(1, self.dim // 2)
        self.image = nn.Linear(self.region_dim, self.dim, bias=False)
        self.words = self.make_words()
        sizes = (self.words.embedding_dim, state_dim, 0.0)
        self.states = LanguageEncoders(self.languages, lambda: LastState(nn.Identity(), *sizes))
        maps = self.languages if map == "own" else ["shared"]
        self.maps = nn.ModuleDict({name: nn.Linear(state_dim, self.dim) for name in maps})
        self._start()

    @classmethod
    def module(cls) -> type:
        """Return `MlmmeTraining`."""
        from modules.training.mlmme import MlmmeTraining

        return MlmmeTraining

    @classmethod
    def needs_pairs(cls, **options: Any) -> Compared | None:
        """Sentences in two languages, unless β is 1."""
        return "languages" if options.get("beta", 1.0) < 1 else None

    def encode_images(self, regions: Tensor, mask: Tensor) -> Encoding:
        """Encode images as single unit vectors."""
        mean = F.dropout(masked_mean(regions, mask), self.dropout, self.training)
        return one_vector(F.normalize(widen(self.image(mean)), dim=-1))

    def encode_captions(self, tokens: Tensor, lengths: Tensor, languages: Tensor) -> Encoding:
        """Encode captions as single unit vectors; ModelError if a language has no encoder."""
        states = self.states(*read_words(self.words, tokens, lengths), languages)
        states = F.dropout(states, self.dropout, self.training)
        if "shared" in self.maps:
            mapped = self.maps["shared"](states)
        else:
            every = [self.maps[name](states) for name in self.languages]
            mapped = sum(own * (languages == place)[:, None] for place, own in enumerate(every))
        return one_vector(F.normalize(widen(mapped), dim=-1))

    def _start(self) -> None:
        """The paper's start values: N(0, 0.01²), orthogonal recurrent matrices, biases 0; words as in other models."""
        for name, parameter in self.named_parameters():
            if name.startswith("words."):  # a pretrained text model, if there is one, has its own
                continue
            if "bias" in name:
                nn.init.zeros_(parameter)
            elif "weight_hh" in name:
                for gate in parameter.chunk(3):
                    nn.init.orthogonal_(gate)
            else:
                nn.init.normal_(parameter, std=0.01)


def _require_options(beta: float, map: str, each_pair: int) -> None:
    if not 0 <= beta <= 1:
        raise ModelError(f"beta is {beta}; expected 0 to 1")
    if map not in get_args(Map):
        raise ModelError(f"map {map!r}: expected {' or '.join(get_args(Map))}")
    if each_pair not in (1, 2):
        raise ModelError(f"each_pair is {each_pair}; expected 1 or 2")
