"""The text of the recipe that `init` writes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from data.languages import language_name
from pipeline.engine.console import printable
from pipeline.init.networks import Backbone, Translator

SYSTEM = "opus"
"""What the pretrained translator is called in the recipe."""
_LEAST_STEPS, _MOST_EPOCHS, _EPOCHS = 1000, 40, 20
_BATCH = 64
_FEW_CAPTIONS = 2000


@dataclass
class Facts:
    """What the recipe is written from.

    Attributes:
        about: first lines of the comment.
        corpus: settings of the section, with comments on some of them in `notes`.
        notes: key of `corpus` → comment.
        languages: of the captions, the most frequent first.
        train: training images.
        captions: training captions of the most frequent language.
        backbone: what finds the regions.
        translator: None where none is needed.
        target: language that it translates into.
    """

    about: list[str]
    corpus: dict[str, Any]
    notes: Mapping[str, str]
    languages: list[str]
    train: int
    captions: int
    backbone: Backbone
    translator: Translator | None
    target: str

    @property
    def translated(self) -> bool:
        """Are there synthetic captions?"""
        return self.translator is not None and self.translator.model is not None

    @property
    def human_row(self) -> str:
        """The training configuration of the captions by people."""
        return "-".join(self.languages) if len(self.languages) > 1 else f"{self.languages[0]}-human"  # `no` is false

    @property
    def row(self) -> str:
        """The training configuration that search uses."""
        return "-".join([*self.languages, self.target]) if self.translated else self.human_row


def recipe_text(facts: Facts) -> str:
    """A recipe as commented YAML."""
    lines = [f"# {' '.join(printable(line).split())}" for line in facts.about]
    lines += ["# All settings, with their documentation: `bildwort config keys`.", "seed: 1", "corpus:"]
    for key, value in facts.corpus.items():
        note = f"   # {facts.notes[key]}" if key in facts.notes else ""
        lines.append(f"  {key}: {_plain(value)}{note}")
    lines += [*_regions(facts.backbone), *_translation(facts), *_retrieval(facts)]
    return "\n".join(lines) + "\n"


def _plain(value: Any) -> str:
    """A value as YAML in one line: what does not print, and so may end a line, is written by its number."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(one if one.isprintable() else f"\\U{ord(one):08x}" for one in text)


def _regions(backbone: Backbone) -> list[str]:
    if backbone.model is None:
        return ["# Regions: the built-in extractor. For photographs name a pretrained network (`init --backbone`).",
                "regions:", f"  regions: {backbone.regions}"]  # fmt: skip
    return ["# Regions: the whole picture and its parts (a grid, or a detector's boxes), by a pretrained network.",
            "regions:", f"  model: {_plain(backbone.model)}", f"  regions: {backbone.regions}"]  # fmt: skip


def _translation(facts: Facts) -> list[str]:
    if not facts.translated or facts.translator is None:
        return ["mmt:", "  systems: []   # no translator", "  directions: []", "augment:", "  paths: []"]
    source, target = facts.languages[0], facts.target
    about = {"model": facts.translator.model} | (
        {"revision": facts.translator.revision} if facts.translator.revision else {}
    )
    return [
        f"# {language_name(target)} captions are written from the {language_name(source)} ones of training pictures.",
        "mmt:", f"  systems: [{SYSTEM}]", f"  directions: [{source}-{target}]", "  pretrained:",
        f"    {SYSTEM}: {_plain(about)}", "augment:", f'  paths: ["{SYSTEM}:{source}-{target}"]',
    ]  # fmt: skip


def _retrieval(facts: Facts) -> list[str]:
    human = [f"{language}/human" for language in facts.languages]
    source, target = facts.languages[0], facts.target
    rows = {facts.human_row: human}
    if facts.translated:
        rows[facts.row] = [*human, f"{target}/{SYSTEM}:{source}-{target}"]
    size = min(_BATCH, max(2, facts.train // 4))
    steps = max(1, facts.captions // size)
    epochs = min(_MOST_EPOCHS, max(_EPOCHS, _LEAST_STEPS // steps))
    tested = _plain(facts.languages)
    return [
        "vse:", "  model: san",
        "  rows:   # training configurations: captions by people, and by the translator",
        *[f"    {name}: {_plain(mix)}" for name, mix in rows.items()],
        f"  only: [{facts.row}]   # train this one; the others are for comparison",
        f"  test: {tested}   # languages with captions by people", f"  select: {tested}",
        "  dim: 256", "  word_dim: 100",
        f"  min_count: {1 if facts.captions < _FEW_CAPTIONS else 2}   # rarer words are unknown",
        f"  batch_size: {size}", f"  epochs: {epochs}", f"  decay_epoch: {3 * epochs // 4}", "  warmup_epochs: 3",
        "  learning_rate: 1.0e-3",
        "  # Orders what search finds first; with `model: null` there is none, which saves its training.",
        f"  reranker: {{row: {facts.row}, model: scan-t2i-avg}}",
    ]  # fmt: skip
