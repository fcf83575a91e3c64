"""Every table of the command line fits its terminal, and breaks no word."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from importlib import import_module
from io import StringIO
from itertools import cycle, islice
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from journal.cli.tables import LESS_IMPORTANT, print_facts, print_table

ROOT = Path(__file__).parents[3]
WIDTHS = (60, 80, 120, 200)

LONG = (
    "flights.landed.ewr-newark-liberty-international.of-united-airlines",
    "broker-node-07.eu-central-1.compute.internal-2139871",
    "4398046511104",
)
CELLS = ("1,234,567", "0", "in doubt since 2026-11-27 20:29:56 UTC", "3 min 4 s", "", "eu (adds 1, acknowledges 12)")


def headings() -> Iterator[tuple[str, Sequence[str]]]:
    """The headings of every table of the command line, with the place that prints it."""
    for path in sorted((ROOT / "journal" / "cli").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        literals = {
            target.id: node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print_table"):
                continue
            columns = node.args[1]
            if isinstance(columns, ast.Name) and columns.id.isupper():
                yield f"{module}:{node.lineno}", getattr(import_module(module), columns.id)
            elif isinstance(columns, ast.Name) and columns.id in literals:
                yield f"{module}:{node.lineno}", ast.literal_eval(literals[columns.id])
            elif isinstance(columns, ast.Tuple | ast.List):
                yield f"{module}:{node.lineno}", ast.literal_eval(columns)


TABLES = dict(headings())


def printed(width: int, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    file = StringIO()
    print_table("a title of some words", columns, rows, to=Console(file=file, width=width))
    return file.getvalue()


def rows_of(columns: Sequence[str], long: str) -> list[list[str]]:
    return [[long, *islice(cycle(CELLS[start:]), len(columns) - 1)] for start in range(3)]


def words(rows: Sequence[Sequence[object]], place: int) -> set[str]:
    return {word for row in rows for word in str(row[place]).split()}


@pytest.mark.parametrize("long", LONG)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("table", TABLES)
def test_every_table_fits_its_terminal_and_breaks_no_word(table: str, width: int, long: str) -> None:
    columns = TABLES[table]
    rows = rows_of(columns, long)
    text = printed(width, columns, rows)
    found = set(text.replace("│", " ").replace("┃", " ").split())
    assert all(cell_len(line) <= max(width, len(long) + 20) for line in text.splitlines()), text
    if len(long) + 20 < width:
        assert all(cell_len(line) <= width for line in text.splitlines()), text
    assert words(rows, 0) <= found, text
    left_out = text.rpartition("no room for: ")[2] if "no room for: " in text else ""
    for place, heading in enumerate(columns):
        zero = all(row[place] in ("", "0") for row in rows)
        assert zero or words(rows, place) <= found or all(word in left_out for word in heading.split()), (heading, text)


def test_the_tables_are_found() -> None:
    assert len(TABLES) >= 15
    known = {heading for columns in TABLES.values() for heading in columns}
    assert set(LESS_IMPORTANT) <= known, set(LESS_IMPORTANT) - known


COLUMNS = ("shard", "WAL", "lag", "records", "stale", "skipped")
ROW = (0, "0 to 123,456", "2 frames", "1,234", "0", "0")


def test_a_wide_terminal_has_every_column() -> None:
    text = printed(100, COLUMNS, [ROW])
    assert all(heading in text for heading in COLUMNS)
    assert "all 0" not in text


def test_columns_that_are_all_zero_are_left_out_first_and_named() -> None:
    text = printed(46, COLUMNS, [ROW])
    table, _, rest = text.partition("all 0: ")
    assert rest.strip() == "stale, skipped"
    assert all(heading in table for heading in ("shard", "WAL", "lag", "records"))


def test_a_column_that_is_not_all_zero_outlives_less_important_ones() -> None:
    text = printed(44, COLUMNS, [(*ROW[:4], "0", "7")])
    table, _, rest = text.partition("all 0: ")
    assert " ".join(rest.split()) == "stale; no room for: WAL"
    assert "records" in table


def test_where_not_even_two_columns_fit_a_row_is_a_few_lines_with_whole_words() -> None:
    queue = "flights." + "landed-" * 12
    text = printed(60, ("queue", "address", "depth"), [(queue, queue, "3")])
    assert [line.strip() for line in text.splitlines()[1:]] == [f"queue {queue}", f"address {queue}", "depth 3"]


def test_facts_with_long_values_keep_them_whole() -> None:
    file = StringIO()
    path = "/var/lib/kafka-journal/" + "deep/" * 14
    print_facts("facts", {"directory": path, "uuid": "5b3c"}, to=Console(file=file, width=60))
    assert path in file.getvalue()
