"""Settings of a search of `augment.searches`."""

from dataclasses import dataclass
from typing import Literal


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
