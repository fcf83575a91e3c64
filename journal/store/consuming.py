"""Messages out of a message store: acquired by holders, given back, acknowledged.

What these take away is gone for everybody else when they are accepted; an acknowledgement is complete when it is
durable. A holder is whatever its broker names (a member, a client, a session). What it held stays its own over a load,
until it re-attaches and goes on, or gives it back, or `acquire_grace_ms` have passed.

Hot path: `acknowledge` outside of transactions.
"""

from __future__ import annotations

from typing import TypeAlias

from journal.acceptance import PlainOperation
from journal.errors import (
    FullError,
    InvalidOperationError,
    JournalError,
    MessageHeldError,
    MessageMissingError,
    QueueMissingError,
    StateError,
)
from journal.store.model import Delivery, ReferenceInfo, ReferenceState
from journal.store.pending import Pending
from journal.store.queue_entry import QueueEntry
from journal.store.queue_state import QueueState
from journal.store.records import encode_acknowledgement, encode_reference
from journal.store.settling import Settling
from journal.store.transactions import Taken
from journal.v1.journal_pb2 import DELETE, UPDATE
from journal.v1.store_pb2 import ACKNOWLEDGE, REFERENCE, Acknowledgement, Reference

Change: TypeAlias = Reference.Change.ValueType
Reason: TypeAlias = Acknowledgement.Reason.ValueType

_PLAIN = -1
"""Locks a reference while the journal is asked to take its acknowledgement."""


class Consuming(Settling):
    """Operations on references."""

    # ---- acknowledging ---------------------------------------------------------------------------------------------

    def acknowledge(self, message_id: int, queue: str, holder: str = "", tx: int = 0) -> Pending:
        """Settle a queue's reference; the last one deletes the message in the same group.

        In a transaction it is locked until that is settled. Raises QueueMissingError, MessageMissingError (not there,
        or acknowledged before), MessageHeldError (another holds it, or a transaction locks it).
        """
        with self._lock:
            state = self._enter()
            target = state.queue(queue)
            if tx:
                return self._acknowledge_in(state, message_id, target, holder, tx)
            return self._acknowledge(state, message_id, target, holder, Acknowledgement.CONSUMED)

    def _acknowledge(
        self, state: QueueState, message_id: int, queue: QueueEntry, holder: str, reason: Reason,
        before: list[PlainOperation] | None = None,
    ) -> Pending:  # fmt: skip
        """Outside of transactions; with the operations that go into the same group before it."""
        queue_id = queue.record_id
        durable, references, chunks = state.remainder(message_id)
        state.lock(message_id, queue_id, _PLAIN, holder)
        operations: list[PlainOperation] = [] if before is None else before
        if durable:
            if queue.config.durable:
                settled = encode_acknowledgement(reason, holder)
                operations.append((UPDATE, message_id, ACKNOWLEDGE, settled, False, queue_id))
            if references == 1:
                operations += [(DELETE, each, 0, b"", False, 0) for each in (message_id, *chunks)]
        pending = Pending(message_id)
        if operations:
            try:
                pending.completion = self._journal.append_all(operations)
            except JournalError:
                state.unlock(message_id, queue_id)
                raise
        if state.acknowledge(message_id, queue_id, holder, tx=_PLAIN):
            self._drop_bodies(message_id, chunks)
        if operations:
            self._when_durable(pending.completion, self._settled, message_id, queue_id)
        else:
            state.settled(message_id, queue_id)
        return pending

    def _acknowledge_in(
        self, state: QueueState, message_id: int, queue: QueueEntry, holder: str, tx: int,
        reason: Reason = Acknowledgement.CONSUMED,
    ) -> Pending:  # fmt: skip
        txn = self._transaction(tx)
        queue_id = queue.record_id
        durable = queue.config.durable and state.remainder(message_id)[0]
        state.lock(message_id, queue_id, tx, holder)
        pending = Pending(message_id)
        if durable:
            data = encode_acknowledgement(reason, holder)
            try:
                pending.completion = self._journal.update(message_id, ACKNOWLEDGE, data, subject=queue_id, tx=tx)
            except JournalError:
                state.unlock(message_id, queue_id)
                raise
        txn.taken.append(Taken(message_id, queue_id, holder, durable))
        return pending

    # ---- acquiring and giving back ---------------------------------------------------------------------------------

    def take(self, queue: str, holder: str) -> Delivery | None:
        """Acquire the first message of a queue that is ready; None if none is, or this node may hand out nothing now.

        Raises QueueMissingError, InvalidOperationError (a holder has a name).
        """
        _require_name(holder)
        with self._lock:
            state = self._enter()
            target = state.queue(queue)
            if not self._journal.current:
                return None
            now_ms = self._clock_ms()
            self._let_go_of_absent(now_ms)
            queue_id = target.record_id
            delivery = state.take(queue_id, holder, now_ms)
            if delivery is None:
                return None
            message_id, deliveries = delivery
            if target.config.durable and message_id not in self._volatile:
                data = encode_reference(Reference.ACQUIRED, holder, deliveries)
                try:
                    self._journal.update(message_id, REFERENCE, data, replaceable=True, subject=queue_id)
                except JournalError:
                    state.release(message_id, queue_id, holder)
                    state.deliveries(message_id, queue_id, deliveries)
                    raise
            return delivery

    def acquire(self, message_id: int, queue: str, holder: str) -> Pending:
        """Acquire a certain message; one that `holder` has already stays its own.

        Raises QueueMissingError, MessageMissingError, MessageHeldError (another has it, a transaction, or it is not due
        yet), StateError (this node may hand out nothing now), InvalidOperationError (a holder has a name).
        """
        _require_name(holder)
        with self._lock:
            state = self._enter()
            target = state.queue(queue)
            if not self._journal.current:
                raise StateError("this node does not know that it is still the active one")
            queue_id = target.record_id
            was_held = self._reference(message_id, target).state is ReferenceState.HELD
            delivery = state.acquire(message_id, queue_id, holder, self._clock_ms())
            if was_held:
                return Pending(message_id, self._journal.flush())
            try:
                return self._note(Reference.ACQUIRED, message_id, target, holder, delivery.deliveries, 0)
            except JournalError:
                state.release(message_id, queue_id, holder)
                state.deliveries(message_id, queue_id, delivery.deliveries)
                raise

    def release(self, message_id: int, queue: str, holder: str = "") -> Pending:
        """Give a message back: it is ready in its place again, and counts one delivery more.

        Without `holder`: whoever has it. Raises QueueMissingError, MessageMissingError, MessageHeldError (nobody holds
        it, or another does, or a transaction has locked it).
        """
        with self._lock:
            state = self._enter()
            target = state.queue(queue)
            info = self._reference(message_id, target)
            if info.state is not ReferenceState.HELD or holder not in ("", info.holder):
                raise MessageHeldError(f"message {message_id} is {info.state.value} in {queue}, by {info.holder!r}")
            pending = self._note(Reference.RELEASED, message_id, target, "", info.deliveries + 1, info.due)
            state.release(message_id, target.record_id, holder)
            return pending

    def release_holder(self, name: str) -> Pending:
        """Give back everything that a holder holds, in bounded groups; done when the last of them is.

        After a FullError the rest is still held: call it again.
        """
        with self._lock:
            state = self._enter()
            pending = Pending(0)
            held = state.reattach(name)
            batch = self._settings.release_operations_max
            for start in range(0, len(held), batch):
                pending = self._release_all(state, held[start : start + batch]) or pending
            self._absent.discard(name)
            for txn in (*self._transactions.values(), *self._settling):
                txn.let_go.add(name)
            return pending

    def _release_all(self, state: QueueState, held: list[tuple[int, int]]) -> Pending | None:
        operations: list[PlainOperation] = []
        for message_id, queue_id in held:
            queue = state.queue_of(queue_id)
            if queue.config.durable and message_id not in self._volatile:
                info = self._reference(message_id, queue)
                data = encode_reference(Reference.RELEASED, "", info.deliveries + 1, info.due)
                operations.append((UPDATE, message_id, REFERENCE, data, True, queue_id))
        pending = None
        if operations:
            pending = Pending(0, self._journal.append_all(operations))
        for message_id, queue_id in held:
            state.release(message_id, queue_id)
        return pending

    def reattach(self, holder: str) -> list[tuple[int, str]]:
        """(message, queue) that a holder has from before a load: they stay its own. In order of acquisition."""
        with self._lock:
            state = self._enter()
            self._let_go_of_absent(self._clock_ms())
            self._absent.discard(holder)
            for txn in (*self._transactions.values(), *self._settling):
                txn.let_go.discard(holder)
            return [(message, state.queue_of(queue).config.name) for message, queue in state.reattach(holder)]

    def _collect(self) -> None:
        super()._collect()
        if not self._let_go:
            return
        batch = [self._let_go.popleft() for _ in range(min(len(self._let_go), self._settings.release_operations_max))]
        try:
            self._release_all(self._state, [held for held in batch if self._is_held(*held)])
        except FullError:
            self._let_go.extendleft(reversed(batch))

    def _is_held(self, message_id: int, queue_id: int) -> bool:
        try:
            info = self._reference(message_id, self._state.queue_of(queue_id))
        except (QueueMissingError, MessageMissingError):
            return False
        return info.state is ReferenceState.HELD

    def holders(self) -> list[str]:
        """Those who hold messages."""
        with self._lock:
            return self._enter().holders()

    def _let_go_of_absent(self, now_ms: int) -> None:
        """Give back what is held by those who have not come back within their time."""
        if not self._absent or now_ms < self._grace_until_ms:
            return
        for holder in sorted(self._absent):
            self.release_holder(holder)

    # ---- what a reference says -------------------------------------------------------------------------------------

    def deliveries(self, message_id: int, queue: str, count: int) -> Pending:
        """Set how often a message was delivered, as its broker counts.

        Raises QueueMissingError, MessageMissingError.
        """
        with self._lock:
            state = self._enter()
            target = state.queue(queue)
            info = self._reference(message_id, target)
            state.deliveries(message_id, target.record_id, count)
            try:
                return self._note(Reference.DELIVERED, message_id, target, info.holder, count, info.due)
            except JournalError:
                state.deliveries(message_id, target.record_id, info.deliveries)
                raise

    def schedule(self, message_id: int, queue: str, due: int) -> Pending:
        """Deliver a message not before `due` (ms since 1970, 0: at once); of one that is held, once it is given back.

        Raises QueueMissingError, MessageMissingError, MessageHeldError (a transaction has locked it).
        """
        with self._lock:
            state = self._enter()
            target = state.queue(queue)
            info = self._reference(message_id, target)
            state.schedule(message_id, target.record_id, due)
            try:
                return self._note(Reference.SCHEDULED, message_id, target, info.holder, info.deliveries, due)
            except JournalError:
                state.schedule(message_id, target.record_id, info.due)
                raise

    def _note(
        self, change: Change, message_id: int, queue: QueueEntry, holder: str, deliveries: int, due: int
    ) -> Pending:
        """Write down what became of a reference, if it is durable."""
        data = encode_reference(change, holder, deliveries, due)
        if message_id in self._volatile or not queue.config.durable:
            return Pending(message_id)
        completion = self._journal.update(message_id, REFERENCE, data, replaceable=True, subject=queue.record_id)
        return Pending(message_id, completion)

    def _reference(self, message_id: int, queue: QueueEntry) -> ReferenceInfo:
        """Raises MessageMissingError for a message that is not in the queue (any more, or yet)."""
        return self._state.reference(message_id, queue.record_id)


def _require_name(holder: str) -> None:
    if not holder:
        raise InvalidOperationError("a holder has a name")
