"""Base classes and registry of retrieval models."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from modules.errors import ModelError
from modules.layers.encoders import word_table
from modules.losses.pairs import Pairs
from modules.plugins import registers
from modules.pretrained.image_encoder import ImageEncoder
from modules.pretrained.pretrained_text import PretrainedWords, SentenceVectors, Vectors
from modules.search.encodings import Encoding
from modules.search.scores import inner_product
from modules.translators.beam import BeamSettings

Batch = dict[str, Tensor]
Compared = Literal["captions", "languages"]
"""What a loss between the captions of an image compares: any two of them, or those of two languages."""
Score = Literal["inner product", "vectors", "sets"]
GREEDY = BeamSettings(1)
_NO_DECODER = "it has no decoder; train `gxn` with --vse.options.generate=[i2t]"
_NO_GENERATOR = "it has no generator of pictures; train `gxn` with --vse.options.generate=[t2i]"
MODELS: dict[str, "type[RetrievalModel]"] = {}
register = registers(MODELS, "retrieval model")
"""Registers a class as `vse.model`: `@register("name")`."""


class RetrievalModel(nn.Module, ABC):
    """Base class of models that encode images and captions separately and score every image with every caption.

    Args:
        region_dim: D, size of a region's feature vector; with an image encoder 3·S², the numbers of a picture.
        vocabulary_size: V, entries of the text input.
        languages: training languages; batches refer to them by index.
        dim: H, size of the joint space.
        word_dim: size of a word vector.
        dropout: dropout rate of word vectors.
        pretrained: a text model of `transformers` (a folder, or a name on the hub) whose last hidden states are the
            word vectors; None: a table of word vectors.
        pretrained_vectors: `words`, or `sentences`: the mean of its states is the only vector of a caption, and it is
            frozen.
        pretrained_layer: whose states are averaged for `sentences`, counted from the end.
        image_encoder: arguments of an `ImageEncoder` that makes regions of pictures; None: regions are given.

    Attributes:
        input_dim: numbers of what is given of an image: D of each region, or 3·S² of its picture.
        region_dim: D, size of a region as the layers read it.
    """

    score: Score = "inner product"
    """`inner product` of single vectors (uses FAISS), single `vectors` with another score, or `sets` of vectors."""
    loss: ClassVar[str] = "hardest"
    """The ranking loss of the model's paper, one of `modules.losses.registry.LOSSES`; `vse.loss` overrides it."""
    pretrain_epochs: int = 0
    """Epochs of pre-training; the epochs, the warm-up and the learning rate of a recipe count from their end."""
    given_vectors: ClassVar[bool] = False
    """Can its images be given as vectors of another model? Whether they are is what `vectors_with` gives."""
    on_network: ClassVar[bool] = False
    """Is it made of a dual encoder of `transformers`, which `vse.pretrained` names?"""
    taught: ClassVar[bool] = False
    """Does it need a teacher, another model whose space it learns?"""
    changes: ClassVar[int] = 0
    """How often its training has changed: where it is raised, it is trained again."""
    languages_apart: ClassVar[bool] = False
    """Sum the ranking losses of each language's captions, instead of one loss of all captions."""
    takes_caption_loss: ClassVar[bool] = True
    """Does its training read `vse.caption_loss`? Not where the model has a loss between captions of its own."""
    has_graphs: bool = True
    """May a training step on a GPU be a CUDA graph? Not where it reads values on the host, or an epoch, an option or a
    counter that changes between steps."""
    writes: bool = False
    """Does this model write captions (`write_captions`)? What `writes_with` gives for its options."""
    draws: bool = False
    """Does this model draw pictures (`draw_images`)? What `draws_with` gives for its options."""

    def __init__(
        self, region_dim: int, vocabulary_size: int, languages: Sequence[str], dim: int = 512,
        word_dim: int = 300, dropout: float = 0.0, pretrained: str | None = None,
        pretrained_vectors: Literal["words", "sentences"] = "words", pretrained_layer: int = -1,
        image_encoder: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.languages = list(languages)
        self.image_encoder = None if image_encoder is None else ImageEncoder(region_dim, **image_encoder)
        self.input_dim, self.vocabulary_size = region_dim, vocabulary_size
        self.region_dim = region_dim if self.image_encoder is None else self.image_encoder.width
        self.dim, self.word_dim, self.dropout, self.pretrained = dim, word_dim, dropout, pretrained
        self.pretrained_vectors, self.pretrained_layer = pretrained_vectors, pretrained_layer
        self.word_tables: list[nn.Embedding] = []  # made by `make_words`
        self.figures: dict[str, Tensor] = {}  # measured by `auxiliary_losses`, logged beside the losses

    @classmethod
    def score_with(cls, **options: Any) -> Score:
        """Return the kind of score of a model that is built with these options; others than its own are ignored."""
        return cls.score

    @classmethod
    def module(cls) -> type | None:
        """Return a subclass of `modules.training.retrieval.Retrieval` with another step, or None for `Retrieval`.

        It is imported here: a trained model is used without Lightning.
        """
        return None

    @classmethod
    def needs_pairs(cls, **options: Any) -> Compared | None:
        """Return what a loss between the captions of one image compares, with these options; None: there is none."""
        return None

    @classmethod
    def pixels_with(cls, **options: Any) -> int | None:
        """Return the size of the pictures that a model with these options learns from; None, the default: none."""
        return None

    @classmethod
    def writes_with(cls, **options: Any) -> bool:
        """Return whether a model with these options writes captions; by default it does not."""
        return False

    @classmethod
    def draws_with(cls, **options: Any) -> bool:
        """Return whether a model with these options draws pictures; by default it does not."""
        return False

    @classmethod
    def vectors_with(cls, **options: Any) -> bool:
        """Return whether the images of a model with these options are given as vectors."""
        return cls.given_vectors

    @property
    def reads_pixels(self) -> bool:
        """Are its images given as pixels?"""
        return self.image_encoder is not None

    def finish(self, scale: float | None = None, bias: float | None = None) -> None:
        """Do what there is to do with the best weights before they are written; by default nothing.

        Args:
            scale: the logarithm that the ranking loss has learned; None: it has none.
            bias: the same.
        """

    @classmethod
    def branches_with(cls, **options: Any) -> tuple[str, ...]:
        """Return the parts of a model with these options whose vectors can be compared alone; by default none."""
        return ()

    def see(self, images: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return the regions (B, R, D) and mask (B, R) that the other methods read.

        Given are they themselves or, for a model with an image encoder, pictures (B, 1, 3·S²) and their mask (B, 1).
        """
        if self.image_encoder is None:
            return images, mask
        regions: Tensor = self.image_encoder(images[:, 0])
        return regions, mask.expand(-1, regions.shape[1])

    @abstractmethod
    def encode_images(self, regions: Tensor, mask: Tensor) -> Encoding:
        """Encode images: regions (B, R, D) and their mask (B, R), as `see` returns them."""

    @abstractmethod
    def encode_captions(self, tokens: Tensor, lengths: Tensor, languages: Tensor) -> Encoding:
        """Encode captions: tokens (B, L), lengths (B,) on the CPU, languages (B,) as indexes."""

    def of_branch(self, encoding: Encoding, branch: str) -> Encoding:
        """Return the vectors of one branch out of those of encodings; ModelError if there is no such branch."""
        raise ModelError(f"{type(self).__name__} has no branch {branch!r}; `gxn` has branches")

    def universal_of(self, tokens: Tensor, lengths: Tensor, languages: Tensor) -> Tensor | None:
        """Return the vectors (C, U) of captions in a space that all languages share; None if there are none."""
        return None

    def region_weights(self, regions: Tensor, mask: Tensor) -> Tensor | None:
        """Return how the model's own heads share their attention among the regions of each image, whatever the caption.

        Args:
            regions: (B, R, D).
            mask: (B, R), true for real regions.

        Returns:
            (B, K, R) of K heads, each of sum 1 and zero at padding; None, the default: the model has no such heads.
        """
        return None

    def tensors_of(self, sentences: Sequence[Sequence[int]], languages: str | Sequence[str]) -> tuple[Tensor, ...]:
        """Return tokens (C, L), lengths (C,), languages (C,) of sentences as token numbers, in one language or many."""
        named = [languages] * len(sentences) if isinstance(languages, str) else languages
        rows = [torch.tensor(sentence, dtype=torch.long) for sentence in sentences]  # one may be empty
        tokens = pad_sequence(rows, batch_first=True).to(next(self.parameters()).device)
        lengths, numbers = torch.tensor([*map(len, sentences)]), torch.tensor([*map(self.languages.index, named)])
        return tokens, lengths, numbers.to(tokens.device)

    def encode_sentences(self, sentences: Sequence[Sequence[int]], languages: str | Sequence[str]) -> Encoding:
        """Encode sentences as token numbers, in one language or many, on the model's device."""
        return self.encode_captions(*self.tensors_of(sentences, languages))

    def similarity(self, images: Encoding, captions: Encoding) -> Tensor:
        """Return scores (I, C) of every image with every caption; by default the inner product of single vectors."""
        return inner_product(images[0][:, 0], captions[0][:, 0])

    def caption_similarity(self, one: Encoding, other: Encoding) -> Tensor:
        """Return scores (N, M) of captions in two languages; by default as if the first ones were images."""
        return self.similarity(one, other)

    def auxiliary_losses(self, batch: Batch, pairs: Pairs) -> dict[str, Tensor]:
        """Return further weighted losses by name, which are added to the ranking loss and logged.

        Args:
            batch: this device's part of the batch.
            pairs: the encodings of all devices, and which pairs match.
        """
        return {}

    def write_captions(
        self, regions: Tensor, mask: Tensor, languages: Tensor, settings: BeamSettings = GREEDY
    ) -> list[list[int]]:
        """Return a caption of each image as token numbers, by beam search.

        Args:
            regions: (B, R, D).
            mask: (B, R), true for real regions.
            languages: (B,) of the captions, as indexes.
            settings: of the search; greedy by default.

        Raises:
            ModelError: the model has no decoder.
        """
        raise ModelError(f"{type(self).__name__} writes no captions: {_NO_DECODER}")

    def caption_likelihoods(
        self, regions: Tensor, mask: Tensor, image_index: Tensor, tokens: Tensor, lengths: Tensor, languages: Tensor
    ) -> Tensor:
        """Return log p(caption | image) (C,), natural logarithms, summed over the words and the end of a caption.

        Args:
            regions: (B, R, D).
            mask: (B, R), true for real regions.
            image_index: (C,) row of each caption's image.
            tokens: (C, L), padded with zeros.
            lengths: (C,) on the CPU.
            languages: (C,) as indexes.

        Raises:
            ModelError: the model has no decoder.
        """
        raise ModelError(f"{type(self).__name__} writes no captions: {_NO_DECODER}")

    def draw_images(self, tokens: Tensor, lengths: Tensor, languages: Tensor, seed: int) -> Tensor:
        """Return the images (B, 3, S, S) in −1…1 that the model imagines of captions.

        Args:
            tokens: (B, L).
            lengths: (B,) on the CPU.
            languages: (B,) as indexes.
            seed: of the noise; each image of a batch has its own.

        Raises:
            ModelError: the model has no generator of pictures.
        """
        raise ModelError(f"{type(self).__name__} draws no images: {_NO_GENERATOR}")

    def make_words(self) -> nn.Embedding | PretrainedWords | SentenceVectors:
        """Return the layer from token ids (B, L) to word vectors (B, L, its `embedding_dim`), as set in the recipe.

        With sentence vectors it gives one vector a caption, (B, 1, …): read it by
        `modules.pretrained.pretrained_text.read_words`.

        Raises:
            ModelError: the pretrained model is not found, or has fewer tokens than the text input.
        """
        if self.pretrained is not None:
            words: PretrainedWords | SentenceVectors
            if self.pretrained_vectors == "sentences":
                words = SentenceVectors(self.pretrained, self.pretrained_layer)
            else:
                words = PretrainedWords(self.pretrained)
            if self.vocabulary_size - 1 > words.vocabulary_size:  # the text input includes padding
                raise ModelError(
                    f"vse.pretrained {self.pretrained!r}: its tokenizer has {self.vocabulary_size - 1} entries, but "
                    f"the model {words.vocabulary_size}; use the tokenizer of this model"
                )
            return words
        self.word_tables.append(word_table(self.vocabulary_size, self.word_dim))
        return self.word_tables[-1]

    def look_up_sentences(self, vectors: Vectors, first: int) -> None:
        """Read captions whose only token is `first` or more from the rows of vectors (n, E) of sentences."""
        for part in self.modules():
            if isinstance(part, SentenceVectors):
                part.look_up(vectors, first)

    def load_text_model(self) -> None:
        """Load the text model that sentence vectors are computed by, if there is one; ModelError if it is not found."""
        for part in self.modules():
            if isinstance(part, SentenceVectors):
                part.load_text_model()

    def weights_were_set(self) -> None:
        """Called when a training starts from weights of a trained model."""

    def set_word_vectors(self, vectors: Tensor, numbers: Tensor | None = None) -> None:
        """Initialise the word tables with word vectors, before training; may be called several times.

        Args:
            vectors: (n, word_dim).
            numbers: (n,) vocabulary entries that they are of, the others stay as they are; None: all V entries.

        Raises:
            ModelError: the model has no table of word vectors.
        """
        if not self.word_tables:
            raise ModelError(
                f"{type(self).__name__} has no table of word vectors; set vse.words=random, without vse.word_vectors"
            )
        for table in self.word_tables:
            if numbers is None:
                table.weight.data.copy_(vectors)
            else:
                table.weight.data[numbers] = vectors.to(table.weight.dtype)


def one_vector(vectors: Tensor) -> Encoding:
    """Convert single vectors (N, H) to an encoding (N, 1, H) with its mask."""
    return vectors[:, None], vectors.new_ones(vectors.shape[0], 1).bool()
