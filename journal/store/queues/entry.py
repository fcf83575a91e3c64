"""The types in which a QueueState describes addresses, queues, bindings and messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, Protocol

from journal.store.model import QueueConfig
from journal.store.queues.counters import QueueCounters
from journal.store.queues.lines import Line
from journal.store.queues.references import ARRIVING, HELD, LOCKED, READY, SCHEDULED, SETTLING, References
from journal.store.queues.watch import QueueWatch


@dataclass(slots=True)
class AddressEntry:
    """An address."""

    record_id: int
    name: str
    duplicate_window: int
    queues: int = 0
    """The number of its queues."""


class BindingEntry(NamedTuple):
    """A binding of a queue."""

    record_id: int
    queue_id: int
    key: str
    filter: str


class MessageEntry(NamedTuple):
    """The facts about a message without its body. Times are ms since 1970."""

    message: int
    address: str
    priority: int
    size: int
    expires: int
    timestamp: int
    due: int
    """The message's own scheduled time, which later routes use; 0 if it has none."""
    durable: bool
    references: int
    """The number of references that are not being settled."""
    chunks: tuple[int, ...]


class ToldReady(Protocol):
    """A cursor, as far as a queue's entry knows it."""

    def is_ready(self, rank: int, place: int, message_id: int) -> None:
        """Called when a message that was not READY has become READY."""


class QueueEntry:
    """A queue, and how many references it has in each state. Its lines hold the READY ones in order."""

    __slots__ = (
        "_by_rank",
        "_first",
        "_table",
        "adding",
        "away",
        "bytes",
        "config",
        "counters",
        "counts",
        "cursors",
        "gone",
        "lines",
        "paged",
        "record_id",
        "runs",
        "watch",
    )

    def __init__(
        self, record_id: int, config: QueueConfig, table: References, first: Callable[[QueueEntry, Line], int]
    ) -> None:
        """`first` returns the row of the first reference of a line, or -1 for an empty line."""
        self.record_id = record_id
        self.config = config
        self.counters = QueueCounters()
        self.counts = [0] * 6
        """Number of references by state."""
        self.cursors: list[ToldReady] = []
        """Cursors of readers, which are told of messages that become READY again."""
        self.adding = 0
        """Number of arriving references that transactions add."""
        self.gone = False
        """Whether the queue is removed. Its references are then forgotten step by step."""
        self.bytes = 0
        """The bytes of its messages, without those that are being settled."""
        self.lines: list[Line] = []
        """Lines in delivery order."""
        self.away: set[int] = set()
        """Rows that are in no line's order, because they are not READY, or a take has passed over them as expired."""
        self.runs: dict[int, Sequence[int]] = {}
        """Further rows that are in no line's order: runs, whose rows arrived or leave together, by the first row of
        each run.

        Hot path: adding each row of a run to a set would cost more than all other work on the run.
        """
        self.watch: QueueWatch | None = None
        """Told as soon as the queue has something; None while nobody waits for that."""
        self.paged = 0
        """The number of its references in the index, READY or SCHEDULED."""
        self._by_rank: dict[int, Line] = {}
        self._table = table
        self._first = first

    def line(self, rank: int) -> Line:
        """The line with a rank. Rank 0 is delivered first."""
        line = self._by_rank.get(rank)
        if line is None:
            line = self._by_rank[rank] = Line(self._table, rank)
            self.lines = [self._by_rank[rank] for rank in sorted(self._by_rank)]
        return line

    def all_away(self) -> Iterator[int]:
        """Rows that are in no line's order."""
        return chain(self.away, *self.runs.values())

    def not_away(self, row: int) -> None:
        """Called when a row joins a line's order or is gone. If it was a row of a run, the other rows of the run are
        tracked one by one from now on."""
        if row in self.away:
            self.away.remove(row)
            return
        first = next((first for first, rows in self.runs.items() if row in rows), -1)
        if first >= 0:
            self.away.update(self.runs.pop(first))
            self.away.remove(row)

    def not_away_all(self, rows: Sequence[int]) -> None:
        """`not_away` for all rows of a run."""
        if self.runs.pop(rows[0], None) is None:
            self.away.difference_update(rows)

    @property
    def ready(self) -> int:
        return self.counts[READY]

    @property
    def scheduled(self) -> int:
        return self.counts[SCHEDULED]

    @property
    def held(self) -> int:
        return self.counts[HELD]

    @property
    def locked(self) -> int:
        return self.counts[LOCKED]

    @property
    def settling(self) -> int:
        return self.counts[SETTLING]

    @property
    def arriving(self) -> int:
        return self.counts[ARRIVING]

    @property
    def messages(self) -> int:
        """The number of messages that are in the queue or arriving."""
        return self.ready + self.scheduled + self.held + self.locked + self.arriving

    @property
    def there(self) -> int:
        """The number of messages that are in the queue, without arriving ones."""
        return self.messages - self.arriving

    @property
    def oldest(self) -> int:
        """The smallest timestamp of the first messages of all priorities; 0 if none is READY."""
        table = self._table
        firsts = [self._first(self, line) for line in self.lines]
        return min((table.timestamp[table.message[row]] for row in firsts if row >= 0), default=0)
