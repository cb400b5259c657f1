"""Settings of translators: how ours are trained, which pretrained ones there are, how they decode and re-rank."""

import re
from dataclasses import dataclass, field
from typing import Any, Literal

from pipeline.errors import RecipeError
from pipeline.recipes.systems import CAPTION, CHANNEL, HUB, members_of, opposite
from pipeline.recipes.trainer_settings import TrainerSettings
from pipeline.recipes.typed import number, refuse_twice

Feature = Literal["logp", "length", "channel", "image", "source"]
CONTROL = "other-image"
"""A feature of the comparison alone: the similarity to another sentence's picture."""
MEASURES = ("BLEU", "chrF", "TER")
"""Measures of the comparison."""
OF_RETRIEVAL = ("image", "source", CONTROL)
"""Features that a retrieval model computes."""
_TAKEN = (CAPTION, CHANNEL, HUB, "human", "bpe", "back", "incongruent", "nbest", "ablation")  # names of other things


@dataclass
class Phase:
    """One training of a translator."""

    steps: int = number(20000, 0)
    """Optimiser steps in all; 0 leaves pre-training out (fine-tuning needs 1 or more)."""
    eval_every: int = number(1000, 1)
    """Steps between validations (and checkpoints); the best by validation BLEU is kept."""
    learning_rate: float = number(1e-3, above=0, most=1)
    """Learning rate of Adam after warm-up."""
    warmup: int = number(400, 0)
    """Steps of linear warm-up."""
    average: float = number(0.0, 0, below=1)
    """Decay of the moving average of the weights, which is what is validated and kept; 0 keeps them as they are."""
    r_drop: float = number(0.0, 0, hint=", like 5")
    """α of R-Drop: batches are read twice, with different dropout, and a divergence term makes both agree (on a CPU a
    step takes twice as long); 0: no R-Drop."""


@dataclass
class PretrainedSettings:
    """A network of `transformers` that is used as it is: a translator, OPUS-MT (Marian), M2M100 or NLLB, or a
    vision-language model (`kind`), which translates a caption with its picture."""

    model: str
    """A folder, or a name on the hub; `{source}` and `{target}` stand for the languages of a direction
    (`Helsinki-NLP/opus-mt-{source}-{target}`)."""
    revision: str | None = None
    """Branch, tag or commit of a name on the hub; null: `main`, as it is when the translator is first tested."""
    directions: list[str] = field(default_factory=list)
    """Directions that it translates; empty: `mmt.directions`."""
    codes: dict[str, str] = field(default_factory=dict)
    """Language → its code in the translator (`zh: zho_Hant`), if you want another than the usual one."""
    kind: Literal["translator", "image-text-to-text"] = "translator"
    """`image-text-to-text`: a vision-language model, LLaVA, Qwen2.5-VL, Idefics3, SmolVLM, PaliGemma …"""
    prompt: str | None = None
    """What a vision-language model is asked: `{text}` stands for the caption, `{source}` and `{target}` for the English
    names of its languages."""
    longest: int = number(100, 1, 10**4)
    """Tokens of an answer of a vision-language model, at most."""

    @property
    def sees(self) -> bool:
        """Is it a vision-language model?"""
        return self.kind == "image-text-to-text"

    def check(self, key: str) -> None:
        """Refuse a translator without a model, directions that are none, or a prompt that is missing or of no use."""
        if not self.model.strip():
            raise RecipeError(f"{key}.model is empty; expected a folder, or a name on the hub")
        for direction in self.directions:
            _check_direction(direction, f"{key}.directions")
        refuse_twice(self.directions, f"{key}.directions")
        if self.sees and "{text}" not in (self.prompt or ""):
            raise RecipeError(f"{key}.prompt is {self.prompt!r}; expected a text with {{text}} for the caption")
        for name, unread in (("codes", {}),) if self.sees else (("prompt", None), ("longest", 100)):
            if (value := getattr(self, name)) != unread:
                raise RecipeError(f"{key}.{name} is {value!r}, which kind: {self.kind} does not read; leave it out, or "
                                  "choose the other kind")  # fmt: skip


@dataclass
class CaptionerSettings:
    """A vision-language model of `transformers` that writes captions of pictures, as it is (`augment.captioner`)."""

    kind: Literal["image-text-to-text"]
    """Kind of the network; without this key the captioner is a retrieval model."""
    model: str
    """A folder, or a name on the hub."""
    prompt: str
    """What it is asked: `Describe this picture in one {language} sentence.`; `{language}` stands for the English name
    of the captions' language."""
    revision: str | None = None
    """Branch, tag or commit of a name on the hub; null: `main`."""
    longest: int = number(100, 1, 10**4)
    """Tokens of a caption, at most."""


@dataclass
class DecodingSettings:
    """How a translator decodes, and how many captions it writes for each source caption."""

    method: Literal["beam", "sample"] = "beam"
    """Beam search (diverse with `groups`), or sampling of words by their probability."""
    captions: int = 1
    """Captions for each source caption: the best that differ."""
    beam_size: int = number(5, most=1000)
    """Hypotheses kept while searching."""
    groups: int = 1
    """Beams that share `beam_size` and avoid one another's words (diverse beam search)."""
    diversity: float = 0.5
    """Cost of a word, in log-probability, for each hypothesis of earlier groups that has it at that position."""
    temperature: float = 1.0
    """Temperature of sampling; a value below 1 draws likelier words."""
    top_p: float = 1.0
    """Sampling draws from the likeliest words that together have this probability (nucleus sampling)."""
    length_penalty: float = 1.0
    """α of log p / length^α."""


@dataclass
class ChannelSettings:
    """How a `…+channel` re-ranks n-best lists: by `logp` with weight 1 and `channel` with a fixed weight."""

    weight: float = number(0.3, 0)
    """λ, of the log-probability of the source, given the translation."""
    beam_size: int = number(10, 1, 1000)
    """Least width of the beam; all that it finds is re-ranked."""


@dataclass
class RerankSettings:
    """Re-ranking of n-best lists by features whose weights are tuned on validation by k-best MIRA."""

    systems: dict[str, list[Feature]] = field(default_factory=dict)
    """Name → features: `logp` (the score of the search), `length` (words), `channel` (log p of the source, given the
    translation, by the `mt` of the opposite direction), `image` and `source` (similarity of the translation to the
    picture and to the source, by the model of `retrieval`). With `picture: [logp, image]`, `mt+picture` of
    `mmt.systems` is `mt` re-ranked."""
    list_size: int = number(20, 2, 1000)
    """Size of the beam, and so the number of candidates of a sentence."""
    seeds: list[int] = number([1, 2, 3, 4, 5], 0)
    """Seeds of MIRA; the tuning that is best on validation re-ranks."""
    passes: int = number(60, 1, 10**5)
    """Passes of MIRA over the validation sentences."""
    retrieval: dict[str, Any] = field(default_factory=dict)
    """The retrieval model of `image` and `source`: its `row` of `vse.rows`, and what else differs from `vse` (`model`,
    `seeds: [2]` …)."""
    published: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    """Direction → system → measure (`BLEU`, `chrF`, `TER`) → a published figure, shown below the recipe's own."""

    def check(self) -> None:
        """Refuse re-rankers that cannot be tuned."""
        for name, features in self.systems.items():
            if not re.fullmatch(r"[A-Za-z_]+", name) or name == CHANNEL or re.fullmatch(r"n?mm?t", name):
                raise RecipeError(
                    f"mmt.rerank.systems has {name!r}; expected letters, and not {CHANNEL}, mt, mmt or nmt"
                )
            if not features or len({*features}) < len(features):
                raise RecipeError(
                    f"mmt.rerank.systems.{name} has the features {', '.join(features) or 'none'}; expected one or more "
                    "features, each once"
                )
            if self.needs_retrieval(name) and not self.retrieval:
                raise RecipeError(
                    f"mmt.rerank.systems.{name} has a feature of a retrieval model; set mmt.rerank.retrieval.row to a "
                    "row of vse.rows"
                )
        if not self.seeds or len({*self.seeds}) < len(self.seeds):
            shown = ", ".join(map(str, self.seeds)) or "empty"
            raise RecipeError(f"mmt.rerank.seeds is {shown}; expected one or more, each once")

    def needs_retrieval(self, reranks: str | None) -> bool:
        """Does what re-ranks a system (`members_of`) have a feature of a retrieval model?"""
        return bool({*self.systems.get(str(reranks), [])} & {*OF_RETRIEVAL})


@dataclass
class MmtSettings:
    """Translators: NMT on text, then MT and MMT on captions with the same pairs and steps."""

    directions: list[str] = field(default_factory=lambda: ["en-de", "de-en"])
    """Directions of translation, source-target."""
    systems: list[str] = field(default_factory=lambda: ["mt", "mmt"])
    """What translates: `mt`, `mmt`; `mt2`, `mt3` … with other seeds from the start, NMT included; `mt2+mmt` are two of
    them in one search; `mt+channel`, `mt2+mmt+channel` … re-rank its n-best lists with the `mt` of the opposite
    direction: this recipe's, or the one that `back_translate` borrows; a name of `pretrained` is that translator."""
    pretrained: dict[str, PretrainedSettings] = field(default_factory=dict)
    """Name → a translator of `transformers`, which `systems` can name."""
    channel: ChannelSettings = field(default_factory=ChannelSettings)
    """Settings of the systems that end in `+channel`."""
    rerank: RerankSettings = field(default_factory=RerankSettings)
    """Settings of the systems that end in a name of `rerank.systems` (`mt+picture`)."""
    network: Literal["bilstm", "transformer"] = "bilstm"
    """The paper's Bi-LSTM over threads, or a small Transformer."""
    network_options: dict[str, Any] = field(default_factory=dict)
    """The Transformer's own settings: `layers`, `heads`, `look` (`gate`, `tokens`), `gate_bias` (the gate's start)."""
    vocabulary: int = number(10000, 1, 10**6)
    """Sub-words of the joint BPE."""
    embedding_dim: int = number(512, 1, 10**5)
    """E, size of a word vector; in a Transformer also of all states."""
    hidden_dim: int = number(256, 1, 10**5)
    """H, size of an encoder state in each direction (the decoder's is 2H); in a Transformer the feed-forward width."""
    repeat: dict[str, int] = number({}, 1)
    """How often a pass of pre-training reads the pairs of an origin (`task1: 5`); others once."""
    dropout: float = number(0.3, 0, below=1)
    """Share of numbers dropped."""
    label_smoothing: float = number(0.1, 0, below=1)
    """Share of probability spread over the vocabulary."""
    batch_tokens: int = number(2048, 1, 10**7)
    """Padded tokens of a batch, over all devices."""
    clip: float = number(1.0, 0)
    """Largest norm of the gradient; 0 does not clip."""
    pretrain: Phase = field(default_factory=Phase)
    """NMT on pairs without regions (on all pairs, if every pair has regions)."""
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
    beam_size: int = number(5, 1, 1000)
    """Size of the beam for the test translations."""
    length_penalty: float = number(1.0, 0)
    """α of log p / length^α."""
    trainer: TrainerSettings = field(default_factory=TrainerSettings)
    """Overlay of the recipe's trainer."""

    def check(self) -> None:
        """Refuse settings by which no translator can be built or trained.

        Raises:
            RecipeError: there are some; it names them.
        """
        for direction in self.directions:
            _check_direction(direction, "mmt.directions")
        for name, phase in (("pretrain", self.pretrain), ("finetune", self.finetune)):
            if phase.steps < (name == "finetune"):
                raise RecipeError(f"mmt.{name}.steps is {phase.steps}; expected 1 or more")
            if phase.steps % phase.eval_every:
                raise RecipeError(
                    f"mmt.{name}.steps is {phase.steps}, no multiple of mmt.{name}.eval_every {phase.eval_every}"
                )
            if phase.r_drop and not self.dropout:
                raise RecipeError(f"mmt.{name}.r_drop compares two readings with dropout, but mmt.dropout is 0; leave "
                                  "one out")  # fmt: skip
        self.rerank.check()
        for name, about in self.pretrained.items():
            self._check_name(name)
            about.check(f"mmt.pretrained.{name}")
        for place, system in enumerate(self.systems):
            self._check_system(system, self.systems[:place])
        self._check_published()
        for direction in self.back_translate:
            if direction not in self.directions or not self.pretrain.steps:
                raise RecipeError(
                    f"mmt.back_translate has {direction!r}; expected one of mmt.directions "
                    f"({', '.join(self.directions)}), and mmt.pretrain.steps above 0"
                )
        for name in ("repeat", "pretrain_captions"):
            if getattr(self, name) and not self.pretrain.steps:
                raise RecipeError(f"mmt.{name} is of pre-training, but mmt.pretrain.steps is 0; leave one out")

    def is_pretrained(self, system: str) -> bool:
        """Is a system a translator of `pretrained`, or one of them re-ranked?"""
        return members_of(system)[0][0] in self.pretrained

    def directions_of(self, system: str) -> list[str]:
        """What a system translates: `directions`, or what a pretrained translator names."""
        own = self.pretrained.get(members_of(system)[0][0])
        return (own.directions if own is not None else []) or self.directions

    @property
    def translators(self) -> list[tuple[str, str]]:
        """Each system with each of its directions, those of a direction together."""
        named = (direction for system in self.systems for direction in self.directions_of(system))
        return [
            (system, direction)
            for direction in dict.fromkeys([*self.directions, *named])
            for system in self.systems
            if direction in self.directions_of(system)
        ]

    def _check_name(self, name: str) -> None:
        """Refuse the name of a pretrained translator that stands for something else."""
        ours = re.fullmatch(r"n?mm?t\d*", name)
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or ours or name in (*_TAKEN, *self.rerank.systems):
            raise RecipeError(
                f"mmt.pretrained has {name!r}; expected a name of small letters, digits and _, that stands for nothing "
                "else (not mt, mmt, caption …)"
            )

    def _check_system(self, system: str, before: list[str]) -> None:
        """Refuse an unknown system, one whose parts are not trained before it, or whose re-ranker is missing."""
        names, reranks = members_of(system)
        if CHANNEL in names:
            raise RecipeError(f"mmt.systems has {system!r}; a {CHANNEL} stands last, once, behind a translator")
        for name in names if "+" in system else ():
            if name not in before or names.count(name) > 1:
                raise RecipeError(f"mmt.systems has {system!r}, but {name!r} is not once before it")
        borrowed = names[0] in self.pretrained and len(names) == 1
        if system in before or not (
            borrowed or all(re.fullmatch(r"mm?t([2-9]|[1-9]\d{1,3})?", name) for name in names)
        ):
            raise RecipeError(
                f"mmt.systems has {system!r}; expected mt, mmt, mt2 …, mt+mmt …, mt+channel …, names of "
                "mmt.pretrained, each once"
            )
        if reranks is not None and reranks != CHANNEL and reranks not in self.rerank.systems:
            known = ", ".join([CHANNEL, *self.rerank.systems])
            raise RecipeError(
                f"mmt.systems has {system!r}; expected mt, mmt, mt2 …, mt+mmt …, or one that is re-ranked: +NAME with "
                f"a NAME of mmt.rerank.systems ({known})"
            )
        if reranks == CHANNEL or CHANNEL in self.rerank.systems.get(str(reranks), []):
            for direction in self.directions_of(system):
                back = opposite(direction)
                if not ("mt" in self.systems and back in self.directions) and direction not in self.back_translate:
                    raise RecipeError(
                        f"mmt.systems has {system!r}, but nothing translates {back}; expected it in mmt.directions and "
                        f"mt in mmt.systems, or a recipe that lends it as mmt.back_translate.{direction}"
                    )

    def _check_published(self) -> None:
        """Refuse published figures of re-ranking that no table would show."""
        languages = {language for direction in self.directions for language in direction.split("-")}
        for direction, systems in self.rerank.published.items():
            if not {*direction.split("-")} <= languages:  # the opposite of a direction that is trained alone may stay
                raise RecipeError(
                    f"mmt.rerank.published has {direction!r}; expected one of mmt.directions "
                    f"({', '.join(self.directions)})"
                )
            for system, figures in systems.items():
                if not figures or (unknown := sorted(figures.keys() - {*MEASURES})):
                    shown = unknown[0] if figures else "nothing"
                    raise RecipeError(
                        f"mmt.rerank.published.{direction}.{system} has {shown}; expected {', '.join(MEASURES)}"
                    )


def _check_direction(direction: str, key: str) -> None:
    if not re.fullmatch(r"(\w+)-(?!\1$)\w+", direction):
        raise RecipeError(f"{key} has {direction!r}; expected two languages, like en-de")
