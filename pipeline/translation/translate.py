"""`translate`: a file through a recipe's translators; line n of the output belongs to line n of the input."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from data.errors import DataError
from data.lines import read_lines
from data.nbest import Candidate, nbest_lines
from data.regions import RegionStore
from data.text import MAX_TOKENS, JointBPE, tokenize
from modules.beam import BeamSettings
from pipeline.corpus.prepare import corpus_job
from pipeline.errors import RecipeError
from pipeline.jobs.files import write_whole
from pipeline.jobs.workspace import Workspace
from pipeline.recipes.settings import Recipe
from pipeline.recipes.systems import parse_path
from pipeline.translation.batch_translation import Translated, translate_all
from pipeline.translation.mmt import translator_jobs, whose
from pipeline.translation.translator_files import load_translator

_BLOCK = 20_000  # lines translated together: what is held of the others is their text alone


def translate(
    recipe: Recipe, workspace: Workspace, path: str, source: Path | None, output: Path | None, images: Path | None,
    n_best: int, moses: bool = False,
) -> None:  # fmt: skip
    """Translate a file line by line, by the settings of the recipe's `augment` section.

    An empty line (or one of control characters) stays empty, and so does one whose translation at some hop is empty;
    sentences longer than 100 sub-words, at any hop, are cut there; all are counted. Several best are written as JSON
    lines: `line`, and `translations` with `text` and `score` (`modules.beam.Hypothesis`); or in Moses' format with the
    features `logp` (the score) and `length` (words), where an empty line has one empty translation.

    Args:
        recipe: whose translators.
        workspace: its artifacts.
        path: `system:languages`, one hop or more; hops but the last are by their best translation.
        source: a sentence a line; None is standard input.
        output: where to; None is standard output.
        images: an image id a line, of the translators' corpus, for those that read regions; None: no pictures.
        n_best: translations a sentence.
        moses: write lists in Moses' format (`data.nbest`), also where `n_best` is 1.

    Raises:
        RecipeError: there is no such translator, it has not been trained, or the files do not fit.
    """
    _, languages, _ = parse_path(path)
    options, recipe = recipe.augment, whose(recipe)
    beam = BeamSettings(options.beam_size, options.length_penalty)
    folders = _translators(recipe, workspace, path)
    if n_best < 1 or n_best > beam.beam_size:
        raise RecipeError(f"translate: --n-best is {n_best}; expected 1 to augment.beam_size ({beam.beam_size})")
    if output is not None and output.is_dir():
        raise RecipeError(f"translate: --output {output} is a folder; expected a file")
    where = "standard input" if source is None else str(source)
    lines = _standard_input() if source is None else read_lines(source, "a sentence a line")
    store = RegionStore(workspace.require(corpus_job(recipe, workspace)) / "regions", check_values=False)
    hops = [load_translator(folder) for folder in folders]
    looks = [network.regions.in_features for network, _ in hops if network.regions is not None]
    not_empty = [_size(text, hops[0][1], languages[0]) > 0 for text in lines]
    seen = _images(recipe, images, not_empty, where, store) if looks else None
    _require_sight(path, looks, store, seen)
    trainer = replace(options.trainer, progress=False, devices=1, num_nodes=1, strategy="auto")
    cut, silent, written = set[int](), 0, list[str]()
    for start in range(0, len(lines), _BLOCK):
        places = [place for place in range(start, min(start + _BLOCK, len(lines))) if not_empty[place]]
        found = {place: [Translated(lines[place], "", 0.0)] for place in places}
        for number, ((network, bpe), (language, target)) in enumerate(zip(hops, pairwise(languages), strict=True), 1):
            sizes = {place: _size(best.text, bpe, language) for place, (best, *_) in found.items()}
            cut |= {place for place, size in sizes.items() if size > MAX_TOKENS}
            sentences = {place: found[place][0].text for place, size in sizes.items() if size}
            shown = [seen[place] if seen else None for place in sentences]
            translations = translate_all(
                network, bpe, bpe.encode_all(list(sentences.values()), language), shown, store, target, beam,
                options.batch_tokens, trainer, n_best if number == len(hops) else 1,
            )  # fmt: skip
            found = dict(zip(sentences, translations, strict=True))
        silent += len(places) - sum(bool(best.text.strip()) for best, *_ in found.values())
        written += (_moses if moses else _lines)(start, min(start + _BLOCK, len(lines)), found, n_best)
    _write("".join(f"{line}\n" for line in written), output)
    blind = sum(filled and name is None for filled, name in zip(not_empty, seen or (), strict=False))
    _tell(len(lines), path, {"empty": not_empty.count(False), "silent": silent, "cut": len(cut), "blind": blind})


def _write(text: str, output: Path | None) -> None:
    """Write to a file, or to standard output."""
    sys.stdout.write(text) if output is None else write_whole(output, text)


def _tell(lines: int, path: str, counts: Mapping[str, int]) -> None:
    """Print a summary of the lines on standard error."""
    notes = {
        f"{lines:,} lines by {path}": True,
        f"{counts['empty']:,} empty lines stay empty": counts["empty"],
        f"{counts['silent']:,} lines have an empty translation": counts["silent"],
        f"{counts['cut']:,} lines were cut at {MAX_TOKENS} sub-words": counts["cut"],
        f"{counts['blind']:,} lines without regions, zeros in their place": counts["blind"],
    }
    print("; ".join(note for note, count in notes.items() if count), file=sys.stderr)


def _require_sight(path: str, looks: Sequence[int], store: RegionStore, seen: Sequence[str | None] | None) -> None:
    """Refuse missing regions, or regions of another width, for translators that read them."""
    system = parse_path(path)[0]
    if looks and looks[0] != store.dim:
        raise RecipeError(f"translate: {system} reads regions of {looks[0]} numbers, the corpus has "
                          f"{store.dim}; run `make stage-mmt` with this recipe")  # fmt: skip
    if looks and seen is None:
        raise RecipeError(f"translate: {system} reads regions; give --images, an image id a line, or use mt")


def _translators(recipe: Recipe, workspace: Workspace, path: str) -> list[Path]:
    """The folders of a path's translators, hop by hop.

    Raises:
        RecipeError: the path names a search, or one is not of the recipe or not trained.
    """
    system, languages, search = parse_path(path)
    if search is not None:
        raise RecipeError(f"translate: {path!r} names a search; here it is beam search by augment.beam_size")
    jobs, directions = translator_jobs(recipe, workspace), [f"{a}-{b}" for a, b in pairwise(languages)]
    for direction in directions or [""]:
        if f"{system}-{direction}" not in jobs:
            raise RecipeError(f"translate: {path!r} needs {system}:{direction}, which recipe {recipe.name} does not "
                              f"train; its systems: {', '.join(['nmt', *recipe.mmt.systems])}; directions: "
                              f"{', '.join(recipe.mmt.directions)}")  # fmt: skip
    return [workspace.require(jobs[f"{system}-{direction}"]) for direction in directions]


def _standard_input() -> list[str]:
    """Lines of UTF-8 from the standard input."""
    raw = sys.stdin.buffer.read()
    try:
        lines = raw.decode("utf-8").removeprefix("\ufeff").split("\n")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DataError(f"standard input:{line}: not UTF-8 ({error.reason}); convert it to UTF-8") from None
    return lines[:-1] if not lines[-1] else lines


def _size(text: str, bpe: JointBPE, language: str) -> int:
    """The number of sub-words of a line; 0 for an empty one."""
    return len(bpe.tokenizer.encode(tokenize(text, language)).ids)


def _images(
    recipe: Recipe, path: Path | None, not_empty: Sequence[bool], where: str, store: RegionStore
) -> list[str | None] | None:
    """The image of each line; None for a line without one, where the recipe allows it.

    Raises:
        RecipeError: there are more or fewer images than lines, or one has no regions and the recipe allows none.
    """
    if path is None:
        return [None] * len(not_empty) if recipe.mmt.without_regions == "captions" else None
    names = [name.removesuffix("\r") for name in read_lines(path, "an image id a line")]
    if len(names) != len(not_empty):
        raise RecipeError(f"{path}: {len(names)} images for {len(not_empty)} lines of {where}; give one a line")
    if recipe.mmt.without_regions == "captions":
        return [name if name in store else None for name in names]
    for number, (name, filled) in enumerate(zip(names, not_empty, strict=True), 1):
        if filled and name not in store:
            raise RecipeError(f"{path}:{number}: image {name!r} has no regions in the corpus of recipe {recipe.name}; "
                              "leave its line out, or set mmt.without_regions to captions and train so")  # fmt: skip
    return list(names)


def _lines(start: int, end: int, found: dict[int, list[Translated]], n_best: int) -> Iterator[str]:
    """A line for each line read."""
    for place in range(start, end):
        translations = found.get(place, [])
        if n_best == 1:
            yield translations[0].text if translations else ""
        else:
            best = [{"text": one.text, "score": round(one.score, 4)} for one in translations]
            yield json.dumps({"line": place + 1, "translations": best}, ensure_ascii=False)


def _moses(start: int, end: int, found: dict[int, list[Translated]], n_best: int) -> list[str]:
    """n-best lists of the lines read."""
    lists = [(found.get(place) or [Translated("", "", 0.0)])[:n_best] for place in range(start, end)]
    candidates = [
        [Candidate(one.text, {"logp": one.score, "length": len(one.tokens.split())}) for one in some] for some in lists
    ]
    return nbest_lines(candidates, [[one.score for one in some] for some in lists], start)
