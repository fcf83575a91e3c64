"""The active node's appends, without threads of its own: accept, gather in the open group, write a group, step down.

`Journal` calls it from any thread and drives `step` from its writer thread; the simulation drives it directly.
Acceptance and append are one critical section, so the order of acceptance is the order of the WAL.

Hot path: an append is a handful of calls under one plain lock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from journal.append.completion import Completion, completed
from journal.append.consumed_groups import ConsumedGroups
from journal.append.count_operations import count_and_size
from journal.append.group import Group
from journal.append.group_queue import queue_full
from journal.append.intake import Intake
from journal.append.issued import Issued
from journal.append.operations import AnyOperation
from journal.append.state import JournalState
from journal.append.transactions import TransactionAppends
from journal.append.writing import Activated, Recoveries
from journal.errors import ClosedError, JournalError, OutcomeUnknownError
from journal.kafka.ports import Consumed, Sent
from journal.limits import OPERATION_OVERHEAD_BYTES, Limits
from journal.process.clocks import Timing
from journal.v1.journal_pb2 import ADD, DELETE, UPDATE
from journal.wire.ids import make_id, shard_of

log = logging.getLogger(__name__)


def _cut_off(pending: Iterable[Completion], in_doubt: Mapping[int, Completion], error: JournalError) -> None:
    """Tell an error to the completions that nothing else will resolve any more."""
    for completion in pending:
        completion.resolve(error)
    for tx, completion in in_doubt.items():
        completion.resolve(OutcomeUnknownError(f"transaction {tx} is in doubt, and this node does not settle it"))


class Core:
    """This class takes the appends of a journal, for one activation at a time. All methods are thread-safe except
    `step`, which only one thread may call."""

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

        An append that finds the queue full waits `room_wait_s` for the writer before it is refused. In a completion's
        callback it is refused at once.
        """
        self.limits = limits
        self._shards = shards
        self._timing = timing
        self._heartbeat_s = timing.fence_check_s / 2
        """How long an idle node writes nothing. It is short enough that the node is still `current` when the answer to
        the next heartbeat comes."""
        self._on_critical = on_critical
        self._intake = Intake(shards, limits, timing.clock, room_wait_s)
        self._lock = self._intake.lock
        self._queue = self._intake.queue
        self._issued = Issued()
        self._consumed = ConsumedGroups(shards, limits, self._lock)
        self._activated: Activated | None = None
        self._in_flight: Completion | None = None
        """The completion of the group that is being written. None for a group with consumed records, because `flush`
        does not wait for those."""
        self.transactions = TransactionAppends(self._intake, self._issued, shards, limits)

    # ---- states ----------------------------------------------------------------------------------------------------

    @property
    def state(self) -> JournalState:
        return self._intake.life.state

    @property
    def ended(self) -> Completion:
        """A future that is done, with the reason, when this node stops being active; it is done before anything fails
        for that reason."""
        return self._intake.life.ended

    @property
    def recoveries(self) -> Recoveries:
        """The number of recoveries of the activation so far."""
        return Recoveries() if self._activated is None else self._activated.writer.recoveries

    @property
    def current(self) -> bool:
        """Whether this node may deliver messages: its last successful commit began recently enough."""
        activated = self._activated
        if self.state is not JournalState.ACTIVE or activated is None:
            return False
        return self._timing.age_s(activated.writer.committed_at) <= self._timing.fence_check_s

    def become(self, state: JournalState) -> None:
        """Raises StateError for a transition that the table does not have."""
        with self._lock:
            self._intake.life.become(state)

    def activate(self, activated: Activated) -> None:
        """Accept appends from now on."""
        with self._lock:
            self._intake.life.become(JournalState.ACTIVE)
            self._activated = activated
            self._intake.acceptance = activated.acceptance
            self._issued.begin(activated.writer.claim.epoch, activated.issued)

    def step_down(self, error: JournalError) -> None:
        """Become fenced or failed for `error`: everything not yet written fails with it."""
        with self._lock:
            life = self._intake.life
            if not life.fail(error):
                return
            closing = life.closing
            pending, in_doubt = self._take_pending()
        if not closing:
            life.ended.resolve(error)
        _cut_off(pending, in_doubt, error)
        if self._on_critical is not None:
            self._on_critical(error)

    def begin_close(self) -> None:
        """Refuse appends from now on. `step` writes the gathered groups, and then returns False."""
        with self._lock:
            life = self._intake.life
            has_ended = life.closing or life.error is not None
            life.closing = True
            self._intake.acceptance = None
            self._intake.notify_all()
        if not has_ended:
            life.ended.resolve(ClosedError("the journal was closed"))

    def end_close(self) -> None:
        """Fail all completions that are still pending with ClosedError."""
        with self._lock:
            life = self._intake.life
            if life.state is not JournalState.CLOSED:
                life.become(JournalState.CLOSED)
            pending, in_doubt = self._take_pending()
        if self._activated is not None:
            self._activated.writer.close()
        _cut_off(pending, in_doubt, ClosedError("the journal was closed"))

    def _take_pending(self) -> tuple[list[Completion], dict[int, Completion]]:
        """The completions that nothing will resolve any more, each once, and those of transactions in doubt by
        transaction, which another node settles. No appends are accepted any more."""
        self._intake.acceptance = None
        prepared = () if self._activated is None else self._activated.acceptance.transactions.prepared()
        pending, in_doubt = self.transactions.take_pending(prepared)
        pending = [*self._queue.clear(), *pending]
        self._intake.notify_all()
        return pending, in_doubt

    # ---- records ---------------------------------------------------------------------------------------------------

    def add(self, record_id: int, kind: int, data: bytes, tx: int = 0) -> Completion:
        if tx:
            return self.transactions.operate((ADD, record_id, kind, data, False, 0), tx)
        intake, queue = self._intake, self._queue
        with self._lock:
            acceptance = intake.acceptance or intake.require_active()
            group, size = queue.open, len(data) + OPERATION_OVERHEAD_BYTES
            if group.operations >= queue.operations_max or group.bytes + size > queue.bytes_max:
                group = intake.wait_for_room(1, size)
            acceptance.add(record_id, kind, data)
            if not group.operations:
                intake.wake.notify()
            group.put_add(record_id, kind, data, size)
            return group.completion

    def update(
        self, record_id: int, kind: int, data: bytes, replaceable: bool = False, subject: int = 0, tx: int = 0
    ) -> Completion:
        if tx:
            return self.transactions.operate((UPDATE, record_id, kind, data, replaceable, subject), tx)
        intake, queue = self._intake, self._queue
        with self._lock:
            acceptance = intake.acceptance or intake.require_active()
            group, size = queue.open, len(data) + OPERATION_OVERHEAD_BYTES
            if group.operations >= queue.operations_max or group.bytes + size > queue.bytes_max:
                group = intake.wait_for_room(1, size)
            acceptance.update(record_id, kind, subject, data, replaceable)
            if not group.operations:
                intake.wake.notify()
            group.put(shard_of(record_id, self._shards), UPDATE, record_id, kind, data, replaceable, subject)
            return group.completion

    def delete(self, record_id: int, tx: int = 0) -> Completion:
        if tx:
            return self.transactions.operate((DELETE, record_id, 0, b"", False, 0), tx)
        intake, queue = self._intake, self._queue
        with self._lock:
            acceptance = intake.acceptance or intake.require_active()
            group, size = queue.open, OPERATION_OVERHEAD_BYTES
            if group.operations >= queue.operations_max or group.bytes + size > queue.bytes_max:
                group = intake.wait_for_room(1, size)
            acceptance.delete(record_id)
            if not group.operations:
                intake.wake.notify()
            group.put(shard_of(record_id, self._shards), DELETE, record_id, 0, b"")
            return group.completion

    def add_with_update(
        self, virtual_shard: int, kind: int, data: bytes, update_kind: int, subject: int
    ) -> tuple[int, Completion]:
        """Hot path: `new_id` and both operations under one lock take half of the time of separate calls."""
        intake, queue, issued = self._intake, self._queue, self._issued
        with self._lock:
            acceptance = intake.acceptance or intake.require_active()
            group, size = queue.open, len(data) + 2 * OPERATION_OVERHEAD_BYTES
            if group.operations + 2 > queue.operations_max or group.bytes + size > queue.bytes_max:
                group = intake.wait_for_room(2, size)
            record_id = make_id(issued.sequence + 1, virtual_shard)
            # the id is used up even if the add is refused, because the same id would be refused again
            issued.sequence += 1
            acceptance.add_with_update(record_id, kind, data, update_kind, subject)
            if not group.operations:
                intake.wake.notify()
            group.put_add_with_update(shard_of(record_id, self._shards), record_id, kind, data, update_kind, subject)
            return record_id, group.completion

    def delete_with_update(self, record_id: int, kind: int, data: bytes, subject: int) -> Completion:
        intake, queue = self._intake, self._queue
        with self._lock:
            acceptance = intake.acceptance or intake.require_active()
            group, size = queue.open, len(data) + 2 * OPERATION_OVERHEAD_BYTES
            if group.operations + 2 > queue.operations_max or group.bytes + size > queue.bytes_max:
                group = intake.wait_for_room(2, size)
            acceptance.delete_with_update(record_id, kind, data, subject)
            if not group.operations:
                intake.wake.notify()
            group.put_update_and_delete(shard_of(record_id, self._shards), record_id, kind, data, subject)
            return group.completion

    def append_all(self, operations: Sequence[AnyOperation], tx: int = 0, *, wait: bool = True) -> Completion:
        """Append operations of one group, or of one transaction: all of them, or none with the error of the first one
        refused.

        Without `wait` a full queue refuses them at once. Raises InvalidOperationError for more than one group may have.
        """
        if tx:
            return self.transactions.operate_all(operations, tx)
        intake, queue = self._intake, self._queue
        with self._lock:
            acceptance = intake.require_active()
            if not operations:
                return completed()
            count, size = count_and_size(operations)
            if not wait and queue and not queue.fits(count, size):
                raise queue_full()
            group = intake.require_room(count, size)
            acceptance.all_of(operations)
            if not group.operations:
                intake.wake.notify()
            group.put_all(operations)
            return group.completion

    def take_in(
        self, operations: Sequence[AnyOperation], consumed: Consumed, beside: Sequence[Sent] = ()
    ) -> Completion:
        """Append operations as a group of their own. Its transaction also commits the offsets of the consumed records,
        and contains records of other topics.

        The completion may be told NotTakenInError: then nothing of the group is in the WAL, as if it had never been
        appended. Until the completion is done, nobody else may append to the same records, and no other such group is
        accepted.

        Raises QueueFullError if the queue has no room for the group, StateError before the last such group is done, and
        what `append_all` raises.
        """
        intake, queue = self._intake, self._queue
        with self._lock:
            acceptance = intake.require_active()
            count, size = count_and_size(operations)
            queue.require_one_group(count, size)
            self._consumed.require_done()
            if queue and not queue.fits(count, size):
                raise queue_full()
            group = self._consumed.group(acceptance, operations, consumed, beside)
            queue.put_alone(group)
            intake.wake.notify()
            return group.completion

    # ---- ids -------------------------------------------------------------------------------------------------------

    def new_id(self, virtual_shard: int) -> int:
        """An id that no record has had, in a virtual shard (0 to 1023)."""
        with self._lock:
            self._intake.require_active()
            return self._issued.new_id(virtual_shard)

    def new_ids(self, virtual_shards: Sequence[int]) -> list[int]:
        """`new_id` for each of many virtual shards."""
        with self._lock:
            self._intake.require_active()
            return self._issued.new_ids(virtual_shards)

    def new_volatile_id(self, virtual_shard: int) -> int:
        """An id for a thing that is never stored in the journal. No other thing has it, and no activation will give it
        out again."""
        with self._lock:
            self._intake.require_active()
            return self._issued.new_volatile_id(virtual_shard)

    def is_taken(self, record_id: int) -> bool:
        with self._lock:
            return self._intake.require_active().is_taken(record_id)

    # ---- waiting and writing -----------------------------------------------------------------------------------------

    def room(self) -> Completion:
        """A future that is done when the queue has room again, first come first served."""
        with self._lock:
            self._intake.require_active()
            return self._queue.room()

    def flush(self) -> Completion:
        """A future that is done when everything accepted so far is committed. Raises ClosedError after close."""
        with self._lock:
            life = self._intake.life
            if life.closing:
                life.refuse()
            return self._queue.newest() or self._in_flight or completed(life.error)

    def step(self, timeout_s: float) -> bool:
        """Write the next group, or a heartbeat when one is due; it waits at most `timeout_s` for appends. False means
        that no more groups will come."""
        activated = self._activated
        if activated is None:
            return False
        writer, timing, intake, queue = activated.writer, self._timing, self._intake, self._queue
        life = intake.life
        with self._lock:
            if not queue and not life.closing and life.state is JournalState.ACTIVE:
                left_s = self._heartbeat_s - timing.age_s(writer.committed_at)
                intake.wake.wait(max(0.0, min(timeout_s, left_s)))
            if life.state is not JournalState.ACTIVE or (life.closing and not queue):
                return False
            if not queue:
                if timing.age_s(writer.committed_at) < self._heartbeat_s:
                    return True
                queue.open.put_heartbeat((writer.numbers.group + 1) % self._shards)
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

    def _take_group(self) -> tuple[Group, list[Completion]]:
        group, waiters = self._queue.take()
        group.issued = self._issued.sequence
        self._intake.taken.notify_all()
        if group.consumed is None:
            self._in_flight = group.completion
        return group, waiters

    def _take_joining(self, operations: int, size: int, *, complete: bool) -> Group | None:
        """The next group that has gathered, as `Joining` defines."""
        with self._lock:
            is_active = self._intake.life.state is JournalState.ACTIVE
            if not is_active or not self._queue.may_join(operations, size, complete=complete):
                return None
            group, waiters = self._take_group()
        for waiter in waiters:
            waiter.resolve()
        return group
