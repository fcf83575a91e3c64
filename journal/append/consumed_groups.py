"""Groups of consumed records: made one at a time, and undone if Kafka has not taken one.

Such a group has a transaction of its own, with the consumed offsets in it. It fails alone: it is then as if it had
never been, and whoever consumes begins again at the committed offsets. So no group of consumed records follows another
before the first one's outcome is known.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial

from journal.append.completion import completed
from journal.append.group import Group
from journal.append.operations import AnyOperation, DeletedRecords, NewRecords
from journal.append.record_acceptance import RecordAcceptance
from journal.errors import JournalError, StateError
from journal.kafka.ports import Consumed, Sent
from journal.limits import Limits
from journal.v1.journal_pb2 import ADD


class ConsumedGroups:
    """The groups of one journal that have consumed records. Its core's lock guards it, and whoever calls holds it."""

    def __init__(self, shards: int, limits: Limits, lock: threading.Lock) -> None:
        self._shards = shards
        self._limits = limits
        self._lock = lock
        self._last = completed()
        """The last group's completion: what that group took in decides where the next one goes on."""

    def require_done(self) -> None:
        """Raises StateError while a group is on its way."""
        if not self._last.done:
            raise StateError("the last group of consumed records is on its way: await its completion first")

    def group(
        self,
        records: RecordAcceptance,
        operations: Sequence[AnyOperation],
        consumed: Consumed,
        beside: Sequence[Sent],
    ) -> Group:
        """Accept operations as a group of their own; without any it is a heartbeat. Raises what `records` raises."""
        records.all_of(operations)
        group = Group(self._shards, self._limits.frame_bytes_max, consumed, beside)
        group.put_all(operations)
        added: list[int] = []
        for operation in operations:
            if isinstance(operation, NewRecords):
                added += operation.ids
            elif not isinstance(operation, DeletedRecords) and operation[0] == ADD:
                added.append(operation[1])
        if not operations:
            group.put_heartbeat(0)
        self._last = group.completion
        group.completion.add_callback(partial(self._is_done, records, added))
        return group

    def _is_done(self, records: RecordAcceptance, added: Sequence[int], error: JournalError | None) -> None:
        if error is not None:
            with self._lock:
                records.take_back(added)
