"""YAML as recipes have it: plain values, bounded in size, laid over one another; one line for whatever is wrong."""

import re
from collections.abc import Mapping
from typing import Any

import yaml

from data.errors import one_line
from pipeline.errors import RecipeError

_MOST = 50_000  # values of a recipe, with those that aliases repeat: a few lines can stand for billions
_DEEPEST = 20
_LONGEST, _LONGEST_VALUE = 2**20, 4096  # letters of a file, and of a value in it
_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # in C where the library was built with libyaml
GOES_WITH = (  # a setting, its default, and what belongs to its value
    ("network", "bilstm", "network_options"), ("model", "san", "options"), ("model", "san", "start"),
    ("pretrained", None, "word_vectors"), ("image_encoder", None, "image_encoder_rate"),
    ("image_encoder", None, "image_encoder_size"), ("pretrained", None, "pretrained_rate"),
)  # fmt: skip
_KINDS = ("null", "bool", "int", "float", "str", "seq", "map")  # of values; others are no settings
_BOOL = "tag:yaml.org,2002:bool"
_PLAIN = [f"tag:yaml.org,2002:{kind}" for kind in _KINDS]


class _Loader(_SafeLoader):
    """A YAML loader whose keys are texts, and which refuses a key that stands twice: of two the library would take the
    last without a warning."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """As the library does, but for a key that stands twice, and for one that is a number."""
        first: dict[str, yaml.ScalarNode] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and (before := first.setdefault(key.value, key)) is not key:
                here, there = (scalar.start_mark.line + 1 for scalar in (key, before))
                raise yaml.YAMLError(f"{key.value!r} stands in line {there} and again in line {here}; write it once")
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return {str(key) if type(key) in (int, float) else key: value for key, value in mapping.items()}


def _whole_number(loader: Any, node: yaml.ScalarNode) -> int:
    """A whole number of 64 bits."""
    number: int = loader.construct_yaml_int(node)
    if abs(number) >= 2**63:
        raise yaml.YAMLError(f"line {node.start_mark.line + 1}: a whole number of {len(node.value)} digits; write less")
    return number


def _refused(loader: Any, node: yaml.Node) -> None:
    """A value that is no setting."""
    raise yaml.YAMLError(f"line {node.start_mark.line + 1}: a value of the kind {node.tag}; expected a text, a number, "
                         "a list or keys with values")  # fmt: skip


_Loader.yaml_constructors = {tag: _SafeLoader.yaml_constructors[tag] for tag in _PLAIN}
_Loader.yaml_implicit_resolvers = {  # `no` is Norwegian: in YAML 1.2 only true and false are no texts
    first: [(tag, pattern) for tag, pattern in kinds if tag != _BOOL]
    for first, kinds in _SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_BOOL, re.compile(r"(?i:true|false)$"), [*"tTfF"])
_Loader.add_constructor("tag:yaml.org,2002:int", _whole_number)
_Loader.add_constructor(None, _refused)


def parse_yaml(text: str) -> Any:
    """The plain values of a YAML text.

    Raises:
        ValueError: it is no YAML, is too large, or has values that are no settings; in one line.
    """
    if len(text) > _LONGEST:
        raise ValueError(f"{len(text):,} letters; expected at most {_LONGEST:,}")
    try:
        _check_size(text)  # the library would go down without end, and the process with it
        return yaml.load(text, _Loader)
    except Exception as error:  # `2001-99-99` and `0b_` fail in Python's own functions, others in the library's
        raise ValueError(one_line(error, 1000)) from None


def read_mapping(text: str, where: str) -> dict[str, Any]:
    """The sections of a recipe.

    Args:
        text: of its file.
        where: the file, for errors.

    Raises:
        RecipeError: it is no YAML with sections.
    """
    try:
        raw = parse_yaml(text)
    except ValueError as error:
        raise RecipeError(f"{where}: not a YAML file of ours ({error})") from None
    if not isinstance(raw, dict):
        kind = "nothing" if raw is None else type(raw).__name__
        raise RecipeError(f"{where}: expected sections (corpus, mmt, vse …), found {kind}")
    return raw


def mapping_of(values: Mapping[str, Any], key: str, prefix: str = "") -> dict[str, Any]:
    """The plain values of a key that has keys itself; empty if it is not there.

    Raises:
        RecipeError: it is something else.
    """
    value = values.get(key) or {}
    if not isinstance(value, Mapping):
        raise RecipeError(f"{prefix}{key} is {value!r}; expected keys with values")
    return dict(value)


def laid_over(below: Mapping[str, Any], above: Mapping[str, Any], sections: bool = True) -> dict[str, Any]:
    """One mapping over another; `rows` and other mappings are laid over key by key, lists replaced.

    Args:
        below: what is changed.
        above: what lies over it; `null` empties a mapping within a section.
        sections: are these the sections of a recipe? One without keys changes nothing.

    Raises:
        RecipeError: a section has a value instead of keys.
    """
    merged = dict(below)
    for kind, default, own in GOES_WITH:
        value = above.get(kind, below.get(kind, default))
        if value != below.get(kind, default) and (value is None or not own.endswith("_rate")):
            merged.pop(own, None)  # another network or model has other options; none has no rate
    for key, value in above.items():
        if isinstance(value, Mapping) and isinstance(merged.get(key), dict):
            merged[key] = laid_over(merged[key], value, sections=False)
        elif not isinstance(merged.get(key), dict):
            merged[key] = value
        elif value is None:
            merged[key] = merged[key] if sections else {}
        else:
            raise RecipeError(f"{key} is a section; expected {key}.KEY, found {value!r}")
    return merged


def _check_size(text: str) -> None:
    """Refuse too many values or levels, those of aliases counted each time, and values that are too long."""
    total, opened = 0, list[list[Any]]()  # of each collection: its anchor, the values before it, its levels
    known: dict[str | None, tuple[int, int]] = {}  # values and levels of anchors
    for event in yaml.parse(text, _Loader):
        line, levels = f"line {event.start_mark.line + 1}", 0  # type: ignore[union-attr]
        if isinstance(event, yaml.CollectionStartEvent):
            opened.append([event.anchor, total, 1])
            total += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before, levels = opened.pop()
            known[anchor] = total - before, levels
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor in (anchor for anchor, _, _ in opened):
                raise yaml.YAMLError(f"{line} refers to itself")
            size, levels = known.get(event.anchor, (1, 0))  # of a text or a number
            total += size
        elif isinstance(event, yaml.ScalarEvent):
            total += 1
            if len(event.value) > _LONGEST_VALUE:
                raise yaml.YAMLError(f"{line}: a value of {len(event.value):,} letters; expected {_LONGEST_VALUE:,} at "
                                     "most")  # fmt: skip
        if opened:
            opened[-1][2] = max(opened[-1][2], levels + 1)
        if len(opened) + levels > _DEEPEST:
            raise yaml.YAMLError(f"{line} is nested too deeply; expected {_DEEPEST} levels at most")
        if total > _MOST:
            raise yaml.YAMLError(f"more than {_MOST:,} values, with those that aliases (*) repeat; write fewer")
