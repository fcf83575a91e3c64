"""A simulated partition's log: records, transaction markers, the last stable offset, compaction, trimming.

Transaction markers take offsets; records of an open transaction hold back what committed readers see; aborted ones
stay in the log and committed readers pass over them. Compaction follows Kafka's cleaner: it works below the last stable
offset and outside min.compaction.lag, keeps each key's last committed record, drops aborted ones, and drops tombstones
and markers in a later run than the first that met them, delete.retention later.

Each leader of a partition has an epoch. A power cut may lose an acknowledged tail: whole transactions go from the end,
and another leader goes on at an offset that was used before. A leader that was deposed and does not know it still
answers whoever asks it, with the log as it was (`DeposedLog`); nothing can be written through it.
"""

from __future__ import annotations

from bisect import bisect_left

from journal.kafka.ports import LogRecord

COMMITTED, OPEN, ABORTED, MARKER = range(4)


class Entry:
    """One offset of the log."""

    __slots__ = (
        "ended",
        "kept_until",
        "key",
        "leader_epoch",
        "offset",
        "producer",
        "record",
        "state",
        "timestamp",
        "value",
    )

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
        self.leader_epoch = 0
        self.ended = -1
        """Where the marker of its transaction is."""
        self.record: LogRecord | None = None
        """What readers are given, made by the first of them."""


class Version:
    """Counts the changes of a topic's logs: until there is one, nobody who has read all need look again."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = 0


class PartitionLog:
    """The log of one partition. Producer ids are numbers; 0 writes outside of transactions."""

    def __init__(self, version: Version | None = None) -> None:
        """`version` is its topic's."""
        self._version = version or Version()
        self.changed_at = 0
        """The number of its last change in that."""
        self.note_change()
        self.start = 0
        self.end = 0
        """The high watermark: replication is instant here."""
        self.last_stable = 0
        """Where the first open transaction begins, else the end."""
        self.entries: list[Entry] = []
        self.trimmed: list[Entry] = []
        """What the log began with, for the checker."""
        self.lost: list[Entry] = []
        """What was in the log and is not, for the checker."""
        self.epochs: dict[int, int] = {}
        """The newest epoch seen of each producer id, from its records and from its markers."""
        self.damaged: set[int] = set()
        """Offsets that the leader cannot read from its disk; another one can."""
        self.leader_epoch = 0
        self._led_from = [(0, 0)]
        """Leader epochs, and the offset at which each began."""
        self._sequences: dict[int, tuple[int, int]] = {}
        """By producer id, the epoch of its last records and how many it has sent in that."""
        self._sent: list[tuple[int, int, int, int]] = []
        """What `_sequences` was told: the end behind the records, producer, epoch and sequence."""
        self._offsets: list[int] = []
        self._open: dict[int, list[Entry]] = {}

    def append(self, timestamp: int, key: bytes | None, value: bytes | None, producer: int = 0) -> int:
        entry = Entry(self.end, timestamp, key, value, producer, OPEN if producer else COMMITTED)
        if producer:
            self._open.setdefault(producer, []).append(entry)
        return self._add(entry)

    def follows(self, producer: int, epoch: int, sequence: int) -> bool:
        """Whether records with this sequence follow the producer's last ones here. Any do of whom nothing is known."""
        known = self._sequences.get(producer)
        if known is None:
            return True
        return sequence == (known[1] if known[0] == epoch else 0)

    def sent(self, producer: int, epoch: int, sequence: int) -> None:
        """Note the sequence behind the records that were just appended."""
        self._sequences[producer] = epoch, sequence
        self._sent.append((self.end, producer, epoch, sequence))

    def has_open(self, producer: int) -> bool:
        return producer in self._open

    def mark(self, timestamp: int, producer: int, epoch: int, *, commit: bool) -> None:
        """Ends a producer's transaction here: its marker decides what its records are."""
        for entry in self._open.pop(producer, ()):
            entry.state = COMMITTED if commit else ABORTED
            entry.ended = self.end
        self.epochs[producer] = max(epoch, self.epochs.get(producer, 0))
        self._add(Entry(self.end, timestamp, None, None, producer, MARKER))
        self._note_stable()

    def fetch(self, partition: int, position: int, count: int, *, committed: bool) -> list[LogRecord]:
        """Up to `count` visible records from `position` on."""
        records: list[LogRecord] = []
        end = self.readable_to(position, committed=committed)
        entries, offsets = self.entries, self._offsets
        for index in range(bisect_left(offsets, position), len(entries)):
            if offsets[index] >= end or len(records) == count:
                break
            entry = entries[index]
            if entry.state == COMMITTED or (entry.state != MARKER and not committed):
                record = entry.record
                if record is None:
                    record = entry.record = LogRecord(
                        partition, entry.offset, entry.timestamp, entry.key, entry.value, entry.leader_epoch
                    )
                records.append(record)
        return records

    def trim(self, start: int) -> None:
        """Moves the log's start, as retention and delete-records do."""
        self.start = max(self.start, min(start, self.end))
        self.trimmed += [entry for entry in self.entries if entry.offset < self.start]
        self._keep([entry for entry in self.entries if entry.offset >= self.start])
        self.note_change()

    def lead(self) -> None:
        """Another leader goes on where the last one stood."""
        self.leader_epoch += 1
        self.damaged.clear()
        self._led_from.append((self.leader_epoch, self.end))
        self.note_change()

    def readable_to(self, position: int, *, committed: bool) -> int:
        """Up to where a reader comes that stands at a position: the end for it, or the next damaged offset."""
        end = self.last_stable if committed else self.end
        if not self.damaged:
            return end
        return min((offset for offset in self.damaged if position <= offset < end), default=end)

    def lose(self, end: int) -> int:
        """The tail from `end` on is gone, and what would be left of a transaction that ends there: how many offsets."""
        last, end = self.end, max(self.start, end)
        while cut := [entry.offset for entry in self.entries if entry.offset < end <= entry.ended]:
            end = min(cut)
        self.lost += [entry for entry in self.entries if entry.offset >= end]
        self._keep([entry for entry in self.entries if entry.offset < end])
        kept = {producer: [entry for entry in mine if entry.offset < end] for producer, mine in self._open.items()}
        self._open = {producer: mine for producer, mine in kept.items() if mine}
        self.end = end
        self._note_stable()
        self._led_from = [(epoch, first) for epoch, first in self._led_from if first <= end]
        self._sent = [sent for sent in self._sent if sent[0] <= end]
        self._sequences = {producer: (epoch, sequence) for _, producer, epoch, sequence in self._sent}
        self.lead()
        return last - end

    def end_of_epoch(self, leader_epoch: int) -> int:
        """Where the records of a leader epoch end: a reader that has read further has read what is not there now."""
        return next((first for epoch, first in self._led_from if epoch > leader_epoch), self.end)

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
        entry.leader_epoch = self.leader_epoch
        self.entries.append(entry)
        self._offsets.append(entry.offset)
        self.end = entry.offset + 1
        if not self._open:
            self.last_stable = self.end
        self.note_change()
        return entry.offset

    def _note_stable(self) -> None:
        """A transaction is not open any more."""
        self.last_stable = min((entries[0].offset for entries in self._open.values()), default=self.end)

    def note_change(self) -> None:
        """Somebody may find here what was not to be found before."""
        self._version.number += 1
        self.changed_at = self._version.number

    def _keep(self, entries: list[Entry]) -> None:
        self.entries = entries
        self._offsets = [entry.offset for entry in entries]


class DeposedLog(PartitionLog):
    """A log as a leader has it that was deposed and does not know it: it tells nothing newer, and takes nothing."""

    def __init__(self, log: PartitionLog) -> None:
        super().__init__()
        self.start, self.end, self.leader_epoch = log.start, log.end, log.leader_epoch
        self._led_from = list(log._led_from)
        self.last_stable = log.last_stable
        self.changed_at = log.changed_at
        self._keep(list(log.entries))
