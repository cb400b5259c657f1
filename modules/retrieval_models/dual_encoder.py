"""Dual encoders of `transformers` as retrieval models, and students that learn their space, or another model's."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from torch import Tensor, nn
from torch.nn import functional as F

from modules.errors import ModelError
from modules.layers.encoders import AttentionPool, CaptionEncoder, masked_mean
from modules.layers.recurrent import widen
from modules.pretrained.dual_network import DualNetwork, Tower, is_of
from modules.retrieval_models.base import MODELS, Encoding, RetrievalModel, one_vector, register


class OnImageVectors(RetrievalModel):
    """Base class of models of text whose images are vectors of another model.

    In training they are given, one "region" an image, so that an image is encoded once for all rows and seeds. With
    `image_side` that model is a part of this one and encodes the images, as in a model that is exported.

    Args:
        image_side: `model` and `arguments` of the retrieval model that encodes images; None: their vectors are given.
        vector_dim: H, numbers of such a vector; None: `region_dim`, as they are given.
        common: see `RetrievalModel`.

    Attributes:
        image_side: that model, or None.
    """

    given_vectors = True

    def __init__(
        self, image_side: dict[str, Any] | None = None, vector_dim: int | None = None, **common: Any
    ) -> None:  # fmt: skip
        super().__init__(**common)
        self.vector_dim = self.input_dim if vector_dim is None else vector_dim
        self.image_side: RetrievalModel | None = None
        if image_side is not None:
            self.image_side = MODELS[image_side["model"]](**image_side["arguments"]).requires_grad_(False)

    @property
    def reads_pixels(self) -> bool:
        """Are its images given as pixels?"""
        return self.image_side is not None and self.image_side.reads_pixels

    def see(self, images: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return what `encode_images` reads: of the images' own model, or their vectors as they are given."""
        return (images, mask) if self.image_side is None else self.image_side.see(images, mask)

    def encode_images(self, regions: Tensor, mask: Tensor) -> Encoding:
        """Encode images as single unit vectors."""
        if self.image_side is None:
            return one_vector(widen(regions[:, 0]))
        return self.image_side.encode_images(regions, mask)

    def region_weights(self, regions: Tensor, mask: Tensor) -> Tensor | None:
        """Return those of the images' own model; None where vectors are given."""
        return None if self.image_side is None else self.image_side.region_weights(regions, mask)

    def train(self, mode: bool = True) -> "OnImageVectors":
        """Set the training mode; the images' own model stays in evaluation mode."""
        super().train(mode)
        if self.image_side is not None:
            self.image_side.train(False)
        return self


@register("dual-encoder")
class DualEncoder(OnImageVectors):
    """A pretrained network with a tower for pictures and one for text (CLIP, Radford et al. 2021; SigLIP, Zhai et al.
    2023; SigLIP 2, Tschannen et al. 2025; MetaCLIP 2, AltCLIP, Chinese-CLIP): its own vectors, words, scale and bias.

    Interpretation: texts of SigLIP and SigLIP 2 are padded to the length that they were trained with, and padding is
    read as words are, as its authors do it, whatever the tokenizer says of masks. Its ranking loss is the one that the
    network was trained with, InfoNCE or the sigmoid loss. A frozen tower, and one whose projection alone is trained,
    drop nothing; others drop what the network's configuration says.

    Args:
        text: what of the text tower is trained: `frozen`, `head` (what projects its pooled state), `lora` (adapters of
            its attention; extra `lora`) or `full`.
        image: the same of the image tower; if it is `frozen`, vectors of images are computed once.
        lora_rank: rank of the adapters (Hu et al. 2022).
        network: arguments of its `DualNetwork`, which `vse.pretrained` names.
        common: see `RetrievalModel`, `OnImageVectors`.

    Raises:
        ModelError: there is no such network.
    """

    loss = "infonce"
    on_network: ClassVar[bool] = True
    has_graphs = False

    def __init__(
        self, text: Tower = "full", image: Tower = "frozen", lora_rank: int = 8, network: dict[str, Any] | None = None,
        **common: Any,
    ) -> None:  # fmt: skip
        super().__init__(**common)
        if lora_rank < 1:
            raise ModelError(f"vse.options.lora_rank is {lora_rank}; expected 1 or more")
        self.towers, self.rank = {"text": text, "image": image}, lora_rank
        self.network: DualNetwork | None = None  # none where options alone are checked
        if network is not None:
            self.network = DualNetwork(**network)
            self.dim = self.network.dim
            self.loss = "sigmoid" if self.network.has_bias else "infonce"  # type: ignore[misc]
            if self.network.towers == "text" and self.vector_dim != self.dim:
                raise ModelError(
                    f"vse.pretrained has vectors of {self.dim} numbers, but those of the images have "
                    f"{self.vector_dim}; take another teacher, or the network whose vectors they are"
                )

    @classmethod
    def vectors_with(cls, **options: Any) -> bool:
        """Return whether vectors of images are given: if the image tower is frozen."""
        return options.get("image", "frozen") == "frozen"

    @property
    def reads_pixels(self) -> bool:
        """Are its images given as pixels?"""
        own = self.network is not None and self.network.towers != "text"
        return own or super().reads_pixels

    def start(self, name: str) -> dict[str, float]:
        """Load the network's weights and choose what is trained.

        Args:
            name: of the network, a folder or a name on the Hugging Face hub.

        Returns:
            its `scale`.

        Raises:
            ModelError: it is not there or not whole, or adapters need `peft`.
        """
        network = self._network()
        network.load(name)
        network.train_towers(self.towers["text"], self.towers["image"], self.rank)
        return network.scale()

    def scale(self) -> dict[str, float]:
        """The network's `log_scale`, and its `bias` if it has one, by which a loss starts."""
        return self._network().scale()

    def finish(self, scale: float | None = None, bias: float | None = None) -> None:
        """Merge adapters into the weights beside them, and give the network the scale and bias that it has learned."""
        self._network().merge()
        self._network().keep_scale(scale, bias)

    def encode_images(self, regions: Tensor, mask: Tensor) -> Encoding:
        """Encode images as single unit vectors."""
        if self.network is None or self.network.towers == "text":
            return super().encode_images(regions, mask)
        return one_vector(self.network.encode_pictures(regions[:, 0]))

    def encode_captions(self, tokens: Tensor, lengths: Tensor, languages: Tensor) -> Encoding:
        """Encode captions as single unit vectors; one tower for all languages."""
        return one_vector(self._network().encode_text(tokens))

    def _network(self) -> DualNetwork:
        if self.network is None:
            raise ModelError("vse.pretrained names no dual encoder; name a folder or a model of the hub")
        return self.network


def pretrained_encoder(
    name: str, network: dict[str, Any], numbers: int, vocabulary_size: int = 0, languages: Sequence[str] = ()
) -> tuple[DualEncoder, dict[str, Any]]:
    """A dual encoder with the weights of its network as they are, and the arguments that it is made by.

    Args:
        name: of the network, a folder or a name on the hub.
        network: `dual_network_arguments` of it, and which towers it has.
        numbers: of a picture that it is given.
        vocabulary_size: of what it reads words with; 0: it has no text tower.
        languages: of the captions that it will read.

    Raises:
        ModelError: there is no such network.
    """
    arguments: dict[str, Any] = {
        "region_dim": numbers, "vocabulary_size": vocabulary_size, "languages": list(languages), "pretrained": name,
        "image": "full", "network": network,
    }  # fmt: skip
    model = DualEncoder(**arguments)
    model._network().load(name)
    return model, arguments


def image_tower_alone(
    arguments: Mapping[str, Any], weights: Mapping[str, Tensor]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Arguments and weights of a dual encoder without its text tower, which is the larger one in multilingual networks.

    Args:
        arguments: by which it is made.
        weights: by name.
    """
    kept = {}
    for name, tensor in weights.items():
        part, _, inner = name.removeprefix("network.network.").partition(".")
        if not inner or is_of(part, "image"):  # a name without parts is a scale or a bias
            kept[name] = tensor
    return {**arguments, "network": arguments["network"] | {"towers": "image"}}, kept


@register("student")
class Student(OnImageVectors):
    """A text encoder that learns a teacher's vectors of sentences for their translations, and so finds its images
    (Reimers and Gurevych 2020; for images Carlsson et al. 2022).

    Words are word vectors with a Bi-LSTM and attention pooling (as SAN's), or the states of a pretrained text model
    (`vse.pretrained`), pooled by attention or their mean; a linear layer maps them to the teacher's space. The loss is
    in `modules.losses.teaching`.

    Args:
        pooling: of states, `attention` or `mean` (Reimers and Gurevych's).
        encoder: `lstm`, or `none`: word vectors, or a pretrained text model's states, are pooled as they are.
        common: see `RetrievalModel`, `OnImageVectors`.
    """

    loss = "infonce"
    taught: ClassVar[bool] = True

    def __init__(
        self, pooling: Literal["attention", "mean"] = "attention", encoder: Literal["lstm", "none"] = "lstm",
        **common: Any,
    ) -> None:  # fmt: skip
        super().__init__(**common)
        words = self.make_words()
        width = self.dim if encoder == "lstm" else words.embedding_dim
        self.captions = (
            CaptionEncoder(words, words.embedding_dim, self.dim, self.dropout) if encoder == "lstm" else None
        )
        self.words = words if encoder == "none" else None
        self.pool = AttentionPool(width) if pooling == "attention" else None
        self.project = nn.Linear(width, self.vector_dim)

    def encode_captions(self, tokens: Tensor, lengths: Tensor, languages: Tensor) -> Encoding:
        """Encode captions as single unit vectors; one encoder for all languages."""
        if self.captions is not None:
            states, mask = self.captions(tokens, lengths)
        else:
            assert self.words is not None
            states, mask = F.dropout(self.words(tokens), self.dropout, self.training), tokens > 0
        states = widen(states)
        pooled = masked_mean(states, mask) if self.pool is None else self.pool(states, mask)
        return one_vector(F.normalize(widen(self.project(pooled)), dim=-1))
