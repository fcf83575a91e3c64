"""Held references and their holders. The broker chooses the names of holders.

A reference is *held over* if it was held before a load, or its holder has let go while a transaction locks it. It stays
reserved until its holder comes back for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


class Holds:
    """Rows of held references and their holders."""

    __slots__ = ("_holder", "_over", "_rows", "acted")

    def __init__(self) -> None:
        self._holder: dict[int, str] = {}
        self._over: dict[str, dict[int, bool]] = {}
        """Rows that are held over, by holder, and whether their release counts as a delivery. All other held rows are
        in `_rows`."""
        self._rows: dict[str, dict[int, Any]] = {}
        """Held rows by holder. The dictionaries serve as ordered sets; their values mean nothing."""

        self.acted: dict[str, int] = {}
        """When holders last did something, in ms since 1970. A holder that holds nothing any more is not in it."""

    def __bool__(self) -> bool:
        """Whether any reference is held."""
        return bool(self._holder)

    def add(self, row: int, holder: str) -> None:
        self._holder[row] = holder
        rows = self._rows.get(holder)
        if rows is None:
            rows = self._rows[holder] = {}
        rows[row] = None

    def remove(self, row: int) -> None:
        """Forget the holder of a row, if it has one."""
        holder = self._holder.pop(row, None)
        if holder is not None:
            self._take_out(row, holder)

    def _take_out(self, row: int, holder: str) -> None:
        table: dict[str, dict[int, Any]] = self._over if row in self._over.get(holder, ()) else self._rows
        rows = table[holder]
        del rows[row]
        if not rows:
            del table[holder]
            if not self.has(holder):
                self.acted.pop(holder, None)

    def holder(self, row: int) -> str:
        """The holder of a row; empty if it has none."""
        return self._holder.get(row, "")

    def rows(self, holder: str) -> Sequence[int]:
        """The rows of a holder, in order of acquisition."""
        return [*self._over.get(holder, ()), *self._rows.get(holder, ())]

    def has(self, holder: str) -> bool:
        """Whether a holder holds anything."""
        return holder in self._rows or holder in self._over

    def holders(self) -> list[str]:
        return list(self._over | self._rows)

    # ---- held over -------------------------------------------------------------------------------------------------

    def hold_all_over(self) -> None:
        """Hold over all held rows after a load. Their release does not count as a delivery, because it is not known
        whether their messages were delivered."""
        self._over = {holder: dict.fromkeys(rows, False) for holder, rows in self._rows.items()}
        self._rows = {}

    def hold_over(self, row: int, *, counts: bool) -> None:
        """Hold over a row: its holder has let go, or had it before the load."""
        holder = self._holder[row]
        self._take_out(row, holder)
        self._over.setdefault(holder, {})[row] = counts

    def claim(self, row: int) -> None:
        """Called when the holder of a row has come back for it: the row is not held over any more."""
        holder = self._holder[row]
        if row in self._over.get(holder, ()):
            self._take_out(row, holder)
            self._rows.setdefault(holder, {})[row] = None

    def claim_all(self, holder: str) -> None:
        """Called when a holder has come back for all its rows: none of them is held over any more."""
        over: dict[int, Any] | None = self._over.pop(holder, None)
        if over is not None:
            # mostly the holder has acquired nothing since, so its dictionary can be taken over
            over.update(self._rows.get(holder, {}))
            self._rows[holder] = over

    def over(self, holder: str) -> Iterable[int]:
        """The rows that are held over for a holder, in order of acquisition."""
        return self._over.get(holder, ())

    def over_counts(self, row: int) -> bool | None:
        """Whether the release of a row counts as a delivery; None if it is not held over."""
        return self._over.get(self._holder.get(row, ""), {}).get(row)
