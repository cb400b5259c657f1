"""The text of the recipe that `init` writes."""

import json
import textwrap
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from data.captions.table import SPLITS
from data.corpora import Corpus
from data.own_captions.corpus import split_of_images
from data.own_captions.detection import FoundCaptions
from data.text.languages import language_name
from pipeline.engine.console import counted, printable
from pipeline.init.networks import GET_DUAL_ENCODER, Chosen
from pipeline.visualization.pages import render

SYSTEM = "opus"
"""What the pretrained translator is called in the recipe."""
FINE_TUNED = "fine-tuned"
"""The row that trains both towers of a dual encoder."""
WITHOUT_DUAL_ENCODER = (
    "With these models the first answer for photographs is seldom right; a dual encoder finds most without training: "
    f"{GET_DUAL_ENCODER}"
)
"""What it costs to have no dual encoder."""
_LEAST_STEPS, _MOST_EPOCHS, _EPOCHS = 1000, 40, 20
_BATCH = 64
_DUAL_STEPS, _DUAL_EPOCHS = 200, (3, 10)


@dataclass
class Plan:
    """What the recipe is written from, and the messages too.

    Attributes:
        source: the folder or data set, as it was named.
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
    dual: Chosen
    backbone: Chosen
    translator: Chosen | None
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
    first, direction = plan.languages[0], f"{plan.languages[0]}-{plan.target}"
    pictures, texts = counted(plan.splits.total(), "pictures"), counted(len(plan.corpus.captions), "captions")
    about = f"{pictures} and {texts} of {plan.source}, {plan.found.form}."
    named = {name: getattr(plan.translator, name, None) for name in ("model", "revision")}
    network = {name: value for name, value in named.items() if value}
    rows = {plan.human_row: [f"{language}/human" for language in plan.languages]}
    if plan.translated:
        rows[plan.row] = [*rows[plan.human_row], f"{plan.target}/{SYSTEM}:{direction}"]
    count = sum(one.split == "train" and one.language == first for one in plan.corpus.captions)
    size = min(_BATCH, max(2, plan.splits["train"] // 4))
    if plan.dual.model is None:
        epochs = min(_MOST_EPOCHS, max(_EPOCHS, _LEAST_STEPS // max(1, count // size)))
    else:
        groups = rows[plan.row]
        rows = {"zero-shot": [], plan.row: groups, FINE_TUNED: groups}
        least, most = _DUAL_EPOCHS
        epochs = min(most, max(least, _DUAL_STEPS // max(1, count * len(groups) // size)))
    return render(
        "recipe.yaml", plan=plan, plain=_plain, about=" ".join(printable(about).split()), corpus=_corpus(plan),
        notes=_notes(plan), source=language_name(first), target=language_name(plan.target), system=SYSTEM,
        direction=direction, network=network, fine_tuned=FINE_TUNED, rows=rows, count=count, size=size, epochs=epochs,
        cost="\n# ".join(textwrap.wrap(WITHOUT_DUAL_ENCODER, 118, break_on_hyphens=False)),
    )  # fmt: skip


def _plain(value: Any) -> str:
    """A value as YAML in one line: what does not print, and so may end a line, is written by its number."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(letter if letter.isprintable() else f"\\U{ord(letter):08x}" for letter in text)


def _corpus(plan: Plan) -> dict[str, Any]:
    """The settings of the corpus."""
    settings = plan.found.corpus
    return {"name": settings["name"], "root": str(plan.found.root), **settings}


def _notes(plan: Plan) -> dict[str, str]:
    """Comments on settings of the corpus."""
    sizes = ", ".join(f"{plan.splits[split]} {split}" for split in SPLITS)
    drawn = f"drawn from the pictures' names: {sizes}" if plan.found.drawn else ""
    notes = {"root": "all paths of this section start here", "validation": drawn, "drawn": drawn}
    if (detected := plan.found.languages) is not None:
        notes["languages"] = "detected" if detected.sure else "could not be told"
    return notes
