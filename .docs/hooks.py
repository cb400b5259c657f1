"""What `mkdocs build` adds to the pages: files that stand elsewhere in the repository, and pages that are generated.

The READMEs and the CHANGELOG are pages as they are; settings, commands and recorded figures are read from the code and
the CSV files. Links between files of the repository become links between pages.
"""

import posixpath
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from pipeline.cli import app
from pipeline.recipes.documentation import OF_A_RECIPE, documented_keys
from pipeline.recipes.loading import SECTIONS
from pipeline.reporting.records import RECORDS, read_records

ROOT = Path(__file__).parents[1]
PAGES = ".docs/pages"
COPIED = {
    "index.md": "README.md",
    "results.md": "pipeline/results/README.md",
    "contributing.md": ".github/CONTRIBUTING.md",
    "changelog.md": ".github/CHANGELOG.md",
}
"""Page of the site → the file of the repository that it is."""

_LINK = re.compile(r"(!?\[[^\]]*\])\(([^)\s]+)\)")
_TO_PAGE = re.compile(r'href="(\.\./[\w-]+)\.md(#[^"]*)?"')
_CODE = re.compile(r"(^```.*?^```$)", re.M | re.S)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the copied and generated pages, and the pictures."""
    made = {page: (ROOT / source).read_text(encoding="utf-8") for page, source in COPIED.items()}
    made |= {"settings.md": _settings(), "commands.md": _commands(), "records.md": _records()}
    for name, content in made.items():
        files.append(File.generated(config, name, content=content))
    for picture in sorted((ROOT / ".screenshots").glob("*.png")):
        files.append(File.generated(config, f"screenshots/{picture.name}", abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page with the links of the repository as links of the site."""
    name = page.file.src_uri
    folder = posixpath.dirname(COPIED.get(name, f"{PAGES}/{name}"))
    here = posixpath.dirname(name)

    def one(match: re.Match[str]) -> str:
        """A link; of a file that is no page only its label."""
        label, target = match[1], match[2]
        if re.match(r"[a-z]+:|#", target):
            return match[0]
        path, _, anchor = target.partition("#")
        there = _page_of(posixpath.normpath(posixpath.join(folder, path)))
        if there is None:
            return label.strip("![]")
        return f"{label}({posixpath.relpath(there, here or '.')}{'#' + anchor if anchor else ''})"

    parts = _CODE.split(markdown)
    return "".join(part if part.startswith("```") else _LINK.sub(one, part) for part in parts)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page; of a notebook with links to pages of the site, and words for its pictures."""
    if not page.file.src_uri.endswith(".ipynb"):
        return html
    html = html.replace("No description has been provided for this image", "the picture that the code above shows")
    return _TO_PAGE.sub(r'href="\1.html\2"', html)


def _page_of(path: str) -> str | None:
    """The page, or picture, of the site for a file of the repository."""
    for page, source in COPIED.items():
        if path == source:
            return page
    for start, place in ((f"{PAGES}/", ""), (".screenshots/", "screenshots/")):
        if path.startswith(start):
            return place + path.removeprefix(start)
    return None


def _settings() -> str:
    """All settings: those of no section, then a section each."""
    lines = [
        "# Settings\n",
        "In a recipe (YAML) or on the command line: `--vse.epochs 30`, `--vse.epochs=30`. `.venv/bin/bildwort config "
        "keys SECTION` prints the same.\n",
        "## Of the whole recipe\n",
        *_definitions(OF_A_RECIPE),
    ]
    for section in ("corpus", "trainer", *(one for one in SECTIONS if one != "trainer")):
        lines += [f"## {section}\n", *_definitions(documented_keys(section))]
    return "\n".join(lines)


def _definitions(lines: Iterable[str]) -> Iterator[str]:
    """Settings, each with its documentation, as a list of definitions; `# of …` begins those of one corpus."""
    told = False  # whether the setting has had its first line of documentation
    for line in (part for one in lines for part in one.splitlines()):
        if line.startswith("# "):
            yield f"\n### {line.removeprefix('# of ')}\n"
        elif line.startswith(" "):
            yield f"    {line.strip()}" if told else f":   {line.strip()}"
            told = True
        else:
            yield f"\n`{line}`"
            told = False
    yield ""


def _commands() -> str:
    """All commands with their arguments and options, by name."""
    program = typer.main.get_command(app)
    lines = ["# Commands\n", "`.venv/bin/bildwort COMMAND --help` prints the same.\n"]
    lines += _of_group(program, ["bildwort"])
    return "\n".join(lines)


def _of_group(command: click.Command, path: list[str]) -> Iterator[str]:
    """Lines of a command, or of all below it."""
    for name, one in sorted(getattr(command, "commands", {}).items()):
        if not one.hidden:
            yield from _of_group(one, [*path, name])
    if not getattr(command, "commands", None):
        yield f"## {' '.join(path[1:])}\n"
        yield f"{(command.help or '').strip()}\n"
        yield from _options(command)


def _options(command: click.Command) -> Iterator[str]:
    """A table of a command's arguments and options."""
    rows = [(_names(one), (getattr(one, "help", "") or "").replace("|", "\\|")) for one in command.params]
    if rows:
        yield "| argument or option | meaning |\n|---|---|"
        yield from (f"| `{names}` | {' '.join(told.split())} |" for names, told in rows)
        yield ""


def _names(parameter: click.Parameter) -> str:
    """How a parameter is typed."""
    if isinstance(parameter, click.Argument):
        return (parameter.metavar or parameter.human_readable_name).upper()
    return ", ".join(sorted(parameter.opts, key=len, reverse=True))


def _records() -> str:
    """All recorded figures of retrieval and of translators: means over seeds, a table for each recipe."""
    lines = [
        "# All records\n",
        "Means over seeds of every finished run. Each seed with its interval is in the CSV files, `pipeline/results/`. "
        "What the figures show: [results](../../pipeline/results/README.md).\n",
    ]
    for path in sorted(RECORDS.glob("*.csv")):
        if path.stem != "speed":
            lines += [f"## {path.stem}\n", *_table(path.stem), ""]
    return "\n".join(lines)


_MAIN = {
    "mean_recall": "mean recall", "t2i_r1": "R@1 t→i", "i2t_r1": "R@1 i→t", "test_bleu": "BLEU", "test_chrf": "chrF",
}  # fmt: skip


def _table(recipe: str) -> Iterator[str]:
    """The main figures of a recipe's jobs, by language."""
    found: dict[tuple[str, str, str], dict[str, list[float]]] = {}
    for one in read_records(recipe):
        if one.metric in _MAIN:
            job = re.sub(r"-\d+$", "", one.job)
            row = found.setdefault((job, one.variant, one.language), {})
            row.setdefault(one.metric, []).append(one.value)
    columns = [name for name in _MAIN if any(name in row for row in found.values())]
    yield "| job | differs | language | seeds | " + " | ".join(_MAIN[name] for name in columns) + " |"
    yield "|---|---|---|---" + "|---" * len(columns) + "|"
    for (job, variant, language), row in found.items():
        seeds = max(len(values) for values in row.values())
        cells = [f"{sum(row[name]) / len(row[name]):.1f}" if name in row else "–" for name in columns]
        yield f"| {job} | {variant.replace('|', ', ')} | {language} | {seeds} | " + " | ".join(cells) + " |"
