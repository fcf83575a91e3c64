"""What all parts of a message store share: its lock, its state, and what happens to it when a group is durable.

Operations are accepted under one lock, so that the order of acceptance is the journal's and the queues' alike. What an
operation adds becomes visible when its group is committed: the group's effects wait here in order, and whoever enters
next carries out those of all groups that are done. Nothing has to be woken for that, and the journal's writer never
waits for a caller that waits for the journal's room.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, NamedTuple

from journal.append.callbacks import require_no_callback, telling
from journal.append.completion import Completion
from journal.append.operations import PlainOperation
from journal.errors import (
    FullError,
    InvalidOperationError,
    JournalError,
    LocalStorageError,
    NotTakenInError,
    StateError,
    StoreError,
    TransactionPreparedError,
    TransactionUnknownError,
)
from journal.process.clocks import AgreedTime
from journal.store.bodies.cache import BodyCache
from journal.store.bodies.swap import Swap, VolatileBodies
from journal.store.by_address import ByAddress
from journal.store.duplicates import DuplicateWindow
from journal.store.ports import StoreJournal
from journal.store.queues.entry import AddressEntry
from journal.store.queues.state import QueueState
from journal.store.settings import StoreSettings
from journal.store.transactions import StoreTransaction
from journal.v1.journal_pb2 import DELETE
from journal.wire.ids import SHARD_MASK

log = logging.getLogger(__name__)

Effect = tuple[Callable[[Any, Any], object], Any, Any]
"""What is called, with two arguments, once a group is durable."""

ClockMs = Callable[[], int]
"""Milliseconds since 1970."""


class _Run(NamedTuple):
    """References, as (message, queue), that one group brings to their queues, and that it settles."""

    arrived: list[tuple[int, int]]
    settled: list[tuple[int, int]]


class StoreBase:
    """The parts' common ground. Every public operation holds the lock and enters."""

    def __init__(
        self, journal: StoreJournal, settings: StoreSettings, clock_ms: ClockMs, elapsed_ms: Callable[[], float]
    ) -> None:
        self._journal = journal
        self._settings = settings
        self.inline_bytes_max = min(settings.inline_bytes_max, settings.message_bytes_max)
        """Bodies of more are stored in chunks."""
        self._clock_ms = clock_ms
        self._elapsed_ms = elapsed_ms
        self._agreed_ms = AgreedTime(clock_ms, elapsed_ms, settings.expiry_agreement_ms)
        """The time for what has expired for good."""
        self._callers_lock = threading.RLock()
        self._state = QueueState(references_in_memory_max=0, queue_references_in_memory_max=0)
        """Empty until `start` brings the one that was loaded."""
        self._refusal: JournalError | None = StateError("the store is not started")
        """Why nothing is accepted: before start, after close, and once a group or the index of references failed."""
        self._groups: deque[tuple[Completion, list[Effect]]] = deque()
        self._open_group: Completion | None = None
        self._effects: list[Effect] = []
        self._run: _Run | None = None
        """Of the effect that came last, if it is `_arrive_and_settle`: what it is called with."""
        self._windows: dict[int, DuplicateWindow] = {}
        self._transactions: dict[int, StoreTransaction] = {}
        self._settling: list[StoreTransaction] = []
        """Those whose commit or rollback is not durable yet."""
        self._declaring: dict[int, StoreTransaction] = {}
        """Those that create or destroy something."""
        self._stored_in: dict[int, int] = {}
        """Messages that a transaction stores that is open, or whose rollback is not durable yet: the transaction."""
        self._taking_in = ByAddress()
        """Messages taken in that are not known to be durable."""
        self._unrouted = ByAddress()
        """Messages that no queue ever got (for good)."""
        self._leaving: deque[Iterator[Sequence[int]]] = deque()
        """What was in queues and at addresses that are gone, in parts: messages without references."""
        self._cache = BodyCache(
            journal, settings.cache_bytes_max, lambda ids, exactly: self._state.stored_of(ids, exactly=exactly)
        )
        directory = settings.swap_directory
        swap = None
        if directory is not None:
            swap = Swap(
                directory,
                file_bytes_max=settings.swap_file_bytes_max,
                queue_bytes_max=settings.swap_queue_bytes_max,
            )
        self._volatile = VolatileBodies(settings.volatile_bytes_max, swap)
        self._chosen: set[int] = set()
        """Ids that callers chose for messages that are not durable. The journal does not know of these, and may issue
        one: it is passed over."""
        self._absent: dict[str, None] = {}
        """Holders from before the load that have not re-attached, until their time is over."""
        self._grace_until_ms = 0.0
        """By `elapsed_ms`."""
        self._let_go: dict[tuple[int, int], None] = {}
        """(message, queue) to be given back if still held over: a transaction had it locked when its holder let go."""
        self._abandoned: list[int] = []
        """Transactions of the store's own that are still to be rolled back."""
        self._garbage: deque[tuple[int, ...]] = deque()
        """Records that nothing refers to any more, a message's together, to be deleted in bounded groups."""
        self._garbage_lock = threading.Lock()
        """Of its own: deletions go on in the journal's writer, which waits for no caller."""
        self.collected = 0
        """How many of them were."""

    @property
    def _lock(self) -> AbstractContextManager[object]:
        """What every public operation holds. Raises CallbackError: whoever has it may wait for room, which the thread
        that calls back makes. Hot path: a lock that looks by itself costs twice as much."""
        if telling:
            require_no_callback("call the store")
        return self._callers_lock

    # ---- entering --------------------------------------------------------------------------------------------------

    def _enter(self) -> QueueState:
        """The state, as of everything that is durable by now. Raises what refuses every call."""
        if self._refusal is not None:
            raise self._refusal.again()
        groups = self._groups
        if groups and groups[0][0].done:
            self._settle_groups()
        return self._state

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """For one step of what takes many, between which others are let in."""
        with self._lock:
            self._enter()
            yield

    def _settle_groups(self) -> None:
        """Carry out the effects of the groups that are done, in order."""
        groups = self._groups
        while groups and groups[0][0].done:
            completion, effects = groups[0]
            if isinstance(completion.error, NotTakenInError):
                groups.popleft()
                self._take_back(effects)
                continue
            if completion.error is not None:
                self._refusal = completion.error
                raise completion.error
            groups.popleft()
            if completion is self._open_group:
                self._open_group = self._run = None
            try:
                for act, first, second in effects:
                    act(first, second)
            except LocalStorageError as error:
                self._refusal = error  # the index failed: what is left of the group would come to no queue
                raise
        self._cache.pass_on()
        self._collect()

    def _take_back(self, effects: Sequence[Effect]) -> None:
        """What was taken in is known not to be in the journal. Whoever takes in says what that means."""

    def _when_durable(self, completion: Completion, act: Callable[[Any, Any], object], first: Any, second: Any) -> None:
        """Operations of one group share its list."""
        self._run = None
        if completion is self._open_group:
            self._effects.append((act, first, second))
            return
        self._open_group = completion
        self._effects = [(act, first, second)]
        self._groups.append((completion, self._effects))

    def _arrives(self, completion: Completion, message_id: int, queue_id: int) -> None:
        """A route, once it is durable. Hot path: those of a group share one effect, if no other comes between them."""
        run = self._run
        if run is None or completion is not self._open_group:
            run = self._begin_run(completion)
        run.arrived.append((message_id, queue_id))

    def _settles(self, completion: Completion, message_id: int, queue_id: int) -> None:
        """An acknowledgement, in the same way."""
        run = self._run
        if run is None or completion is not self._open_group:
            run = self._begin_run(completion)
        run.settled.append((message_id, queue_id))

    def _begin_run(self, completion: Completion) -> _Run:
        run = _Run([], [])
        self._when_durable(completion, self._arrive_and_settle, run, None)
        self._run = run
        return run

    def _arrive_and_settle(self, run: _Run, _: None) -> None:
        """What arrives has no acknowledgement on its way, nor is what is settled routed again: their order is free."""
        self._state.settled_each(run.settled)
        self._state.arrive_each(run.arrived)

    # ---- transactions and ids --------------------------------------------------------------------------------------

    def _transaction(self, tx: int) -> StoreTransaction:
        """An open transaction that takes operations. Raises what refuses them."""
        txn = self._transactions.get(tx)
        if txn is None:
            raise TransactionUnknownError(f"no transaction {tx} is open or prepared")
        if txn.prepared:
            raise TransactionPreparedError(f"transaction {tx} is prepared: commit it or roll it back")
        if txn.refused is not None:
            raise txn.refused.again()
        return txn

    def _new_id(self, address: AddressEntry, wanted: int = 0, *, durable: bool = True) -> int:
        """An id in the address' virtual shard. Raises StoreError if the caller's is not, or is in use."""
        virtual_shard = address.record_id & SHARD_MASK
        if not wanted:
            record_id = self._issued_id(virtual_shard, durable=durable)
            while self._state.is_known(record_id):  # a binding whose id was chosen, say
                record_id = self._issued_id(virtual_shard, durable=durable)
            return record_id
        if wanted & SHARD_MASK != virtual_shard:
            raise StoreError(f"id {wanted} is not in the virtual shard of address {address.name} ({virtual_shard})")
        if self._is_here(wanted) or self._journal.is_taken(wanted):
            raise StoreError(f"id {wanted} is in use")
        return wanted

    def _issued_id(self, virtual_shard: int, *, durable: bool) -> int:
        """An id that nothing has had: no record, nor what is not durable, also before an activation."""
        issue = self._journal.new_id if durable else self._journal.new_volatile_id
        record_id = issue(virtual_shard)
        while record_id in self._chosen:
            self._chosen.remove(record_id)  # it is not issued again
            record_id = issue(virtual_shard)
        return record_id

    def _issued_ids(self, virtual_shard: int, count: int) -> list[int]:
        """So many for records."""
        if not self._chosen:
            return self._journal.new_ids([virtual_shard] * count)
        return [self._issued_id(virtual_shard, durable=True) for _ in range(count)]

    def _is_here(self, record_id: int) -> bool:
        """Whether something that the store knows has that id: all that is not durable, and some of what is."""
        if self._state.is_known(record_id) or self._state.has_queue(record_id) or record_id in self._volatile:
            return True
        return any(txn.declares(record_id) for txn in self._declaring.values())

    # ---- what is gone ----------------------------------------------------------------------------------------------

    def _drop_bodies(self, message_id: int, chunks: tuple[int, ...] = ()) -> None:
        """Let go of what is kept of a message beside its references, but for what goes with its group by itself."""
        self._volatile.drop(message_id)
        if self._chosen:
            self._chosen.discard(message_id)
        for chunk in chunks:
            self._volatile.drop(chunk)

    def _discard(self, messages: Sequence[int]) -> None:
        """Messages without references: forgotten now, and deleted in bounded groups."""
        state = self._state
        for message_id in messages:
            if message_id in self._taking_in:
                continue  # it is forgotten, or deleted, when it is known whether it is there
            entry = state.message(message_id)
            if entry.durable:
                self._garbage.append((message_id, *entry.chunks))
            state.forget(message_id)
            self._unrouted.discard(message_id)
            self._drop_bodies(message_id, entry.chunks)
        self._collect()

    def _discard_leaving(self) -> None:
        """Discard what was in queues and at addresses that are gone. Others are let in between the parts."""
        while self._leaving:
            with self._turn():
                part = next(self._leaving[0], None) if self._leaving else None
                if part is not None:
                    self._discard(part)
                elif self._leaving:
                    self._leaving.popleft()

    def _collect(self) -> None:
        """Go on with what could not be done at once."""
        self._delete_garbage()

    def _delete_garbage(self) -> None:
        """Delete some of what nothing refers to; once that is durable, its completion deletes more.

        So it also runs in the journal's writer, without the store's lock, and must neither wait nor raise.
        """
        while self._refusal is None:
            with self._garbage_lock:
                taken, operations = self._next_garbage()
            if not operations:
                return
            try:
                completion = self._journal.append_all(operations, wait=False)
            except FullError:
                self._put_back(taken)
                completion = self._journal.flush()  # then the queue has been emptied
                if completion.done:
                    continue
                completion.add_callback(partial(self._collected, 0))
                return
            except InvalidOperationError as error:
                log.error(
                    "message %d is left, with all that it has: its records do not fit a group: %s", taken[0][0], error
                )
                continue
            except JournalError as error:
                self._put_back(taken)
                log.info("%d messages are left for the next activation to delete: %s", len(self._garbage), error)
                return
            completion.add_callback(partial(self._collected, len(operations)))
            return

    def _next_garbage(self) -> tuple[list[tuple[int, ...]], list[PlainOperation]]:
        garbage = self._garbage
        operations_max = self._settings.operations_at_once(self._settings.collect_operations_max, self._journal.limits)
        taken: list[tuple[int, ...]] = []
        operations: list[PlainOperation] = []
        while garbage and (not operations or len(operations) + len(garbage[0]) <= operations_max):
            records = garbage.popleft()
            taken.append(records)
            operations += [(DELETE, record_id, 0, b"", False, 0) for record_id in records]
        return taken, operations

    def _put_back(self, taken: Sequence[tuple[int, ...]]) -> None:
        with self._garbage_lock:
            self._garbage.extendleft(reversed(taken))

    def _collected(self, records: int, error: JournalError | None) -> None:
        with self._garbage_lock:
            self.collected += records if error is None else 0
        if error is None and self._garbage:
            self._delete_garbage()
