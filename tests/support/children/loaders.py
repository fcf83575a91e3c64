"""Loaders that keep what an activation was given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from journal.cli.script import prepared_line, record_line
from journal.load.loading import LoadCounts, LoadedUpdate
from journal.v1.journal_pb2 import Mark, Operation
from tests.support.children.telling import Notes
from tests.support.node_history import Activation
from tests.support.script_model import Line

KeptRecord = tuple[int, bytes, tuple[LoadedUpdate, ...], tuple[int, int, int]]


class KeptState:
    """A `FollowingLoader` that keeps what it is told, and how it was told."""

    def __init__(self) -> None:
        self.marks: dict[int, Mark] = {}
        self.records: dict[int, KeptRecord] = {}
        self.in_doubt: list[tuple[int, bytes, list[Operation]]] = []
        self.counts: LoadCounts | None = None
        self.scanned = 0
        """Records told one by one, as a load does."""
        self.changes = 0

    def begin(self, marks: Mapping[int, Mark]) -> None:
        self.marks = dict(marks)
        self.records.clear()
        self.in_doubt.clear()

    def record(
        self, record_id: int, kind: int, data: bytes, updates: Sequence[LoadedUpdate], position: tuple[int, int, int]
    ) -> None:
        self.scanned += 1
        assert record_id not in self.records
        self.records[record_id] = kind, data, tuple(updates), position

    def changed(
        self, record_id: int, kind: int, data: bytes, updates: Sequence[LoadedUpdate], position: tuple[int, int, int]
    ) -> None:
        assert self.counts is None
        self.changes += 1
        self.records[record_id] = kind, data, tuple(updates), position

    def deleted(self, record_id: int) -> None:
        assert self.counts is None
        self.changes += 1
        self.records.pop(record_id, None)

    def prepared(self, tx: int, data: bytes, operations: Sequence[Operation]) -> None:
        self.in_doubt.append((tx, data, list(operations)))

    def complete(self, counts: LoadCounts) -> None:
        assert self.counts is None
        self.counts = counts


class CollectingLoader(KeptState):
    """A loader that gives what it was told in `dump`'s form."""

    @property
    def epoch(self) -> int:
        return max(mark.epoch for mark in self.marks.values())

    @property
    def lines(self) -> list[Line]:
        records = [
            record_line(record_id, kind, data, updates)
            for record_id, (kind, data, updates, _) in sorted(self.records.items())
        ]
        return records + [prepared_line(tx, data, operations) for tx, data, operations in self.in_doubt]

    def activation(self) -> Activation:
        """What this loaded, as the first line of an activation's history."""
        return Activation(self.epoch, self.lines)


class NotingLoader(CollectingLoader):
    """Writes down what it was told, once it was told all."""

    def __init__(self, notes: Notes) -> None:
        super().__init__()
        self._notes = notes

    def complete(self, counts: LoadCounts) -> None:
        super().complete(counts)
        self._notes.write(loaded=self.lines, epoch=self.epoch)
