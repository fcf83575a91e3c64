"""Tables for people, as wide as their terminal. No word is ever broken, so that names can be copied.

Where the columns do not fit, their cells take several lines, then columns are left out and named below the table: first
those that are all zero, then those of `LESS_IMPORTANT`, then those at the right. Where not even two columns fit, each
row becomes a few lines. A file or a pipe has room for every column.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from journal.words import escaped

LESS_IMPORTANT = (
    *("at most", "latency ms", "LSO lag", "WAL", "rows", "staged tx", "staged", "stale", "rejected", "skipped"),
    *("prepared", "mark", "since", "last report", "priority", "deliveries", "headers", "key", "value", "held by"),
    *("p50 (s)", "in doubt (s)", "redelivered", "expires in", "due in", "pid", "log", "address"),
)
"""Names of columns that are left out before others, the first ones first."""

_FILE_WIDTH = 400
_PADDING = 3
"""The width of a column beyond its text: a space at each side, and a border."""

_SHORT = 14
"""A cell that is no wider than this is not split at its spaces: 3 min 4 s."""

_ZEROS = frozenset({"", "0", "0.0 s", "none", "?"})


class _Column(NamedTuple):
    """A column: its place in the rows, and its texts, the heading first."""

    place: int
    texts: Sequence[str]

    @property
    def heading(self) -> str:
        return self.texts[0]

    @property
    def natural(self) -> int:
        """The width at which each text is one line."""
        return max(map(cell_len, self.texts))

    @property
    def least(self) -> int:
        """The width at which no word is broken, and a short cell is one line."""
        word = max(cell_len(word) for text in self.texts for word in text.split(" "))
        return max(word, min(_SHORT, max(map(cell_len, self.texts[1:]), default=0)))

    @property
    def zero(self) -> bool:
        return len(self.texts) > 1 and all(text in _ZEROS for text in self.texts[1:])

    @property
    def dispensability(self) -> tuple[int, int]:
        """How soon the column is left out: columns with a larger value come first. The first column comes last."""
        if not self.place:
            return 0, 0
        if self.zero:
            return 3, self.place
        if self.heading in LESS_IMPORTANT:
            return 2, -LESS_IMPORTANT.index(self.heading)
        return 1, self.place


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], *, to: Console | None = None
) -> None:
    """Print a table on standard output, or `to` another file. Unprintable characters are escaped, because a terminal
    would obey a name that a client has chosen."""
    console = to or Console(width=None if sys.stdout.isatty() else _FILE_WIDTH)
    made = [
        _Column(place, [escaped(heading), *(escaped(str(row[place])) for row in rows)])
        for place, heading in enumerate(columns)
    ]
    if title:
        _print_words(console, escaped(title), style="table.title")
    shown = _fitting(made, console.width)
    if len(shown) < min(2, len(made)):
        _print_rows(console, made, len(rows))
        return
    console.print(_table(shown, console.width, len(rows)), crop=False)
    left_out = _named([column for column in made if column not in shown])
    if left_out:
        _print_words(console, left_out, style="dim")


def print_facts(title: str, facts: Mapping[str, object], *, to: Console | None = None) -> None:
    """Print names and values on standard output, or `to` another file."""
    print_table(title, ("", ""), list(facts.items()), to=to)


def _fitting(columns: Sequence[_Column], width: int) -> list[_Column]:
    """The columns that fit into a width, in their order. Less important ones are left out; None if not even the first
    fits."""
    shown: list[_Column] = []
    for done, column in enumerate(sorted(columns, key=lambda each: each.dispensability)):
        if column.zero and len(shown) < done:
            break
        # a column of zeros is not worth a second line for any cell
        widths = [each.natural if column.zero else each.least for each in (*shown, column)]
        if 1 + sum(widths) + _PADDING * len(widths) <= width:
            shown.append(column)
        elif not column.place:
            return []
    return sorted(shown)


def _widths(columns: Sequence[_Column], width: int) -> list[int]:
    """The width of each column: its least width, and a share of the rest, which goes first to columns that lack
    least."""
    widths = [column.least for column in columns]
    left = width - 1 - sum(widths) - _PADDING * len(columns)
    lacking = sorted(range(len(columns)), key=lambda each: columns[each].natural - widths[each])
    for done, each in enumerate(lacking):
        more = min(columns[each].natural - widths[each], left // (len(lacking) - done))
        widths[each] += more
        left -= more
    return widths


def _table(columns: Sequence[_Column], width: int, rows: int) -> Table:
    table = Table(show_header=any(column.heading for column in columns))
    for column, wide in zip(columns, _widths(columns, width), strict=True):
        table.add_column(Text(column.heading), overflow="fold", width=wide)
    for row in range(1, rows + 1):
        table.add_row(*(Text(column.texts[row]) for column in columns))
    return table


def _print_rows(console: Console, columns: Sequence[_Column], rows: int) -> None:
    """Print each row as lines: the first cell, and below it the others with their names."""
    first, *others = columns
    for row in range(1, rows + 1):
        _print_words(console, f"{first.heading} {first.texts[row]}".strip())
        for column in others:
            if column.texts[row]:
                _print_words(console, f"  {column.heading} {column.texts[row]}".replace("   ", "  "), indent="    ")


def _named(left_out: Sequence[_Column]) -> str:
    zero = ", ".join(column.heading for column in left_out if column.zero)
    others = ", ".join(column.heading for column in left_out if not column.zero)
    return "; ".join(filter(None, (zero and f"all 0: {zero}", others and f"no room for: {others}")))


def _print_words(console: Console, text: str, *, style: str = "", indent: str = "") -> None:
    """Print words in lines that fit the console. If a word does not fit, all is one line, which can be copied."""
    fits = all(cell_len(word) + len(indent) <= console.width for word in text.split())
    lines = textwrap.wrap(text, console.width, subsequent_indent=indent, break_on_hyphens=False) if fits else [text]
    console.print(Text("\n".join(lines), style), soft_wrap=True)
