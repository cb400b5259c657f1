"""All settings of a recipe, section by section. The defaults are the main paper's settings where it names them."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from data.extractor import ExtractorSettings
from data.sts import StsSettings
from pipeline.recipes.rerank_settings import ChannelSettings, RerankSettings
from pipeline.recipes.translator_settings import DecodingSettings, Phase, PretrainedSettings


@dataclass
class TrainerSettings:
    """Where and how training runs; `<stage>.trainer` overlays the recipe's top-level `trainer`."""

    accelerator: str = "auto"
    """`auto`, `cpu` or `gpu` (Lightning's names)."""
    devices: int | str = 1
    """How many devices on each machine, or `auto` for all; more than one trains by DDP."""
    num_nodes: int = 1
    """How many machines (started by torchrun or SLURM)."""
    strategy: str = "auto"
    """Lightning's strategy; `auto` is right unless you know better."""
    precision: Literal["auto", "32-true", "bf16-mixed"] = "auto"
    """`32-true`, or `bf16-mixed` for matrix products in bfloat16; `auto`: `bf16-mixed` where the device is fast at it.
    A job's key has what `auto` comes to."""
    threads: int | None = None
    """CPU threads a process; null leaves the choice to torch."""
    workers: int = 0
    """Processes that prepare batches; 0 prepares them in the training process."""
    progress: bool = True
    """Show progress bars."""
    loggers: list[Literal["csv", "wandb"]] = field(default_factory=list)
    """Where training curves go beside TensorBoard: `csv` (`csv/version_0/metrics.csv` in TensorBoard's folder of the
    run), `wandb` (Weights & Biases, which must be installed)."""


RUNTIME_ONLY = {"accelerator", "devices", "num_nodes", "strategy", "threads", "workers", "progress", "loggers"}
"""Trainer settings that do not change a result, so they stay out of a job's key."""


@dataclass
class CorpusSettings:
    """Which corpus; the other keys of the section are the corpus's own (`data/corpora/<name>.py`)."""

    name: str = "scenes"
    """One of `data.corpora`'s readers."""
    root: str | None = None
    """Folder that the corpus's paths start from; null: the environment's BILDWORT_DATA."""
    options: Any = None
    """The corpus's own settings (a dataclass), filled from the section's other keys."""


@dataclass
class MmtSettings:
    """Translators: NMT on text, then MT and MMT on captions with the same pairs and steps."""

    directions: list[str] = field(default_factory=lambda: ["en-de", "de-en"])
    """source-target."""
    systems: list[str] = field(default_factory=lambda: ["mt", "mmt"])
    """What translates: `mt`, `mmt`; `mt2`, `mt3` … with other seeds from the start, NMT included; `mt2+mmt` are two of
    them in one search; `mt+channel`, `mt2+mmt+channel` … re-rank its n-best lists with the `mt` of the opposite
    direction: this recipe's, or the one that `back_translate` borrows; a name of `pretrained` is that translator."""
    pretrained: dict[str, PretrainedSettings] = field(default_factory=dict)
    """Name → a translator of `transformers`, which `systems` can name."""
    channel: ChannelSettings = field(default_factory=ChannelSettings)
    """Of the systems that end in `+channel`."""
    rerank: RerankSettings = field(default_factory=RerankSettings)
    """Of the systems that end in a name of `rerank.systems`, `mt+picture`."""
    network: Literal["bilstm", "transformer"] = "bilstm"
    """The paper's Bi-LSTM over threads, or a small Transformer."""
    network_options: dict[str, Any] = field(default_factory=dict)
    """The Transformer's own settings: `layers`, `heads`, `look` (`gate`, `tokens`), `gate_bias` (the gate's start)."""
    vocabulary: int = 10000
    """Sub-words of the joint BPE."""
    embedding_dim: int = 512
    """E, size of a word vector; of all states of a Transformer."""
    hidden_dim: int = 256
    """H, size of an encoder state in each direction, the decoder's is 2H; a Transformer's feed-forward width."""
    repeat: dict[str, int] = field(default_factory=dict)
    """How often a pass of pre-training reads the pairs of an origin (`task1: 5`); others once."""
    dropout: float = 0.3
    """Share of numbers dropped."""
    label_smoothing: float = 0.1
    """Share of probability spread over the vocabulary."""
    batch_tokens: int = 2048
    """Padded tokens of a batch, over all devices."""
    clip: float = 1.0
    """Largest norm of the gradient."""
    pretrain: Phase = field(default_factory=Phase)
    """NMT on pairs without regions (on all pairs where each has regions)."""
    pretrain_captions: bool = False
    """NMT reads the pairs that MT and MMT are fine-tuned on as well."""
    back_translate: dict[str, str] = field(default_factory=dict)
    """Direction → a recipe whose `mt` of the opposite direction translates the training sentences that have no
    source; pre-training reads both (Sennrich et al. 2016)."""
    finetune: Phase = field(default_factory=lambda: Phase(4000, 400, 5e-4, 100))
    """MT and MMT on pairs with regions."""
    without_regions: Literal["text", "captions"] = "text"
    """Pairs about pictures that have no regions: `text` to pre-train on, or `captions` to fine-tune and test on like
    the others; an MMT reads zeros for their regions."""
    beam_size: int = 5
    """Of the test translations."""
    length_penalty: float = 1.0
    """α of log p / length^α."""
    trainer: TrainerSettings = field(default_factory=TrainerSettings)
    """Overlay of the recipe's trainer."""


@dataclass
class AugmentSettings:
    """Caption synthesis, for training images only."""

    paths: list[str] = field(default_factory=lambda: ["mmt:en-de", "mt:en-de", "mmt:en-de-en", "mt:en-de-en"])
    """`system:languages` on the way; each hop starts from the path without its last language. `system:languages@NAME`
    makes the last hop by a search of `searches`. `caption:de` are captions of the pictures by `captioner`."""
    searches: dict[str, DecodingSettings] = field(default_factory=dict)
    """Other searches than `beam_size` and `length_penalty` say, by name."""
    translators: str | None = None
    """Another recipe, whose translators are used (COCO's captions by Multi30K's); null: this recipe's own."""
    captions: str | None = None
    """Another recipe on the same images, whose synthetic captions are used; null: this recipe's own."""
    captioner: dict[str, Any] = field(default_factory=dict)
    """The retrieval model that writes the captions of `caption:de`: its `row` of `vse.rows`, and what else differs from
    `vse` (`model: gxn`, `options: {generate: [i2t]}`, `seeds: [2]` …)."""
    beam_size: int = 5
    """Hypotheses kept while searching."""
    length_penalty: float = 1.0
    """α of log p / length^α."""
    batch_tokens: int = 2048
    """Padded source tokens of a batch."""
    trainer: TrainerSettings = field(default_factory=TrainerSettings)
    """Overlay of the recipe's trainer."""


RANKED_BY = ("by_likelihood", "first", "fuse", "translate")
"""Settings of `vse`, one at most, by which something else than the scores of `vse.model` ranks."""


@dataclass
class TrainingSettings:
    """How one retrieval model is trained: what its job's key has."""

    model: str = "san"
    """One of `modules.retrieval_models`."""
    options: dict[str, Any] = field(default_factory=dict)
    """The model's own settings."""
    dim: int = 512
    """H, size of the joint space."""
    word_dim: int = 300
    """Size of a word vector."""
    words: Literal["random", "fasttext"] = "random"
    """Start of the word vectors: random, or fastText trained on the row's training captions."""
    min_count: int = 4
    """Words seen less often in training captions are unknown."""
    share_words: bool = True
    """Languages share words that are written alike."""
    segment: Literal["characters", "words"] = "characters"
    """What Chinese and Japanese are read by: `characters`, or `words` that a segmenter finds (extra `asian`)."""
    margin: float = 0.2
    """α of the ranking loss (Eq. 9 of Huang et al. 2020, which names no value)."""
    type_weights: dict[str, float] = field(default_factory=dict)
    """β of Eq. 9 (Huang et al. 2020) for each slot `language/source`; empty: equal."""
    warmup_epochs: int = 1
    """Epochs with the mean of hinges over all negatives before the hardest, or the K most violated; 0 leaves it out."""
    batch_size: int = 128
    """Images with their captions a batch, over all devices."""
    epochs: int = 24
    """Passes over the row's captions."""
    steps: int | None = None
    """Steps an epoch, to compare rows at equal steps; null: as many as the row's captions fill."""
    learning_rate: float = 5e-4
    """Adam's."""
    decay_epoch: int = 15
    """After this epoch the learning rate is multiplied by `decay`."""
    decay: float = 0.1
    """Factor of the learning rate after `decay_epoch`."""
    clip: float = 2.0
    """Largest norm of the gradient; 0 does not clip."""
    dropout: float = 0.0
    """Share of word vectors' numbers dropped."""
    select: list[str] = field(default_factory=lambda: ["en"])
    """Languages whose validation rsum chooses the epoch."""
    test: list[str] = field(default_factory=lambda: ["en", "de"])
    """Languages tested, on human captions."""
    loss: str | None = None
    """One of `modules.losses.registry.LOSSES`, such as `hardest` (Eq. 9-10) or `infonce`; null: the model's own."""
    negatives: int = 10
    """K of the loss `hardest-k`: the most violated negatives of an anchor."""
    distance: Literal["cosine", "euclidean"] = "cosine"
    """What the ranking loss compares: scores, or minus the Euclidean distance of unit vectors."""
    decay_every: int = 0
    """After `decay_epoch` the learning rate is multiplied by `decay` again every so many epochs; 0: it is not."""
    drop_regions: float = 0.0
    """Share of an image's regions left out while training."""
    drop_words: float = 0.0
    """Share of a caption's words left out while training."""
    pretrained: str | None = None
    """A text model of `transformers` (folder or hub name) whose states stand for word vectors; null: none."""
    pretrained_rate: float = 0.0
    """Its learning rate as a share of `learning_rate`; 0 freezes it."""
    pretrained_vectors: Literal["words", "sentences"] = "words"
    """A vector of it for each sub-word, or one for each caption: the mean over its sub-words, computed once for all
    rows and seeds and kept on disk, by the frozen model."""
    pretrained_layer: int = -1
    """Whose states `sentences` averages, counted from the end: -1 is the last layer."""
    word_vectors: dict[str, str] = field(default_factory=dict)
    """Language → file of published vectors (.vec, .vec.gz, .bin), below the data root, that its words start from."""
    caption_loss: float = 0.0
    """Weight of the ranking loss between captions of an image in two languages, which `rows` must draw together
    (`en/human + de/human`); 0 leaves it out."""
    weight_decay: float = 0.0
    """Adam's, added to the gradient."""
    image_encoder: str | None = None
    """A vision network of `transformers` (folder or hub name), like a ResNet, that reads the corpus's pictures: its
    feature map stands for the regions. null: stored regions."""
    image_encoder_rate: float = 0.0
    """Its learning rate as a share of `learning_rate`; 0 freezes it."""
    image_encoder_size: int = 224
    """Height and width in pixels of the pictures that it reads: their middle squares, resized."""
    start: list[dict[str, Any]] = field(default_factory=list)
    """Trainings that come first and give their weights to this one, each said by what differs from these settings
    (`options: {generate: [i2t]}`, `epochs: 10`); a part that several have is the first one's. The scale of a
    contrastive loss is not among them."""
    trainer: TrainerSettings = field(default_factory=TrainerSettings)
    """Overlay of the recipe's trainer."""


@dataclass
class EvaluationSettings:
    """What is trained, once for each row and seed, and how it is tested: no part of a training's key."""

    rows: dict[str, list[str]] = field(default_factory=lambda: {"none": ["en/human"]})
    """Training configuration, a row of the tables → its caption mix: groups that fill batches in equal shares, each a
    slot `language/source`, or slots of one image joined by ` + `, with counts (`2*en/human + de/human`); `0*de/human`
    takes only images without such captions."""
    only: list[str] = field(default_factory=list)
    """Training configurations to train and show; empty: all."""
    seeds: list[int] = field(default_factory=lambda: [1])
    """Seeds; one model is trained for each, in each training configuration."""
    unseen: Literal["mark", "error"] = "mark"
    """A tested language without training captions: its figures are marked, or the configuration is refused."""
    folds: int = 1
    """Equal parts of the test images, in the order of the corpus, each ranked by itself; the means of their figures
    stand beside those on all images (COCO's 1K and 5K: 5). Not with `fuse`, `translate`, `first` or `by_likelihood`."""
    retrieved_captions: bool = True
    """The captions that a model retrieves for the test images are scored as captions of them, by BLEU and CIDEr-D. Not
    with `fuse`, `translate`, `first` or `by_likelihood`."""
    fuse: list[str] = field(default_factory=list)
    """Models whose similarities are averaged, each trained with these settings, instead of `model`."""
    translate: str | list[str] | None = None
    """Query translation, `mt:de-en` or a list: test captions are translated and ranked by a model of that language."""
    first: str | None = None
    """An indexed model, trained with these settings too, whose first results `model` reranks; null: none."""
    by_likelihood: bool = False
    """`model` reranks its own first results by log p(caption | image) of its decoder."""
    first_k: int = 100
    """How many first results are reranked, with `first` or `by_likelihood`."""
    reranker: dict[str, Any] = field(default_factory=dict)
    """A second model, trained beside the rows, tested on what `model` finds first, and exported with it: search reranks
    by it. Its `row`, its `model`, and what else differs from these settings (`first_k`, `epochs` …). Empty or `model:
    null`: none. It is left out where its row is, or `model` cannot be indexed."""

    @property
    def ranked_by(self) -> list[str]:
        """Which of `RANKED_BY` are set."""
        return [name for name in RANKED_BY if getattr(self, name)]


@dataclass
class VseSettings(EvaluationSettings, TrainingSettings):
    """Retrieval models: one job for each training configuration and seed."""


@dataclass
class ReportSettings:
    """Tables."""

    resamples: int = 1000
    """Bootstrap resamples of the images."""
    record: bool = False
    """Append finished runs to the committed `pipeline/results/<recipe>.csv`."""
    language_parameters: dict[str, float] = field(default_factory=dict)
    """Published parameters of one more language, by system: drawn beside those of the recipe's models."""
    words: dict[str, list[str]] = field(default_factory=dict)
    """Words by language whose vectors `make draw` shows in the plane, `{en: [eats, stares]}`; empty: frequent ones."""


@dataclass
class System:
    """A line of systems in a published table: settings laid over the recipe's `vse`, and the rows trained so."""

    rows: list[str]
    """Of `vse.rows`."""
    vse: VseSettings
    """The recipe's, with what the system says otherwise."""
    published: dict[str, list[float | None]]
    """Row → the published R@1, 5, 10 text→image, then image→text, each with the median rank behind them if it is known;
    or the mean of the six alone. null stands for what was not published. In a table of captions BLEU-1 to 4 and CIDEr-D
    × 100 of the captions at rank 1, then at rank 2 …"""


@dataclass
class Table:
    """A table of the paper, or one like it."""

    title: str
    """What it shows."""
    language: str = "en"
    """Of the captions."""
    folds: bool = False
    """Means over `vse.folds` instead of all test images."""
    captions: bool = False
    """The quality of the captions that are retrieved, instead of recall."""
    published: dict[str, list[float | None]] = field(default_factory=dict)
    """Figures of systems that no model here stands for, by the name that is printed; as those of a system's row."""
    systems: dict[str, System] = field(default_factory=dict)
    """By the name that is printed."""
    compare: list[list[str]] = field(default_factory=list)
    """Pairs of systems [A, B], compared (A − B) beside the comparisons of each system with the first one."""


@dataclass
class Recipe:
    """One experiment. `name` is the file's; sections are the stages."""

    name: str
    seed: int
    corpus: CorpusSettings
    regions: ExtractorSettings
    mmt: MmtSettings
    augment: AugmentSettings
    vse: VseSettings
    sts: StsSettings
    report: ReportSettings
    tables: dict[str, Table] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    """Tables that cannot be made with the overrides, and why not."""
    lent: list[str] = field(default_factory=list)
    """Overrides that a recipe it borrows from gets too: those of trainers and of the data root."""
    variant: str = field(default="", compare=False)
    """Overrides that change figures, in the order of their keys: `vse.epochs=30 vse.loss=infonce`; empty: its own."""


def job_settings(settings: Any) -> dict[str, Any]:
    """The settings of a section that name a job's result: all but where and how fast it runs."""
    plain = asdict(settings)
    if "trainer" in plain:
        plain["trainer"] = {key: value for key, value in plain["trainer"].items() if key not in RUNTIME_ONLY}
    return plain
