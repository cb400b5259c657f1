"""Tables, in the terminal and in Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from modules.metrics.intervals import Difference
from pipeline.engine.console import CONSOLE, printable

NO_INTERVAL = "–"
ONE_SEED = "one seed: images only"
"""What intervals of one training hold: they do not say how far another one may lie away."""
_BETWEEN = 2  # columns of the terminal between two columns of a table
_SENTENCE = 60  # characters; figures and short messages have fewer, longer texts may go on in a further line


@dataclass(frozen=True)
class TextTable:
    """A table: title, column heads and rows of text."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]

    def as_markdown(self) -> str:
        """The table as Markdown."""
        lines = [f"**{self.title}**", "", "| " + " | ".join(self.heads) + " |", "|" + "---|" * len(self.heads)]
        return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in self.rows])

    def show(self) -> None:
        """Print the table in the terminal."""
        table = Table(
            title=Text(printable(self.title)),
            title_justify="left",
            header_style="bold",
            box=SIMPLE_HEAD,
            collapse_padding=True,
        )
        self._print(table)

    def show_lines(self) -> None:
        """Print heads and rows alone, a line each."""
        self._print(Table(header_style="bold", box=None, pad_edge=False))

    def _print(self, table: Table) -> None:
        """Where the terminal is too narrow, heads and the first column go on in a further line; no word or figure is
        cut, even if the table is then wider than the terminal."""
        columns = list(zip_longest(self.heads, *self.rows, fillvalue=""))
        narrow = sum(max(map(cell_len, column)) + _BETWEEN for column in columns) > CONSOLE.width
        least = _BETWEEN  # of its edges
        for number, (head, *cells) in enumerate(columns):
            shown = printable(head).replace(" ", "\n" if narrow else " ")
            uncut = [*shown.split("\n"), *(cells if number else " ".join(cells).split())]
            widest = max(map(cell_len, uncut), default=0)
            table.add_column(
                Text(shown), justify="right" if number else "left", min_width=min(_SENTENCE, widest), overflow="fold",
                no_wrap=number > 0 and widest <= _SENTENCE,
            )  # fmt: skip
            least += min(_SENTENCE, widest) + _BETWEEN
        for row in self.rows:
            table.add_row(*(Text(printable(cell)) for cell in row))
        if least > CONSOLE.width:
            table.width = least
        CONSOLE.print(table)


def shown_interval(low: float | None, high: float | None, sign: Literal["", "+"] = "") -> str:
    """An interval as tables print it; with `sign` `+` that of a difference."""
    return NO_INTERVAL if low is None else f"{low:{sign}.1f} … {high:{sign}.1f}"


def shown_difference(found: Difference) -> list[str]:
    """A paired difference, its 95 % interval and the p-value, as tables print them."""
    return [f"{found.value:+.2f}", f"{found.low:+.2f} … {found.high:+.2f}", f"{found.p_value:.3f}"]
