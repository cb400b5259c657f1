"""HTML pages, written from the templates beside this file; each page is one file that loads nothing else."""

import re
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment

_NUMBER = re.compile(r"[-+−]?\d[\d,.]*\b|–|not run")


def render(template: str, **values: Any) -> str:
    """One page.

    Args:
        template: a file's name in `pipeline/visualization/templates`.
        values: what it shows; texts are escaped. HTML that a template marks `safe` must be made by this package.
    """
    return _templates().get_template(template).render(values)


@cache
def _templates() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("pipeline.visualization", "templates")
    templates = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    templates.tests["number_text"] = lambda text: bool(_NUMBER.match(text))
    return templates
