"""Checks of a whole corpus: what would spoil a result is an error, the rest are warnings."""

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from data.captions.table import ALL_SPLITS, SPLITS, TRAINING_SPLITS, Caption, Pair
from data.corpora import Corpus
from data.pictures.folder import copies_of
from data.pictures.images import unreadable
from data.pictures.regions import RegionStore
from data.text.language_codes import UNSPACED, language_called
from data.text.languages import CERTAIN, foreign_evidence_all
from data.text.sentences import normalise_sentence
from data.text.tokenisation import spaced

EMPTY = "lines left out, as a sentence is empty"
"""What is found of `Corpus.empty`."""
NO_PICTURE = "images without a picture"
UNREADABLE = "pictures that cannot be read"
UNNAMED = "pictures without a caption"
"""What is found of `Corpus.unnamed`."""
HALF_QUOTED = "lines whose quotation marks are kept, for others of the file are not written as a spreadsheet does"
"""What is found of `Corpus.half_quoted`."""
OTHER_LANGUAGE = "sentences that seem to be in {!r}"
"""What is found of sentences in a language that they are not said to be in."""
SHORTEST, LONGEST = 3, 100  # words; captions outside are odd
_ODD_CHARACTERS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ufffd]")  # U+FFFD stands where a decoder gave up
_ODD = "with control characters, line breaks or U+FFFD"
ENTITY = re.compile("&(?:#[0-9]+|#x[0-9a-f]+|[a-z][a-z0-9]+);", re.IGNORECASE)
"""What HTML writes for a character: `&amp;`."""
_TAG = re.compile("</?(?:a|b|br|div|em|font|h[1-6]|i|img|li|ol|p|span|strong|su[bp]|u|ul)(?: [^<>]*)?/?>", re.I)
_TINY, _MOST_TINY = 2.0**-14, 0.1  # the smallest number that float16 holds to 11 bits; share of them that is usual
_SWAPPED = 0.05  # share of sentences in other languages from which on a file is the wrong one
_EVIDENCE = 25.0  # for another language; of 17,000 right sentences, short ones too, none reaches it
_FEW = 20  # sentences of one place; of fewer only those of much evidence are told
_READ = 2000  # sentences of a split and language, or of an origin of pairs, whose language is looked at

Level = Literal["error", "warning"]


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong (`error`) or must be known (`warning`).

    Attributes:
        level: an error spoils results, a warning does not.
        what: what was found, in words.
        where: the split, language or part that it was found in.
        count: how often.
        examples: ids or sentences, with file and line if the corpus knows them.
    """

    level: Level
    what: str
    where: str
    count: int
    examples: list[str]


def find(corpus: Corpus, regions: RegionStore | None) -> list[Finding]:
    """Everything that is wrong with a corpus, errors first, with all examples."""
    captions = corpus.captions
    sentences = [normalise_sentence(caption.text) for caption in captions]
    findings = [
        *(find_in_regions(captions, regions) if regions is not None else ()),
        *_picture_findings(corpus),
        *_names(captions),
        *_images_in_two_splits(captions),
        *_leaking_pairs(corpus),
        *_missing_captions(captions),
        *_some("warning", EMPTY, "text", corpus.empty),
        *_some("warning", UNNAMED, "pictures", corpus.unnamed),
        *_some("warning", "lines left out, for their picture is not there", "text", corpus.missing),
        *_some("warning", "texts that are named as no picture", "text", corpus.stray),
        *_some("warning", f"{UNREADABLE}, left out with their captions", "pictures", corpus.unreadable),
        *_some("warning", HALF_QUOTED, "text", corpus.half_quoted),
        *_shared_sentences(corpus, sentences),
        *_repeated_sentences(corpus, sentences),
        *_sentences_in_two_splits(corpus, sentences),
        *_other_languages(corpus),
        *_odd_captions(corpus),
        *_odd_pairs(corpus),
    ]
    return errors_first(findings)


def num_words(caption: Caption) -> int:
    """Words of a caption; letters with their marks where a language is written without spaces."""
    text = caption.text
    return len(spaced(text.lower(), caption.language).split() if caption.language in UNSPACED else text.split())


def errors_first(findings: Iterable[Finding]) -> list[Finding]:
    """Findings of one level stay in their order."""
    return sorted(findings, key=lambda finding: finding.level)  # "error" < "warning"; the sort is stable


def find_in_regions(captions: Sequence[Caption], regions: RegionStore) -> Iterator[Finding]:
    """What is wrong with a region store alone, and where it does not fit the captions."""
    listed = regions.file("ids.txt")
    split_of = {caption.image_id: caption.split for caption in captions}
    line_of = {image_id: line for line, image_id in enumerate(regions.ids, 1)}
    like = {image_id.casefold(): image_id for image_id in regions.ids}
    without = defaultdict(list)
    for image_id, split in split_of.items():
        if image_id not in regions:
            near = like.get(image_id.casefold())
            without[split].append(f"{image_id} (line {line_of[near]} has {near})" if near is not None else image_id)
    for split, images in sorted(without.items()):
        yield _finding("error", "images without regions", f"{split}, {listed}", images)
    spare = [f"{image_id} (line {line})" for image_id, line in line_of.items() if image_id not in split_of]
    yield from _some("warning", "images without captions", str(listed), spare)
    odd = [f"{image_id} (row {row})" for row, image_id in enumerate(regions.ids) if _odd_boxes(regions.boxes[row])]
    what = "images with boxes outside 0…1 or turned round (x2 < x1, y2 < y1)"
    yield from _some("warning", what, str(regions.file("boxes.npy")), odd)  # no model reads them
    empty, tiny = [], []
    for row, image_id in enumerate(regions.ids):
        numbers = np.abs(regions.regions[row])
        if not numbers.any():
            empty.append(f"{image_id} (row {row})")
        elif (numbers[numbers > 0] < _TINY).mean() > _MOST_TINY:
            tiny.append(f"{image_id} (row {row}, largest {numbers.max():.1e})")
    yield from _some("error", "images whose regions are all zero", str(regions.file("regions.npy")), empty)
    what = f"images with numbers below {_TINY:.0e}, which float16 rounds strongly; multiply all features by one number"
    yield from _some("warning", what, str(regions.file("regions.npy")), tiny)


def _odd_boxes(boxes: NDArray[np.floating]) -> bool:
    """Whether a box of one image (R, 4) lies outside 0…1 by more than rounding, or its corners are swapped."""
    return bool(boxes.min() < -1e-3 or boxes.max() > 1.001 or (boxes[:, :2] > boxes[:, 2:]).any())


def _picture_findings(corpus: Corpus) -> Iterator[Finding]:
    """Missing pictures (where other images have one) and unreadable ones: errors only if regions come from them."""
    if not corpus.pictures:
        return
    level: Level = "error" if corpus.regions is None else "warning"
    folder = str(next(iter(corpus.pictures.values())).parent)
    images = dict.fromkeys(caption.image_id for caption in corpus.captions)
    without = [image_id for image_id in images if image_id not in corpus.pictures]
    yield from _some(level, NO_PICTURE, folder, without)
    whole = corpus.regions is None  # a picture that is cut would end hours of extracting
    yield from _some(level, UNREADABLE, folder, [*unreadable(corpus.pictures, whole).values()])
    yield from pictures_in_two_splits(corpus)


def pictures_in_two_splits(corpus: Corpus) -> Iterator[Finding]:
    """Pictures of held-out images that are, byte by byte, those of images of another split, under other names."""
    split_of = {caption.image_id: caption.split for caption in corpus.captions}
    known = {image_id: corpus.pictures[image_id] for image_id in split_of if image_id in corpus.pictures}
    alike: dict[str, dict[str, str]] = defaultdict(dict)
    for image_id, first in copies_of(known).items():
        for name in (first, image_id):
            alike[first].setdefault(split_of[name], name)
    yield from _in_two("error", "one picture in two splits", "pictures", {
        first: (of, " = ".join(of.values())) for first, of in alike.items()
    })  # fmt: skip


def _names(captions: Sequence[Caption]) -> Iterator[Finding]:
    """Ids that several captions have; splits and languages that nobody reads."""
    ids = Counter((one.split, one.caption_id) for one in captions).items()
    twice = [name for (_, name), times in ids if times > 1]
    yield from _some("error", "captions with the id of another caption", "captions", twice)
    codes = {language for language in {one.language for one in captions} if language_called(language) == language}
    odd = [one.caption_id for one in captions if not (one.language in codes and one.split in ALL_SPLITS)]
    yield from _some("error", f"captions whose split is not {', '.join(SPLITS)}, or language no code", "captions", odd)


def _images_in_two_splits(captions: Sequence[Caption]) -> Iterator[Finding]:
    splits: dict[str, dict[str, str]] = defaultdict(dict)
    for caption in captions:
        splits[caption.image_id][caption.split] = caption.image_id
    yield from _in_two("error", "images in two splits", "captions", {i: (of, i) for i, of in splits.items()})


def _leaking_pairs(corpus: Corpus) -> Iterator[Finding]:
    held_out = defaultdict(set)
    for caption in corpus.captions:
        if caption.split not in TRAINING_SPLITS:
            held_out[caption.split].add(caption.image_id)
    for split, images in sorted(held_out.items()):
        leaks = [pair for pair in corpus.pairs if pair.split == "train" and pair.image_id in images]
        yield from _some(
            "error", f"training pairs about {split} images", "pairs", [_at(corpus, pair) for pair in leaks]
        )


def _missing_captions(captions: Sequence[Caption]) -> Iterator[Finding]:
    """Images with fewer captions than is usual in their split: lines that were empty or got lost."""
    images: dict[str, dict[str, None]] = defaultdict(dict)  # split → its images, a dictionary for their order
    counts: dict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
    for caption in captions:
        images[caption.split][caption.image_id] = None
        counts[caption.split, caption.language, caption.source][caption.image_id] += 1
    for (split, language, source), count in sorted(counts.items()):
        usual = Counter(count.values()).most_common(1)[0][0]
        few = [image_id for image_id in images[split] if count[image_id] < usual]
        lack = "without a caption" if usual == 1 else f"with fewer than {usual} captions"
        yield from _some("warning", f"images {lack} in {language!r}", f"{split}, {language}, {source}", few)


def _shared_sentences(corpus: Corpus, sentences: Sequence[str]) -> Iterator[Finding]:
    """Sentences that several images of one split share: false negatives in training, undecidable queries in a test."""
    captions: dict[tuple[str, str], dict[str, dict[str, Caption]]] = defaultdict(lambda: defaultdict(dict))
    for caption, sentence in zip(corpus.captions, sentences, strict=True):
        captions[caption.split, caption.language][sentence].setdefault(caption.image_id, caption)
    for (split, language), by_sentence in sorted(captions.items()):
        shared = {sentence: images for sentence, images in by_sentence.items() if len(images) > 1}
        touched, total = len(set().union(*shared.values())), len(set().union(*by_sentence.values()))
        what = f"sentences on several images ({touched / total:.1%} of the images)"
        most = sorted(shared, key=lambda sentence: -len(shared[sentence]))
        examples = [_quote(corpus, sentence, list(shared[sentence].values())[:2]) for sentence in most]
        yield from _some("warning", what, f"{split}, {language}", examples)


def _repeated_sentences(corpus: Corpus, sentences: Sequence[str]) -> Iterator[Finding]:
    """A sentence twice on one image: a file that was copied over another, be it of the same language or not."""
    first: dict[tuple[str, str, str], Caption] = {}
    repeated = defaultdict(list)
    for caption, sentence in zip(corpus.captions, sentences, strict=True):
        other = first.setdefault((caption.image_id, caption.source, sentence), caption)
        if other is not caption:
            languages = " + ".join(dict.fromkeys((other.language, caption.language)))
            repeated[f"{caption.split}, {languages}"].append(_quote(corpus, sentence, [other, caption]))
    for where, examples in sorted(repeated.items()):
        yield _finding("warning", "sentences twice on one image", where, examples)


def _sentences_in_two_splits(corpus: Corpus, sentences: Sequence[str]) -> Iterator[Finding]:
    """Sentences in two splits, captions and parallel text taken together, for both are trained on."""
    items: dict[str, dict[str, dict[str, Caption | Pair]]] = defaultdict(lambda: defaultdict(dict))
    for caption, sentence in zip(corpus.captions, sentences, strict=True):
        items[caption.language][sentence].setdefault(caption.split, caption)
    for pair in corpus.pairs:
        for language, text in pair.texts.items():
            items[language][normalise_sentence(text)].setdefault(pair.split, pair)
    for language, of_sentence in sorted(items.items()):
        in_two = {
            sentence: (splits, _quote(corpus, sentence, list(splits.values()), language))
            for sentence, splits in of_sentence.items()
            if len(splits) > 1
        }
        yield from _in_two("warning", "sentences in two splits", language, in_two)


def _other_languages(corpus: Corpus) -> Iterator[Finding]:
    """Sentences that are certainly in another language; an error if so many that columns or files are swapped.

    Of more than 2,000 sentences of one place that many are read, drawn at random; the finding says so.
    """
    places = defaultdict(list)
    for item, language, text in _texts(corpus):
        places[item.split if isinstance(item, Caption) else item.origin, language].append((item, text))
    read = {place: texts if len(texts) <= _READ else random.Random(0).sample(texts, _READ)
            for place, texts in sorted(places.items())}  # fmt: skip
    evidence = foreign_evidence_all([(text, place[1]) for place, some in read.items() for _, text in some])
    for (name, language), some in read.items():
        seems, surely = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
        for (item, _), (other, likelier) in zip(some, evidence, strict=False):  # the rest is of the next places
            for found, least in ((seems, CERTAIN), (surely, _EVIDENCE)):
                if other is not None and likelier >= least:
                    found[other].append(_at(corpus, item, language))
        if len(some) < _FEW or sum(map(len, seems.values())) <= len(some) / 2:  # a short sentence alone tells little
            seems = surely
        level: Level = "error" if sum(map(len, seems.values())) > _SWAPPED * len(some) else "warning"
        part = f", {_READ:,} of {len(places[name, language]):,}" if len(some) < len(places[name, language]) else ""
        for other, examples in sorted(seems.items()):
            yield _finding(level, OTHER_LANGUAGE.format(other), f"{name}, {language}{part}", examples)


def _odd_captions(corpus: Corpus) -> Iterator[Finding]:
    odd = defaultdict(list)
    for caption in corpus.captions:
        words = num_words(caption)
        if words < SHORTEST:
            odd[f"captions of fewer than {SHORTEST} words", caption.language].append(caption)
        if words > LONGEST:
            odd[f"captions of more than {LONGEST} words", caption.language].append(caption)
        if _ODD_CHARACTERS.search(caption.text):
            odd[f"captions {_ODD}", caption.language].append(caption)
        if ENTITY.search(caption.text) or _TAG.search(caption.text):
            odd["captions with HTML (`&amp;`, `<p>`)", caption.language].append(caption)
    for (what, language), captions in sorted(odd.items()):
        yield _finding("warning", what, language, [_at(corpus, caption) for caption in captions])


def _odd_pairs(corpus: Corpus) -> Iterator[Finding]:
    """Pairs that are too long or have odd characters; short ones are usual, and in any number."""
    odd = defaultdict[tuple[str, str], dict[int, str]](dict)  # a pair of which both sides are odd counts once
    for number, pair in enumerate(corpus.pairs):
        for language, text in pair.texts.items():
            if _ODD_CHARACTERS.search(text):
                odd[f"pairs {_ODD}", pair.origin].setdefault(number, _at(corpus, pair, language))
            if language not in UNSPACED and text.count(" ") >= LONGEST:
                odd[f"pairs of more than {LONGEST} words", pair.origin].setdefault(number, _at(corpus, pair, language))
    for (what, origin), examples in sorted(odd.items()):
        yield _finding("warning", what, origin, [*examples.values()])


def _texts(corpus: Corpus) -> Iterator[tuple[Caption | Pair, str, str]]:
    """Every sentence with its language and what it belongs to."""
    for caption in corpus.captions:
        yield caption, caption.language, caption.text
    for pair in corpus.pairs:
        for language, text in pair.texts.items():
            yield pair, language, text


def _at(corpus: Corpus, item: Caption | Pair, language: str | None = None) -> str:
    """The id of a sentence, and where it stands if that is known; `language` chooses the side of a pair."""
    name = item.caption_id if isinstance(item, Caption) else item.pair_id
    if corpus.place is None:
        return name
    if language is None:
        language = item.language if isinstance(item, Caption) else next(iter(item.texts))
    return f"{name} ({corpus.place(item, language)})"


def _quote(corpus: Corpus, sentence: str, items: Iterable[Caption | Pair], language: str | None = None) -> str:
    return f"‘{sentence}’: " + ", ".join(_at(corpus, item, language) for item in items)


def _in_two(level: Level, what: str, where: str, cases: Mapping[str, tuple[Iterable[str], str]]) -> Iterator[Finding]:
    """A finding for each combination of splits, not all for training; `cases` has the splits and example of a thing."""
    together = defaultdict(list)
    for splits, example in cases.values():
        names = sorted(splits)
        if len(names) > 1 and not set(names) <= set(TRAINING_SPLITS):
            together[" + ".join(names)].append(example)
    for combination, examples in sorted(together.items()):
        yield _finding(level, what, f"{where}: {combination}", examples)


def _some(level: Level, what: str, where: str, examples: Sequence[str]) -> Iterator[Finding]:
    """A finding if there is anything to find."""
    if examples:
        yield _finding(level, what, where, examples)


def _finding(level: Level, what: str, where: str, examples: Sequence[str]) -> Finding:
    return Finding(level, what, where, len(examples), list(examples))
