"""What a report begins with: a few sentences for a reader who does not know the code, and what its rows stand for."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from data.batches.slots import Slot, parse_group
from data.batches.taught import TEXT
from data.captions.table import HUMAN
from data.corpora.caption_files import LANGUAGE_CODE
from data.corpora.registry import CORPORA
from data.text.languages import language_name
from modules.metrics.intervals import FEW, Difference
from modules.metrics.retrieval import guessed_mean_recall
from modules.retrieval_models import model_class
from pipeline.engine.console import command, counted, stage_command
from pipeline.graph import Graph
from pipeline.init.networks import DUAL_ENCODERS
from pipeline.recipes.retrieval_settings import VseSettings, slots_in
from pipeline.recipes.settings import CorpusSettings, Recipe
from pipeline.recipes.systems import CAPTION, members_of, parse_path, parse_system
from pipeline.reporting.records import Result
from pipeline.reporting.results import Compared, Seeds
from pipeline.retrieval.reranking import is_better, is_tested_on

_ENOUGH = 3  # seeds whose spread an interval can be over


def sentences(
    settings: VseSettings, lines: Seeds, results: Sequence[Result], compared: Sequence[Compared]
) -> list[str]:  # fmt: skip
    """What a recipe's table says in a few sentences: the best row, what translated captions bring, what to distrust.

    The best row of a language is the one with the highest rsum on validation; the test decides nothing.
    """
    own = {(system, name): rows[0] for (system, name), rows in lines.items()}
    said = []
    for language in settings.test:
        able = [key for key, row in own.items() if language in row.languages - row.unseen]
        found = {key: of_row for key in able if (of_row := _figures(results, *key, language))}
        validated = {key: of_row["val"].value for key, of_row in found.items() if "val" in of_row}
        if validated or len(found) == 1:
            key = max(validated, key=validated.__getitem__) if validated else next(iter(found))
            said.append(_best(key, found[key], language, len(found), len(validated), len(able)))
        elif found:  # the test must not choose
            rows = _and([f"{name} {of_row['recall'].value:.1f}" for (_, name), of_row in found.items()])
            unsaid = "no row was validated, so none is called the best"
            said.append(f"{language_name(language)}: mean recall of {rows} %; {unsaid}.")
    missing = [f"{name} ({system})" for (system, name), row in own.items()
               if not any(_figures(results, system, row.title(one), one) for one in settings.test)]  # fmt: skip
    if len(missing) == len(own):
        return ["No row of the table has been trained and tested yet."]
    said = said or ["No row that has been tested was trained on a language of vse.test."]
    untrained = [f"Not trained and tested: {_and(missing)}; run {stage_command('vse')}."] if missing else []
    trained = [key for key in own if settings.of_row(key[1]).epochs]
    return [*said, *_gains(settings, own, compared), *untrained, *_distrust(own, trained, results)]


def as_reranked(graph: Graph, lines: Seeds, results: Sequence[Result]) -> list[str]:
    """What the model finds whose results the recipe's reranker orders, as search and its page do.

    Args:
        lines: the reranker's line, if there is one.
    """
    if graph.reranker is not None and not is_better(graph.reranker, graph.workspace, graph.best_row):
        return [f"Search does not rerank: {system} is not better on validation." for system, _ in lines]
    firsts = [
        f"{of_row['first'].value:.1f} ({language_name(language)})"
        for language in graph.recipe.vse.test for key in lines if (of_row := _figures(results, *key, language))
    ]  # fmt: skip
    row, best, doubt = graph.reranker, graph.best_row, ""
    if row is not None and best is not None and not is_tested_on(row, best):
        doubt = f"; tested on {row.trained[1].name}, not on {best.job.name}, which search reads"
    return [f"Search reranks ({system}): the right picture is then first for {_and(firsts)} of 100 captions{doubt}."
            for system, _ in lines if firsts]  # fmt: skip


def on_regions(recipe: Recipe, rows: Iterable[str]) -> list[str]:
    """What to do where rows read regions that the built-in extractor finds in photographs; nothing elsewhere."""
    corpus, models = recipe.corpus, [recipe.vse.of_row(name) for name in rows]
    drawn = corpus.name == "scenes" or CORPORA[corpus.name].brings_regions(corpus.options)
    reads = any(it.image_encoder is None and not model_class(it.model).given_vectors for it in models)
    if recipe.regions.model is not None or drawn or corpus.root is None or not reads:
        return []
    network, output = next(iter(DUAL_ENCODERS.values())), f"{recipe.name}-dual-encoder.yaml"
    if corpus.name not in ("folder", "karpathy"):  # which `init` does not read
        return ["The built-in extractor is weak for photographs: a dual encoder finds most of them without training "
                f"(vse.model: dual-encoder, vse.pretrained: {network})."]  # fmt: skip
    better = command("init", corpus.root, *_captions(corpus), "--backbone", network, "--output", output)
    return [f"The built-in extractor is weak for photographs: `{better}` writes a recipe that finds most of them "
            "without training (where there is no internet, --backbone FOLDER)."]  # fmt: skip


def _captions(corpus: CorpusSettings) -> list[str]:
    """The options of `init` that say which captions a recipe reads, and their languages."""
    captions, languages = getattr(corpus.options, "captions", "."), getattr(corpus.options, "languages", [])
    beside = Path(captions) == Path() or LANGUAGE_CODE in captions  # texts or tables that `init` finds by itself
    named = [] if beside else ["--captions", str(Path(corpus.root or "") / captions)]
    return [*named, *(["--languages", ",".join(languages)] if languages else [])]


def trained_on(groups: Sequence[str]) -> str:
    """The caption groups of a row in words."""
    if not groups:
        return "nothing: a pretrained network as it is"
    return "; ".join(" with ".join(_slot(slot) for slot in parse_group(text) if slot.count > 0) for text in groups)


def _slot(slot: Slot) -> str:
    """`2*de/mt:en-de` in words."""
    many = f"{slot.count} " if slot.count > 1 else ""
    language, source = language_name(slot.language), slot.source
    if source == HUMAN:
        return f"{many}{language} captions by people"
    alone = "sentences without pictures: " if source.startswith(TEXT) else ""
    source = source.removeprefix(TEXT)
    if ":" not in source:
        return f"{alone}{many}{language} sentences of {source}"
    system, languages, chosen = parse_path(source)
    search = f", {chosen}" if chosen else ""
    if system == CAPTION:
        return f"{alone}{many}{language} captions written from the picture{search}"
    kinds = [parse_system(name)[0] for name in members_of(system)[0]]
    sees = " looking at the picture" if "mmt" in kinds else ""
    way = " → ".join(map(language_name, languages))
    return f"{alone}{many}{language} captions by {system}{sees} ({way}{search})"


def _figures(results: Sequence[Result], system: str, name: str, language: str) -> dict[str, Result]:
    """Of a row: `recall`, `first` (R@1 of text → image) and `val` (rsum on validation); empty if it was not tested."""
    wanted = {("test", "mean_recall"): "recall", ("test", "t2i_r1"): "first", ("val", "rsum"): "val"}
    found = {
        wanted[it.split, it.metric]: it for it in results
        if (it.system, it.source, it.language) == (system, name, language) and (it.split, it.metric) in wanted
    }  # fmt: skip
    return found if {"recall", "first"} <= found.keys() else {}


def _best(
    key: tuple[str, str], of_row: Mapping[str, Result], language: str, rows: int, validated: int, able: int
) -> str:  # fmt: skip
    system, name = key
    recall, first = of_row["recall"], of_row["first"]
    interval = "" if recall.low is None else f" ({recall.low:.1f} … {recall.high:.1f})"
    if rows == 1:
        chosen = "is the only row" if able == 1 else "is the only row that is trained"
    else:
        chosen = f"is the best of {validated} rows on validation" if validated > 1 else "is the only validated row"
    guess = f", where guessing finds {_chance(recall.n)} of 100" if recall.n else ""
    if recall.captioned:
        interval += f", by guessing at most {guessed_mean_recall(recall.n, recall.captions, recall.captioned):.1f} %"
    images = f" among {recall.n:,} test images" if recall.n else ""
    if recall.captioned < recall.n and recall.captioned:
        images += f" ({recall.captioned:,} of them with captions in {language_name(language)})"
    return (
        f"{language_name(language)}: {name} ({system}) {chosen}; it finds the right picture first for "
        f"{first.value:.1f} of 100 captions{images}{guess}; its mean recall is {recall.value:.1f} %{interval}."
    )


def _chance(images: int) -> str:
    """R@1 of text → image, in percent, of random rankings."""
    return f"{100 / images:{'.1f' if images <= 1000 else '.1g'}}"


def _gains(
    settings: VseSettings, own: Iterable[tuple[str, str]], compared: Sequence[Compared]
) -> list[str]:  # fmt: skip
    """What rows with translated captions, or with sentences alone, have beside the first row without them."""
    sources = {name: {slot.source for slot in slots_in(settings.rows[name])} for _, name in own}
    kinds = {name: kind for name, of_row in sources.items() if (kind := _kind(of_row)) is not None}
    gains = [it for it in compared if it.metric == "mean_recall" and it.row in kinds and it.base not in kinds]
    said = []
    for kind, language in dict.fromkeys((kinds[it.row], it.language) for it in gains):
        own_gains = [it for it in gains if (kinds[it.row], it.language) == (kind, language)]
        base = own_gains[0].base
        differences = {it.row: it.difference for it in own_gains if it.base == base}
        listed = ", ".join(f"{row} {d.value:+.1f} ({d.low:+.1f} … {d.high:+.1f})" for row, d in differences.items())
        said.append(f"{kind}, {language_name(language)}, beside {base}: {listed} points; {_verdict(differences)}.")
    return said


def _kind(sources: Collection[str]) -> str | None:
    """What a row reads beside people's captions of pictures, by the sources of its captions; None: nothing."""
    if any(":" in source.removeprefix(TEXT) for source in sources):
        return "Translated captions"
    return "Sentences without pictures" if any(source.startswith(TEXT) for source in sources) else None


def _verdict(differences: Mapping[str, Difference]) -> str:
    """What the intervals of some rows' differences say together."""
    surely = [row for row, difference in differences.items() if difference.low > 0]
    worse = [row for row, difference in differences.items() if difference.high < 0]
    most = max(difference.high for difference in differences.values())
    unseen = "no gain is seen" + (f", one of more than {most:.1f} points is unlikely" if most >= 0.05 else "")
    verdict = f"{_and(surely)} {'helps' if len(surely) == 1 else 'help'}" if surely else unseen
    return verdict + (f"; {_and(worse)} {'is' if len(worse) == 1 else 'are'} worse" if worse else "")


def _and(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _distrust(
    own: Collection[tuple[str, str]], trained: Collection[tuple[str, str]], results: Sequence[Result]
) -> list[str]:  # fmt: skip
    """What intervals do not hold, and tests that are too small; a row that is not trained has no other training."""
    recalls = [it for it in results if it.split == "test" and it.metric == "mean_recall"]
    recalls = [it for it in recalls if (it.system, it.source) in own]
    doubts = []
    trainings = [it for it in recalls if (it.system, it.source) in trained]
    if trainings and (seeds := min(it.seeds for it in trainings)) < _ENOUGH:
        some = "some" if any(it.seeds > seeds for it in trainings) else "all"
        who = "the row has" if len({(it.system, it.source) for it in trainings}) == 1 else f"{some} rows have"
        runs = "one training" if seeds == 1 else f"{seeds} trainings"
        missing = "do not show" if seeds == 1 else "show only roughly"
        doubts.append(f"{who} {runs}: intervals {missing} how much another training would differ "
                      "(vse.seeds)")  # fmt: skip
    sizes = [(it.n, "test images") for it in recalls if it.n]
    sizes += [(it.captions, f"test captions in {language_name(it.language)}") for it in recalls if it.captions]
    if sizes and (fewest := min(sizes, key=lambda size: size[0]))[0] < FEW:
        doubts.append(f"{counted(*fewest)} {'is' if fewest[0] == 1 else 'are'} too few to compare rows")
    if not doubts:
        doubts.append("intervals are of this corpus and these settings; another corpus may answer otherwise")
    return [f"Read with care: {'; '.join(doubts)}."]
