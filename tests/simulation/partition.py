"""A simulated partition's log: records, transaction markers, the last stable offset, compaction, trimming.

Transaction markers take offsets; records of an open transaction hold back what committed readers see; aborted ones
stay in the log and committed readers pass over them. Compaction follows Kafka's cleaner: it works below the last stable
offset and outside min.compaction.lag, keeps each key's last committed record, drops aborted ones, and drops tombstones
and markers in a later run than the first that met them, delete.retention later.
"""

from __future__ import annotations

from bisect import bisect_left

from journal.kafka.ports import LogRecord

COMMITTED, OPEN, ABORTED, MARKER = range(4)


class Entry:
    """One offset of the log."""

    __slots__ = ("kept_until", "key", "offset", "producer", "state", "timestamp", "value")

    def __init__(
        self, offset: int, timestamp: int, key: bytes | None, value: bytes | None, producer: int, state: int
    ) -> None:
        self.offset = offset
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self.producer = producer
        self.state = state
        self.kept_until: float | None = None


class PartitionLog:
    """The log of one partition. Producer ids are numbers; 0 writes outside of transactions."""

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        """The high watermark: replication is instant here."""
        self.entries: list[Entry] = []
        self.epochs: dict[int, int] = {}
        """The newest epoch seen of each producer id, from its records and from its markers."""
        self._offsets: list[int] = []
        self._open: dict[int, list[Entry]] = {}

    @property
    def last_stable(self) -> int:
        if not self._open:
            return self.end
        return min(entries[0].offset for entries in self._open.values())

    def append(self, timestamp: int, key: bytes | None, value: bytes | None, producer: int = 0) -> int:
        entry = Entry(self.end, timestamp, key, value, producer, OPEN if producer else COMMITTED)
        if producer:
            self._open.setdefault(producer, []).append(entry)
        return self._add(entry)

    def has_open(self, producer: int) -> bool:
        return producer in self._open

    def mark(self, timestamp: int, producer: int, epoch: int, *, commit: bool) -> None:
        """Ends a producer's transaction here: its marker decides what its records are."""
        for entry in self._open.pop(producer, ()):
            entry.state = COMMITTED if commit else ABORTED
        self.epochs[producer] = max(epoch, self.epochs.get(producer, 0))
        self._add(Entry(self.end, timestamp, None, None, producer, MARKER))

    def fetch(self, partition: int, position: int, count: int, *, committed: bool) -> list[LogRecord]:
        """Up to `count` visible records from `position` on."""
        records: list[LogRecord] = []
        end = self.last_stable if committed else self.end
        entries = self.entries
        for index in range(bisect_left(self._offsets, position), len(entries)):
            entry = entries[index]
            if entry.offset >= end or len(records) == count:
                break
            if entry.state == COMMITTED or (entry.state != MARKER and not committed):
                records.append(LogRecord(partition, entry.offset, entry.timestamp, entry.key, entry.value))
        return records

    def trim(self, start: int) -> None:
        """Moves the log's start, as retention and delete-records do."""
        self.start = max(self.start, min(start, self.end))
        self._keep([entry for entry in self.entries if entry.offset >= self.start])

    def compact(self, now: float, lag_s: float, delete_retention_s: float, below: int | None = None) -> None:
        """One run of the cleaner. `below` is where the active segment begins, which is never cleaned."""
        end = self.last_stable if below is None else min(below, self.last_stable)
        young = now * 1000 - lag_s * 1000
        end = next((e.offset for e in self.entries if e.offset < end and e.timestamp > young), end)
        last = {e.key: e.offset for e in self.entries if e.offset < end and e.state == COMMITTED}
        self._keep([e for e in self.entries if e.offset >= end or self._survives(e, last, now, delete_retention_s)])

    def _survives(self, entry: Entry, last: dict[bytes | None, int], now: float, delete_retention_s: float) -> bool:
        if entry.state == ABORTED or (entry.state == COMMITTED and entry.offset < last[entry.key]):
            return False
        if entry.state == MARKER or entry.value is None:
            if entry.kept_until is None:
                entry.kept_until = now + delete_retention_s
            return now <= entry.kept_until
        return True

    def _add(self, entry: Entry) -> int:
        self.entries.append(entry)
        self._offsets.append(entry.offset)
        self.end = entry.offset + 1
        return entry.offset

    def _keep(self, entries: list[Entry]) -> None:
        self.entries = entries
        self._offsets = [entry.offset for entry in entries]
