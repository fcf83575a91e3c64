"""Who holds what: references by their holder, a name that the broker chose."""

from __future__ import annotations

from collections.abc import Iterable


class Holds:
    """Rows of held references and their holders."""

    __slots__ = ("_holder", "_rows")

    def __init__(self) -> None:
        self._holder: dict[int, str] = {}
        self._rows: dict[str, dict[int, None]] = {}

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
            rows = self._rows[holder]
            del rows[row]
            if not rows:
                del self._rows[holder]

    def holder(self, row: int) -> str:
        """Its holder; empty: nobody."""
        return self._holder.get(row, "")

    def rows(self, holder: str) -> Iterable[int]:
        """In order of acquisition."""
        return self._rows.get(holder, ())

    def holders(self) -> list[str]:
        return list(self._rows)
