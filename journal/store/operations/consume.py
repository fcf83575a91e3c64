"""How messages are consumed: holders acquire and release them, count deliveries, and schedule them.

A message that is acquired is gone for everybody else as soon as the operation is accepted. A holder is a name that the
broker chose (of a member, a client, a session). Acquisitions are in memory: after a load the messages are ready again.
In a queue with `journaled_acquisition` they stay reserved for their holder: for good if it re-attaches or acquires them
again, else until `acquire_grace_ms` have passed.
"""

from __future__ import annotations

from collections.abc import Sequence

from journal.append.operations import PlainOperation
from journal.errors import (
    InvalidOperationError,
    MessageHeldError,
    StateError,
)
from journal.store.model import DELIVERIES_MAX, Delivery, Held, ReferenceInfo, ReferenceState, ids_of
from journal.store.operations.acknowledge import parts_of, require_each_once
from journal.store.operations.change import (
    Change,
    ReferenceChanges,
    ReferenceLeft,
    journaled_holder,
    require_unlocked,
)
from journal.store.operations.core import StoreCore
from journal.store.operations.dead_letters import DeadMessages
from journal.store.operations.hold import HoldOperations
from journal.store.operations.look import LookOperations
from journal.store.pending import COMPLETED, Pending, PendingAll
from journal.store.queues.cursors import Candidate
from journal.store.queues.entry import QueueEntry
from journal.store.queues.state import QueueState, require_in_time
from journal.store.records import encode_reference, require_due
from journal.store.transactions import StoreTransaction
from journal.v1.journal_pb2 import UPDATE
from journal.v1.store_pb2 import REFERENCE, Reference


class ConsumeOperations:
    """Operations on references."""

    def __init__(
        self,
        core: StoreCore,
        changes: ReferenceChanges,
        hold: HoldOperations,
        look: LookOperations,
        dead_letters: DeadMessages,
    ) -> None:
        self._look = look
        self._dead_letters = dead_letters
        self._core = core
        self._changes = changes
        self._hold = hold

    # ---- acquiring and giving back ---------------------------------------------------------------------------------

    def take_all(self, queue: str, holder: str, count: int, *, bodies: bool) -> list[Delivery]:
        require_name(holder)
        if count < 1:
            raise InvalidOperationError(f"{count} messages cannot be taken")
        core = self._core
        with core.lock:
            state = core.enter()
            target = state.queue(queue)
            if not core.journal.current:
                core.watch_queue(target, refused=True)
                return []
            self.give_back_due()
            taken = self._dead_letters.take_all(target, holder, count)
            if len(taken) < count:
                core.watch_queue(target)
            return self._handed_out(state, target, taken, holder, bodies=bodies)

    def give_back_due(self) -> None:
        """Release messages whose holders have let go, or are absent for too long. Its caller holds the store's lock."""
        self._hold.let_go_of_absent()
        self._hold.give_back_left()

    def take_each(
        self, queue: QueueEntry, candidates: Sequence[Candidate], holder: str
    ) -> tuple[list[Delivery], list[Candidate]]:
        """Acquire those of the messages that are ready, in one step; returns them, and those that have expired. Its
        caller holds the store's lock."""
        state = self._core.state
        taken, expired = state.take_each(queue.record_id, candidates, holder, self._core.clock_ms())
        taken = self._dead_letters.living(queue, holder, taken)
        return self._handed_out(state, queue, taken, holder, bodies=True), expired

    def _handed_out(
        self, state: QueueState, queue: QueueEntry, taken: list[Delivery], holder: str, *, bodies: bool
    ) -> list[Delivery]:
        """Add the contents that are in memory, and journal acquisitions where the queue wants that. On an error nothing
        is acquired."""
        queue_id = queue.record_id
        try:
            found = self._look.with_contents(taken) if bodies else taken
            if taken and queue.config.journaled_acquisition and queue.config.durable:
                self._journal_acquired(taken, queue_id, holder)
            return found
        except BaseException:
            for each in taken:
                state.release(each.message, queue_id, holder, counts=False)
            raise

    def _journal_acquired(self, taken: Sequence[Delivery], queue_id: int, holder: str) -> None:
        operations: list[PlainOperation] = []
        for each in taken:
            if each.message not in self._core.volatile:
                data = encode_reference(Reference.ACQUIRED, holder, each.deliveries)
                operations.append((UPDATE, each.message, REFERENCE, data, True, queue_id))
        if operations:
            self._core.journal.append_all(operations)

    def acquire(self, message_id: int, queue: str, holder: str, tx: int = 0, *, checked: bool = False) -> Pending:
        require_name(holder)
        core = self._core
        with core.lock:
            state = core.enter()
            target = state.queue(queue)
            if not checked and not core.journal.current:
                raise StateError("this node does not know that it is still the active one")
            if tx:
                return self._acquire_in(
                    state, core.transactions.accepting(tx), message_id, target, holder, checked=checked
                )
            queue_id = target.record_id
            if checked:
                self._dead_letters.free(message_id, target)  # the first store of the chain hands it out
            info = core.reference(message_id, target)
            state.require_acquirable(message_id, queue_id, holder, None if checked else core.clock_ms())
            if not (info.holder or checked):
                _require_not_paused(target)
            if not target.config.journaled_acquisition:
                pending = Pending(message_id)
            elif info.state is ReferenceState.HELD:
                pending = Pending(message_id, core.journal.flush())
            else:
                pending = self._note(Reference.ACQUIRED, message_id, target, holder, info.deliveries, 0)
            state.acquire(message_id, queue_id, holder, core.clock_ms(), checked=True)
            return pending

    def _acquire_in(
        self, state: QueueState, txn: StoreTransaction, message_id: int, queue: QueueEntry, holder: str, *,
        checked: bool,
    ) -> Pending:  # fmt: skip
        seen = self._changes.seen_by(txn, message_id, queue)
        if seen.holder not in ("", holder):
            raise MessageHeldError(f"message {message_id} is held by {seen.holder!r}", message_id)
        if not (seen.holder or checked):
            require_in_time(message_id, state.message(message_id).expires, seen.due, self._core.clock_ms())
            _require_not_paused(queue)
        due = seen.due if seen.holder else 0
        pending = self._changes.change_in(
            state, txn, Reference.ACQUIRED, seen, queue, holder=holder, deliveries=seen.deliveries, due=due
        )
        txn.unclaimed.pop((message_id, queue.record_id), None)
        state.claim(message_id, queue.record_id, holder)
        return pending

    def release_all(self, held: Sequence[Held], tx: int = 0, *, counts: bool = True) -> PendingAll:
        core = self._core
        with core.lock:
            # this also releases the messages of holders that were absent since the load
            state = core.enter(let_go=False)
            parts = parts_of(state, held)
            for part in parts:
                state.note_acted(part.holder, core.clock_ms())
            txn = core.transactions.accepting(tx) if tx else None
            require_each_once(parts)
            left: list[ReferenceLeft] = []
            for queue, messages, holder in parts:
                for message_id in messages:
                    info = self._held(message_id, queue, holder, txn)
                    left.append(ReferenceLeft(info, queue, "", info.deliveries + counts, info.due))
            if txn is None:
                released = [(seen.message, queue.record_id) for seen, queue, *_ in left]
                completion = self._hold.give_back(released, counts=counts) or COMPLETED
            else:
                completion = self._changes.change_all_in(state, txn, Reference.RELEASED, left)
            return PendingAll(ids_of(held), completion)

    def _held(self, message_id: int, queue: QueueEntry, holder: str, txn: StoreTransaction | None) -> ReferenceInfo:
        """A reference that `holder` holds; without a name, that anybody holds."""
        info = self._changes.seen_by(txn, message_id, queue)
        if info.state is not ReferenceState.HELD or holder not in ("", info.holder):
            name = queue.config.name
            raise MessageHeldError(
                f"message {message_id} is {info.state.value} in {name}, by {info.holder!r}", message_id
            )
        return info

    # ---- counting and scheduling -----------------------------------------------------------------------------------

    def deliveries(self, message_id: int, queue: str, count: int, tx: int = 0) -> Pending:
        if not 0 <= count <= DELIVERIES_MAX:
            raise InvalidOperationError(f"{count} deliveries are not 0 to {DELIVERIES_MAX}")
        core = self._core
        with core.lock:
            state = core.enter()
            target = state.queue(queue)
            if tx:
                txn = core.transactions.accepting(tx)
                seen = self._changes.seen_by(txn, message_id, target)
                return self._changes.change_in(
                    state, txn, Reference.DELIVERED, seen, target, holder=seen.holder, deliveries=count, due=seen.due
                )
            info = core.reference(message_id, target)
            self._changes.require_unchanged(message_id, target, info)
            pending = self._note(Reference.DELIVERED, message_id, target, info.holder, count, info.due)
            state.deliveries(message_id, target.record_id, count)
            return pending

    def schedule(self, message_id: int, queue: str, due: int, tx: int = 0) -> Pending:
        require_due(due)
        core = self._core
        with core.lock:
            state = core.enter()
            target = state.queue(queue)
            if tx:
                txn = core.transactions.accepting(tx)
                seen = self._changes.seen_by(txn, message_id, target)
                return self._changes.change_in(
                    state,
                    txn,
                    Reference.SCHEDULED,
                    seen,
                    target,
                    holder=seen.holder,
                    deliveries=seen.deliveries,
                    due=due,
                )
            info = core.reference(message_id, target)
            require_unlocked(info)
            pending = self._note(Reference.SCHEDULED, message_id, target, info.holder, info.deliveries, due)
            state.schedule(message_id, target.record_id, due)
            return pending

    def _note(
        self, change: Change, message_id: int, queue: QueueEntry, holder: str, deliveries: int, due: int
    ) -> Pending:
        """Append the new state of a reference, if its message and queue are durable."""
        data = encode_reference(change, journaled_holder(queue, holder), deliveries, due)
        if message_id in self._core.volatile or not queue.config.durable:
            return Pending(message_id)
        completion = self._core.journal.update(message_id, REFERENCE, data, replaceable=True, subject=queue.record_id)
        return Pending(message_id, completion)


def require_name(holder: str) -> None:
    if not holder:
        raise InvalidOperationError("a holder has a name")


def _require_not_paused(queue: QueueEntry) -> None:
    """Raises StateError if the queue is paused."""
    if queue.config.paused:
        raise StateError(f"queue {queue.config.name} is paused: resume it")
