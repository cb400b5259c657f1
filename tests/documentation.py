"""The pages of documentation: READMEs, the pages of the site, CONTRIBUTING, the CHANGELOG."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for pattern in (
        "README.md",
        "[dlmp]*/README.md",
        "pipeline/results/README.md",
        "tests/*/README.md",
        ".github/*.md",
        ".docs/pages/*.md",
    )
    for path in sorted(ROOT.glob(pattern))
}
"""Path in the repository → text."""
FOLDERS = [name for name in PAGES if name.endswith("/README.md") and "results" not in name]
"""READMEs that say what a folder holds."""


def block_of(page: str, part: str) -> str:
    """The one block of Python on a page of the site that has a part."""
    blocks = re.findall(r"```python\n(.*?)```", PAGES[f".docs/pages/{page}"], re.S)
    (block,) = [block for block in blocks if part in block]
    return block
