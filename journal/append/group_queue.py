"""The queue of groups between appends and the writer: the open group, and the complete ones ahead of it. Pure.

Appends go into the open group. When it is as large as a group may be, it is complete, and a new one is opened. The
writer takes the first group. A group with consumed records has a bound of its own, so it does not count here.
"""

from __future__ import annotations

from collections import deque

from journal.append.completion import Completion, completed
from journal.append.group import Group
from journal.append.operations import NOTHING, Amount
from journal.errors import InvalidOperationError, QueueFullError
from journal.limits import Limits


class GroupQueue:
    """The groups that wait to be written, and the callers that wait for room in the queue. The core's lock guards
    it."""

    def __init__(self, shards: int, limits: Limits) -> None:
        self._shards = shards
        self._limits = limits
        self._ahead: deque[Group] = deque()
        """Groups that are written before the open one."""
        self._ahead_amount = NOTHING
        """Operations and bytes of complete groups ahead."""
        self._waiters: deque[Completion] = deque()
        self.open = Group(shards, limits.frame_bytes_max)
        """The group that the next append goes into."""
        self.operations_max = limits.queue_operations_max
        """The number of operations that the open group may have; for more, `group_for` must be called. Hot paths read
        it directly."""
        self.bytes_max = min(limits.group_bytes_max, limits.queue_bytes_max)
        """The number of bytes that the open group may have; for more, `group_for` must be called."""

    def __bool__(self) -> bool:
        """Whether any group waits to be written."""
        return bool(self._ahead) or self.open.operations > 0

    # ---- appends ---------------------------------------------------------------------------------------------------

    def takes(self, operations: int, size: int, settled: Amount) -> bool:
        """Whether the open group takes this number of operations and bytes more, and settles `settled` with them."""
        group = self.open
        return (
            group.operations + operations <= self.operations_max
            and group.bytes + size <= self.bytes_max
            and self._may_settle(settled)
        )

    def fits(self, operations: int, size: int) -> bool:
        """Whether the queue has room for this number of operations and bytes."""
        waiting, limits = self._waiting(), self._limits
        return (
            waiting.operations + operations <= limits.queue_operations_max
            and waiting.bytes + size <= limits.queue_bytes_max
        )

    def group_for(self, size: int, settled: Amount) -> Group:
        """The group for an append for which the queue has room: the open one, or a new one if the open one would become
        too large."""
        if self.open and (self.open.bytes + size > self._limits.group_bytes_max or not self._may_settle(settled)):
            self._complete()
        return self.open

    def put_alone(self, group: Group) -> None:
        """Put in a group that takes no other operations, behind all that was appended before."""
        if self.open:
            self._complete()
        self._ahead.append(group)

    def room(self) -> Completion:
        """A future that is done when the queue is half empty, first come first served."""
        waiting, limits = self._waiting(), self._limits
        half = waiting.operations * 2 <= limits.queue_operations_max and waiting.bytes * 2 <= limits.queue_bytes_max
        if half and not self._waiters:
            return completed()
        waiter = Completion()
        self._waiters.append(waiter)
        return waiter

    def require_one_group(self, operations: int, size: int) -> None:
        """Raises InvalidOperationError for more operations or bytes than one group may have."""
        limits = self._limits
        if operations > limits.queue_operations_max:
            raise InvalidOperationError(
                f"{operations} operations of one group are over the limit of {limits.queue_operations_max} "
                "(queue_operations_max)"
            )
        if size > limits.queue_bytes_max:
            raise InvalidOperationError(
                f"operations of one group take up to {size} bytes, over the limit of {limits.queue_bytes_max} "
                "(queue_bytes_max)"
            )

    def _waiting(self) -> Amount:
        """Operations and bytes that wait for the writer."""
        ahead, group = self._ahead_amount, self.open
        return Amount(ahead.operations + group.operations, ahead.bytes + group.bytes)

    def _may_settle(self, settled: Amount) -> bool:
        """Whether the open group, with `settled` added, settles no more operations than a worker applies at once. The
        first settlement of a group may have any size, because it was staged within the bounds."""
        before, limits = self.open.settled, self._limits
        return not (before.operations and settled.operations) or (
            before.operations + settled.operations <= limits.staged_operations_max
            and before.bytes + settled.bytes <= limits.staged_bytes_max
        )

    def _complete(self) -> None:
        """Close the open group, so that the next append goes into a new one."""
        self._ahead.append(self.open)
        self._ahead_amount = self._waiting()
        self._open_group()

    def _open_group(self) -> None:
        self.open = Group(self._shards, self._limits.frame_bytes_max)
        self._bound()

    def _bound(self) -> None:
        limits, ahead = self._limits, self._ahead_amount
        self.operations_max = limits.queue_operations_max - ahead.operations
        self.bytes_max = min(limits.group_bytes_max, limits.queue_bytes_max - ahead.bytes)

    # ---- the writer ------------------------------------------------------------------------------------------------

    def take(self) -> tuple[Group, list[Completion]]:
        """The group to write next, and the callers that may append now."""
        if not self._ahead:
            group = self.open
            self._open_group()
        else:
            group = self._ahead.popleft()
            if group.consumed is None:
                ahead = self._ahead_amount
                self._ahead_amount = Amount(ahead.operations - group.operations, ahead.bytes - group.bytes)
                self._bound()
        waiters = self._waiters
        return group, [waiters.popleft() for _ in range(min(len(waiters), self._limits.queue_operations_max))]

    def may_join(self, operations: int, size: int, *, complete: bool) -> bool:
        """Whether the next group may join a transaction that has this number of operations and room for `size` bytes.
        With `complete` the group must take no more appends."""
        group = self._ahead[0] if self._ahead else self.open
        return (
            group.operations > 0
            and (bool(self._ahead) or not complete)
            and group.consumed is None
            and group.operations + operations <= self._limits.queue_operations_max
            and group.bytes <= size
        )

    def newest(self) -> Completion | None:
        """The completion of the last group that has appends; None if no group waits."""
        if self.open:
            return self.open.completion
        return next((group.completion for group in reversed(self._ahead) if group.consumed is None), None)

    def clear(self) -> list[Completion]:
        """Drop all groups; returns the completions that nothing will resolve any more."""
        cut_off = [*(group.completion for group in self._ahead), self.open.completion, *self._waiters]
        self._ahead.clear()
        self._ahead_amount = NOTHING
        self._waiters.clear()
        self._open_group()
        return cut_off


def queue_full() -> QueueFullError:
    return QueueFullError("the queue is full (queue_operations_max, queue_bytes_max): await journal.room()")
