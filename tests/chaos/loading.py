"""The state that an activation was given, written down as the checker compares it: every datum by its digest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from journal.load.loading import LoadCounts, LoadedUpdate
from journal.v1.journal_pb2 import Mark, Operation
from tests.chaos.fold import effect_of_operation
from tests.chaos.history import digest


class NotingLoader:
    """Keeps what it is told, told once or kept warm. What it is told twice is in its lines twice."""

    def __init__(self) -> None:
        self._records: dict[int, dict[str, Any]] = {}
        self._rest: list[dict[str, Any]] = []

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Records in order of ids, then whatever else it was told."""
        return [self._records[record_id] for record_id in sorted(self._records)] + self._rest

    def begin(self, marks: Mapping[int, Mark]) -> None:
        self._records.clear()
        self._rest.clear()

    def record(
        self, record_id: int, kind: int, data: bytes, updates: Sequence[LoadedUpdate], position: tuple[int, int, int]
    ) -> None:
        if record_id in self._records:
            self._rest.append(self._records[record_id])
        self.changed(record_id, kind, data, updates, position)

    def changed(
        self, record_id: int, kind: int, data: bytes, updates: Sequence[LoadedUpdate], position: tuple[int, int, int]
    ) -> None:
        self._records[record_id] = {
            "type": "record",
            "id": record_id,
            "kind": kind,
            "data": digest(data),
            "at": list(position),
            "updates": [[one.kind, digest(one.data), one.replaceable, one.subject] for one in updates],
        }

    def deleted(self, record_id: int) -> None:
        self._records.pop(record_id, None)

    def prepared(self, tx: int, data: bytes, operations: Sequence[Operation]) -> None:
        staged = [effect_of_operation(op)._asdict() for op in operations]
        self._rest.append({"type": "prepared", "tx": tx, "data": digest(data), "operations": staged})

    def complete(self, counts: LoadCounts) -> None:
        self._rest.append({"type": "complete", **asdict(counts)})
