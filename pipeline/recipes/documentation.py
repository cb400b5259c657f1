"""Settings with their documentation: those of a recipe, and all of them."""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, asdict, fields, is_dataclass
from textwrap import wrap
from typing import Any, get_args, get_type_hints

import docstring_parser
import yaml

from data.corpora.registry import CORPORA
from pipeline.errors import RecipeError
from pipeline.recipes.loading import SECTIONS
from pipeline.recipes.settings import CorpusSettings, Recipe
from pipeline.recipes.trainer_settings import TrainerSettings

_WIDTH = 110
OF_A_RECIPE = (
    "base: str", "    Another recipe, a name or a file, over which this one is laid; its tables are left out.",
    "seed: int = 0", "    The seed of everything that has no list of seeds (vse.seeds).",
    "tables: dict", "    Tables of `bildwort table`: title, systems, published figures (.docs/pages/evaluate.md).",
)  # fmt: skip
"""Of the settings that stand in no section: lines as `documented_keys` gives them."""


def documented_recipe(recipe: Recipe) -> str:
    """A recipe as YAML: every setting with its value and, above it, its documentation; it loads as the same recipe."""
    lines = [f"# recipe {recipe.name}", f"seed: {recipe.seed}", "corpus:", f"  name: {recipe.corpus.name}"]
    for key in (field.name for field in fields(recipe.corpus) if field.name not in ("name", "options")):
        if (value := getattr(recipe.corpus, key)) is not None:
            lines.append(f"  {key}: {_value(value)}")
    lines += _lines(recipe.corpus.options, "  ")
    for name in SECTIONS:
        lines += [f"{name}:", *_lines(getattr(recipe, name), "  ")]
    return "\n".join(lines)


def documented_keys(section: str | None = None) -> Iterator[str]:
    """A line for each setting (`key: type = default`), below it its documentation.

    Args:
        section: the settings of one section; None: of all.

    Raises:
        RecipeError: there is no such section.
    """
    kinds: dict[str, type] = {"trainer": TrainerSettings, "corpus": CorpusSettings, **SECTIONS}
    if section is not None and section not in kinds:
        raise RecipeError(f"config keys: no section {section!r}; there are {', '.join(kinds)}")
    if section is None:
        yield from OF_A_RECIPE
    for name, kind in kinds.items():
        if section in (None, name):
            yield from _keys(kind, name)
            for corpus, reader in CORPORA.items() if name == "corpus" else ():
                yield f"# of corpus.name {corpus}"
                yield from _keys(reader.settings, name)


def setting_names() -> list[str]:
    """The names of all settings that may stand on a command line, each once."""
    lines = (line.partition(":")[0] for line in documented_keys() if line[0] not in " #")
    return list(dict.fromkeys(name for name in lines if "." in name or name.startswith("seed")))


def _keys(kind: type, prefix: str, inside: Any = None) -> Iterator[str]:
    """Lines of a section's settings; of one that stands in another, with the defaults that it has there."""
    hints, texts = get_type_hints(kind), documentation(kind)
    for field in fields(kind):
        if kind is CorpusSettings and field.name == "options":
            continue
        hint, default = hints[field.name], _default(field, inside)
        if is_dataclass(hint) and isinstance(hint, type):
            yield from _keys(hint, f"{prefix}.{field.name}", None if default is MISSING else default)
            continue
        named = hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint).replace("typing.", "")
        yield f"{prefix}.{field.name}: {named}" + ("" if default is MISSING else f" = {_value(default)}")
        yield from wrap(texts.get(field.name, ""), _WIDTH, initial_indent="    ", subsequent_indent="    ")


def _default(field: "Field[Any]", inside: Any) -> Any:
    """A field's default, or its value inside other settings; MISSING where it has none."""
    if inside is not None:
        return getattr(inside, field.name)
    return field.default if field.default_factory is MISSING else field.default_factory()


def _lines(settings: Any, indent: str) -> Iterator[str]:
    texts, plain = documentation(type(settings)), asdict(settings)
    for field in fields(settings):
        value = getattr(settings, field.name)
        yield from wrap(
            texts.get(field.name, ""), _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# "
        )
        if is_dataclass(value):
            yield f"{indent}{field.name}:"
            yield from _lines(value, f"{indent}  ")
        else:
            yield f"{indent}{field.name}: {_value(plain[field.name])}"


def documentation(kind: type) -> Mapping[str, str]:
    """What is written about each field of a settings class, on one line: below it, or under `Attributes`."""
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        docstring = docstring_parser.parse_from_object(base)
        texts |= {param.arg_name: " ".join((param.description or "").split()) for param in docstring.params}
    return texts


def _value(value: Any) -> str:
    """A value on one line, as YAML reads it."""
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10**9, sort_keys=False)
    return text.strip().removesuffix("...").strip()
