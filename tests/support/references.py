"""A reference index in memory, for what is true of a queue whatever its index is made of."""

from __future__ import annotations

from collections.abc import Iterator

from journal.store.queues.index import Paged


def _delivery_order(paged: Paged) -> tuple[int, int]:
    return paged.rank, paged.place


class MemoryIndex:
    """A `ReferenceIndex` that sorts whenever it is asked."""

    def __init__(self) -> None:
        self.rows: dict[tuple[int, int], Paged] = {}
        """By message and queue."""

    def put(self, paged: Paged) -> None:
        self.rows[paged.message, paged.queue] = paged

    def page(self, queue: int, rank: int, limit: int) -> list[Paged]:
        of_line = (each for each in self.rows.values() if each.queue == queue and each.rank == rank)
        found = sorted((each for each in of_line if not each.due and not each.passed), key=_delivery_order)[:limit]
        for each in found:
            self.remove(each)
        return found

    def due(self, now_ms: int, limit: int) -> list[Paged]:
        due = [each for each in self.rows.values() if 0 < each.due <= now_ms]
        return sorted(due, key=lambda each: each.due)[:limit]

    def next_due(self) -> int:
        return min((each.due for each in self.rows.values() if each.due), default=0)

    def expired(self, now_ms: int) -> Iterator[tuple[int, int]]:
        expired = (each for each in self.rows.values() if 0 < each.expires <= now_ms)
        return iter([each[1:] for each in sorted((one.expires, one.message, one.queue) for one in expired)])

    def passed(self, now_ms: int, limit: int) -> list[Paged]:
        passed = [each for each in self.rows.values() if each.passed and each.expires > now_ms]
        return sorted(passed, key=lambda each: (-each.expires, each.message, each.queue))[:limit]

    def find(self, message: int) -> list[Paged]:
        return [each for each in self.rows.values() if each.message == message]

    def remove(self, paged: Paged) -> None:
        del self.rows[paged.message, paged.queue]

    def scan(self, queue: int, rank: int = 0, place: int = 0) -> list[Iterator[Paged]]:
        of_queue = (each for each in self.rows.values() if each.queue == queue)
        return [
            iter(sorted((each for each in of_queue if _delivery_order(each) >= (rank, place)), key=_delivery_order))
        ]
