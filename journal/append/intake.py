"""The checks that every append passes first, under one lock. An append is refused here if the journal is not active, or
if the queue stays full; `journal.append.acceptance` refuses it for all other reasons."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from journal.append.acceptance import Acceptance
from journal.append.callbacks import never_waits
from journal.append.completion import Completion, completed
from journal.append.group import Group
from journal.append.group_queue import GroupQueue, queue_full
from journal.append.interrupted import mark_refusal
from journal.append.operations import NOTHING, Amount, Append
from journal.append.state import Life
from journal.limits import Limits
from journal.process.clocks import Clock
from journal.process.waits import LongWait

_ENDS = "Kafka must commit what is queued; queue_operations_max and queue_bytes_max say how much that may be"


class Intake:
    """The state that all appends share. Its methods are called with `lock` held."""

    def __init__(self, shards: int, limits: Limits, clock: Clock, room_wait_s: float) -> None:
        """`room_wait_s` is how long an append waits for room."""
        self.lock = threading.Lock()
        """A plain lock, because a condition's own `with` takes twice the time."""
        self.wake = threading.Condition(self.lock)
        """Notified when a group can be written."""
        self.taken = threading.Condition(self.lock)
        """Notified when the writer has taken a group, and when no more appends are accepted."""
        self.life = Life()
        self.queue = GroupQueue(shards, limits)
        self.acceptance: Acceptance | None = None
        """The acceptance that decides about appends; None while the journal is not active."""
        self._clock = clock
        self._room_wait_s = room_wait_s

    def require_active(self) -> Acceptance:
        """The acceptance that decides about appends. Raises the error that refuses every append now."""
        return self.acceptance or self.life.refuse()

    def require_room(self, operations: int, size: int, settled: Amount = NOTHING) -> Group:
        """The group that takes this number of operations and bytes, and settles `settled`. It waits while the queue is
        full. Raises QueueFullError."""
        if self.queue.takes(operations, size, settled):
            return self.queue.open
        return self.wait_for_room(operations, size, settled)

    def wait_for_room(self, operations: int, size: int, settled: Amount = NOTHING) -> Group:
        """`require_room` for an append that does not fit the open group. In a completion's callback, and within
        `without_waits`, it does not wait."""
        queue = self.queue
        queue.require_one_group(operations, size)
        wait = LongWait(self._clock)
        until = wait.began + (0.0 if never_waits() else self._room_wait_s)
        while not queue.fits(operations, size):
            left_s = until - self._clock()
            if left_s <= 0:
                raise queue_full()
            try:
                if not self.taken.wait(max(0.0, min(left_s, wait.left_s))):
                    self._say(wait)
            except BaseException as error:  # this is Ctrl-C, or another exception of a signal's handler
                mark_refusal(error)
                raise
            self.require_active()
        return queue.group_for(size, settled)

    def _say(self, wait: LongWait) -> None:
        """Say a long wait. Whoever reads the log may be slow, so the lock is not held meanwhile."""
        self.lock.release()
        try:
            wait.look("room in the journal's queue", _ENDS)
        finally:
            self.lock.acquire()

    def put(self, appends: Sequence[Append]) -> Completion:
        """Put accepted operations into the open group, which has room for them."""
        if not appends:
            return completed()
        group = self.queue.open
        if not group:
            self.wake.notify()
        for op in appends:
            group.put_append(op)
        return group.completion

    def notify_all(self) -> None:
        """Wake all waiting threads, so that they notice a changed state."""
        self.wake.notify_all()
        self.taken.notify_all()
