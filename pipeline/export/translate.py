"""`translate`: a file through translators of a recipe or of an exported model; line n gives line n."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from data.errors import DataError
from data.lines import read_lines, text_of
from data.pictures.regions import RegionStore, write_regions
from data.text.reading import Words
from data.text.tokenisation import MAX_TOKENS, SubWords
from data.translators.casing import Casing
from data.translators.nbest import Candidate, nbest_lines
from modules.translators.beam import BeamSettings
from modules.translators.registry import Searched, reads_pictures
from pipeline.engine.console import counted, info_aside, stage_command
from pipeline.engine.files import write_output
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.export.exported_files import read_about
from pipeline.export.exported_model import ExportedModel
from pipeline.export.exported_translators import translator_reading
from pipeline.graph import Graph
from pipeline.recipes.settings import AugmentSettings, Recipe
from pipeline.recipes.systems import parse_path
from pipeline.translation.translating import Translated, translate_all
from pipeline.translation.translator_files import load_translator

_BLOCK = 20_000  # lines translated together: what is held of the others is their text alone
_NAMED = 5  # lines without a picture, or with unknown words, that are named


@dataclass(frozen=True)
class TranslationRequest:
    """What `translate` is asked for.

    Attributes:
        path: `system:languages`, one hop or more; hops but the last are by their best translation.
        source: a sentence a line; None is standard input.
        output: where to; None is standard output.
        images: an image a line, for translators that look at pictures; None: no pictures.
        n_best: translations a sentence.
        moses: write lists in Moses' format (`data.translators.nbest`), also where `n_best` is 1.
    """

    path: str
    source: Path | None
    output: Path | None
    images: Path | None
    n_best: int = 1
    moses: bool = False

    @property
    def directions(self) -> list[str]:
        """`en-de` … of each hop; RecipeError if the path names a search."""
        _, languages, search = parse_path(self.path)
        if search is not None:
            raise RecipeError(f"translate: {self.path!r} names a search; here it is beam search by augment.beam_size")
        return [f"{a}-{b}" for a, b in pairwise(languages)]


@dataclass(frozen=True)
class Sight:
    """Where translators that look at pictures find them.

    Attributes:
        store: gives the regions of named images; an image that it does not hold has none.
        text_only: lines without a picture are translated, with zeros as regions.
        missing: what a message says of an image without regions.
    """

    store: Callable[[Sequence[str]], RegionStore]
    text_only: bool
    missing: str


def translate_lines(
    request: TranslationRequest, load: Callable[[], list[tuple[Searched, SubWords]]], options: AugmentSettings,
    sight: Sight, casing: Casing,
) -> None:  # fmt: skip
    """Translate a file line by line with translators.

    An empty line (or one of control characters) stays empty, and so does one of which the first translator knows no
    word, and one whose translation at some hop is empty; sentences longer
    than 100 sub-words, at any hop, are cut there; all are counted, and the first lines with unknown words are named.
    Several best are written as JSON lines: `line`, `translations` with `text` and `score`
    (`modules.translators.beam.Hypothesis`), and `unknown` with the unknown words if there are some; or in Moses' format
    with the features `logp` (the score) and `length` (words); an empty line has one empty translation.

    Args:
        load: gives the translator of each hop and its vocabulary.
        options: beam, length penalty, batches and devices.
        sight: where pictures are.

    Raises:
        RecipeError: an option or a file does not fit.
    """
    beam = _beam(request, options)
    lines = _standard_input() if request.source is None else read_lines(request.source, "a sentence a line")
    hops, languages = load(), parse_path(request.path)[1]
    words = _words(hops[0][1], lines, languages[0])
    readable = [len(read.unknown) < read.total for read in words]
    store, seen = _pictures(request, sight, readable, [network for network, _ in hops])
    trainer = replace(options.trainer, progress=False, devices=1, num_nodes=1, strategy="auto")
    cut, silent, written = set[int](), 0, list[str]()
    for start in range(0, len(lines), _BLOCK):
        places = [place for place in range(start, min(start + _BLOCK, len(lines))) if readable[place]]
        translated = {place: [Translated(lines[place], "", 0.0)] for place in places}
        for number, ((network, bpe), (language, target)) in enumerate(zip(hops, pairwise(languages), strict=True), 1):
            sizes = {place: bpe.size(best.text, language) for place, (best, *_) in translated.items()}
            cut |= {place for place, size in sizes.items() if size > MAX_TOKENS}
            sentences = {place: translated[place][0].text for place, size in sizes.items() if size}
            shown = [seen[place] if seen else None for place in sentences]
            translations = [] if not sentences else translate_all(
                network, bpe, bpe.encode_all(list(sentences.values()), language), shown, store, target, beam,
                options.batch_tokens, trainer, request.n_best if number == len(hops) else 1,
            )  # fmt: skip
            translated = dict(zip(sentences, translations, strict=True))
        translated = {place: _cased(best, lines[place], casing) for place, best in translated.items()}
        silent += len(places) - sum(bool(best.text.strip()) for best, *_ in translated.values())
        end = min(start + _BLOCK, len(lines))
        if request.moses:
            written += _moses(start, end, translated, request.n_best)
        else:
            written += _lines(start, end, translated, request.n_best, words)
    text = "".join(f"{line}\n" for line in written)
    sys.stdout.write(text) if request.output is None else write_output(request.output, text, "translate: --output")
    blind = [place for place, reads in enumerate(readable, 1) if seen and reads and seen[place - 1] is None]
    empty = sum(read.total == 0 for read in words)
    counts = {"empty": empty, "unread": readable.count(False) - empty, "silent": silent, "cut": len(cut)}
    counts["unknown"] = _tell_unknown(lines, words, languages[0])
    _tell(len(lines), request.path, counts, blind)


def _beam(request: TranslationRequest, options: AugmentSettings) -> BeamSettings:
    """The search; a RecipeError if it does not find as many translations as are asked for."""
    if not 1 <= request.n_best <= options.beam_size:
        raise RecipeError(
            f"translate: --n-best is {request.n_best}; expected 1 to augment.beam_size ({options.beam_size})"
        )
    return BeamSettings(options.beam_size, options.length_penalty)


def _cased(translations: Sequence[Translated], source: str, casing: Casing) -> list[Translated]:
    return [replace(translation, text=casing.apply(translation.text, source)) for translation in translations]


def _words(bpe: SubWords, lines: Sequence[str], language: str) -> list[Words]:
    """The words of each line; an empty one has none."""
    return [bpe.read_words(text, language) if bpe.size(text, language) else Words(0, []) for text in lines]


def _tell_unknown(lines: Sequence[str], words: Sequence[Words], language: str) -> int:
    """Print the unknown words of the first lines that have some on standard error; how many lines have some."""
    places = [place for place, read in enumerate(words) if read.unknown]
    for place in places[:_NAMED]:
        reading = translator_reading(lines[place], words[place], language)
        info_aside(reading.note + ("" if reading.known else "; not translated"), f"line {place + 1}:")
    return len(places)


def _tell(lines: int, path: str, counts: Mapping[str, int], blind: Sequence[int]) -> None:
    """Print a summary of the lines on standard error; the first of those without a picture are named."""
    named = ", ".join(map(str, blind[:_NAMED])) + (" …" if len(blind) > _NAMED else "")
    counts_of = {
        "empty lines, left empty": counts["empty"],
        "lines with unknown words": counts["unknown"],
        "lines of unknown words alone, not translated": counts["unread"],
        "lines with an empty translation": counts["silent"],
        f"lines cut at {MAX_TOKENS} sub-words": counts["cut"],
        f"lines without regions, zeros in their place (lines {named})": len(blind),
    }  # fmt: skip
    told = (counted(count, what) for what, count in counts_of.items() if count)
    print("; ".join([counted(lines, f"lines by {path}"), *told]), file=sys.stderr)


def _standard_input() -> list[str]:
    """Lines of UTF-8 from the standard input."""
    if sys.stdin is None:
        raise RecipeError("translate: the standard input is closed; name a file by --input")
    raw = sys.stdin.buffer.read()
    try:
        lines = text_of(raw.decode("utf-8")).split("\n")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DataError(f"standard input:{line}: not UTF-8 ({error.reason}); convert it to UTF-8") from None
    return lines[:-1] if not lines[-1] else lines


def _pictures(
    request: TranslationRequest, sight: Sight, readable: Sequence[bool], networks: Sequence[Searched]
) -> tuple[RegionStore | None, list[str | None] | None]:
    """The regions, and the image of each line, None for a line without one; (None, None) where nothing looks.

    Raises:
        RecipeError: there are more or fewer images than lines, one has no regions, or regions are of another width.
    """
    system, path = parse_path(request.path)[0], request.images
    looks = [network.regions.in_features for network in networks if network.regions is not None]
    if not looks and not any(map(reads_pictures, networks)):
        if path is not None:
            info_aside(f"translate: {system} reads no pictures, so --images is not used")
        return None, None
    if path is None and not looks:
        return None, None
    if path is None and not sight.text_only:
        raise RecipeError(f"translate: {system} reads regions; give --images, an image a line, or use mt")
    names = [""] * len(readable) if path is None else read_lines(path, "an image a line")
    names = [name.removesuffix("\r") for name in names]
    if len(names) != len(readable):
        where = "standard input" if request.source is None else str(request.source)
        raise RecipeError(f"{path}: {len(names)} images for {len(readable)} lines of {where}; give one a line")
    asked = [name if reads else "" for name, reads in zip(names, readable, strict=True)]
    store = sight.store(list(dict.fromkeys(filter(None, asked))))
    if looks and looks[0] != store.dim:
        raise RecipeError(f"translate: {system} reads regions of {looks[0]} numbers, the pictures have {store.dim}; "
                          f"run {stage_command('mmt')}")  # fmt: skip
    for number, (name, reads) in enumerate(zip(names, readable, strict=True), 1):
        if reads and name not in store and not sight.text_only:
            raise RecipeError(f"{path}:{number}: image {name!r} {sight.missing}")
    return store, [name if name in store else None for name in names]


def _lines(
    start: int, end: int, translated: dict[int, list[Translated]], n_best: int, words: Sequence[Words]
) -> Iterator[str]:  # fmt: skip
    """A line for each line read."""
    for place in range(start, end):
        translations = translated.get(place, [])
        if n_best == 1:
            yield translations[0].text if translations else ""
        else:
            best = [{"text": translation.text, "score": round(translation.score, 4)} for translation in translations]
            unknown = {"unknown": words[place].unknown} if words[place].unknown else {}
            yield json.dumps({"line": place + 1, "translations": best} | unknown, ensure_ascii=False)


def _moses(start: int, end: int, translated: dict[int, list[Translated]], n_best: int) -> list[str]:
    """n-best lists of the lines read."""
    lists = [(translated.get(place) or [Translated("", "", 0.0)])[:n_best] for place in range(start, end)]
    candidates = [
        [
            Candidate(translation.text, {"logp": translation.score, "length": len(translation.tokens.split())})
            for translation in some
        ]
        for some in lists
    ]
    return nbest_lines(candidates, [[translation.score for translation in some] for some in lists], start)


def translate_by_recipe(recipe: Recipe, workspace: Workspace, request: TranslationRequest) -> None:
    """Translate a file line by line with a recipe's translators, its own or borrowed; `images` are ids of their corpus.

    Args:
        recipe: whose translators; its `augment` has beam, length penalty, batches and devices.

    Raises:
        RecipeError: there is no such translator, it has not been trained, or the files do not fit.
    """
    own = Graph(recipe, workspace).of_translators
    directions, (system, languages, _) = request.directions, parse_path(request.path)
    for direction in directions or [""]:
        if f"{system}-{direction}" not in own.translators:
            known = f"its systems: {', '.join(['nmt', *own.recipe.mmt.systems])}; directions: "
            known += ", ".join(own.recipe.mmt.directions_of(system))
            raise RecipeError(f"translate: {request.path!r} needs {system}:{direction}, which recipe {own.recipe.name} "
                              f"does not train; {known if own.translators else 'it has no translators'}")  # fmt: skip
    folders = [workspace.require(own.translators[f"{system}-{direction}"]) for direction in directions]
    regions = workspace.require(own.corpus) / "regions"
    sight = Sight(
        lambda names: RegionStore(regions, check_values=False), own.recipe.mmt.without_regions == "captions",
        f"has no regions in the corpus of recipe {own.recipe.name}; leave its line out, or set mmt.without_regions to "
        "captions and train so",
    )  # fmt: skip
    casing = Casing.of_corpus(workspace.require(own.corpus) / "captions.parquet", languages[-1])
    translate_lines(request, lambda: [load_translator(folder) for folder in folders], recipe.augment, sight, casing)


def translate_exported(model: Path, options: AugmentSettings, request: TranslationRequest) -> None:
    """Translate a file line by line with the translators of an exported model; `images` are picture files.

    Args:
        options: beam, length penalty, batches and devices.

    Raises:
        DataError: a picture cannot be read.
        RecipeError: there is no such translator, the model reads no pixels, or the files do not fit.
    """
    exported = ExportedModel.from_pretrained(model)
    if not (directions := request.directions):
        raise RecipeError(f"translate: {request.path!r} names one language; expected two or more, mt:en-de")
    system, languages, _ = parse_path(request.path)
    with TemporaryDirectory() as folder:
        sight = Sight(
            lambda names: _regions(exported, names, Path(folder)),
            read_about(exported.folder).get("without_regions") == "captions",
            "is no file; give a picture, or leave its line out",
        )
        load, casing = exported.translators.load, exported.translators.casing(languages[-1])
        translate_lines(request, lambda: [load(system, direction) for direction in directions], options, sight, casing)


def _regions(exported: ExportedModel, names: Sequence[str], folder: Path) -> RegionStore:
    """The regions of those pictures that are files."""
    regions = {name: exported.regions_of(name) for name in names if Path(name).is_file()}
    nothing = (np.zeros((1, exported.model.input_dim)), np.zeros((1, 4)))
    pictures = regions or {"no picture": nothing}  # a store has one image or more
    write_regions(folder, list(pictures), pictures.values())
    return RegionStore(folder, check_values=False)
