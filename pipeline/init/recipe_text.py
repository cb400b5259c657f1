"""The text of the recipe that `init` writes."""

import json
import textwrap
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from data.captions import SPLITS
from data.corpora import Corpus
from data.languages import language_name
from data.own_captions.corpus import split_of_images
from data.own_captions.detection import FoundCaptions
from pipeline.engine.console import counted, printable
from pipeline.init.networks import GET_DUAL_ENCODER, Backbone, Dual, Translator

SYSTEM = "opus"
"""What the pretrained translator is called in the recipe."""
FINE_TUNED = "fine-tuned"
"""The row that trains both towers of a dual encoder."""
WITHOUT_DUAL_ENCODER = (
    "With these models the first answer for photographs is seldom right; a dual encoder finds most without training: "
    f"{GET_DUAL_ENCODER}"
)
"""What it costs to have no dual encoder."""
_ZERO_SHOT = "zero-shot"
_LEAST_STEPS, _MOST_EPOCHS, _EPOCHS = 1000, 40, 20
_BATCH = 64
_DUAL_STEPS, _DUAL_EPOCHS, _CHUNK = 200, (3, 10), 16
_FEW_CAPTIONS = 2000
_NO_TRANSLATOR = "mmt:\n  systems: []   # no translator\n  directions: []\naugment:\n  paths: []"
_RECIPE = """\
# {about}
# Written by `bildwort init`; change what you like.
# All settings, with their documentation: `bildwort config keys`.
seed: 1
corpus:
{corpus}
{regions}
{translation}
{retrieval}
"""
_REGION_MODELS = """\
# {cost}
vse:
  model: san
  rows:   # training configurations: captions by people, and by the translator
{rows}
  only: [{row}]{others}
  test: {tested}   # languages with captions by people
  select: {tested}
  dim: 256
  word_dim: 100
  min_count: {min_count}   # rarer words are unknown
  batch_size: {size}
  epochs: {epochs}
  decay_epoch: {decay_epoch}
  warmup_epochs: 3
  learning_rate: 1.0e-3
  # Orders what search finds first; with `model: null` there is none, which saves its training.
  reranker: {{row: {row}, model: scan-t2i-avg}}"""
_DUAL_ENCODER = """\
# A dual encoder finds most pictures without training. Licenses: SigLIP and SigLIP 2 Apache 2.0, OpenAI's CLIP MIT;
# nllb-clip and jina-clip-v2 are non-commercial (CC BY-NC 4.0).
vse:
  model: dual-encoder
  pretrained: {pretrained}
  rows:   # the network as it is; its text tower trained on these captions; both towers
{rows}
  row_settings:
    zero-shot: {{epochs: 0}}
    {fine_tuned}: {{options: {{image: full}}, interpolate: [0, 0.25, 0.5, 0.75, 1]{chunk}}}
  only: [zero-shot, {row}]   # add {fine_tuned} if you like; it takes much longer
  options: {{text: full, image: frozen}}   # `lora` trains less of a tower (extra `lora`)
  test: {tested}   # languages with captions by people
  select: {tested}
  batch_size: {size}
  epochs: {epochs}
  decay_epoch: {decay_epoch}
  warmup_epochs: 0
  learning_rate: 1.0e-5
  loss: null   # the one that the network was trained with
  reranker: {{model: null}}"""


@dataclass
class Plan:
    """What the recipe is written from, and the messages too.

    Attributes:
        source: the folder or data set, as it was named.
        found: the captions.
        corpus: made of them.
        languages: of the captions, the most frequent first.
        dual: what finds pictures, if there is one.
        backbone: what finds the regions.
        translator: None where none is needed.
        target: language that it translates into.
    """

    source: str
    found: FoundCaptions
    corpus: Corpus
    languages: list[str]
    dual: Dual
    backbone: Backbone
    translator: Translator | None
    target: str

    @cached_property
    def splits(self) -> Counter[str]:
        """Split → how many pictures."""
        return Counter(split_of_images(self.corpus).values())

    @property
    def translated(self) -> bool:
        """Are there synthetic captions?"""
        return self.translator is not None and self.translator.model is not None

    @property
    def tested(self) -> list[str]:
        """The languages with captions in validation and test."""
        pairs = {(one.split, one.language) for one in self.corpus.captions}
        return [one for one in self.languages if {("val", one), ("test", one)} <= pairs] or self.languages

    @property
    def human_row(self) -> str:
        """The training configuration of the captions by people."""
        return "-".join(self.languages) if len(self.languages) > 1 else f"{self.languages[0]}-human"  # `no` is false

    @property
    def row(self) -> str:
        """The training configuration of all captions."""
        return "-".join([*self.languages, self.target]) if self.translated else self.human_row


def recipe_text(plan: Plan) -> str:
    """A recipe as commented YAML."""
    captions, direction = plan.corpus.captions, f"{plan.languages[0]}-{plan.target}"
    pictures, texts = counted(plan.splits.total(), "pictures"), counted(len(captions), "captions")
    about = f"{pictures} and {texts} of {plan.source}, {plan.found.form}."
    return _RECIPE.format(
        about=" ".join(printable(about).split()),
        corpus="\n".join(_corpus(plan)),
        regions=_regions(plan),
        translation=_translation(plan, direction),
        retrieval=_retrieval(plan, direction),
    )


def _retrieval(plan: Plan, direction: str) -> str:
    """The section `vse`: of a dual encoder, or of models that read regions."""
    rows = {plan.human_row: [f"{language}/human" for language in plan.languages]}
    if plan.translated:
        rows[plan.row] = [*rows[plan.human_row], f"{plan.target}/{SYSTEM}:{direction}"]
    count = sum(one.split == "train" and one.language == plan.languages[0] for one in plan.corpus.captions)
    size = min(_BATCH, max(2, plan.splits["train"] // 4))
    if plan.dual.model is None:
        epochs = min(_MOST_EPOCHS, max(_EPOCHS, _LEAST_STEPS // max(1, count // size)))
    else:
        groups = rows[plan.row]
        rows = {_ZERO_SHOT: [], plan.row: groups, FINE_TUNED: groups}
        least, most = _DUAL_EPOCHS
        epochs = min(most, max(least, _DUAL_STEPS // max(1, count * len(groups) // size)))
    return (_REGION_MODELS if plan.dual.model is None else _DUAL_ENCODER).format(
        cost="\n# ".join(textwrap.wrap(WITHOUT_DUAL_ENCODER, 118, break_on_hyphens=False)),
        pretrained=_plain(plan.dual.model),
        rows="\n".join(f"    {name}: {_plain(mix)}" for name, mix in rows.items()),
        row=plan.row,
        others="   # train this one; the others are for comparison" if len(rows) > 1 else "",
        fine_tuned=FINE_TUNED,
        chunk=f", cached_chunk: {_CHUNK}" if size > _CHUNK else "",
        tested=_plain(plan.tested),
        min_count=1 if count < _FEW_CAPTIONS else 2,
        size=size,
        epochs=epochs,
        decay_epoch=3 * epochs // 4,
    )


def _plain(value: Any) -> str:
    """A value as YAML in one line: what does not print, and so may end a line, is written by its number."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(letter if letter.isprintable() else f"\\U{ord(letter):08x}" for letter in text)


def _corpus(plan: Plan) -> list[str]:
    """The settings of the corpus, some with a comment."""
    settings, detected = plan.found.corpus, plan.found.languages
    sizes = ", ".join(f"{plan.splits[split]} {split}" for split in SPLITS)
    drawn = f"drawn from the pictures' names: {sizes}" if plan.found.drawn else ""
    notes = {"root": "all paths of this section start here", "validation": drawn, "drawn": drawn}
    if detected is not None:
        notes["languages"] = "detected" if detected.sure else "could not be told"
    return [
        f"  {key}: {_plain(value)}" + (f"   # {notes[key]}" if notes.get(key) else "")
        for key, value in {"name": settings["name"], "root": str(plan.found.root), **settings}.items()
    ]


def _regions(plan: Plan) -> str:
    backbone, model = plan.backbone, ""
    if plan.dual.model is not None:
        about = "no model of this recipe reads them; the built-in extractor finds them quickly."
    elif backbone.model is None:
        about = "the built-in extractor, for pictures of few objects on an even background."
    else:
        about = "the whole picture and its parts (a grid, or a detector's boxes), by a pretrained network."
        model = f"  model: {_plain(backbone.model)}\n"
    return f"# Regions: {about}\nregions:\n{model}  regions: {backbone.regions}"


def _translation(plan: Plan, direction: str) -> str:
    if plan.translator is None or plan.translator.model is None:
        return _NO_TRANSLATOR
    source, target = language_name(plan.languages[0]), language_name(plan.target)
    network = {"model": plan.translator.model}
    if plan.translator.revision:
        network["revision"] = plan.translator.revision
    return f"""\
# {target} captions are written from the {source} ones of training pictures.
mmt:
  systems: [{SYSTEM}]
  directions: [{direction}]
  pretrained:
    {SYSTEM}: {_plain(network)}
augment:
  # Several drawn translations of a caption take as many times as long. Where an image has one or two captions they may
  # help: write {SYSTEM}:{direction}@drawn here and in vse.rows.
  paths: ["{SYSTEM}:{direction}"]
  searches: {{drawn: {{method: sample, captions: 5, temperature: 0.6}}}}"""
