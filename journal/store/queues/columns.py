"""Columns of numbers that are read and written for many rows at once.

Hot path: rows that were taken together are mostly used and freed together. Such rows are consecutive and form a
`range`, for which one slice operation replaces a loop over rows.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeVar

_SAMES_KEPT = 32
"""The number of columns of equal values that are kept for reuse. Most runs have the same length, and most columns get
the same value (zero, a state)."""

_Column = TypeVar("_Column", "array[int]", bytearray)


def together(rows: Sequence[int]) -> Sequence[int]:
    """The given distinct rows, in any order, as a range if they are consecutive; else None."""
    if type(rows) is range:
        return rows
    run = in_order(rows)
    if run is not None:
        return run
    first, last = min(rows), max(rows)
    return range(first, last + 1) if last - first == len(rows) - 1 else rows


def in_order(rows: Sequence[int]) -> range | None:
    """The given rows as a range, if each is one more than the row before; else None."""
    run = range(rows[0], rows[0] + len(rows))
    if rows[-1] != run[-1]:
        return None
    return run if rows == (array(rows.typecode, run) if isinstance(rows, array) else [*run]) else None


def gather(column: _Column, rows: Sequence[int]) -> _Column:
    """The values of these rows, in their order."""
    if type(rows) is range:
        return column[rows.start : rows.stop]
    values = [column[row] for row in rows]
    return array(column.typecode, values) if isinstance(column, array) else bytearray(values)


def fill(column: _Column, rows: Sequence[int], values: _Column) -> None:
    """Write one value into each of these rows of the column. Rows that the column does not have yet must be the last
    ones; they are appended to it."""
    if type(rows) is range:
        column[rows.start : rows.stop] = values
        return
    known = len(rows) - max(0, rows[-1] + 1 - len(column))
    for row, value in zip(rows[:known], values, strict=False):
        column[row] = value
    column.extend(values[known:])


def reach(column: array[int], rows: Sequence[int]) -> None:
    """Extend the column to these rows, as `fill` does, without writing values."""
    missing = rows[-1] + 1 - len(column)
    if missing > 0:
        column.extend(same_numbers(column.typecode, 0, missing))


@lru_cache(maxsize=_SAMES_KEPT)
def same_numbers(typecode: str, value: int, count: int) -> array[int]:
    """A column of `count` equal values for `fill`. It is shared, so it must not be changed."""
    return array(typecode, [value]) * count


@lru_cache(maxsize=_SAMES_KEPT)
def same_bytes(value: int, count: int) -> bytearray:
    """`same_numbers` for a column of bytes."""
    return bytearray([value]) * count
