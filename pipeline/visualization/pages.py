"""Files written from the templates beside this one: recipes, and HTML pages that load nothing else."""

import re
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment

_NUMBER = re.compile(r"[-+−]?\d[\d,.]*\b|–|not run")


def render(template: str, **values: Any) -> str:
    """One page, or another file.

    Args:
        template: a file's name in `pipeline/visualization/templates`.
        values: what it shows; in HTML texts are escaped, but for what a template marks `safe`, made by this package.
    """
    return _templates().get_template(template).render(values)


@cache
def _templates() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    loader = PackageLoader("pipeline.visualization", "templates")
    templates = Environment(
        loader=loader, autoescape=select_autoescape(["html"]), undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    templates.tests["number_text"] = lambda text: bool(_NUMBER.match(text))
    return templates
