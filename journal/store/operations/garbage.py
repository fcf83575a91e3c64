"""How records without a reference are deleted: in bounded groups, one after the other."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial

from journal.append.operations import PlainOperation
from journal.errors import FullError, InvalidOperationError, JournalError
from journal.store.operations.core import StoreCore
from journal.v1.journal_pb2 import DELETE
from journal.words import counted_are

log = logging.getLogger(__name__)

MessageRecords = tuple[int, ...]
"""Ids of a message's records: its own, and those of its chunks."""


class Garbage:
    """Messages without references that are still to be deleted from the journal."""

    def __init__(self, core: StoreCore) -> None:
        self._core = core
        self.deleted = 0
        """Number of records whose deletion is durable."""
        self._waiting: deque[MessageRecords] = deque()
        self._lock = threading.Lock()
        """A separate lock, because deletions also run in the journal's writer, which must not wait for the store's
        callers."""

    def add(self, messages: Iterable[MessageRecords]) -> None:
        self._waiting.extend(messages)

    def delete_some(self) -> None:
        """Delete one group of records; once it is durable, its completion deletes the next one.

        So this method also runs in the journal's writer, without the store's lock, and must neither wait nor raise an
        error.
        """
        while self._core.refusal is None:
            with self._lock:
                taken, operations = self._next()
            if not operations:
                return
            try:
                completion = self._core.journal.append_all(operations, wait=False)
            except FullError:
                self._put_back(taken)
                completion = self._core.journal.flush()  # in this case the list was emptied meanwhile
                if completion.done:
                    continue
                operations = []
            except InvalidOperationError as error:
                log.error(
                    "message %d is left, with all that it has: its records do not fit a group: %s", taken[0][0], error
                )
                continue
            except JournalError as error:
                self._put_back(taken)
                log.info(
                    "%s left for the next activation to delete: %s", counted_are(len(self._waiting), "message"), error
                )
                return
            completion.add_callback(partial(self._go_on, len(operations)))
            return

    def _next(self) -> tuple[list[MessageRecords], list[PlainOperation]]:
        waiting, settings = self._waiting, self._core.settings
        operations_max = settings.operations_at_once(settings.collect_operations_max, self._core.journal.limits)
        taken: list[MessageRecords] = []
        operations: list[PlainOperation] = []
        while waiting and (not operations or len(operations) + len(waiting[0]) <= operations_max):
            records = waiting.popleft()
            taken.append(records)
            operations += [(DELETE, record_id, 0, b"", False, 0) for record_id in records]
        return taken, operations

    def _put_back(self, taken: Sequence[MessageRecords]) -> None:
        with self._lock:
            self._waiting.extendleft(reversed(taken))

    def _go_on(self, deleted: int, error: JournalError | None) -> None:
        if error is not None:
            return
        with self._lock:
            self.deleted += deleted
        if self._waiting:
            self.delete_some()
