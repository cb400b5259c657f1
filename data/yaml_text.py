"""YAML of plain values, bounded in size, whose keys stand once; one line for whatever is wrong."""

import re
from typing import Any

import yaml

from data.errors import one_line

_MOST = 50_000  # values, with those that aliases repeat: a few lines can stand for billions
_DEEPEST = 20
_LONGEST, _LONGEST_VALUE = 2**20, 4096  # letters of a file, and of a value in it
_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # in C where the library was built with libyaml
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

    Examples:
        >>> parse_yaml("languages: [no, en]")
        {'languages': ['no', 'en']}
    """
    if len(text) > _LONGEST:
        raise ValueError(f"{len(text):,} letters; expected at most {_LONGEST:,}")
    try:
        _check_size(text)  # the library would go down without end, and the process with it
        return yaml.load(text, _Loader)
    except Exception as error:  # `2001-99-99` and `0b_` fail in Python's own functions, others in the library's
        raise ValueError(one_line(error, 1000)) from None


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
