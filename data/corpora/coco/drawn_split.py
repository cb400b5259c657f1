"""Images drawn for validation and test from all that a corpus has."""

import hashlib
from collections import defaultdict
from collections.abc import Collection, Mapping


def drawn_split(images: Collection[str], count: int, seed: int, copies: Mapping[str, str]) -> dict[str, str]:
    """Draw images by a number that their ids and a seed decide: the same in any order of images, on any machine.

    Args:
        images: ids that may be drawn.
        count: for validation, and as many for the test; more where copies are drawn together.
        seed: another one draws others.
        copies: image → the one whose picture is the same, byte for byte; both are in one split.

    Returns:
        image → `val` or `test`, of those that are drawn.
    """
    of: dict[str, list[str]] = defaultdict(list)
    for name in images:
        of[copies.get(name, name)].append(name)
    order = sorted(of, key=lambda name: (hashlib.sha256(f"{seed} {name}".encode()).digest(), name), reverse=True)
    split_of: dict[str, str] = {}
    for split in ("val", "test"):
        drawn: list[str] = []
        while len(drawn) < count and order:
            drawn += of[order.pop()]
        split_of |= dict.fromkeys(drawn, split)
    return split_of
