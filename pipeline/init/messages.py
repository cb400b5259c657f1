"""What `init` prints: what it found, and the commands that come next."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from data.captions.table import SPLITS, split_called
from data.findings.checks import EMPTY, ENTITY, UNNAMED
from data.own_captions.data_sets import NO_CAPTION
from data.pictures.folder import OTHER_SUFFIXES, pictures_in
from data.pictures.images import sizes_in_words, unreadable
from data.text.languages import language_name
from modules.metrics.intervals import FEW
from pipeline.engine.console import command, counted
from pipeline.init.networks import Chosen
from pipeline.init.recipe_text import FINE_TUNED, WITHOUT_DUAL_ENCODER, Plan

_SHOWN = 3  # examples of what was left out
_BETWEEN = (" | ", "; ")  # what may separate captions
_WITHOUT_CAPTIONS = "pictures without captions"
_QUERIES = {"de": "ein Hund am Strand", "en": "a dog on the beach"}


def what_was_found(plan: Plan) -> Iterator[str]:
    """What was found, a line each."""
    found, captions, count = plan.found, plan.corpus.captions, plan.splits.total()
    each = sorted({*Counter(caption.image_id for caption in captions).values()})
    many = f"{each[0]} a picture" if len(each) == 1 else f"{each[0]} to {each[-1]} a picture"
    detected = "" if found.languages is None else " (detected)"
    if found.languages is not None and not found.languages.sure:
        detected = " (could not be told, taken as English; --languages sets it)"
    counts = Counter(caption.language for caption in captions).most_common()
    named = ", ".join(f"{count:,} {language_name(language)}" for language, count in counts)
    sizes = ", ".join(f"{plan.splits[split]:,} {split}" for split in SPLITS)
    pixels = sizes_in_words(list(plan.corpus.pictures.values()))
    yield f"found     {found.form}, {counted(count, 'pictures')} with captions, {pixels}"
    yield f"captions  {named}{detected}, {many}"
    yield from _several_in_one(plan)
    drawn = "drawn from the pictures' names"
    few = "; so few test pictures cannot tell which model is better" if plan.splits["test"] < FEW else ""
    yield f"splits    {sizes} pictures, {drawn if found.drawn else 'as given'}{few}"
    yield from _folders_of_splits(plan)
    yield from _left_out(plan)
    if bad := unreadable(plan.corpus.pictures, whole=False):
        yield (f"warning   {counted(len(bad), 'pictures')} cannot be read: {_first([*bad])}; replace them, or leave "
               "them out with their captions (`corpus.unreadable: skip` in the recipe)")  # fmt: skip
    if plan.dual.model is None:
        yield f"regions   {_by(plan.backbone, count)}"
        yield f"model     san, which reads regions: {plan.dual.why}. {WITHOUT_DUAL_ENCODER}"
    else:
        took = f"its vectors of pictures take up to {_minutes(plan.dual.seconds, count)} min on this machine"
        yield f"model     {plan.dual.model}, a dual encoder: {plan.dual.why}; {took}"
    if plan.translator is not None:
        how = f"captions by {plan.translator.model}" if plan.translated else "no captions"
        yield f"{language_name(plan.target):9} {how}: {plan.translator.why}"


def _several_in_one(plan: Plan) -> Iterator[str]:
    """Warnings where a cell holds several captions, or half of the captions or more seem to be several in one."""
    if cells := plan.found.of_lines:
        yield (f"warning   {counted(cells, 'cells')} of captions hold several lines, each read as a caption; if a "
               "caption was only broken into lines, write it as one and start init again")  # fmt: skip
    captions = [ENTITY.sub("", caption.text) for caption in plan.corpus.captions]
    for separator in _BETWEEN:
        count = sum(separator in caption for caption in captions)
        if 2 * count >= len(captions):
            yield (f"warning   {count:,} of {len(captions):,} captions hold {separator.strip()!r}; if several captions "
                   "stand in one, write each into a line of its own and start init again")  # fmt: skip


def _folders_of_splits(plan: Plan) -> Iterator[str]:
    """A warning where splits are drawn though pictures lie in folders of several, `train/1.png`."""
    folders = {caption.image_id.partition("/")[0] for caption in plan.corpus.captions if "/" in caption.image_id}
    splits = {folder: split for folder in sorted(folders) if (split := split_called(folder))}
    if plan.found.drawn and len({*splits.values()}) > 1:
        yield (f"warning   the folders {', '.join(splits)} are not read as splits: to keep them, give the captions a "
               "column `split` (a TSV or CSV) and start init again")  # fmt: skip


def _left_out(plan: Plan) -> Iterator[str]:
    """What was left out, how often, and where first."""
    left = {**plan.found.left}
    if NO_CAPTION not in left:
        left[EMPTY] = plan.corpus.empty
    left.setdefault(UNNAMED, plan.corpus.unnamed)
    left["lines whose picture is not there"] = [line.partition(": ")[0] for line in plan.corpus.missing]
    left["missing or unreadable pictures"] = [line.partition(": ")[0] for line in plan.corpus.unreadable]
    for what, where in left.items():
        if where:
            yield f"left out  {counted(len(where), what)}: {_first(where)}"
    folder = Path(plan.found.root) / plan.found.pictures
    if other := [name for name in pictures_in(folder)[1] if name.lower().endswith(OTHER_SUFFIXES)]:
        yield (f"warning   {counted(len(other), 'pictures')} of a form that is not read: {_first(other)}; convert them "
               "to JPEG and start init again")  # fmt: skip


def _first(names: Sequence[str]) -> str:
    """The first of some names, as text."""
    return ", ".join([*names[:_SHOWN], *(["…"] if len(names) > _SHOWN else [])])


def _by(backbone: Chosen, count: int) -> str:
    """What finds the regions, and why."""
    if backbone.model is None:
        return f"{backbone.regions} a picture, by {backbone.why}"
    minutes = _minutes(backbone.seconds, count)
    return f"{backbone.regions} a picture, by {backbone.model}: {backbone.why}; up to {minutes} min on this machine"


def _minutes(seconds: float, count: int) -> int:
    """How long as many pictures take, given seconds for one."""
    return math.ceil(seconds * count / 60)


def what_comes_next(output: Path, plan: Plan) -> list[str]:
    """The commands that come next."""
    recipe = str(output) if output.is_absolute() or output.parent != Path() else f"./{output}"
    asked = plan.target if plan.translated or plan.target in plan.languages else plan.languages[0]
    query = _QUERIES.get(asked, "…")
    translates = "translates, " if plan.translated else ""
    dual = plan.dual.model is not None
    does = f"{translates}tests the network as it is, trains its text tower, tests it" if dual else (
        f"finds regions, {translates}trains, tests")  # fmt: skip
    more = (
        f"  # to train both towers, which takes longer: add {FINE_TUNED} to vse.only in {recipe}, then the same again"
    )
    data = output.with_name(f"{output.stem}-data")
    also = f", {data}" if plan.found.captions.is_relative_to(data.absolute()) else ""
    unnamed, folder = len(plan.corpus.unnamed), plan.found.root / plan.found.pictures
    every = f"  {command('index', recipe, '--pictures', str(folder))}  # also {counted(unnamed, _WITHOUT_CAPTIONS)}"
    return [
        f"written   {output}{also}", "next:",
        f"  {command('all', recipe)}        # {does}",
        f"  {command('index', recipe)}      # makes the pictures searchable",
        *([every] if unnamed else []),
        f"  {command('search', query, '--recipe', recipe)}",
        *([more] if dual else []),
    ]  # fmt: skip
