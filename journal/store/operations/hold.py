"""The messages of a holder are released together: when the holder lets go, or if it does not come back in time after a
load."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice

from journal.append.completion import Completion
from journal.append.operations import PlainOperation
from journal.errors import FullError, MessageMissingError, QueueMissingError
from journal.store.model import ReferenceState
from journal.store.operations.core import StoreCore
from journal.store.operations.dead_letters import DeadMessages
from journal.store.pending import COMPLETED, Pending
from journal.store.records import encode_reference
from journal.v1.journal_pb2 import UPDATE
from journal.v1.store_pb2 import REFERENCE, Reference

_TOLD_AT_ONCE = 200
"""The largest number of a holder's messages that are listed while the lock is held once."""


class Releasing:
    """The release of all that a holder held when it began, in steps; between them other callers may take the lock."""

    def __init__(
        self,
        core: StoreCore,
        holder: str,
        rows: Sequence[int],
        release: Callable[[list[tuple[int, int]]], Completion | None],
        rows_at_once: int,
        counts: bool,
    ) -> None:
        """`release` releases (message, queue) pairs in one group."""
        self.completion = COMPLETED
        """The completion of the last group."""
        self._core = core
        self._holder = holder
        self._left = dict.fromkeys(rows)
        self._release = release
        self._rows_at_once = rows_at_once
        self._counts = counts

    def step(self) -> list[tuple[int, str]] | None:
        """Release some messages; returns them, each with its queue, or None if none are left."""
        rows = [*islice(self._left, self._rows_at_once)]
        return self._let_go(rows) if rows else None

    def follow(self, released: Sequence[tuple[int, str]]) -> None:
        """Release the messages that a step of another store has released, as far as the holder has held them here too
        since the beginning."""
        for start in range(0, len(released), self._rows_at_once):
            some = released[start : start + self._rows_at_once]
            with self._core.lock:
                state = self._core.enter()
                rows = [state.row_of(message, queue) for message, queue in some]
                self._let_go([row for row in rows if row is not None and row in self._left])

    def _let_go(self, rows: Sequence[int]) -> list[tuple[int, str]]:
        with self._core.lock:
            state = self._core.enter()
            held = state.let_go(self._holder, rows, counts=self._counts)
            self.completion = self._release(held) or self.completion
            for row in rows:
                del self._left[row]
            return [(message, state.queue_of(queue).config.name) for message, queue in held]


class HoldOperations:
    """Operations on all messages that a holder holds."""

    def __init__(self, core: StoreCore, dead_letters: DeadMessages) -> None:
        self._core = core
        self._dead_letters = dead_letters
        self._come_back: dict[tuple[int, int], None] = {}
        """(message, queue) pairs to release if they are still held over. A transaction had locked them when their
        holder let go."""

    def release_holder(self, name: str, *, counts: bool = True) -> Pending:
        releasing = self.releasing(name, counts=counts)
        while releasing.step() is not None:
            pass
        return Pending(0, releasing.completion)

    def releasing(self, name: str, *, counts: bool = True) -> Releasing:
        core = self._core
        with core.lock:
            rows = core.enter().rows_of(name)
            # this is set at once, because a transaction may settle before the last group
            core.absent.pop(name, None)
            for txn in core.transactions.unsettled():
                txn.unclaimed.update(dict.fromkeys(txn.acquired_for(name), counts))
        return Releasing(core, name, rows, partial(self.give_back, counts=counts), self._released_at_once, counts)

    def reattaching(self, holder: str) -> Iterator[tuple[int, str]]:
        core = self._core
        with core.lock:
            state = core.enter()
            self.let_go_of_absent()
            core.absent.pop(holder, None)
            for txn in core.transactions.unsettled():
                for key in txn.acquired_for(holder):
                    txn.unclaimed.pop(key, None)
            rows = state.reattach(holder)
        return self._told(holder, rows)

    def _told(self, holder: str, rows: Sequence[int]) -> Iterator[tuple[int, str]]:
        """The messages in these rows that the holder still has, each with its queue. They are listed in steps."""
        core = self._core
        for start in range(0, len(rows), _TOLD_AT_ONCE):
            with core.lock:
                state = core.enter()
                held = state.held_of(holder, rows[start : start + _TOLD_AT_ONCE])
                told = [(message, state.queue_of(queue).config.name) for message, queue in held]
            yield from told

    def holders(self) -> list[str]:
        with self._core.lock:
            return self._core.enter().holders()

    @property
    def _released_at_once(self) -> int:
        settings = self._core.settings
        return settings.operations_at_once(settings.release_operations_max, self._core.journal.limits)

    def give_back(self, held: Sequence[tuple[int, int]], *, counts: bool, wait: bool = True) -> Completion | None:
        """Release held references in one group; None if nothing is journaled for them. Its caller holds the store's
        lock."""
        core, state = self._core, self._core.state
        operations: list[PlainOperation] = []
        for message_id, queue_id in held:
            queue = state.queue_of(queue_id)
            noted = counts or queue.config.journaled_acquisition
            if noted and queue.config.durable and message_id not in core.volatile:
                info = core.reference(message_id, queue)
                data = encode_reference(Reference.RELEASED, "", info.deliveries + counts, info.due)
                operations.append((UPDATE, message_id, REFERENCE, data, True, queue_id))
        completion = core.journal.append_all(operations, wait=wait) if operations else None
        for message_id, queue_id in held:
            deliveries = state.release(message_id, queue_id, counts=counts)
            if counts:
                self._dead_letters.given_back(message_id, state.queue_of(queue_id), deliveries)
        return completion

    # ---- references unlocked by transactions -------------------------------------------------------------------------

    @property
    def has_left(self) -> bool:
        """Whether `give_back_left` has something to release."""
        return bool(self._come_back)

    def come_back(self, key: tuple[int, int], holder: str, *, released: bool = False) -> None:
        """Note that a transaction has unlocked a reference. If its holder has let go meanwhile, it is released; and if
        the rollback has `released` it, also while its holder is absent since the load."""
        core = self._core
        if (released or holder not in core.absent) and core.state.held_over_counts(*key) is not None:
            self._come_back[key] = None

    def give_back_left(self) -> bool:
        """Release some of the references that transactions have unlocked after their holders had let go. Returns
        whether more are left for which there is room."""
        if not self._come_back:
            return False
        batch = list(islice(self._come_back, self._released_at_once))
        left: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
        for held in batch:
            counts = self._left_counts(*held)
            if counts is not None:
                left[counts].append(held)
        try:
            for counts, each in left.items():
                self.give_back(each, counts=counts, wait=False)
        except FullError:
            self._core.watch.tell()  # who waits for the messages asks `next_due` again
            return False  # the next call of the store tries again
        for held in batch:
            del self._come_back[held]
        return bool(self._come_back)

    def give_back_all_left(self) -> Completion:
        """Release all of them, in steps, as far as there is room; the completion is done when that is durable."""
        more = True
        while more:
            with self._core.lock:
                self._core.enter()
                more = self.give_back_left()
        return self._core.journal.flush()

    def _left_counts(self, message_id: int, queue_id: int) -> bool | None:
        """Whether the release counts as a delivery.

        None if it must not be released: it is settled, locked again, or its holder has come back for it.
        """
        state = self._core.state
        try:
            info = self._core.reference(message_id, state.queue_of(queue_id))
        except (QueueMissingError, MessageMissingError):
            return None
        if info.state is not ReferenceState.HELD:
            return None
        return state.held_over_counts(message_id, queue_id)

    # ---- holders that are absent since the load --------------------------------------------------------------------

    def let_go_of_absent(self, *, wait: bool = True) -> None:
        """Release some messages of absent holders, once their time is over. While there are more, `next_due` is in the
        past.

        The release does not count as a delivery, because it is not known whether the message was delivered. A message
        that a transaction has locked is released when it is unlocked (`come_back`).
        """
        core = self._core
        if not core.absent or core.elapsed_ms() < core.grace_until_ms:
            return
        left = self._released_at_once
        while core.absent and left > 0:
            holder = next(iter(core.absent))
            held = core.state.held_over(holder, left)
            self.give_back(held, counts=False, wait=wait)
            left -= len(held)
            if left:  # all messages of this holder were released, unless `left` is 0: then it may have more
                del core.absent[holder]
                left -= 1

    def let_go_in_passing(self) -> None:
        """Call `let_go_of_absent` during another operation. It does not wait if the queue is full."""
        with suppress(FullError):  # the next call of the store tries again
            self.let_go_of_absent(wait=False)
