"""What every retrieval model is to the rest of the house."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, Literal, TypeVar

from torch import Tensor, nn

from modules.errors import ModelError

Encoding = tuple[Tensor, Tensor]
"""Vectors (N, T, H) and their mask (N, T); T = 1 where an item is one vector."""

Batch = dict[str, Tensor]
M = TypeVar("M", bound="type[RetrievalModel]")
MODELS: dict[str, "type[RetrievalModel]"] = {}


class RetrievalModel(nn.Module, ABC):
    """Encodes images and captions apart, and scores every image with every caption.

    Args:
        region_dim: D, size of a region's feature vector.
        vocabulary_size: V, entries of the text input.
        languages: the languages it is trained on; batches name one by its place here.
        dim: H, size of the joint space.
        word_dim: size of a word vector.
        dropout: share of the word vectors' numbers dropped while training.
    """

    reads: ClassVar[str] = "words"
    """The text input it wants: `words` (a vocabulary of whole words)."""
    score: ClassVar[Literal["inner product", "vectors", "sets"]] = "inner product"
    """`inner product` of single vectors (FAISS indexes it), `vectors` with a score of their own, or `sets`."""
    module: ClassVar[type | None] = None
    """A subclass of `modules.retrieval.Retrieval` for a model that needs another update; None: the plain one."""

    def __init__(
        self, region_dim: int, vocabulary_size: int, languages: Sequence[str], dim: int = 512,
        word_dim: int = 300, dropout: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.languages = list(languages)
        self.region_dim, self.vocabulary_size = region_dim, vocabulary_size
        self.dim, self.word_dim, self.dropout = dim, word_dim, dropout

    @abstractmethod
    def encode_images(self, regions: Tensor, mask: Tensor) -> Encoding:
        """Encode images: regions (B, R, D) and their mask (B, R)."""

    @abstractmethod
    def encode_captions(self, tokens: Tensor, lengths: Tensor, languages: Tensor) -> Encoding:
        """Encode captions: tokens (B, L), lengths (B,) on the CPU, languages (B,) as places in `self.languages`."""

    def similarity(self, images: Encoding, captions: Encoding) -> Tensor:
        """Scores (I, C) of every image with every caption; here the inner product of their one vector."""
        return images[0][:, 0] @ captions[0][:, 0].t()

    def auxiliary_losses(self, batch: Batch, images: Encoding, captions: Encoding) -> dict[str, Tensor]:
        """Further losses by name, already weighted; they are added to the ranking loss and logged."""
        return {}

    def set_word_vectors(self, vectors: Tensor) -> None:
        """Start from given word vectors (V, word_dim), a row a vocabulary entry, where the model has words."""
        raise NotImplementedError(f"{type(self).__name__} reads no word vectors; set vse.words=random")


def register(name: str) -> Callable[[M], M]:
    """Give a retrieval model the name that recipes know it by.

    Raises:
        ModelError: another class has it. (The same class again, from a module that is read anew, takes its place.)
    """

    def add(kind: M) -> M:
        ours, theirs = (f"{one.__module__}.{one.__qualname__}" for one in (kind, MODELS.get(name, kind)))
        if ours != theirs:
            raise ModelError(f"retrieval model {name!r} is registered twice: {theirs} and {ours}")
        MODELS[name] = kind
        return kind

    return add


def one_vector(vectors: Tensor) -> Encoding:
    """Single vectors (N, H) as an encoding (N, 1, H) with its mask."""
    return vectors[:, None], vectors.new_ones(len(vectors), 1).bool()
