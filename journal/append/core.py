"""The active node's appends, without threads of its own: accept, gather in the open group, write a group, step down.

`Journal` calls it from any thread and drives `step` from its writer thread; the simulation drives it directly.
Acceptance and append are one critical section, so the order of acceptance is the order of the WAL.

Hot path: an append is a handful of calls under one plain lock (a condition's own `with` costs as much as two of them).
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from journal.append.acceptance import Acceptance
from journal.append.callbacks import is_callback
from journal.append.completion import Completion, completed
from journal.append.consumed_groups import TakingIn
from journal.append.count_operations import count_and_size, one_by_one
from journal.append.group import Group
from journal.append.operations import NOTHING_STAGED, AnyOperation, Append, PlainOperation, Staged
from journal.append.state import JournalState, refusal, require_transition
from journal.append.writing import Activated, Recoveries
from journal.errors import (
    ClosedError,
    FencedError,
    InvalidOperationError,
    JournalError,
    OutcomeUnknownError,
    QueueFullError,
    RolledBackError,
)
from journal.kafka.ports import Consumed, Sent
from journal.limits import OPERATION_OVERHEAD_BYTES, VIRTUAL_SHARDS, Limits
from journal.process.clocks import Timing
from journal.v1.journal_pb2 import ADD, DELETE, UPDATE
from journal.wire.ids import make_id, make_ids, make_volatile_id, shard_of

log = logging.getLogger(__name__)

_EPOCH_SHIFT = 32


def _cut_off(pending: Iterable[Completion], in_doubt: Mapping[int, Completion], error: JournalError) -> None:
    """Tell those that nothing else will tell any more."""
    for completion in pending:
        completion.resolve(error)
    for tx, completion in in_doubt.items():
        completion.resolve(OutcomeUnknownError(f"transaction {tx} is in doubt, and this node does not settle it"))


class Core:
    """Appends of one activation at a time. Thread-safe, except `step`: one thread calls that."""

    def __init__(
        self,
        shards: int,
        limits: Limits,
        timing: Timing,
        on_critical: Callable[[JournalError], None] | None = None,
        *,
        room_wait_s: float = 0.0,
    ) -> None:
        """`on_critical` is called once, when the journal becomes fenced or failed, in the thread that notices.

        An append that finds the queue full waits `room_wait_s` for the writer before it is refused; in a completion's
        callback it is refused at once.
        """
        self.state = JournalState.CREATED
        self._shards = shards
        self.limits = limits
        self._operations_max = limits.queue_operations_max
        self._bytes_max = min(limits.group_bytes_max, limits.queue_bytes_max)
        """What the open group may become before somebody has to look: `_wait_for_room`."""
        self._timing = timing
        self._heartbeat_s = timing.fence_check_s / 2
        """Of an idle node: so that it is still `current` when the next one is answered."""
        self._on_critical = on_critical
        self._room_wait_s = room_wait_s
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._taken = threading.Condition(self._lock)
        self._activated: Activated | None = None
        self._acceptance: Acceptance | None = None
        """What appends are asked of; None while none is accepted."""
        self._group = Group(shards, limits.frame_bytes_max)
        self._ahead: deque[Group] = deque()
        """Groups to be written before the open one: those that are complete, and one that takes in what was consumed.
        """
        self._ahead_operations = 0
        self._ahead_bytes = 0
        """Of those that are complete."""
        self._taking_in = TakingIn(shards, limits, self._lock)
        self._in_flight: Completion | None = None
        """Of the last group that was taken, if it was not one of those that take in: nobody waits for these."""
        self._issued = 0
        self._volatile_issued = 0
        self._next_tx = 0
        self._transactions: dict[int, Completion] = {}
        self._room: deque[Completion] = deque()
        self._closing = False
        self._error: JournalError | None = None
        self.ended = Completion()
        """Done once this node is not active any more: with why. It is told before all that fails with it."""

    # ---- states ----------------------------------------------------------------------------------------------------

    def become(self, state: JournalState) -> None:
        """Raises StateError for a transition that the table does not have."""
        with self._lock:
            self.state = require_transition(self.state, state)

    def activate(self, activated: Activated) -> None:
        """Appends are accepted from now on."""
        with self._lock:
            self.state = require_transition(self.state, JournalState.ACTIVE)
            self._activated = activated
            self._acceptance = activated.acceptance
            self._issued = activated.issued
            self._volatile_issued = 0
            self._next_tx = activated.writer.claim.epoch << _EPOCH_SHIFT

    @property
    def recoveries(self) -> Recoveries:
        """What the activation had to do over so far."""
        return Recoveries() if self._activated is None else self._activated.writer.recoveries

    def step_down(self, error: JournalError) -> None:
        """Become fenced or failed for `error`: everything not yet written fails with it."""
        with self._lock:
            if self.state not in (JournalState.ACTIVE, JournalState.LOADING):
                return
            fenced = isinstance(error, FencedError)
            self.state = require_transition(self.state, JournalState.FENCED if fenced else JournalState.FAILED)
            self._error = error
            closing, self._acceptance = self._closing, None
            pending, in_doubt = self._take_pending()
        if not closing:
            self.ended.resolve(error)
        _cut_off(pending, in_doubt, error)
        if self._on_critical is not None:
            self._on_critical(error)

    def _take_pending(self) -> tuple[list[Completion], dict[int, Completion]]:
        """Completions that nothing will resolve any more, each once; and those of transactions in doubt, which another
        node settles."""
        prepared = () if self._activated is None else self._activated.acceptance.prepared()
        in_doubt = {tx: self._transactions.pop(tx) for tx in prepared if tx in self._transactions}
        ahead = [group.completion for group in self._ahead]
        pending = [*ahead, self._group.completion, *self._transactions.values(), *self._room]
        self._ahead.clear()
        self._ahead_operations = self._ahead_bytes = 0
        self._open_group()
        self._transactions.clear()
        self._room.clear()
        self._wake.notify_all()
        self._taken.notify_all()
        return pending, in_doubt

    def _require_active(self) -> Acceptance:
        """Raises what refuses every append now."""
        acceptance = self._acceptance
        if acceptance is None:
            error = self._error or refusal(self.state, closed=self._closing)
            raise error.again()
        return acceptance

    # ---- records ---------------------------------------------------------------------------------------------------

    def add(self, record_id: int, kind: int, data: bytes, tx: int = 0) -> Completion:
        with self._lock:
            acceptance = self._acceptance or self._require_active()
            if tx:
                return self._operate_all(((ADD, record_id, kind, data, False, 0),), tx)
            group, size = self._group, len(data) + OPERATION_OVERHEAD_BYTES
            if group.operations >= self._operations_max or group.bytes + size > self._bytes_max:
                group = self._wait_for_room(1, size)
            acceptance.add(record_id, kind, data)
            if not group.operations:
                self._wake.notify()
            group.put_add(record_id, kind, data, size)
            return group.completion

    def update(
        self, record_id: int, kind: int, data: bytes, replaceable: bool = False, subject: int = 0, tx: int = 0
    ) -> Completion:
        with self._lock:
            acceptance = self._require_active()
            if tx:
                return self._operate_all(((UPDATE, record_id, kind, data, replaceable, subject),), tx)
            group = self._require_room(1, len(data) + OPERATION_OVERHEAD_BYTES)
            acceptance.update(record_id, kind, subject, data, replaceable)
            if not group.operations:
                self._wake.notify()
            group.put(shard_of(record_id, self._shards), UPDATE, record_id, kind, data, replaceable, subject)
            return group.completion

    def delete(self, record_id: int, tx: int = 0) -> Completion:
        with self._lock:
            acceptance = self._require_active()
            if tx:
                return self._operate_all(((DELETE, record_id, 0, b"", False, 0),), tx)
            group = self._require_room(1, OPERATION_OVERHEAD_BYTES)
            acceptance.delete(record_id)
            if not group.operations:
                self._wake.notify()
            group.put(shard_of(record_id, self._shards), DELETE, record_id, 0, b"")
            return group.completion

    def add_with_update(
        self, virtual_shard: int, kind: int, data: bytes, update_kind: int, subject: int
    ) -> tuple[int, Completion]:
        """Hot path: `new_id` and both operations under one lock take half of what they take by themselves."""
        with self._lock:
            acceptance = self._acceptance or self._require_active()
            group, size = self._group, len(data) + 2 * OPERATION_OVERHEAD_BYTES
            if group.operations + 2 > self._operations_max or group.bytes + size > self._bytes_max:
                group = self._wait_for_room(2, size)
            record_id = make_id(self._issued + 1, virtual_shard)
            self._issued += 1  # whatever becomes of it: one that is refused would be refused again
            acceptance.add_with_update(record_id, kind, data, update_kind, subject)
            if not group.operations:
                self._wake.notify()
            group.put_add_with_update(shard_of(record_id, self._shards), record_id, kind, data, update_kind, subject)
            return record_id, group.completion

    def delete_with_update(self, record_id: int, kind: int, data: bytes, subject: int) -> Completion:
        with self._lock:
            acceptance = self._acceptance or self._require_active()
            group, size = self._group, len(data) + 2 * OPERATION_OVERHEAD_BYTES
            if group.operations + 2 > self._operations_max or group.bytes + size > self._bytes_max:
                group = self._wait_for_room(2, size)
            acceptance.delete_with_update(record_id, kind, data, subject)
            if not group.operations:
                self._wake.notify()
            group.put_update_and_delete(shard_of(record_id, self._shards), record_id, kind, data, subject)
            return group.completion

    def append_all(self, operations: Sequence[AnyOperation], tx: int = 0, *, wait: bool = True) -> Completion:
        """Append operations of one group, or of one transaction: all, or none with the error of the first refused.

        Without `wait` a full queue refuses them at once. Raises InvalidOperationError for more than a group takes.
        """
        with self._lock:
            acceptance = self._require_active()
            if not operations:
                return completed()
            if tx:
                return self._operate_all([*one_by_one(operations, self.limits.data_bytes_max)], tx)
            count, size = count_and_size(operations)
            if not wait and not self._fits(count, size) and self._waiting:
                raise self._full()
            group = self._require_room(count, size)
            acceptance.all_of(operations)
            if not group.operations:
                self._wake.notify()
            group.put_all(operations)
            return group.completion

    def take_in(
        self, operations: Sequence[AnyOperation], consumed: Consumed, beside: Sequence[Sent] = ()
    ) -> Completion:
        """Append operations as a group of their own, whose transaction also commits what was consumed for them, and has
        records of other topics beside them.

        Its completion may be told NotTakenInError: then none of it is there, and it is as if they had never been
        appended. Until it is done nobody else may append to their records, and nothing more can be taken in.

        Raises QueueFullError when so much waits that the group would not fit, StateError before the last one is done,
        and what `append_all` raises.
        """
        with self._lock:
            acceptance = self._require_active()
            count, size = count_and_size(operations)
            self._require_one_group(count, size)
            self._taking_in.require_done()
            if self._waiting and not self._fits(count, size):
                raise self._full()
            taking = self._taking_in.group(acceptance, operations, consumed, beside)
            if self._group:
                self._complete_group()
            self._ahead.append(taking)
            self._wake.notify()
            return taking.completion

    def new_ids(self, virtual_shards: Sequence[int]) -> list[int]:
        """`new_id` for many."""
        with self._lock:
            self._require_active()
            ids = make_ids(self._issued + 1, virtual_shards)
            self._issued += len(ids)
            return ids

    def new_id(self, virtual_shard: int) -> int:
        """An id that no record has had, in a virtual shard (0 to 1023)."""
        with self._lock:
            self._require_active()
            record_id = make_id(self._issued + 1, virtual_shard % VIRTUAL_SHARDS)
            self._issued += 1
            return record_id

    def is_taken(self, record_id: int) -> bool:
        with self._lock:
            return self._require_active().is_taken(record_id)

    def new_volatile_id(self, virtual_shard: int) -> int:
        """An id that nothing has had and no activation will give to anything else, for what is never in the journal."""
        with self._lock:
            self._require_active()
            activated = self._activated
            assert activated is not None
            epoch = activated.writer.claim.epoch
            volatile_id = make_volatile_id(epoch, self._volatile_issued + 1, virtual_shard)
            self._volatile_issued += 1
            return volatile_id

    # ---- transactions ----------------------------------------------------------------------------------------------

    def begin(self, tx: int | None = None) -> int:
        """Begin a transaction: `tx`, or one with a number that is free."""
        with self._lock:
            acceptance = self._require_active()
            if tx is None:
                self._next_tx += 1
                while acceptance.is_open(self._next_tx):
                    self._next_tx += 1
                tx = self._next_tx
            acceptance.begin(tx)
            self._transactions.setdefault(tx, Completion())
            return tx

    def is_empty(self, tx: int) -> bool:
        with self._lock:
            return self._require_active().is_empty(tx)

    def prepare(self, tx: int, data: bytes, then: Sequence[PlainOperation] = ()) -> Completion:
        with self._lock:
            acceptance = self._require_active()
            operations, size = acceptance.size_of(tx)
            self._require_room(operations + len(then), size + len(data) + count_and_size(then)[1])
            return self._append(acceptance.prepare(tx, data, then))

    def commit(self, tx: int, then: Sequence[PlainOperation] = ()) -> Completion:
        with self._lock:
            acceptance = self._require_active()
            operations, size = acceptance.size_of(tx)
            settled = acceptance.settled_by(tx)
            group = self._require_room(operations + len(then), size + count_and_size(then)[1], settled)
            appends = acceptance.commit(tx, then)
            if appends:
                completion = self._settle(appends, tx)
                group.settle(settled)
                return completion
            without_effect = self._transactions.pop(tx, None)
        if without_effect is not None:  # calls back at once, and not under the lock: whoever is called may append
            without_effect.resolve()
        return completed()

    def rollback(self, tx: int) -> Completion:
        with self._lock:
            acceptance = self._require_active()
            settled = acceptance.settled_by(tx)
            in_doubt = acceptance.is_prepared(tx)
            group = self._require_room(*acceptance.rollback_size_of(tx), settled)
            completion = self._append(acceptance.rollback(tx))
            group.settle(settled)
            cut_off = self._transactions.pop(tx, None)
            if cut_off is None:
                return completion
            rolled_back = RolledBackError(f"transaction {tx} was rolled back")
            if in_doubt:  # and is again, if a crash comes before that is durable
                completion.add_callback(lambda error: cut_off.resolve(error or rolled_back))
                return completion
        cut_off.resolve(rolled_back)
        return completion

    def _operate_all(self, operations: Sequence[PlainOperation], tx: int) -> Completion:
        """Operations inside a transaction that belong together: their completion is the transaction's."""
        acceptance, shards = self._require_active(), self._shards
        ops: list[Append] = []
        for type_, record_id, kind, data, replaceable, subject in operations:
            acceptance.check_operation(record_id, kind, data, subject, replaceable, type_)
            ops.append(Append(shard_of(record_id, shards), type_, record_id, kind, data, replaceable, subject, tx))
        waiting, size = acceptance.size_of(tx)
        self._require_room(waiting + len(ops), size + sum([op.size for op in ops]))
        self._append(acceptance.operate_all(ops))
        completion = self._transactions.get(tx)
        if completion is None:  # no setdefault: making a completion costs more than the rest of this
            completion = self._transactions[tx] = Completion()
        return completion

    def _settle(self, appends: list[Append], tx: int) -> Completion:
        """Append what commits `tx`; its operations complete with that group."""
        completion = self._append(appends)
        operations = self._transactions.pop(tx, None)
        if operations is not None:
            completion.add_callback(operations.resolve)
        return completion

    def _append(self, appends: list[Append]) -> Completion:
        if not appends:
            return completed()
        group = self._group
        if not group:
            self._wake.notify()
        for op in appends:
            group.put_append(op)
        return group.completion

    # ---- room ------------------------------------------------------------------------------------------------------

    def _require_room(self, operations: int, size: int, settled: Staged = NOTHING_STAGED) -> Group:
        """The open group, which takes so much, and what that settles."""
        group = self._group
        if (
            group.operations + operations <= self._operations_max
            and group.bytes + size <= self._bytes_max
            and self._may_settle(settled)
        ):
            return group
        return self._wait_for_room(operations, size, settled)

    def _wait_for_room(self, operations: int, size: int, settled: Staged = NOTHING_STAGED) -> Group:
        """The same, in a new group where the open one is complete; waits while the queue is full."""
        self._require_one_group(operations, size)
        until = self._timing.clock() + (0.0 if is_callback() else self._room_wait_s)
        while not self._fits(operations, size):
            left_s = until - self._timing.clock()
            if left_s <= 0:
                raise self._full()
            self._taken.wait(left_s)
            self._require_active()
        if self._group and (self._group.bytes + size > self.limits.group_bytes_max or not self._may_settle(settled)):
            self._complete_group()
        return self._group

    def _require_one_group(self, operations: int, size: int) -> None:
        """Raises InvalidOperationError for more than one group may have."""
        limits = self.limits
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

    def _full(self) -> QueueFullError:
        return QueueFullError("the queue is full (queue_operations_max, queue_bytes_max): await journal.room()")

    def _fits(self, operations: int, size: int) -> bool:
        """Whether the queue has room for so much more."""
        waiting, waiting_bytes = self._queued()
        limits = self.limits
        return waiting + operations <= limits.queue_operations_max and waiting_bytes + size <= limits.queue_bytes_max

    def _queued(self) -> tuple[int, int]:
        """Operations and bytes that wait for the writer; what takes in has its own bound."""
        return self._ahead_operations + self._group.operations, self._ahead_bytes + self._group.bytes

    def _may_settle(self, settled: Staged) -> bool:
        """Whether the open group settles no more with it than a worker applies at once. The first may be of any size:
        it was staged within the bounds."""
        before, limits = self._group.settled, self.limits
        return not (before.operations and settled.operations) or (
            before.operations + settled.operations <= limits.staged_operations_max
            and before.bytes + settled.bytes <= limits.staged_bytes_max
        )

    def _complete_group(self) -> None:
        """What comes next goes into another group."""
        group = self._group
        self._ahead.append(group)
        self._ahead_operations += group.operations
        self._ahead_bytes += group.bytes
        self._open_group()

    def _open_group(self) -> None:
        limits = self.limits
        self._group = Group(self._shards, limits.frame_bytes_max)
        self._operations_max = limits.queue_operations_max - self._ahead_operations
        self._bytes_max = min(limits.group_bytes_max, limits.queue_bytes_max - self._ahead_bytes)

    def room(self) -> Completion:
        """Done when the queue has room again, first come first served."""
        with self._lock:
            self._require_active()
            operations, size = self._queued()
            half = operations * 2 <= self.limits.queue_operations_max and size * 2 <= self.limits.queue_bytes_max
            if half and not self._room:
                return completed()
            waiter = Completion()
            self._room.append(waiter)
            return waiter

    # ---- writing ---------------------------------------------------------------------------------------------------

    def step(self, timeout_s: float) -> bool:
        """Write what has gathered, or a heartbeat when one is due; waits at most `timeout_s`. False: nothing more."""
        activated = self._activated
        if activated is None:
            return False
        writer = activated.writer
        with self._lock:
            left_s = self._heartbeat_s - self._timing.age_s(writer.committed_at)
            if not self._waiting and not self._closing and self.state is JournalState.ACTIVE:
                self._wake.wait(max(0.0, min(timeout_s, left_s)))
            if self.state is not JournalState.ACTIVE or (self._closing and not self._waiting):
                return False
            if not self._waiting:
                if self._timing.age_s(writer.committed_at) < self._heartbeat_s:
                    return True
                self._group.put_heartbeat((writer.numbers.group + 1) % self._shards)
            group, waiters = self._take_group()
        for waiter in waiters:
            waiter.resolve()
        try:
            writer.write(group, self._take_joining)
        except JournalError as error:
            self.step_down(error)
            return False
        finally:
            self._in_flight = None
        return True

    @property
    def _waiting(self) -> bool:
        """Whether something is to be written."""
        return bool(self._ahead or self._group)

    def _take_group(self) -> tuple[Group, list[Completion]]:
        """What is to be written next, and who may append now."""
        if self._ahead:
            group = self._ahead.popleft()
            if group.consumed is None:
                self._ahead_operations -= group.operations
                self._ahead_bytes -= group.bytes
                self._operations_max += group.operations
                self._bytes_max = min(self.limits.group_bytes_max, self.limits.queue_bytes_max - self._ahead_bytes)
        else:
            group = self._group
            self._open_group()
        group.issued = self._issued
        self._taken.notify_all()
        if group.consumed is None:
            self._in_flight = group.completion
        return group, [self._room.popleft() for _ in range(min(len(self._room), self.limits.queue_operations_max))]

    def _take_joining(self, operations: int, size: int, *, complete: bool) -> Group | None:
        """As `Joining`."""
        with self._lock:
            group = self._ahead[0] if self._ahead else self._group
            if (
                not group
                or (complete and not self._ahead)
                or group.consumed is not None
                or self.state is not JournalState.ACTIVE
                or group.operations + operations > self.limits.queue_operations_max
                or group.bytes > size
            ):
                return None
            group, waiters = self._take_group()
        for waiter in waiters:
            waiter.resolve()
        return group

    def flush(self) -> Completion:
        """Done when everything accepted so far is committed. Raises ClosedError after close."""
        with self._lock:
            if self._closing:
                self._require_active()
            if self._group:
                return self._group.completion
            for group in reversed(self._ahead):
                if group.consumed is None:
                    return group.completion
            return self._in_flight or completed(self._error)

    @property
    def current(self) -> bool:
        """Whether this node may hand out what it holds: its last successful commit began recently enough."""
        activated = self._activated
        if self.state is not JournalState.ACTIVE or activated is None:
            return False
        return self._timing.age_s(activated.writer.committed_at) <= self._timing.fence_check_s

    def begin_close(self) -> None:
        """Refuse appends; `step` writes what is gathered and then returns False."""
        with self._lock:
            ended = self._closing or self._error is not None
            self._closing = True
            self._acceptance = None
            self._wake.notify_all()
            self._taken.notify_all()
        if not ended:
            self.ended.resolve(ClosedError("the journal was closed"))

    def end_close(self) -> None:
        """Everything that was cut off fails with ClosedError."""
        with self._lock:
            if self.state is not JournalState.CLOSED:
                self.state = require_transition(self.state, JournalState.CLOSED)
            pending, in_doubt = self._take_pending()
        if self._activated is not None:
            self._activated.writer.close()
        _cut_off(pending, in_doubt, ClosedError("the journal was closed"))
