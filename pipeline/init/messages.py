"""What `init` prints: what it found, and the commands that come next."""

import math
import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median

from data.corpora import Corpus
from data.corpora.folder import SPLITS
from data.errors import DataError
from data.findings import EMPTY, UNNAMED
from data.images import size_of
from data.languages import language_name
from pipeline.init.datasets_of import NO_CAPTION
from pipeline.init.detection import Found
from pipeline.init.networks import Backbone
from pipeline.init.recipe_text import Facts

_SAMPLE = 500  # pictures whose sizes are looked at
_SHOWN = 3  # examples of what was left out
_QUERIES = {"de": "ein Hund am Strand", "en": "a dog on the beach"}


def images_of(corpus: Corpus) -> dict[str, str]:
    """Image → its split."""
    return {caption.image_id: caption.split for caption in corpus.captions}


def what_was_found(found: Found, corpus: Corpus, facts: Facts, asked: bool) -> list[str]:
    """What was found, a line each.

    Args:
        found: the captions.
        corpus: made of them.
        facts: what the recipe is written from.
        asked: were the languages named by the person?
    """
    images = images_of(corpus)
    counts = Counter(one.language for one in corpus.captions)
    each = sorted(Counter(one.image_id for one in corpus.captions).values())
    many = f"{each[0]} a picture" if each[0] == each[-1] else f"{each[0]} to {each[-1]} a picture"
    detected = "" if found.languages is None or asked else " (detected)"
    if found.languages is not None and not found.languages.sure:
        detected = " (could not be told, taken as English; --languages sets it)"
    named = ", ".join(f"{count:,} {language_name(language)}" for language, count in counts.most_common())
    splits = Counter(images.values())
    sizes = ", ".join(f"{splits[split]:,} {split}" for split in SPLITS)
    how = "drawn from the pictures' names" if found.drawn else "as given"
    lines = [
        f"found     {found.form}, {len(images):,} pictures with captions, {_sizes(list(corpus.pictures.values()))}",
        f"captions  {named}{detected}, {many}",
        f"splits    {sizes} pictures, {how}",
        *[f"left out  {count:,} {what}: {', '.join(where)}" for what, count, where in _left_out(found, corpus)],
        f"regions   {_by(facts.backbone, len(images))}",
    ]  # fmt: skip
    if facts.translator is not None:
        language, why = language_name(facts.target), facts.translator.why
        how = f"captions by {facts.translator.model}: {why}" if facts.translator.model else f"no captions: {why}"
        lines.append(f"{language:9} {how}")
    return lines


def _left_out(found: Found, corpus: Corpus) -> Iterator[tuple[str, int, Sequence[str]]]:
    """What was left out, how often, and where first."""
    left = {**found.left}
    if NO_CAPTION not in left:
        left[EMPTY] = corpus.empty
    if UNNAMED not in left:
        left[UNNAMED] = corpus.unnamed
    for what, where in left.items():
        if where:
            yield what, len(where), [*where[:_SHOWN], *["…"][: len(where) - _SHOWN]]


def _by(backbone: Backbone, count: int) -> str:
    """What finds the regions, and why."""
    if backbone.model is None:
        return f"{backbone.regions} a picture, by {backbone.why}"
    minutes = math.ceil(backbone.seconds * count / 60)
    return f"{backbone.regions} a picture, by {backbone.model}: {backbone.why}; up to {minutes} min on this machine"


def _sizes(pictures: Sequence[Path]) -> str:
    """Usual width and height, and the smallest and largest picture."""
    found = []
    for path in pictures[:: max(1, len(pictures) // _SAMPLE)]:
        with suppress(DataError):  # `prepare` names it
            found.append(size_of(path))
    if not found:
        return "none readable"
    usual = (int(median(size[0] for size in found)), int(median(size[1] for size in found)))
    ends = [min(found, key=lambda size: size[0] * size[1]), max(found, key=lambda size: size[0] * size[1])]
    usually, least, most = ("×".join(map(str, size)) for size in (usual, *ends))
    return f"{usually} pixels" + (f" ({least} to {most})" if least != most else "")


def what_comes_next(output: Path, facts: Facts) -> list[str]:
    """The commands that come next."""
    program = sys.argv[0] if Path(sys.argv[0]).name == "bildwort" else "bildwort"
    recipe = shlex.quote(str(output) if output.is_absolute() or output.parent != Path() else f"./{output}")
    asked = facts.target if facts.translated or facts.target in facts.languages else facts.languages[0]
    query = _QUERIES.get(asked, "…")
    return [
        f"written   {output}", "next:",
        f"  {program} all {recipe}        # finds regions, translates, trains, tests",
        f"  {program} index {recipe}      # makes the pictures searchable",
        f'  {program} search "{query}" --recipe {recipe}',
    ]  # fmt: skip
