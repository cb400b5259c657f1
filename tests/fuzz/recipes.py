"""Recipes: trees of settings in which something is wrong, odd YAML, and settings on the command line."""

import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import yaml

from pipeline.recipes.documentation import documented_recipe
from pipeline.recipes.loading import CONFIGS, load_recipe
from tests.fuzz.case import Case, Chance, Reader
from tests.fuzz.mutations import TEXTS, number, put_special, spoiled_bytes, spoiled_tree, text, value, ways_out
from tests.pipeline.tiny import GXN_OPTIONS, TINY

_BASES = ["scenes", "multi30k", "multi30k-official", "coco-3", "coco-mule", "scenes-gxn", "own", "multi30k-flickr8k-4"]
_BOMB = "".join(f"x{k}: &x{k} [{', '.join([f'*x{k - 1}'] * 9 if k else ['lol'] * 9)}]\n" for k in range(10))
_SCALARS = [
    "2001-99-99", "2001-01-01", "2001-12-14t21:59:43.10-99:00", "2001-12-14 21:59:99", "0b_", "0x_", "0o8", "08",
    "0_", "1:60:99", "190:20:30", ".inf", "-.inf", ".nan", "1e400", "1e5", "_", "~", "=", "<<", "9" * 5000,
    "0x" + "f" * 5000, "1_0", "+.inf", "0b2", "!!int x", "!!int ''", "!!float x", "!!binary x", "!!binary '=='",
    "!!timestamp x", "!!bool x", "!!null x", "!!str 3", "!x y", "!!set {a}", "!!omap [a: 1]", "!!omap 3",
    "!!pairs [a: 1]", "!!python/object/apply:os.system ['touch sprung']", "!!map 3", "!!python/name:os.system",
    "!!seq 3", "&a [*a]", "&a {x: *a}", "*a", "{<<: 3}", "{<<: [{a: 1}, 3]}", "{<<: &b {<<: *b}}", "{[a]: 1}",
    "{{a: 1}: 1}", "{? a : b}", "{null: 1}", "{1: 1}", "{true: 1}", "{2001-01-01: 1}", "{1.5: 1}", "{!!binary aa: 1}",
    "? [a]", "{a: 1, a: 2}", "[", "]", "{", "}", "'", '"', '"\\ud800"', '"\\x00"', '"\\u2028"', '"\\x1b[31m"', "|",
    ">", "|9\n a", "- a", "%x", "@x", "`x", "a: b: c", "\tx", "a\0b", "\x07", "\ud800", "\u2028", "\ufeff", "#",
    "---", "...", "?", ":", "!", "&", "*", "[" * 50 + "]" * 50, "[" * 3000 + "]" * 3000, "{a: " * 3000 + "}" * 3000,
    "[" * 100_000, "- " * 3000 + "a", "x" * 200_000,
]  # fmt: skip
_KEYS = [
    "seed", "vse", "vse.dim", "vse.rows", "vse.rows.x", "vse.options", "vse.start", "mmt.directions",
    "mmt.pretrain.steps", "corpus", "corpus.name", "corpus.root", "corpus.train", "corpus.x", "regions.size",
    "trainer", "trainer.devices", "vse.trainer.precision", "base", "tables", "tables.x", "tables.x.systems.y.rows",
    "vse.", "vse..dim", ".", "..", "x", "x.y.z", "vse.dim.x", "augment.paths", "augment.searches.x", "sts.sets",
    "report.words", "vse.reranker", "vse.seeds", "vse.test", "vse.model", "mmt.network_options.layers", "vse.loss",
    "mmt.systems", "mmt.rerank.systems.x", "augment.captioner", "vse.word_vectors.en", "mmt.pretrained.x.model",
]  # fmt: skip


class Recipes(Reader):
    """A recipe and settings behind a command."""

    name = "recipes"
    reads_elsewhere = True  # `base` may be any file

    def __init__(self) -> None:
        self._trees: list[dict[str, Any]] = []
        self._overrides: list[str] = []
        self._name = "mine.yaml"

    def prepare(self, base: Path, light: bool) -> None:
        whole = documented_recipe(load_recipe("scenes"))
        more = {"mmt": {"network": "transformer", "network_options": {"layers": 2, "heads": 4, "look": "gate"}},
                "vse": {"model": "gxn", "options": yaml.safe_load(GXN_OPTIONS),
                "start": [{"options": {"generate": ["i2t"]}}],
                        "reranker": {"model": None}}}  # fmt: skip
        gxn = {"base": "scenes", "seed": 1, **more}
        named = [yaml.safe_load((CONFIGS / f"{name}.yaml").read_text(encoding="utf-8")) for name in _BASES]
        self._trees = [yaml.safe_load(whole), yaml.safe_load(whole), yaml.safe_load(TINY), gxn, *named]
        (base / "mine.yaml").write_text(TINY)

    def give(self, case: Case, base: Path) -> None:
        super().give(case, base)
        self._overrides, self._name = ["--vse.dim=8"], "mine.yaml"

    def spoil(self, case: Case, base: Path) -> str:
        rng, path = case.rng, case.given / "mine.yaml"
        self._overrides, self._name = [], "mine.yaml"
        how = rng.choices(["tree", "yaml", "bytes", "base", "overrides", "name"], [40, 22, 6, 8, 20, 4])[0]
        tree = rng.choice(self._trees)
        if how == "tree":
            tree, said = _spoiled(case, tree)
            path.write_text(_dumped(tree), encoding="utf-8", errors="surrogatepass")
        elif how == "yaml":
            raw, said = _odd_yaml(rng, _dumped(tree))
            path.write_bytes(raw)
        elif how == "bytes":
            raw, said = spoiled_bytes(rng, _dumped(tree).encode())
            path.write_bytes(raw)
        elif how == "base":
            said = _odd_base(case, path)
        elif how == "name":
            said = self._odd_file(case)
        else:
            path.write_text(_dumped(tree) if rng.random() < 0.5 else TINY)
            self._overrides = [_override(rng) for _ in range(rng.choice([1, 1, 2, 3]))]
            said = f"with {' '.join(self._overrides)[:80]!r}"
        return f"{how}: {said}"

    def read(self, case: Case) -> None:
        path = str(case.given / self._name)
        given = [one for one in self._overrides if "=" in one]
        recipe = case.call(lambda: load_recipe(path, given))
        if case.command("config", "show", path, *self._overrides) == 0 and recipe is not None:
            shown = case.work / "shown.yaml"
            shown.write_text(case.said[-2], encoding="utf-8")
            again = case.call(lambda: load_recipe(str(shown)))
            of_call = ("lent", "refused", "variant", "table_variant", "below_tables", "not_of_tables")
            own = {name: getattr(recipe, name) for name in ("name", "tables", "file", *of_call)}
            plain = None if again is None else replace(again, **own)
            case.check(plain is not None, "a shown recipe cannot be loaded", case.said[-1])
            if plain is not None:
                case.check(repr(asdict(plain)) == repr(asdict(recipe)), "a shown recipe is another one")
            if case.is_one_of(3) or not given:
                case.command("all", path, *self._overrides, "--dry-run")

    def _odd_file(self, case: Case) -> str:
        """Something else than a file of an ordinary name."""
        rng = case.rng
        how = rng.choice(["name", "name", "folder", "pipe", "link to itself", "missing", "way"])
        odd = rng.choice([one for one in TEXTS if len(one) < 400]).replace("\0", "").replace("/", "∕")
        self._name = (
            "mine.yaml" if how != "name" else rng.choice([f"{odd}.yaml", f"{odd}a{odd}.yml", "\udcff.yaml", ".yaml"])
        )
        if how == "way":
            self._name = rng.choice(
                [*ways_out(case.given, case.outside, ".yaml"), "x" * 300, "x" * 5000 + ".yaml", "a\0b.yaml", ""]
            )
            return f"file {self._name[:60]!r}"
        path = case.given / self._name
        put_special(path, how)
        if how == "name":
            try:
                path.write_text(TINY)
            except (OSError, ValueError):
                return f"file {self._name[:40]!r} that cannot be"
        return f"file {self._name[:40]!r}: {how}"


def _spoiled(case: Case, tree: Any) -> tuple[Any, str]:
    """Mostly a value of the same kind, which goes farther than another tree does."""
    rng = case.rng
    new, said = spoiled_tree(rng, tree, ways_out(case.given, case.outside, ".yaml"))
    return new, said


def _scalar(rng: Chance) -> str:
    found = rng.choice(_SCALARS)
    return "0b_" if rng.light and len(found) > 1000 else found


def _dumped(tree: Any) -> str:
    try:
        return yaml.safe_dump(tree, allow_unicode=True, sort_keys=False)
    except (yaml.YAMLError, RecursionError, UnicodeError):
        return str(tree)


def _odd_yaml(rng: Chance, good: str) -> tuple[bytes, str]:
    """YAML with something in it that few would write."""
    lines = good.split("\n")
    ways = {"scalar": 60, "bomb": 1, "merged bomb": 1, "documents": 10, "encoding": 10, "nested": 4, "tabs": 4}
    how = "scalar" if rng.light else rng.choices(list(ways), list(ways.values()))[0]
    place = rng.randrange(len(lines))
    new = _scalar(rng)
    if how == "scalar":
        head, colon, _ = lines[place].partition(": ")
        if not colon or rng.random() < 0.3:
            place, head = 0, rng.choice(["seed", "vse", "corpus", "tables", "base", "report", "x"])
            lines = [line for line in lines if not line.startswith(f"{head}:")]
            lines.insert(0, "")
        lines[place] = f"{head}: {new}" if rng.random() < 0.8 else f"{new}: 1"
    elif how == "bomb":
        lines.insert(
            0,
            _BOMB
            + rng.choice(
                ["seed: *x9", "vse: {rows: {a: *x9}}", "vse: {seeds: *x8}", "tables: {a: *x9}", "corpus: *x6"]
            ),
        )
        lines = [line for line in lines if not line.startswith("seed: 3")]
    elif how == "merged bomb":
        new = "".join(
            f"y{k}: &y{k} {{<<: [{', '.join([f'*y{k - 1}'] * 20 if k else ['{a: 1}'])}]}}\n" for k in range(9)
        )
        lines.insert(0, new)
    elif how == "documents":
        lines.insert(
            place, rng.choice(["---", "...", "%YAML 9.9\n---", "--- !!map", "---\n---\n", "%TAG ! tag:x,2000:\n---"])
        )
    elif how == "nested":
        lines = [f"{' ' * k}a:" for k in range(rng.choice([200, 1500]))]
    elif how == "tabs":
        lines = [line.replace("  ", "\t") for line in lines]
    raw = "\n".join(lines)
    if how == "encoding":
        encoding, ends = (
            rng.choice(["utf-16", "utf-8-sig", "latin-1", "utf-32", "utf-16-be"]),
            rng.choice(["\r", "\r\n", "\x85", "\u2028"]),
        )
        return raw.replace("\n", ends).encode(encoding, "replace"), f"{encoding}, ends {ends!r}"
    return raw.encode("utf-8", "surrogatepass"), f"{how} {new[:40]!r}" if how == "scalar" else how


def _odd_base(case: Case, path: Path) -> str:
    rng = case.rng
    ways = [*ways_out(case.given, case.outside, ".yaml"), "mine.yaml", "./mine.yaml", "mine", "", " ", ".yaml",
    "scenes.yaml",
            "x" * 300 + ".yaml", "a\0b.yaml", "[red].yaml", "scenes\n", "../mine.yaml", "pipe.yaml", "folder.yaml",
            "0.yaml", "zero.yaml"]  # fmt: skip
    base: Any = rng.choice([*ways, *ways, value(rng), ["scenes", "own"]])
    os.mkfifo(path.with_name("pipe.yaml"))
    path.with_name("folder.yaml").mkdir()
    path.with_name("zero.yaml").symlink_to("/dev/zero")
    depth = 2 if rng.light else rng.choice([2, 300, 1500])
    if base == "0.yaml":
        for number in range(depth):
            path.with_name(f"{number}.yaml").write_text(f"base: {number + 1}.yaml\n")
        path.with_name(f"{depth}.yaml").write_text("seed: 1\n")
    path.write_text(_dumped({"base": base, "seed": 1}), encoding="utf-8", errors="surrogatepass")
    return f"base {base!r}"[:100]


def _override(rng: Chance) -> str:
    key = rng.choice(_KEYS) if rng.random() < 0.9 else rng.choice([text(rng), "a." * 3000 + "b", "vse." * 50 + "dim"])
    given = rng.choice([
        lambda: _scalar(rng), lambda: _scalar(rng), lambda: str(number(rng)), lambda: text(rng),
        lambda: repr(value(rng)),
    ])()  # fmt: skip
    if rng.random() < 0.01 and not rng.light:
        given = (
            "{" + ", ".join(f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 9 if k else ['x'])}]" for k in range(9)) + "}"
        )
    return (
        f"--{key}={given}"
        if rng.random() < 0.95
        else rng.choice([f"--{key}", f"--{key}=", f"-{key}={given}", f"{key}={given}", "--="])
    )
