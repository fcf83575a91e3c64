"""Who holds what: references by their holder, a name that the broker chose; and what of it is held over from before a
load, which nobody has come back for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


class Holds:
    """Rows of held references and their holders."""

    __slots__ = ("_holder", "_over", "_rows")

    def __init__(self) -> None:
        self._holder: dict[int, str] = {}
        self._over: dict[str, dict[int, bool]] = {}
        """Rows held over, by holder, and whether it counts that they are given back; all others that it holds are in
        `_rows`."""
        self._rows: dict[str, dict[int, Any]] = {}
        """Only their keys and order count."""

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
        """Whether it is held or not."""
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
        """Its holder; empty: nobody."""
        return self._holder.get(row, "")

    def rows(self, holder: str) -> Sequence[int]:
        """In order of acquisition."""
        return [*self._over.get(holder, ()), *self._rows.get(holder, ())]

    def holders(self) -> list[str]:
        return list(self._over | self._rows)

    # ---- held over -------------------------------------------------------------------------------------------------

    def hold_all_over(self) -> None:
        """After a load: all that is held was acquired before it. Nobody knows whether it was handed out."""
        self._over = {holder: dict.fromkeys(rows, False) for holder, rows in self._rows.items()}
        self._rows = {}

    def hold_over(self, row: int, *, counts: bool) -> None:
        """Its holder has let go of one that is held, or was there before the load."""
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
        """A holder has come back for all that it holds."""
        over: dict[int, Any] | None = self._over.pop(holder, None)
        if over is not None:
            over.update(self._rows.get(holder, {}))  # mostly nothing: whoever comes back has nothing new
            self._rows[holder] = over

    def over(self, holder: str) -> Iterable[int]:
        """Rows that a holder has held over, in order of acquisition."""
        return self._over.get(holder, ())

    def over_counts(self, row: int) -> bool | None:
        """Whether it counts that it is given back; None: it is not held over."""
        return self._over.get(self._holder.get(row, ""), {}).get(row)
