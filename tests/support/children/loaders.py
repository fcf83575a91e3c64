"""Loaders that keep what an activation was given, in `dump`'s form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from journal.cli.script import prepared_line, record_line
from journal.load.loading import LoadCounts, LoadedUpdate
from journal.v1.journal_pb2 import Mark, Operation
from tests.support.children.telling import Notes
from tests.support.node_history import Activation
from tests.support.script_model import Line


class CollectingLoader:
    """A loader that keeps what it is told, in `dump`'s form."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.marks: dict[int, Mark] = {}

    @property
    def epoch(self) -> int:
        return max(mark.epoch for mark in self.marks.values())

    def begin(self, marks: Mapping[int, Mark]) -> None:
        self.marks = dict(marks)
        self.lines.clear()

    def record(
        self, record_id: int, kind: int, data: bytes, updates: Sequence[LoadedUpdate], position: tuple[int, int, int]
    ) -> None:
        self.lines.append(record_line(record_id, kind, data, updates))

    def prepared(self, tx: int, data: bytes, operations: Sequence[Operation]) -> None:
        self.lines.append(prepared_line(tx, data, operations))

    def complete(self, counts: LoadCounts) -> None: ...

    def activation(self) -> Activation:
        """What this loaded, as the first line of an activation's history."""
        return Activation(self.epoch, self.lines)


class NotingLoader(CollectingLoader):
    """Writes down what it was told, once it was told all."""

    def __init__(self, notes: Notes) -> None:
        super().__init__()
        self._notes = notes

    def complete(self, counts: LoadCounts) -> None:
        self._notes.write(loaded=self.lines, epoch=self.epoch)
