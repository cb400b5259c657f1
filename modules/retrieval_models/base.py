"""The interface of all retrieval models."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeVar

from torch import Tensor, nn

from modules.encoders import word_table
from modules.encodings import Encoding
from modules.errors import ModelError
from modules.pretrained import PretrainedWords
from modules.scores import inner_product, order_violation

Batch = dict[str, Tensor]


@dataclass(frozen=True)
class Pairs:
    """A batch's encodings on all devices together, and what belongs together in it.

    Attributes:
        images: encodings of I images, each once.
        captions: encodings of C captions.
        caption_image: (C,) row of each caption's image.
        positives: (I, C) bool, which caption belongs to which image.
        negatives: (I, C) bool, which may be pushed apart.
        types: (C,) language type of each caption.
        languages: (C,) language of each caption, by its place in the model's.
        sentences: (C,) hash of each caption's normalised sentence.
    """

    images: Encoding
    captions: Encoding
    caption_image: Tensor
    positives: Tensor
    negatives: Tensor
    types: Tensor
    languages: Tensor
    sentences: Tensor


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
        pretrained: a text model of `transformers` (a folder, or a name on the hub) whose last states stand for the
            word vectors; None: a table of them.
    """

    score: ClassVar[Literal["inner product", "vectors", "sets"]] = "inner product"
    """`inner product` of single vectors (FAISS indexes it), `vectors` with a score of their own, or `sets`."""
    loss: ClassVar[str] = "hardest"
    """The ranking loss of its paper, one of `modules.losses.LOSSES`; a recipe's `vse.loss` overrules it."""
    languages_apart: ClassVar[bool] = False
    """The ranking loss is that of each language's captions alone, summed; else all captions compete."""
    module: ClassVar[type | None] = None
    """A subclass of `modules.retrieval.Retrieval` for a model that needs another update; None: the plain one."""

    def __init__(
        self, region_dim: int, vocabulary_size: int, languages: Sequence[str], dim: int = 512,
        word_dim: int = 300, dropout: float = 0.0, pretrained: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.languages = list(languages)
        self.region_dim, self.vocabulary_size = region_dim, vocabulary_size
        self.dim, self.word_dim, self.dropout, self.pretrained = dim, word_dim, dropout, pretrained
        self._tables: list[nn.Embedding] = []

    @abstractmethod
    def encode_images(self, regions: Tensor, mask: Tensor) -> Encoding:
        """Encode images: regions (B, R, D) and their mask (B, R)."""

    @abstractmethod
    def encode_captions(self, tokens: Tensor, lengths: Tensor, languages: Tensor) -> Encoding:
        """Encode captions: tokens (B, L), lengths (B,) on the CPU, languages (B,) as places in `self.languages`."""

    def similarity(self, images: Encoding, captions: Encoding) -> Tensor:
        """Scores (I, C) of every image with every caption; here the inner product of their one vector."""
        return inner_product(images[0][:, 0], captions[0][:, 0])

    def auxiliary_losses(self, batch: Batch, pairs: Pairs) -> dict[str, Tensor]:
        """Further losses by name, already weighted; they are added to the ranking loss and logged.

        Args:
            batch: this device's part of the batch.
            pairs: the encodings of all devices' parts, and what belongs together in them.
        """
        return {}

    def make_words(self) -> nn.Embedding | PretrainedWords:
        """What turns token numbers (B, L) into word vectors (B, L, its `embedding_dim`), as the recipe wants it.

        Raises:
            ModelError: there is no such pretrained model, or it knows fewer tokens than the text input.
        """
        if self.pretrained is not None:
            words = PretrainedWords(self.pretrained)
            if self.vocabulary_size - 1 > words.vocabulary_size:  # the text input counts padding too
                raise ModelError(
                    f"vse.pretrained {self.pretrained!r}: its tokenizer has {self.vocabulary_size - 1} entries, but "
                    f"the model {words.vocabulary_size}; they do not belong together"
                )
            return words
        self._tables.append(word_table(self.vocabulary_size, self.word_dim))
        return self._tables[-1]

    def set_word_vectors(self, vectors: Tensor) -> None:
        """Start from given word vectors (V, word_dim), a row a vocabulary entry.

        Raises:
            ModelError: the model made no table of word vectors.
        """
        if not self._tables:
            raise ModelError(f"{type(self).__name__} has no table of word vectors; set vse.words=random")
        for table in self._tables:
            table.weight.data.copy_(vectors)


class ByOrder(RetrievalModel):
    """Makes a model of single unit vectors an order embedding: absolute values, captions above their images.

    The score is −‖max(0, t − v)‖² (Vendrov et al. 2016).
    """

    score = "vectors"

    def encode_images(self, regions: Tensor, mask: Tensor) -> Encoding:
        """Images as one unit vector without signs each."""
        vectors, real = super().encode_images(regions, mask)  # type: ignore[safe-super]
        return vectors.abs(), real

    def encode_captions(self, tokens: Tensor, lengths: Tensor, languages: Tensor) -> Encoding:
        """Captions as one unit vector without signs each."""
        vectors, real = super().encode_captions(tokens, lengths, languages)  # type: ignore[safe-super]
        return vectors.abs(), real

    def similarity(self, images: Encoding, captions: Encoding) -> Tensor:
        """Scores (I, C), 0 at the most."""
        return order_violation(captions[0][:, 0], images[0][:, 0]).t()


def register(name: str) -> Callable[[M], M]:
    """Give a retrieval model the name that recipes know it by.

    Raises:
        ModelError: another class has it. (The same class again, from a module that is read anew, takes its place.)
    """

    def add(kind: M) -> M:
        """Enter the class under its name."""
        ours, theirs = (f"{one.__module__}.{one.__qualname__}" for one in (kind, MODELS.get(name, kind)))
        if ours != theirs:
            raise ModelError(f"retrieval model {name!r} is registered twice: {theirs} and {ours}")
        MODELS[name] = kind
        return kind

    return add


def one_vector(vectors: Tensor) -> Encoding:
    """Single vectors (N, H) as an encoding (N, 1, H) with its mask."""
    return vectors[:, None], vectors.new_ones(len(vectors), 1).bool()
