"""What holders have: all of it given back when they let go; what they held before a load, when they do not come back
for it in time."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice

from journal.append.operations import PlainOperation
from journal.errors import FullError, MessageMissingError, QueueMissingError
from journal.store.model import ReferenceState
from journal.store.operations.change import Changing
from journal.store.pending import Pending
from journal.store.queues.state import QueueState
from journal.store.records import encode_reference
from journal.v1.journal_pb2 import UPDATE
from journal.v1.store_pb2 import REFERENCE, Reference

_TOLD_AT_ONCE = 200
"""Messages that a holder has, told while others wait for the store."""


class Holding(Changing):
    """Operations on all that a holder has."""

    def _enter(self) -> QueueState:
        """Also as of the time: what the absent have not come back for is given back when that is over."""
        state = Changing._enter(self)  # named: `super()` takes three times as long
        if self._absent:
            self._let_go_in_passing()
        return state

    def release_holder(self, name: str, *, counts: bool = True) -> Pending:
        """Give back everything that a holder holds now, in bounded groups; done when the last of them is.

        `counts`: each counts one delivery more; false for what its client never saw. Others are let in between the
        groups. After a FullError the rest is still held: call it again.
        """
        pending = Pending(0)
        with self._lock:
            rows = self._enter().rows_of(name)
            # at once: a transaction may settle before the last group
            self._absent.pop(name, None)
            for txn in (*self._transactions.values(), *self._settling):
                txn.unclaimed.update(dict.fromkeys(txn.acquired_for(name), counts))
        batch = self._released_at_once
        for start in range(0, len(rows), batch):
            with self._lock:
                state = self._enter()
                held = state.let_go(name, rows[start : start + batch], counts=counts)
                pending = self._release_all(state, held, counts=counts) or pending
        return pending

    @property
    def _released_at_once(self) -> int:
        return self._settings.operations_at_once(self._settings.release_operations_max, self._journal.limits)

    def _release_all(
        self, state: QueueState, held: list[tuple[int, int]], *, counts: bool, wait: bool = True
    ) -> Pending | None:
        operations: list[PlainOperation] = []
        for message_id, queue_id in held:
            queue = state.queue_of(queue_id)
            if queue.config.durable and message_id not in self._volatile:
                info = self._reference(message_id, queue)
                data = encode_reference(Reference.RELEASED, "", info.deliveries + counts, info.due)
                operations.append((UPDATE, message_id, REFERENCE, data, True, queue_id))
        pending = None
        if operations:
            pending = Pending(0, self._journal.append_all(operations, wait=wait))
        for message_id, queue_id in held:
            state.release(message_id, queue_id, counts=counts)
        return pending

    def reattach(self, holder: str) -> list[tuple[int, str]]:
        """(message, queue) that a holder has from before a load: they stay its own. In order of acquisition."""
        with self._lock:
            state = self._enter()
            self._let_go_of_absent()
            self._absent.pop(holder, None)
            for txn in (*self._transactions.values(), *self._settling):
                for key in txn.acquired_for(holder):
                    txn.unclaimed.pop(key, None)
            rows = state.reattach(holder)
        found: list[tuple[int, str]] = []
        for start in range(0, len(rows), _TOLD_AT_ONCE):
            with self._lock:
                state = self._enter()
                held = state.held_of(holder, rows[start : start + _TOLD_AT_ONCE])
                found += [(message, state.queue_of(queue).config.name) for message, queue in held]
        return found

    def _collect(self) -> None:
        super()._collect()
        self._give_back_left()

    def _give_back_left(self) -> None:
        """Go on with what came back from transactions after its holder had let go of it."""
        if not self._let_go:
            return
        batch = list(islice(self._let_go, self._released_at_once))
        left: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
        for held in batch:
            counts = self._left_counts(*held)
            if counts is not None:
                left[counts].append(held)
        try:
            for counts, each in left.items():
                self._release_all(self._state, each, counts=counts)
        except FullError:
            return  # the next one who enters tries again
        for held in batch:
            del self._let_go[held]

    def _left_counts(self, message_id: int, queue_id: int) -> bool | None:
        """Whether it counts that it is given back; None if somebody has come back for it or has it anew, or if it is
        settled, or locked again, by now."""
        try:
            info = self._reference(message_id, self._state.queue_of(queue_id))
        except (QueueMissingError, MessageMissingError):
            return None
        if info.state is not ReferenceState.HELD:
            return None
        return self._state.held_over_counts(message_id, queue_id)

    def holders(self) -> list[str]:
        """Those who hold messages."""
        with self._lock:
            return self._enter().holders()

    def _let_go_of_absent(self, *, wait: bool = True) -> None:
        """Give back some of what is held over by those who have not come back within their time; `next_due` has passed
        while there is more. It does not count: nobody knows whether it was handed out.

        What a transaction has locked of it goes when that leaves it: `_come_back`.
        """
        if not self._absent or self._elapsed_ms() < self._grace_until_ms:
            return
        left = self._released_at_once
        while self._absent and left > 0:
            holder = next(iter(self._absent))
            held = self._state.held_over(holder, left)
            self._release_all(self._state, held, counts=False, wait=wait)
            left -= len(held)
            if left:  # else there may be more
                del self._absent[holder]
                left -= 1

    def _let_go_in_passing(self) -> None:
        """The same for whoever came for something else, and waits for no room on its account."""
        with suppress(FullError):  # the next one who enters tries again
            self._let_go_of_absent(wait=False)
