"""What holders have: all of it given back when they let go; what they held before a load, when they do not come back
for it in time."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice

from journal.acceptance import PlainOperation
from journal.errors import FullError, MessageMissingError, QueueMissingError
from journal.store.changing import Changing
from journal.store.model import ReferenceState
from journal.store.pending import Pending
from journal.store.queue_state import QueueState
from journal.store.records import encode_reference
from journal.v1.journal_pb2 import UPDATE
from journal.v1.store_pb2 import REFERENCE, Reference


class Holding(Changing):
    """Operations on all that a holder has."""

    def _enter(self) -> QueueState:
        """Also as of the time: what the absent have not come back for is given back when that is over."""
        state = Changing._enter(self)  # named: `super()` takes three times as long
        if self._absent:
            self._let_go_in_passing()
        return state

    def release_holder(self, name: str) -> Pending:
        """Give back everything that a holder holds, in bounded groups; done when the last of them is.

        After a FullError the rest is still held: call it again.
        """
        with self._lock:
            state = self._enter()
            pending = self._release_in_batches(state, state.held_by(name))
            self._absent.discard(name)
            state.hold_over_locked(name)
            for txn in (*self._transactions.values(), *self._settling):
                txn.unclaimed |= txn.acquired_for(name)
            return pending

    def _release_in_batches(self, state: QueueState, held: list[tuple[int, int]], *, wait: bool = True) -> Pending:
        pending = Pending(0)
        batch = self._released_at_once
        for start in range(0, len(held), batch):
            pending = self._release_all(state, held[start : start + batch], wait=wait) or pending
        return pending

    @property
    def _released_at_once(self) -> int:
        return self._settings.operations_at_once(self._settings.release_operations_max, self._journal.limits)

    def _release_all(self, state: QueueState, held: list[tuple[int, int]], *, wait: bool = True) -> Pending | None:
        operations: list[PlainOperation] = []
        for message_id, queue_id in held:
            queue = state.queue_of(queue_id)
            if queue.config.durable and message_id not in self._volatile:
                info = self._reference(message_id, queue)
                data = encode_reference(Reference.RELEASED, "", info.deliveries + 1, info.due)
                operations.append((UPDATE, message_id, REFERENCE, data, True, queue_id))
        pending = None
        if operations:
            pending = Pending(0, self._journal.append_all(operations, wait=wait))
        for message_id, queue_id in held:
            state.release(message_id, queue_id)
        return pending

    def reattach(self, holder: str) -> list[tuple[int, str]]:
        """(message, queue) that a holder has from before a load: they stay its own. In order of acquisition."""
        with self._lock:
            state = self._enter()
            self._let_go_of_absent()
            self._absent.discard(holder)
            for txn in (*self._transactions.values(), *self._settling):
                txn.unclaimed -= txn.acquired_for(holder)
            return [(message, state.queue_of(queue).config.name) for message, queue in state.reattach(holder)]

    def _collect(self) -> None:
        super()._collect()
        self._give_back_left()

    def _give_back_left(self) -> None:
        """Go on with what came back from transactions after its holder had let go of it."""
        if not self._let_go:
            return
        batch = list(islice(self._let_go, self._released_at_once))
        try:
            self._release_all(self._state, [held for held in batch if self._is_left(*held)])
        except FullError:
            return  # the next one who enters tries again
        for held in batch:
            del self._let_go[held]

    def _is_left(self, message_id: int, queue_id: int) -> bool:
        """Nobody has come back for it, nor has it anew; it may be settled, or locked again, by now."""
        try:
            info = self._reference(message_id, self._state.queue_of(queue_id))
        except (QueueMissingError, MessageMissingError):
            return False
        return info.state is ReferenceState.HELD and self._state.is_held_over(message_id, queue_id)

    def holders(self) -> list[str]:
        """Those who hold messages."""
        with self._lock:
            return self._enter().holders()

    def _let_go_of_absent(self, *, wait: bool = True) -> None:
        """Give back what is held over by those who have not come back within their time.

        What a transaction has locked of it goes when that leaves it: `_come_back`.
        """
        if not self._absent or self._elapsed_ms() < self._grace_until_ms:
            return
        for holder in sorted(self._absent):
            self._release_in_batches(self._state, self._state.held_over(holder), wait=wait)
            self._absent.discard(holder)

    def _let_go_in_passing(self) -> None:
        """The same for whoever came for something else, and waits for no room on its account."""
        with suppress(FullError):  # the next one who enters tries again
            self._let_go_of_absent(wait=False)
