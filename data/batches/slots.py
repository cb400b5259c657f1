"""Caption mixes as recipes write them: groups of slots that an image fills at once."""

import re
from dataclasses import dataclass

from data.errors import DataError


@dataclass(frozen=True)
class Slot:
    """So many captions of one language and source, `2*en/human`; a *language type* of the loss is `en/human`.

    A count of 0 chooses images: those without any such caption.
    """

    language: str
    source: str
    count: int = 1

    @property
    def type(self) -> str:
        """`language/source`."""
        return f"{self.language}/{self.source}"


def parse_group(text: str) -> tuple[Slot, ...]:
    """Read a group of slots that an image fills at once: `en/human`, or `2*en/human + de/mmt:en-de`.

    `2*en/human + 0*de/human` is filled by images that have no such German caption.

    Raises:
        DataError: it is not written like that, or it draws no caption.

    Examples:
        >>> [(slot.count, slot.type) for slot in parse_group("2*en/human + de/mmt:en-de")]
        [(2, 'en/human'), (1, 'de/mmt:en-de')]
        >>> parse_group("en")
        Traceback (most recent call last):
            ...
        data.errors.DataError: caption group 'en': expected `language/source` or `2*en/human + de/mmt:en-de`
    """
    slots = []
    for part in re.split(r"\+(?=\s*(?:\d+\s*\*\s*)?[a-z]{2,3}/|\s*$)", text):  # not that of `mt+mmt:en-de`
        match = re.fullmatch(r"(?:(0|[1-9]\d{0,5})\s*\*\s*)?([a-z]{2,3})/([\w:@+-]+)", part.strip())
        if match is None:
            raise DataError(f"caption group {text!r}: expected `language/source` or `2*en/human + de/mmt:en-de`")
        slots.append(Slot(match[2], match[3], int(match[1] or 1)))
    if not any(slot.count for slot in slots):
        raise DataError(f"caption group {text!r} draws no caption; expected `language/source` beside it")
    return tuple(slots)
