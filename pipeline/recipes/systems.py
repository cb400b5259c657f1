"""Names of translators and of the ways of captions, as recipes write them."""

import re

CHANNEL = "channel"
HUB = "hub"
CAPTION = "caption"
"""System of the paths by which `augment.captioner` writes captions of pictures: `caption:de`."""


def parse_system(system: str) -> tuple[str, int]:
    """What a system is, `nmt`, `mt` or `mmt`, and its number: `mmt3` → (`mmt`, 3), `mt` → (`mt`, 1)."""
    kind = system.rstrip("0123456789")
    return kind, int(system[len(kind) :] or 1)


def opposite(direction: str) -> str:
    """The other way round: `en-de` → `de-en`."""
    return "-".join(reversed(direction.split("-")))


def members_of(system: str) -> tuple[list[str], str | None]:
    """The translators that search together, and what re-ranks what they find: `channel`, a name, or None."""
    names = system.split("+")
    reranks = names[1:] and not re.fullmatch(r"n?mm?t\d*", names[-1])
    return (names[:-1], names[-1]) if reranks else (names, None)


def parse_path(path: str) -> tuple[str, list[str], str | None]:
    """A path of captions: its system, its languages and its search; `mt:en-de@wide` → (`mt`, [`en`, `de`], `wide`).

    Captions of pictures have one language: `caption:de` → (`caption`, [`de`], None).
    """
    system, _, rest = path.partition(":")
    way, _, search = rest.partition("@")
    return system, way.split("-"), search if "@" in rest else None
