"""Settings of retrieval models: how one is trained, and what is trained and how it is tested."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from data.batches.slots import Slot, parse_group
from data.lines import WORD_VECTORS
from pipeline.errors import RecipeError
from pipeline.recipes.trainer_settings import TrainerSettings
from pipeline.recipes.typed import check_file_name, number, refuse_twice

RANKED_BY = ("by_likelihood", "first", "fuse", "translate")
"""Settings of `vse`, one at most, by which something else than the scores of `vse.model` ranks."""

_OF_A_TEXT_MODEL = ("pretrained", "pretrained_rate", "pretrained_vectors", "pretrained_layer")


def slots_in(groups: Iterable[str]) -> list[Slot]:
    """All slots of the groups of a row, group by group."""
    return [slot for text in groups for slot in parse_group(text)]


@dataclass
class TrainingSettings:
    """How one retrieval model is trained: what its job's key has."""

    model: str = "san"
    """`san`, `dan`, `scan-t2i-avg` …: .docs/pages/models.md lists all."""
    options: dict[str, Any] = field(default_factory=dict)
    """The model's own settings."""
    dim: int = number(512, 1, 10**5)
    """H, size of the joint space."""
    word_dim: int = number(300, 1, 10**5)
    """Size of a word vector."""
    words: Literal["random", "fasttext"] = "random"
    """Start of the word vectors: random, or fastText trained on the row's training captions."""
    min_count: int = number(4, 1)
    """Words seen less often in training captions are unknown."""
    share_words: bool = True
    """Languages share words that are written alike."""
    segment: Literal["characters", "words"] = "characters"
    """How Chinese and Japanese are read: by `characters`, or by `words` that a segmenter finds (extra `asian`)."""
    margin: float = number(0.2, 0)
    """Margin α of hinge losses (Eq. 9 of Huang et al. 2020 names no value); contrastive losses have no margin."""
    type_weights: dict[str, float] = number({}, 0)
    """β of Eq. 9 (Huang et al. 2020) for each slot `language/source`, 0 for those that are not named; empty: equal."""
    warmup_epochs: int = number(1, 0)
    """First epochs of `hardest` and `hardest-k`, whose loss is the mean of hinges over all negatives; 0: none."""
    batch_size: int = number(128, 2, 10**6, hint=": an image is compared with the others of its batch")
    """Images in a batch, with their captions, of all devices together."""
    epochs: int = number(24, 0, 10**6)
    """Passes over the row's captions; 0: nothing is trained, and `dual-encoder` is tested as it is (zero-shot)."""
    steps: int | None = number(None, 1, hint=", or null for all captions")
    """Steps an epoch, to compare rows at equal steps; null: as many as the row's captions fill."""
    learning_rate: float = number(5e-4, above=0, most=1)
    """Learning rate of Adam."""
    decay_epoch: int = number(15, 0)
    """After this epoch the learning rate is multiplied by `decay`."""
    decay: float = number(0.1, above=0, most=1)
    """Factor of the learning rate after `decay_epoch`."""
    warmup_steps: int = number(0, 0, 10**6)
    """Steps in which the learning rate rises to `learning_rate`; 0: it begins there."""
    clip: float = number(2.0, 0)
    """Largest norm of the gradient; 0 does not clip."""
    dropout: float = number(0.0, 0, below=1)
    """Share of word vectors' numbers dropped."""
    select: list[str] = field(default_factory=lambda: ["en"])
    """Languages whose validation rsum chooses the epoch."""
    test: list[str] = field(default_factory=lambda: ["en", "de"])
    """Languages tested, on human captions."""
    loss: str | None = None
    """`hardest` (Eq. 9-10), `infonce` …: .docs/pages/models.md lists all; null: the model's own."""
    negatives: int = number(10, 1, 10**6)
    """K of the loss `hardest-k`: the most violated negatives of an anchor."""
    distance: Literal["cosine", "euclidean"] = "cosine"
    """What the ranking loss compares: scores, or minus the Euclidean distance of unit vectors."""
    decay_every: int = number(0, 0)
    """After `decay_epoch` the learning rate is multiplied by `decay` again after every so many epochs; 0: not again."""
    drop_regions: float = number(0.0, 0, below=1)
    """Share of an image's regions left out while training."""
    drop_words: float = number(0.0, 0, below=1)
    """Share of a caption's words left out while training."""
    pretrained: str | None = None
    """A text model of `transformers` (folder or hub name) whose states stand for word vectors, or the network of
    `dual-encoder`; null: none."""
    pretrained_rate: float = number(0.0, 0)
    """Its learning rate as a share of `learning_rate`; 0 freezes it."""
    pretrained_vectors: Literal["words", "sentences"] = "words"
    """A vector of it for each sub-word, or one for each caption: the mean over its sub-words, computed once for all
    rows and seeds and kept on disk, by the frozen model."""
    pretrained_layer: int = -1
    """Layer whose states `sentences` averages, counted from the end: -1 is the last."""
    word_vectors: dict[str, str] = field(default_factory=dict)
    """Language → file of published vectors (.vec, .vec.gz, .bin), below the data root, that its words start from."""
    caption_loss: float = number(0.0, 0)
    """Weight of the ranking loss between captions of an image in two languages, which `rows` must draw together
    (`en/human + de/human`); 0 leaves it out."""
    weight_decay: float = number(0.0, 0)
    """Weight decay of Adam, added to the gradient."""
    average: float = number(0.0, 0, below=1)
    """Decay of the moving average of the weights, which is what is validated and kept; 0 keeps them as they are."""
    image_encoder: str | None = None
    """A vision network of `transformers` (folder or hub name), like a ResNet, that reads the corpus's pictures: its
    feature map stands for the regions. null: stored regions."""
    image_encoder_rate: float = number(0.0, 0)
    """Its learning rate as a share of `learning_rate`; 0 freezes it."""
    image_encoder_size: int = number(224, 1, 4096)
    """Height and width in pixels of the pictures that it reads: their middle squares, resized."""
    start: list[dict[str, Any]] = field(default_factory=list)
    """Trainings that come first and give their weights to this one, each named by the settings that differ from these
    (`options: {generate: [i2t]}`, `epochs: 10`). If several have the same part, that of the first is taken. The scale
    of a contrastive loss is not taken over, except that of a dual encoder."""
    teacher: dict[str, Any] = field(default_factory=dict)
    """For `student` and `dual-encoder`: a model of single vectors, whose vectors of images and of sentences are learned
    for the slots `de/text:SOURCE` of a row. Give its `row` of `vse.rows` (with the row's settings), its `language`
    (default: en), and the settings that differ from these. Empty: none."""
    teaching_contrast: float = number(0.1, 0)
    """Weight of InfoNCE between sentences and the teacher's vectors, beside 1 − cosine; 0 leaves it out."""
    interpolate: list[float] = number([], 0, 1)
    """WiSE-FT (Wortsman et al. 2022), a weighted mean of start and trained weights: shares of the trained weights,
    of which validation chooses one (`[0, 0.25, 0.5, 0.75, 1]`); empty: the trained weights alone."""
    cached_chunk: int = number(0, 0)
    """Number of images, and of captions, that are encoded together (GradCache, Gao et al. 2021): memory does not grow
    with `batch_size`, but a step takes longer; 0: all at once. For models of single vectors."""
    trainer: TrainerSettings = field(default_factory=TrainerSettings)
    """Overlay of the recipe's trainer."""


@dataclass
class EvaluationSettings:
    """What is trained, once for each row and seed, and how it is tested: no part of a training's key."""

    rows: dict[str, list[str]] = field(default_factory=lambda: {"none": ["en/human"]})
    """Training configuration, a row of the tables → its caption mix: groups that fill batches in equal shares, each a
    slot `language/source`, or slots of one image joined by ` + `, with counts (`2*en/human + de/human`); `0*de/human`
    takes only images without such captions."""
    row_settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Row → settings of its training that differ from these (`model`, `epochs`, `options` …); `options` are laid over
    those of the same model."""
    only: list[str] = field(default_factory=list)
    """Training configurations to train and show; empty: all."""
    seeds: list[int] = number([1], 0)
    """Seeds; one model is trained for each, in each training configuration."""
    unseen: Literal["mark", "error"] = "mark"
    """A tested language without training captions: its figures are marked, or the configuration is refused."""
    folds: int = number(1, 1, 1000)
    """Equal parts of the test images, in the order of the corpus, each ranked by itself; the means of their figures
    stand beside those on all images (COCO's 1K and 5K: 5). Not with `fuse`, `translate`, `first` or `by_likelihood`."""
    retrieved_captions: bool = True
    """Score the captions that a model retrieves for the test images as captions of these images, by BLEU and CIDEr-D.
    Not with `fuse`, `translate`, `first` or `by_likelihood`."""
    forgetting: str | None = None
    """A second data set, on which dual encoders are tested before and after training: a folder of pictures and captions
    or the test of `recipe:NAME`, in all its languages; null: none. Not with `fuse`, `translate`, `first` or
    `by_likelihood`."""
    fuse: list[str] = field(default_factory=list)
    """Models whose similarities are averaged, each trained with these settings, instead of `model`; `san@2` is trained
    with seed 2, `san` with the row's."""
    translate: str | list[str] | None = None
    """Query translation, `mt:de-en` or a list: test captions are translated and ranked by a model of that language."""
    first: str | None = None
    """An indexed model, trained with these settings too, whose first results `model` reranks; null: none."""
    by_likelihood: bool = False
    """`model` reranks its own first results by log p(caption | image) of its decoder."""
    first_k: int = number(100, 1, 10**6)
    """How many first results are reranked, with `first` or `by_likelihood`."""
    reranker: dict[str, Any] = field(default_factory=dict)
    """A second model, trained beside the rows and tested on what `model` finds first. If it is better on validation, it
    is exported with `model`, and search reranks by it. Give its `row`, its `model`, and the settings that differ from
    these (`first_k`, `epochs` …). `model: null`: none. There is no reranker if its row is left out, or if `model`
    cannot be indexed or is the same."""

    @property
    def fused_models(self) -> list[tuple[str, int | None]]:
        """The models of `fuse`, and the seed of each; None: the row's."""
        parts = [name.partition("@") for name in self.fuse]
        return [(model, int(seed) if given else None) for model, given, seed in parts]

    @property
    def ranked_by(self) -> list[str]:
        """Which of `RANKED_BY` are set."""
        return [name for name in RANKED_BY if getattr(self, name)]


@dataclass
class VseSettings(EvaluationSettings, TrainingSettings):
    """Retrieval models: one job for each training configuration and seed."""

    @property
    def translations(self) -> dict[str, tuple[str, str]]:
        """The translations of `translate`: `mt:de-en` → its system and its direction (`mt`, `de-en`)."""
        listed = [self.translate] if isinstance(self.translate, str) else self.translate or []
        parts = {translation: translation.partition(":") for translation in listed}
        return {translation: (system, direction) for translation, (system, _, direction) in parts.items()}

    def of_row(self, row: str) -> "VseSettings":
        """The settings that a row is trained with."""
        return self.changed(self.row_settings.get(row, {}))

    def changed(self, change: Mapping[str, Any]) -> "VseSettings":
        """These settings with others laid over them; another model has options, starts and a text model of its own."""
        own = dict(change)
        if own.get("model", self.model) == self.model:
            own["options"] = self.options | own.get("options", {})
        else:
            words = {name: getattr(VseSettings(), name) for name in _OF_A_TEXT_MODEL}
            own = {"options": {}, "start": [], "interpolate": [], **words, **own}
        return replace(self, **{**own, "row_settings": {}})

    def check(self) -> None:
        """Refuse settings that contradict one another."""
        if len(self.ranked_by) > 1:
            raise RecipeError(f"vse.{' and vse.'.join(self.ranked_by[:2])} are both set; leave one out")
        if self.first == self.model:
            raise RecipeError(f"vse.first and vse.model are both {self.first!r}; expected another one to re-rank")
        self._check_fused()
        self._check_lists()
        self._check_words()
        if self.type_weights and not max(self.type_weights.values()):
            raise RecipeError(f"vse.type_weights are {self.type_weights}; expected one of them above 0")
        for name in ("image_encoder_rate", "image_encoder_size", "pretrained_rate"):
            network, value = name.rpartition("_")[0], getattr(self, name)
            if getattr(self, network) is None and value != getattr(VseSettings(), name):
                raise RecipeError(
                    f"vse.{name} is {value:g}, but vse.{network} names no network; name a folder or a model of the hub"
                )
        if self.warmup_epochs > self.epochs > 0:
            raise RecipeError(
                f"vse.warmup_epochs {self.warmup_epochs} is more than vse.epochs {self.epochs}; set warmup_epochs to "
                f"{self.epochs} or less, or epochs to {self.warmup_epochs} or more"
            )

    def _check_fused(self) -> None:
        """Refuse to fuse one model, or models with seeds that are none or the same in each line."""
        for name in self.fuse:
            if not re.fullmatch(r"[^@]+(@[0-9]{1,18})?", name):
                raise RecipeError(f"vse.fuse has {name!r}; expected a model, or a model and its seed (san@2)")
        if len(self.fuse) == 1:
            raise RecipeError(f"vse.fuse has {self.fuse[0]!r} alone; expected two models or more")
        refuse_twice(self.fuse, "vse.fuse")
        if self.fuse and all(seed is not None for _, seed in self.fused_models) and len(self.seeds) > 1:
            raise RecipeError(
                f"vse.fuse has a seed for each model, so that all {len(self.seeds)} of vse.seeds give the same; set "
                f"vse.seeds to [{self.seeds[0]}]"
            )

    def _check_lists(self) -> None:
        """Refuse rows and languages that are missing, stand twice, or have names that no file can have."""
        for row in self.only:
            if row not in self.rows:
                raise RecipeError(f"vse.only names {row!r}, but vse.rows has {', '.join(self.rows)}")
        for name in ("seeds", "rows", "select", "test"):
            if not getattr(self, name):
                raise RecipeError(f"vse.{name} is empty; expected one entry or more")
        for name in ("seeds", "only", "select", "test"):
            refuse_twice(getattr(self, name), f"vse.{name}")
        for row in self.rows:
            check_file_name(str(row), "vse.rows")
        for language in self.test:
            if not re.fullmatch(r"[a-z]{2,3}", language):
                raise RecipeError(f"vse.test has {language!r}; expected codes like en or de")
        for language in self.select:
            if language not in self.test:
                raise RecipeError(f"vse.select names {language!r}, but vse.test has {', '.join(self.test)}")

    def _check_words(self) -> None:
        """Refuse several starts of word vectors, files of other kinds, and sentence vectors without a model."""
        if self.pretrained is not None and self.words == "fasttext":
            raise RecipeError("vse.words is fasttext, but vse.pretrained reads the words; leave one out")
        if self.pretrained is not None and self.segment != "characters":
            raise RecipeError(f"vse.segment is {self.segment}, but vse.pretrained reads the words; leave one out")
        for name, given in (("words is fasttext", self.words == "fasttext"), ("pretrained is set", self.pretrained)):
            if given and self.word_vectors:
                raise RecipeError(f"vse.{name}, but vse.word_vectors names files too; leave one out")
        for language, file in self.word_vectors.items():
            if not file.endswith(WORD_VECTORS):
                raise RecipeError(f"vse.word_vectors.{language} is {file!r}; expected a file {', '.join(WORD_VECTORS)}")
        if self.pretrained_vectors != "sentences":
            if self.pretrained_layer != -1:
                raise RecipeError(
                    f"vse.pretrained_layer is {self.pretrained_layer}, which only vse.pretrained_vectors=sentences "
                    "reads; leave it out"
                )
            return
        if self.pretrained is None:
            raise RecipeError(
                "vse.pretrained_vectors is sentences, but vse.pretrained names no text model; name a folder or a model "
                "of the hub"
            )
        for name in ("pretrained_rate", "drop_words"):
            if value := getattr(self, name):
                raise RecipeError(f"vse.{name} is {value:g}, but sentence vectors are computed once; set it to 0")
        if self.pretrained_layer >= 0:
            raise RecipeError(f"vse.pretrained_layer is {self.pretrained_layer}; expected -1 (the last), -2 …")
