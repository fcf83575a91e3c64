"""The references that are held, by their holders. The broker chooses the names of holders.

If a reference was held before a load, it is called held over: it stays reserved until its holder comes back for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


class Holds:
    """Rows of held references and their holders."""

    __slots__ = ("_holder", "_over", "_rows")

    def __init__(self) -> None:
        self._holder: dict[int, str] = {}
        self._over: dict[str, dict[int, bool]] = {}
        """Rows held over, by holder, and whether giving them back counts. All other held rows are in `_rows`."""
        self._rows: dict[str, dict[int, Any]] = {}
        """Held rows by holder, as ordered sets: the values mean nothing."""

    def __bool__(self) -> bool:
        """Whether anybody holds anything."""
        return bool(self._holder)

    def add(self, row: int, holder: str) -> None:
        self._holder[row] = holder
        rows = self._rows.get(holder)
        if rows is None:
            rows = self._rows[holder] = {}
        rows[row] = None

    def remove(self, row: int) -> None:
        """Forget who holds a row, if anybody does."""
        holder = self._holder.pop(row, None)
        if holder is not None:
            self._take_out(row, holder)

    def _take_out(self, row: int, holder: str) -> None:
        table: dict[str, dict[int, Any]] = self._over if row in self._over.get(holder, ()) else self._rows
        rows = table[holder]
        del rows[row]
        if not rows:
            del table[holder]

    def holder(self, row: int) -> str:
        """The holder of a row; empty for nobody."""
        return self._holder.get(row, "")

    def rows(self, holder: str) -> Sequence[int]:
        """Rows of a holder, in order of acquisition."""
        return [*self._over.get(holder, ()), *self._rows.get(holder, ())]

    def holders(self) -> list[str]:
        return list(self._over | self._rows)

    # ---- held over -------------------------------------------------------------------------------------------------

    def hold_all_over(self) -> None:
        """After a load all held rows were acquired before it. Nobody knows whether they were handed out."""
        self._over = {holder: dict.fromkeys(rows, False) for holder, rows in self._rows.items()}
        self._rows = {}

    def hold_over(self, row: int, *, counts: bool) -> None:
        """The holder of a held row has let go of it, or was there before the load."""
        holder = self._holder[row]
        self._take_out(row, holder)
        self._over.setdefault(holder, {})[row] = counts

    def claim(self, row: int) -> None:
        """The holder of a row that is held has come back for it."""
        holder = self._holder[row]
        if row in self._over.get(holder, ()):
            self._take_out(row, holder)
            self._rows.setdefault(holder, {})[row] = None

    def claim_all(self, holder: str) -> None:
        """A holder has come back for everything that it holds."""
        over: dict[int, Any] | None = self._over.pop(holder, None)
        if over is not None:
            over.update(self._rows.get(holder, {}))  # mostly none: it has acquired nothing since
            self._rows[holder] = over

    def over(self, holder: str) -> Iterable[int]:
        """Rows that a holder has held over, in order of acquisition."""
        return self._over.get(holder, ())

    def over_counts(self, row: int) -> bool | None:
        """Whether giving a row back counts as a delivery; None if it is not held over."""
        return self._over.get(self._holder.get(row, ""), {}).get(row)
