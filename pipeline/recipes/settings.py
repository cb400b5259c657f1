"""All settings of a recipe, section by section. The defaults are the main paper's settings where it names them."""

import re
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal

from data.evaluation.sts import GOLD, INPUT, StsSettings
from data.pictures.extractor import ExtractorSettings
from pipeline.errors import RecipeError
from pipeline.recipes.retrieval_settings import VseSettings, slots_in
from pipeline.recipes.systems import CAPTION, HUB, members_of, parse_path, parse_system
from pipeline.recipes.trainer_settings import TrainerSettings
from pipeline.recipes.translator_settings import DecodingSettings, MmtSettings
from pipeline.recipes.typed import check_values, located, number


@dataclass
class CorpusSettings:
    """Which corpus; the other keys of the section are the corpus's own (`data/corpora/<name>.py`)."""

    name: str = "scenes"
    """What reads it: `scenes`, `multi30k`, `karpathy` (COCO's form too), `precomputed`, `xtd10` or `folder`."""
    root: str | None = None
    """Folder that the corpus's paths start from; null: the environment's BILDWORT_DATA."""
    images: int | None = number(None, 1, hint=", or null for all")
    """Training images, drawn by the recipe's seed; a smaller number draws a part of a larger one. null: all."""
    captions_per_image: int | None = number(None, 1, hint=", or null for all")
    """Captions of a training image in each language, at most; drawn as the images are. null: all."""
    unreadable: Literal["refuse", "skip"] = "refuse"
    """If regions are found in pictures: are pictures that are missing or cannot be read an error (`refuse`), or left
    out with their captions (`skip`)?"""
    options: Any = None
    """The corpus's own settings (a dataclass), filled from the section's other keys."""

    @property
    def is_subset(self) -> bool:
        """Only a part of the training data is used."""
        return self.images is not None or self.captions_per_image is not None


@dataclass
class FilterSettings:
    """Which synthetic captions of a path are kept: those of the highest scores."""

    by: Literal["image", "back-translation", "language", "chance"] = "image"
    """`image`: how much better a caption fits its own image than the nearest others, by the model of `retrieval`;
    `back-translation`: chrF of its translation back, against the human caption; `language`: how surely it is in its
    language; `chance`: drawn by the recipe's seed, to compare the others with."""
    keep: float = number(0.75, above=0, most=1)
    """The share of a path's captions that is kept."""
    retrieval: dict[str, Any] = field(default_factory=dict)
    """The retrieval model of `image`: its `row` of `vse.rows`, and what else differs from `vse`."""


@dataclass
class AugmentSettings:
    """Caption synthesis, for training images only."""

    paths: list[str] = field(default_factory=lambda: ["mmt:en-de", "mt:en-de", "mmt:en-de-en", "mt:en-de-en"])
    """Paths of translation, `system:languages` (`mt:en-de-en`); each hop translates the captions of the path without
    its last language. `system:languages@NAME` makes the last hop by a search of `searches`. `caption:de` are captions
    of the pictures by `captioner`."""
    searches: dict[str, DecodingSettings] = field(default_factory=dict)
    """Further searches by name, beside the beam search of `beam_size` and `length_penalty`."""
    filters: dict[str, FilterSettings] = field(default_factory=dict)
    """Filters by name: `mt:en-de@NAME` are the captions of `mt:en-de` that a filter keeps."""
    translators: str | None = None
    """Another recipe, whose translators are used (COCO's captions by Multi30K's), trained by its own `mmt`; null: this
    recipe's."""
    captions: str | None = None
    """Another recipe on the same images, whose synthetic captions are used, made by its own `augment`; null: this
    recipe's."""
    captioner: dict[str, Any] = field(default_factory=dict)
    """What writes the captions of `caption:de`. A retrieval model: its `row` of `vse.rows`, and what else differs from
    `vse` (`model: gxn`, `options: {generate: [i2t]}`, `seeds: [2]` …). Or a vision-language model of `transformers`,
    untrained: `kind: image-text-to-text`, `model` (a folder, or a name on the hub), `prompt` (`Describe this picture in
    one {language} sentence.`), `revision`, `longest` (tokens)."""
    beam_size: int = number(5, 1, 1000)
    """Hypotheses kept while searching."""
    length_penalty: float = number(1.0, 0)
    """α of log p / length^α."""
    batch_tokens: int = number(2048, 1, 10**7)
    """Padded source tokens of a batch."""
    trainer: TrainerSettings = field(default_factory=TrainerSettings)
    """Overlay of the recipe's trainer."""


@dataclass
class ReportSettings:
    """Tables."""

    resamples: int = number(1000, 100, 10**6)
    """Bootstrap resamples of the images; the incongruent-image test has 1,000 always."""
    record: bool = False
    """Keep finished runs in `pipeline/results/<recipe>.csv`, or in `<recipe>-records` beside a recipe of your own."""
    language_parameters: dict[str, float] = field(default_factory=dict)
    """System → published number of parameters that one more language adds; shown beside those of our models."""
    words: dict[str, list[str]] = field(default_factory=dict)
    """Language → words whose vectors `make draw` shows in the plane, `{en: [eats, stares]}`; empty: frequent words."""


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
    """Language of the captions."""
    folds: bool = False
    """Means over `vse.folds` instead of all test images."""
    captions: bool = False
    """The quality of the captions that are retrieved, instead of recall."""
    published: dict[str, list[float | None]] = field(default_factory=dict)
    """Printed name → figures of a published system that Bildwort does not have, in the form of a system's row."""
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
    table_variant: str = field(default="", compare=False)
    """Those of them that reach the systems of its tables."""
    not_of_tables: list[str] = field(default_factory=list, compare=False)
    """Keys of overrides that do not, `vse.loss`."""
    below_tables: VseSettings | None = field(default=None, compare=False)
    """What the systems of its tables are laid over, `vse` without the overrides that do not reach them; None: `vse`."""
    file: str = field(default="", compare=False)
    """Where it lies; empty: in the package."""

    def check(self) -> None:
        """Refuse settings that contradict one another; what depends on networks is checked by `check_networks`.

        Tables are not looked into: each of their systems is checked as a recipe of its own.
        """
        check_values({name: value for name, value in vars(self).items() if name != "tables"})
        self._refuse_contradictions()

    def require_vse(self, vse: VseSettings) -> None:
        """Refuse other settings of retrieval that contradict one another or the rest of the recipe, as `check` does."""
        check_values({"vse": vse})  # all else has been checked
        replace(self, vse=vse)._refuse_contradictions()

    def _refuse_contradictions(self) -> None:
        self.vse.check()
        self.mmt.check()
        self._check_translations()
        if self.regions.model is not None and self.regions.size != ExtractorSettings().size:
            raise RecipeError(f"regions.size is {self.regions.size}, which the built-in extractor reads alone, but "
                              "regions.model is set; leave one out")  # fmt: skip
        for language in self.report.words:
            if language not in self.vse.test:
                raise RecipeError(f"report.words names {language!r}, but vse.test has {', '.join(self.vse.test)}")
        for section, names in (("searches", self.augment.searches), ("filters", self.augment.filters)):
            for name in names:
                if not re.fullmatch(r"\w+", name):
                    raise RecipeError(f"augment.{section} has {name!r}; expected letters and digits")
        if both := self.augment.searches.keys() & self.augment.filters.keys():
            raise RecipeError(f"{min(both)!r} is in augment.searches and in augment.filters; rename one")
        for path in self.augment.paths:
            (system, _, search), whole = parse_path(path), path
            with located(f"augment.paths has {path!r}"):
                if search in self.augment.filters:
                    self._check_filtered(path)
                    whole = path.partition("@")[0]
                (self._check_captions_of if system == CAPTION else self._check_path)(whole)
        _check_sts(self.sts)

    def _check_translations(self) -> None:
        """Refuse query translation by translators that are not there, need a picture, or read another language."""
        vse, mmt = self.vse, self.mmt
        for translation, (system, direction) in vse.translations.items():
            names, reranks = members_of(system)
            blind = system in mmt.systems and not mmt.rerank.needs_retrieval(reranks)
            blind = blind and all(
                not mmt.pretrained[name].sees if name in mmt.pretrained else parse_system(name)[0] == "mt"
                for name in names
            )
            known = mmt.directions_of(system)
            if not blind or direction not in known or not set(direction.split("-")) <= set(vse.test):
                raise RecipeError(
                    f"vse.translate is {translation!r}; expected mt:de-en (a query has no picture), its direction one "
                    f"of mmt.directions ({', '.join(known)}) and its languages of vse.test"
                )
        sources = {direction.partition("-")[0] for _, direction in vse.translations.values()}
        if isinstance(vse.translate, list) and len(sources) < max(1, len(vse.translate)):
            raise RecipeError(
                f"vse.translate is {vse.translate}; expected one translation or more, each from another language"
            )

    def _check_path(self, path: str) -> None:
        """Refuse a path that the recipe's translators cannot make."""
        mmt, searches = self.mmt, self.augment.searches
        system, languages, search = parse_path(path)
        if system == HUB:  # `/`, `:` and `-` of a model's name have other meanings in paths and groups
            raise RecipeError("name the model as mmt.pretrained.NAME.model, add NAME to mmt.systems, write NAME:en-de")
        if system not in mmt.systems or len(languages) < 2:
            raise RecipeError(
                "expected SYSTEM:en-de, SYSTEM:en-de-en … with a SYSTEM of mmt.systems "
                f"({', '.join(mmt.systems) or 'there is none: mmt: {systems: [mt], directions: [en-de]}'})"
            )
        if search is not None and search not in searches:
            known_names = ", ".join([*searches, *self.augment.filters]) or "none"
            raise RecipeError(f"augment.searches and augment.filters have {known_names}")
        if search is not None and members_of(system)[1] is not None:
            wanted = searches[search]
            if wanted.method != "beam" or wanted.groups > 1:
                conflict = "has groups" if wanted.method == "beam" else "draws"
                raise RecipeError(f"it re-ranks a plain beam, but augment.searches.{search} {conflict}; leave one out")
        if search is not None and mmt.is_pretrained(system) and searches[search].groups > 1:
            raise RecipeError(
                f"a pretrained translator has no diverse beam search (augment.searches.{search}.groups); leave groups "
                "out, or sample"
            )
        seeing = mmt.is_pretrained(system) and mmt.pretrained[members_of(system)[0][0]].sees
        if search is not None and seeing and searches[search].method != "beam":
            raise RecipeError(f"a vision-language model is searched by a beam, but augment.searches.{search} draws; "
                              "name another search")  # fmt: skip
        for hop in pairwise(languages):
            if "-".join(hop) not in (known := mmt.directions_of(system)):
                key = "mmt.directions" if known is mmt.directions else f"mmt.pretrained.{system}.directions"
                raise RecipeError(f"{key} lacks {'-'.join(hop)!r}")

    def _check_filtered(self, path: str) -> None:
        """Refuse a filter that lacks what it scores by."""
        system, languages, name = parse_path(path)
        kept = self.augment.filters[str(name)]
        if kept.by == "back-translation":
            if system == CAPTION or languages[0] == languages[-1]:
                raise RecipeError(f"augment.filters.{name}.by is {kept.by!r}, but the captions of this path have no "
                                  "original in another language; filter by image")  # fmt: skip
            if (back := f"{languages[-1]}-{languages[0]}") not in self.mmt.directions_of(system):
                own = self.mmt.pretrained.get(system)
                where = f"mmt.pretrained.{system}.directions" if own and own.directions else "mmt.directions"
                raise RecipeError(f"augment.filters.{name} translates back by {system}-{back}, which {where} lacks")
        if (kept.by == "image") != bool(kept.retrieval):
            raise RecipeError(f"augment.filters.{name}: retrieval.row, a row of vse.rows, goes with by: image, and "
                              "only with it")  # fmt: skip

    def _check_captions_of(self, path: str) -> None:
        """Refuse a path `caption:de` that has another form, or that no `augment.captioner` writes."""
        captioner, (_, languages, search) = self.augment.captioner, parse_path(path)
        if len(languages) != 1 or not re.fullmatch(r"[a-z]{2,3}", languages[0]) or search is not None:
            raise RecipeError(f"expected {CAPTION}:de, with one language and no search")
        if not captioner:
            raise RecipeError(
                "nothing writes captions; set augment.captioner.row to a row of vse.rows and augment.captioner.model "
                "to a model with a decoder (gxn), or name a vision-language model (augment.captioner.kind: "
                "image-text-to-text)"
            )
        groups = [] if "kind" in captioner else self.vse.rows.get(str(captioner.get("row")), [])
        known = sorted({slot.language for slot in slots_in(groups)})
        if known and languages[0] not in known:
            raise RecipeError(
                f"augment.captioner.row {captioner['row']!r} is trained on {', '.join(known)}; name one of these, or "
                "another row"
            )


def _check_sts(sts: StsSettings) -> None:
    """Refuse sets whose files or figures could not be told from others."""
    for name, path in sts.sets.items():
        if not re.fullmatch(r"[\w-]+", name) or name.endswith("-clean") or name == "test":
            raise RecipeError(f"sts.sets has {name!r}; expected letters, digits and -, not -clean at the end nor test")
        if INPUT not in path.rpartition("/")[2]:
            raise RecipeError(
                f"sts.sets.{name} is {path!r}; expected the file of the pairs, STS2014{INPUT}images.txt, with the gold "
                f"scores beside it, STS2014{GOLD}images.txt"
            )
    for system, values in sts.published.items():
        if unknown := sorted(values.keys() - sts.sets.keys()):
            raise RecipeError(
                f"sts.published.{system} names {unknown[0]!r}; sts.sets has {', '.join(sts.sets) or 'none'}"
            )
    if not re.fullmatch(r"[a-z]{2,3}", sts.language):
        raise RecipeError(f"sts.language is {sts.language!r}; expected a code like en")
