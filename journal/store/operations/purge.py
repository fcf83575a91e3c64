"""How a queue is purged: its ready messages are settled in steps, and between them other callers may take the lock."""

from __future__ import annotations

from collections import deque

from journal.errors import MessageMissingError
from journal.store.model import ReferenceState
from journal.store.operations.acknowledge import AcknowledgeOperations
from journal.store.operations.core import StoreCore
from journal.store.operations.look import LookOperations
from journal.store.pending import COMPLETED, Accepted
from journal.v1.store_pb2 import Acknowledgement

_AT_ONCE = 50
"""The most messages that one step settles: less than a millisecond."""


class Purging(Accepted):
    """The purge of the messages that were ready in a queue when it began. It is done when the last of them is settled
    for good; `purged` counts them."""

    __slots__ = ("_acknowledge", "_core", "_left", "_queue", "purged")

    def __init__(self, core: StoreCore, acknowledge: AcknowledgeOperations, look: LookOperations, queue: str) -> None:
        """Raises QueueMissingError."""
        super().__init__(COMPLETED)
        self.purged = 0
        self._core = core
        self._acknowledge = acknowledge
        self._queue = queue
        self._left = deque(each.message for each in look.browse(queue) if each.state is ReferenceState.READY)

    def step(self) -> bool:
        """Settle some messages; false if none are left. Messages that are not ready any more stay.

        After a FullError the next step goes on. Raises QueueMissingError.
        """
        with self._core.lock:
            state = self._core.enter()
            target = state.queue(self._queue)
            for _ in range(min(len(self._left), _AT_ONCE)):
                message_id = self._left[0]
                try:
                    is_ready = self._core.reference(message_id, target).state is ReferenceState.READY
                except MessageMissingError:
                    is_ready = False
                if is_ready:
                    settled = self._acknowledge.settle(state, message_id, target, "", Acknowledgement.PURGED)
                    self.completion = settled.completion
                    self.purged += 1
                self._left.popleft()
        return bool(self._left)

    def wait(self, timeout_s: float | None = None) -> int:
        """Block until done; returns the number of purged messages. Raises the completion's error, or DeadlineError when
        `timeout_s` passes first."""
        self.completion.wait(timeout_s)
        return self.purged
