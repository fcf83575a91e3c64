"""Groups of consumed records. They are made one at a time, and undone if they do not get into the WAL.

Such a group has a transaction of its own, which also commits the consumed offsets. If it fails, only this group fails:
its operations are as if they had never been appended, and the consumer begins again at the committed offsets. So no
such group is made before the outcome of the one before is known.
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
    """The groups of consumed records of one journal. The core's lock guards it; every caller holds that lock."""

    def __init__(self, shards: int, limits: Limits, lock: threading.Lock) -> None:
        self._shards = shards
        self._limits = limits
        self._lock = lock
        self._last = completed()
        """The completion of the last group. Its outcome decides where the next one continues."""

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
        """Accept operations as a group of their own; without operations it is a heartbeat. Raises what `records`
        raises."""
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
