"""Groups that take in what was consumed: made one at a time, and undone if Kafka has not taken one.

Such a group has a transaction of its own, with the consumed offsets in it. It fails alone: then it is as if it had
never been, and who consumed goes on from the committed offsets. So nothing may follow it before that is known.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial

from journal.append.acceptance import Acceptance
from journal.append.completion import completed
from journal.append.group import Group
from journal.append.operations import AnyOperation, DeletedRecords, NewRecords
from journal.errors import JournalError, StateError
from journal.kafka.ports import Consumed, Sent
from journal.limits import Limits
from journal.v1.journal_pb2 import ADD


class TakingIn:
    """The groups of one journal that take in. Its core's lock guards it, and is held by whoever calls."""

    def __init__(self, shards: int, limits: Limits, lock: threading.Lock) -> None:
        self._shards = shards
        self._limits = limits
        self._lock = lock
        self._last = completed()
        """Of the last group: what it took in decides where the next one goes on."""

    def require_done(self) -> None:
        """Raises StateError while a group is on its way."""
        if not self._last.done:
            raise StateError("the last group of consumed records is on its way: where they end decides")

    def group(
        self,
        acceptance: Acceptance,
        operations: Sequence[AnyOperation],
        consumed: Consumed,
        beside: Sequence[Sent],
    ) -> Group:
        """Accept operations as a group of their own; one without any is a heartbeat. Raises what acceptance refuses."""
        acceptance.all_of(operations)
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
        group.completion.add_callback(partial(self._is_done, acceptance, added))
        return group

    def _is_done(self, acceptance: Acceptance, added: Sequence[int], error: JournalError | None) -> None:
        if error is not None:
            with self._lock:
                acceptance.take_back(added)
