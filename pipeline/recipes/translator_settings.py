"""Settings of translators: how ours are trained, how they decode, and which pretrained ones there are."""

from dataclasses import dataclass, field
from typing import Literal


@dataclass
class Phase:
    """One training of a translator."""

    steps: int = 20000
    """Optimiser steps in all; 0 leaves the phase out."""
    eval_every: int = 1000
    """Steps between validations (and checkpoints); the best by validation BLEU is kept."""
    learning_rate: float = 1e-3
    """Adam's, after warm-up."""
    warmup: int = 400
    """Steps of linear warm-up."""
    average: float = 0.0
    """Decay of the moving average of the weights, which is what is validated and kept; 0 keeps them as they are."""
    r_drop: float = 0.0
    """α of R-Drop: batches are read twice, with different dropout, and a divergence term makes both agree (on a CPU a
    step takes twice as long); 0 is without."""


@dataclass
class PretrainedSettings:
    """A translator of `transformers` that is used as it is: OPUS-MT (Marian), M2M100 or NLLB."""

    model: str
    """A folder, or a name on the hub; `{source}` and `{target}` stand for the languages of a direction
    (`Helsinki-NLP/opus-mt-{source}-{target}`)."""
    revision: str | None = None
    """Branch, tag or commit of a name on the hub; null: `main`, as it is when the translator is first tested."""
    directions: list[str] = field(default_factory=list)
    """What it translates; empty: `mmt.directions`."""
    codes: dict[str, str] = field(default_factory=dict)
    """Language → its code in the translator (`zh: zho_Hant`), where it is not to be the usual one."""


@dataclass
class DecodingSettings:
    """How a translator decodes, and how many captions it writes for each source caption."""

    method: Literal["beam", "sample"] = "beam"
    """Beam search (diverse with `groups`), or sampling of words by their probability."""
    captions: int = 1
    """Captions a source: the best that differ."""
    beam_size: int = 5
    """Hypotheses kept while searching."""
    groups: int = 1
    """Beams that share `beam_size` and avoid one another's words (diverse beam search)."""
    diversity: float = 0.5
    """Cost of a word, in log-probability, for each hypothesis of earlier groups that has it at that position."""
    temperature: float = 1.0
    """Of sampling; below 1 draws likelier words."""
    top_p: float = 1.0
    """Sampling draws among the likeliest words of this probability together."""
    length_penalty: float = 1.0
    """α of log p / length^α."""
