"""n-best lists in Moses' format: `sentence ||| translation ||| features ||| score`, a candidate a line.

Sentences are numbered from 0. Features are `name= value …` (also `name: value …`, and values without names, which are
called F0, F1 …); several values of a name are `name_0`, `name_1` …. What follows the score (alignments) is not read.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from data.errors import DataError
from data.lines import number_of, read_lines

_EXPECTED = "`sentence ||| translation ||| features ||| score`, a candidate a line"
_NAME = re.compile(r"[^\s=|]+[=:]")


@dataclass(frozen=True)
class Candidate:
    """One translation of a sentence.

    Attributes:
        text: as it stands in the list.
        features: name → value.
    """

    text: str
    features: Mapping[str, float]


def read_nbest(
    path: Path, sentences: int | None = None, more: Path | None = None, use: Sequence[str] = ()
) -> list[list[Candidate]]:
    """Read the candidates of each sentence, in the order of the file.

    Args:
        path: the lists; unpacked if the name ends in .gz.
        sentences: how many there must be; None: as many as the file has.
        more: a file with further features: names in its first line, then a line of values for each line of the lists,
            separated by TABs or spaces.
        use: names of features that all candidates must have, while others may differ, as sparse ones do; empty: all.

    Raises:
        DataError: a file is missing, a field or number is wrong, candidates have different features, a sentence has no
            candidate, or there is no feature of a name in `use`.
    """
    lines = read_lines(path, _EXPECTED)
    further = [{}] * len(lines) if more is None else _read_features(more, len(lines), path)
    lists: list[list[Candidate]] = []
    names: list[str] = []
    for number, (line, extra) in enumerate(zip(lines, further, strict=True), 1):
        where = f"{path}:{number}"
        sentence, text, features = _fields(line, where)
        if twice := features.keys() & extra.keys():
            raise DataError(f"{more}: feature {min(twice)!r} stands in {path} too; give it another name")
        features = {**features, **extra}
        if not lists:
            names = list(features)
        if lacking := [name for name in use if name not in features]:
            raise DataError(f"{where}: no feature {lacking[0]!r}; it has {_listed(features)}")
        if not use and features.keys() != set(names):
            raise DataError(f"{where}: features are {_listed(features)}; expected those of line 1, {_listed(names)}; "
                            "or name the ones that are used (--use)")  # fmt: skip
        if sentence == len(lists):
            lists.append([])
        elif sentence != len(lists) - 1:
            before = f"after sentence {len(lists) - 1}; expected it or the next one" if lists else "first; expected 0"
            raise DataError(f"{where}: sentence {sentence} {before}, each with one candidate or more")
        lists[-1].append(Candidate(text, features if use else {name: features[name] for name in names}))
    if not lists:
        raise DataError(f"{path}: no line; expected {_EXPECTED}")
    if not names:
        raise DataError(f"{path}:1: no feature; expected `name= value` in the third field")
    if sentences is not None and len(lists) != sentences:
        raise DataError(f"{path}: candidates of {len(lists)} sentences; expected {sentences}, one list for each")
    return lists


def nbest_lines(lists: Iterable[Sequence[Candidate]], totals: Iterable[Sequence[float]], first: int = 0) -> list[str]:
    """The lines of n-best lists.

    Args:
        lists: of each sentence.
        totals: of each sentence the score of each candidate.
        first: number of the first sentence.

    Examples:
        >>> lists = [[Candidate("ein Hund", {"logprob": -0.5})], [Candidate("zwei", {"logprob": -1.25})]]
        >>> nbest_lines(lists, totals=[[-0.5], [-1.25]])
        ['0 ||| ein Hund ||| logprob= -0.5 ||| -0.5', '1 ||| zwei ||| logprob= -1.25 ||| -1.25']
    """
    return [
        f"{number} ||| {_one_field(candidate.text)} ||| "
        f"{' '.join(f'{name}= {value:.9g}' for name, value in candidate.features.items())} ||| {total:.9g}"
        for number, (candidates, scores) in enumerate(zip(lists, totals, strict=True), first)
        for candidate, total in zip(candidates, scores, strict=True)
    ]


def _one_field(text: str) -> str:
    """A text that cannot be read as two fields or lines."""
    return " ".join(text.replace("|||", "| | |").split())


def _fields(line: str, where: str) -> tuple[int, str, dict[str, float]]:
    """Sentence number, text and features of a line."""
    fields = [field.strip() for field in line.split("|||")]
    if len(fields) < 3:
        raise DataError(f"{where}: {len(fields)} fields; expected {_EXPECTED}")
    if not re.fullmatch(r"\d{1,18}", fields[0], re.ASCII):
        raise DataError(f"{where}: sentence {fields[0]!r}; expected its number, 0 for the first")
    if len(fields) > 3:
        _number(fields[3], f"{where}: score")
    return int(fields[0]), fields[1], _features(fields[2], where)


def _features(text: str, where: str) -> dict[str, float]:
    """The features of a field, by name."""
    values: dict[str, list[float]] = {}
    name = ""
    for word in re.sub(r"=(?=\S)", "= ", text).split():
        if _NAME.fullmatch(word):
            name = word[:-1]
            if name in values:
                raise DataError(f"{where}: feature {name!r} stands twice; expected each once")
            values[name] = []
        elif not name:
            values[f"F{len(values)}"] = [_number(word, f"{where}: feature F{len(values)}")]
        else:
            values[name].append(_number(word, f"{where}: feature {name}"))
    features: dict[str, float] = {}
    for name, numbers in values.items():
        if not numbers:
            raise DataError(f"{where}: feature {name!r} has no value; expected `{name}= value`")
        own = {name if len(numbers) == 1 else f"{name}_{place}": value for place, value in enumerate(numbers)}
        if twice := features.keys() & own.keys():
            raise DataError(f"{where}: feature {min(twice)!r} stands twice; expected each once")
        features |= own
    return features


def _read_features(path: Path, count: int, lists: Path) -> list[dict[str, float]]:
    """Further features, a mapping for each line of the lists."""
    head, *lines = read_lines(path, "names of features, then values a line") or [""]
    names = head.split()
    if not names or len(set(names)) < len(names):
        raise DataError(f"{path}:1: features are {_listed(names)}; expected names, each once")
    if len(lines) != count:
        raise DataError(f"{path}: {len(lines)} lines of values, but {lists} has {count} candidates; expected as many")
    rows = []
    for number, line in enumerate(lines, 2):
        values, where = line.split(), f"{path}:{number}"
        if len(values) != len(names):
            raise DataError(f"{where}: {len(values)} values; expected {len(names)}: {_listed(names)}")
        rows.append({name: _number(word, f"{where}: feature {name}") for name, word in zip(names, values, strict=True)})
    return rows


def _number(text: str, what: str) -> float:
    value = number_of(text)
    if not math.isfinite(value):
        raise DataError(f"{what} is {text!r}; expected a finite number")
    return value


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
