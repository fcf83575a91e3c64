"""A loader that collects what XA needs: the branches in doubt, and the kept outcomes. It can stand before another
loader, and then passes everything on to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from journal.load.loading import LoadCounts, LoadedUpdate, Loader, NullLoader
from journal.v1.journal_pb2 import Mark, Operation
from journal.v1.store_pb2 import OUTCOME


class PreparedFound(NamedTuple):
    """A transaction in doubt and the data of its PREPARE."""

    tx: int
    data: bytes


class OutcomeFound(NamedTuple):
    """An OUTCOME record."""

    record_id: int
    data: bytes


@dataclass(slots=True)
class XaRows:
    """The branches in doubt and the outcomes that a load has found."""

    prepared: list[PreparedFound] = field(default_factory=list)
    outcomes: list[OutcomeFound] = field(default_factory=list)


class XaLoader:
    """A loader that collects what XA needs, and passes all calls on to another loader. `loaded` is complete after the
    activation."""

    def __init__(self, inner: Loader | None = None) -> None:
        self.loaded = XaRows()
        self._inner = inner or NullLoader()
        self._pass_record = self._inner.record

    def begin(self, marks: Mapping[int, Mark]) -> None:
        self.loaded = XaRows()
        self._inner.begin(marks)

    def record(
        self, record_id: int, kind: int, data: bytes, updates: Sequence[LoadedUpdate], position: tuple[int, int, int]
    ) -> None:
        if kind == OUTCOME:
            self.loaded.outcomes.append(OutcomeFound(record_id, data))
        self._pass_record(record_id, kind, data, updates, position)

    def prepared(self, tx: int, data: bytes, operations: Sequence[Operation]) -> None:
        self.loaded.prepared.append(PreparedFound(tx, data))
        self._inner.prepared(tx, data, operations)

    def complete(self, counts: LoadCounts) -> None:
        self._inner.complete(counts)
