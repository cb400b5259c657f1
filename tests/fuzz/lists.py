"""n-best lists in Moses' format, their references and further features."""

from pathlib import Path

from data.translators.nbest import read_nbest
from pipeline.translation.nbest import ListFiles, lists_of
from tests.fuzz.case import Case, Chance, Reader
from tests.fuzz.mutations import ENCODINGS, content_of, put_special, spoiled_bytes, text, ways_out

_WORDS = ["a", "the", "dog", "cat", "man", "runs", "sits", "in", "on", "park", "snow", "red", "ball"]
_SENTENCES, _CANDIDATES = 6, 4
_FILES = ["dev.nbest", "dev.nbest", "dev.nbest", "dev.ref", "dev.more", "test.nbest", "test.ref", "test.more"]
_NUMBERS = [
    "nan", "NaN", "inf", "-inf", "Infinity", "1e308", "-1e308", "1e309", "1e-320", "9" * 400, "-" + "9" * 400,
    "1e999999", "", "1_000", "٣", "²", "0x1p3", "1,5", "1.5.2", "--1", "+1", "1e", "0", "-0", "10000000", "1e30",
    "-1e30", "1e154", "1e-154", "9" * 5000, "1" + "0" * 307, "true", "None", "=", "1=2", "½", "1e5000000",
]  # fmt: skip
_FIELDS = [
    "", " ", "|||", "||", "| ||", "a |||b", "LM=", "LM= ", "LM", "LM=1", "LM:1", "LM= 1 2 3", "= 1", ": 1",
    "LM= LM= 1", "1 2 3", "F0= 1", "LM=1 LM=2", "LM==1", "a=b=c", "LM= -1.5 TM= 0.1 0.2 Word= -3 ||| x",
    "TM_0= 1 TM= 1 2", "LM= 1 LM_0= 2", "logp= 1",
]  # fmt: skip
_INDEXES = [
    "-1",
    "1",
    "0",
    "99999999999",
    "9" * 400,
    "0.0",
    "1e3",
    "٠",
    "²",
    "00",
    " 0 ",
    "x",
    "",
    "0 0",
    "+0",
    "0_0",
    "9" * 5000,
]


class Lists(Reader):
    """Lists to tune on and lists to re-rank, each with references and further features."""

    name = "n-best"

    def prepare(self, base: Path, light: bool) -> None:
        rng = Chance(0)
        for part in ("dev", "test"):
            lists, references = [], []
            for number in range(_SENTENCES):
                right = [rng.choice(_WORDS) for _ in range(6)]
                references.append(" ".join(right))
                for _ in range(_CANDIDATES):
                    said = " ".join(word if rng.random() < 0.7 else rng.choice(_WORDS) for word in right)
                    values = [f"{rng.gauss(-3, 2):.4f}" for _ in range(4)]
                    features = f"LM= {values[0]} TM= {values[1]} {values[2]} Word= {len(said.split())}"
                    lists.append(f"{number} ||| {said} ||| {features} ||| {values[3]}")
            more = ["chars image", *(f"{len(line)}\t{rng.random():.4f}" for line in lists)]
            for name, lines in (("nbest", lists), ("ref", references), ("more", more)):
                (base / f"{part}.{name}").write_text("".join(f"{line}\n" for line in lines))

    def spoil(self, case: Case, base: Path) -> str:
        self.give(case, base)
        said = []
        for name in case.rng.choices(_FILES, k=case.rng.choice([1, 1, 1, 2])):
            said.append(f"{name}: {_spoil(case, case.given / name)}")
        return "; ".join(said)

    def read(self, case: Case) -> None:
        rng = case.rng
        files = [case.given / f"dev.{name}" for name in ("nbest", "ref", "more")]
        more = files[2] if rng.random() < 0.6 or case.is_good else None
        lists = case.call(lambda: read_nbest(files[0], None, more))
        if lists:
            case.check(all(lists), "a sentence without candidates")
        case.call(lambda: lists_of(ListFiles(files[0], files[1], more), [], False))
        words = ["--tune", str(files[0]), "--references", str(files[1]), *(["--features", str(more)] if more else [])]
        if rng.random() < 0.6 or case.is_good:
            words += ["--lists", str(case.given / "test.nbest")]
            words += ["--lists-references", str(case.given / "test.ref")] if rng.random() < 0.5 else []
            words += ["--lists-features", str(case.given / "test.more")] if more else []
        if rng.random() < 0.2 and not case.is_good:
            words += [
                "--use",
                rng.choice(["LM", "LM,Word", "TM_0,LM", "none", "LM,LM", ",", "image", "F0", "\0", "[red]"]),
            ]
        if rng.random() < 0.2 and not case.is_good:
            words += ["--language", rng.choice(["ja", "zh", "de", "", "xx", "\x1b"])]
        whole = rng.random() < 0.4
        words += ["--seeds", rng.choice(["1", "1", "2"]), "--output", "out.txt", *(["--n-best"] if whole else [])]
        if case.command("rerank-translations", *words) == 0:
            self._check_output(case, case.work / "out.txt", whole)

    def _check_output(self, case: Case, path: Path, whole: bool) -> None:
        raw = path.read_bytes()
        case.check(not raw or raw.endswith(b"\n"), "an output that is not whole")
        if whole:
            again = case.call(lambda: read_nbest(path))
            case.check(again is not None, "lists that cannot be read again", raw[:200])


def _spoil(case: Case, path: Path) -> str:
    rng, raw = case.rng, content_of(path)
    if raw is None:
        return "twice"
    chance = rng.random()
    if chance < 0.1:
        raw, said = spoiled_bytes(rng, raw)
    elif chance < 0.16:
        raw, said = _recoded(rng, raw)
    elif chance < 0.2:
        return "as it was" if rng.light else _special(case, path)
    else:
        lines = raw.decode("utf-8", "replace").splitlines() or [""]
        said = "; ".join(_spoil_line(case, lines, path.suffix) for _ in range(rng.choice([1, 1, 2, 5])))
        raw = "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass")
    path.write_bytes(raw)
    return said


def _recoded(rng: Chance, raw: bytes) -> tuple[bytes, str]:
    encoding, ends = (
        rng.choice([*ENCODINGS, "utf-8", "utf-8"]),
        rng.choice(["\n", "\r\n", "\r", "\u2028", "\n\n", "\x85"]),
    )
    return ends.join(raw.decode("utf-8", "replace").splitlines()).encode(
        encoding, "replace"
    ), f"{encoding}, ends {ends!r}"


def _spoil_line(case: Case, lines: list[str], suffix: str) -> str:
    rng = case.rng
    place = rng.randrange(len(lines))
    how = rng.choice(["number", "number", "everywhere", "field", "index", "text", "line", "long"])
    if suffix != ".nbest" and how in ("field", "index"):
        how = "text"
    fields = lines[place].split(" ||| ") if suffix == ".nbest" else [lines[place]]
    if how in ("number", "everywhere"):
        new = rng.choice(_NUMBERS)
        at, word = rng.randrange(8), rng.randrange(3)
        for number in range(len(lines)) if how == "everywhere" else [place]:
            lines[number] = _with_number(lines[number], at, new if word else f"-{new}")
        return f"number {at} is {new[:20]!r} {how}"
    if how == "index":
        fields[0] = rng.choice(_INDEXES)
    elif how == "field":
        fields[rng.randrange(len(fields))] = rng.choice(_FIELDS)
        if rng.random() < 0.2:
            fields.append(rng.choice(_FIELDS))
    elif how == "text":
        fields[min(1, len(fields) - 1)] = text(rng)
    elif how == "long":
        return _make_long(rng, lines, place)
    else:
        return _move_line(rng, lines, place)
    lines[place] = rng.choice([" ||| ", " ||| ", " ||| ", "|||", " || "]).join(fields)
    return f"line {place} is {lines[place][:50]!r}"


def _with_number(line: str, at: int, new: str) -> str:
    """A line one of whose numbers is another."""
    words = line.split(" ")
    places = [k for k, word in enumerate(words) if word.lstrip("-").replace(".", "", 1).replace("\t", "").isdigit()]
    if places:
        words[places[at % len(places)]] = new
    return " ".join(words)


def _make_long(rng: Chance, lines: list[str], place: int) -> str:
    how = rng.choice(["candidates", "words", "features", "one word", "same"])
    if how == "candidates":
        lines[place:place] = [lines[place]] * rng.choice([50, 50 if rng.light else 1000])
    elif how == "words":
        lines[place] = lines[place].replace(
            " ||| ", " ||| " + "dog " * rng.choice([100, 100 if rng.light else 2000]), 1
        )
    elif how == "one word":
        lines[place] = lines[place].replace(" ||| ", " ||| " + "x" * rng.choice([1000, 50_000]), 1)
    elif how == "features":
        more = " ".join(f"G{k}= {rng.random():.3f}" for k in range(rng.choice([20, 300])))
        lines[:] = [line.replace(" ||| LM=", f" ||| {more} LM=") for line in lines]
    else:
        lines[:] = [lines[place].replace(lines[place].partition(" ")[0], line.partition(" ")[0], 1) for line in lines]
    return f"line {place}: many {how}"


def _move_line(rng: Chance, lines: list[str], place: int) -> str:
    how = rng.choice(["doubled", "deleted", "moved", "empty", "none", "reversed"])
    if how == "doubled":
        lines.insert(rng.randrange(len(lines)), lines[place])
    elif how == "deleted":
        del lines[place]
    elif how == "moved":
        lines.insert(rng.randrange(len(lines)), lines.pop(place))
    elif how == "empty":
        lines.insert(place, rng.choice(["", " ", "\t", "#"]))
    elif how == "none":
        lines.clear()
    else:
        lines.reverse()
    if not lines:
        lines.append("")
    return f"line {place} {how}"


def _special(case: Case, path: Path) -> str:
    """What is no plain file."""
    how = case.rng.choice(["folder", "pipe", "link to itself", "missing", "another file"])
    path.unlink(missing_ok=True)
    put_special(path, how)
    if how == "another file":
        path.write_text("\n".join(ways_out(case.given, case.outside, ".txt")))
    return how
