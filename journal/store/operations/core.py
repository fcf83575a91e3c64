"""What all operations of a message store share: its lock, its state, and the first steps of every call.

Operations are accepted under one lock, so that the order of acceptance is the order in the
journal and in the queues.

An operation checks everything, then appends, and only then changes the state. So whatever ends it while the journal
makes room, Ctrl-C included, has changed nothing. The few that must lock or take something first undo that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from journal.append.callbacks import require_no_callback, telling
from journal.errors import JournalError, NotTakenInError, StateError
from journal.process.clocks import AgreedTime
from journal.store.address_settings import SettingsByPattern
from journal.store.bodies.cache import BodyCache
from journal.store.bodies.swap import Swap, VolatileBodies
from journal.store.duplicates import DuplicateWindow
from journal.store.model import ReferenceInfo
from journal.store.operations.effects import Effect, GroupEffects, References
from journal.store.ports import StoreJournal
from journal.store.queues.entry import QueueEntry
from journal.store.queues.state import QueueState
from journal.store.queues.watch import QueueWatch
from journal.store.settings import StoreSettings
from journal.store.transactions import KnownTransactions

ClockMs = Callable[[], int]
"""A clock that gives milliseconds since 1970."""


class StoreCore:
    """The lock of a message store and everything that it guards.

    The class has many attributes because each of them is shared: one lock guards the queues, the transactions and the
    bodies together, and an operation of any part reads and changes several of them in one step. State that only one
    part needs is in that part.
    """

    def __init__(
        self, journal: StoreJournal, settings: StoreSettings, clock_ms: ClockMs, elapsed_ms: Callable[[], float]
    ) -> None:
        self.journal = journal
        self.settings = settings
        self.inline_bytes_max = min(settings.inline_bytes_max, settings.message_bytes_max)
        """Bodies larger than this are stored in chunks."""
        self.clock_ms = clock_ms
        self.elapsed_ms = elapsed_ms
        self.agreed_ms = AgreedTime(clock_ms, elapsed_ms, settings.expiry_agreement_ms)
        """The time, agreed by both clocks, by which a message's expiry counts for good."""
        self._callers_lock = threading.RLock()
        self.state = QueueState(references_in_memory_max=0, queue_references_in_memory_max=0)
        """The state of the queues. It is empty until `start` brings in the loaded one."""
        self.refusal: JournalError | None = StateError("the store is not started")
        """The error that refuses every call: before start, after close, and after a group or the index of references
        has failed."""
        self.address_settings = SettingsByPattern(settings.address_settings)
        self.watch = QueueWatch()
        self.effects = GroupEffects(self._arrive_and_settle, self.watch)
        self.transactions = KnownTransactions()
        self.windows: dict[int, DuplicateWindow] = {}
        """Duplicate-detection windows by the record id of their address."""
        self.cache = BodyCache(
            journal, settings.cache_bytes_max, lambda ids, exactly: self.state.stored_of(ids, exactly=exactly)
        )
        directory = settings.swap_directory
        swap = None
        if directory is not None:
            swap = Swap(
                directory,
                file_bytes_max=settings.swap_file_bytes_max,
                queue_bytes_max=settings.swap_queue_bytes_max,
            )
        self.volatile = VolatileBodies(settings.volatile_bytes_max, swap)
        self.absent: dict[str, None] = {}
        """Holders that had messages before the load and have not re-attached, until their time is over."""
        self.grace_until_ms = 0.0
        """When the time of absent holders is over, by `elapsed_ms`."""
        self.let_go_in_passing: Callable[[], None] = _nothing
        """A function that releases some messages of absent holders once their time is over. The store sets it."""
        self.take_back: Callable[[Sequence[Effect]], None] = _nothing
        """A function that undoes messages that were taken in from topics but are known not to be in the journal. The
        store sets it."""
        self.unfinished: Sequence[Callable[[], object]] = ()
        """Functions that continue work that could not be done at once, in order. The store sets them."""

    @property
    def lock(self) -> AbstractContextManager[object]:
        """The lock that every public operation holds. It can be taken again by the thread that has it.

        Raises CallbackError in a completion's callback: a thread that has the lock may wait for room in the queue, and
        the thread of callbacks makes that room. Hot path: a lock class of our own with this check would take twice as
        long.
        """
        if telling:
            require_no_callback("call the store")
        return self._callers_lock

    def enter(self, *, let_go: bool = True) -> QueueState:
        """The state, with the effects of all groups that are durable by now. Raises the error that refuses every call.

        Messages of absent holders are released when their time is over, unless `let_go` is false.
        """
        if self.refusal is not None:
            raise self.refusal.again()
        groups = self.effects.groups
        if groups and groups[0][0].done:
            self._carry_out()
        if let_go and self.absent:
            self.let_go_in_passing()
        return self.state

    def watch_queue(self, entry: QueueEntry, *, refused: bool = False) -> None:
        """Watch a queue in which a take found too little, or was `refused` because the node did not know that it is
        still active."""
        self.watch.watch(entry, refused=refused)
        self._tell_of_done()

    def _tell_of_done(self) -> None:
        """Tell of a group that became durable after `enter` had looked, as nobody was told then."""
        groups = self.effects.groups
        if groups and groups[0][0].done:
            self.watch.tell()

    def woken(self) -> list[str]:
        """The names of watched queues that have something, or are gone."""
        with self.watch.looking():
            self.enter()
        self._tell_of_done()
        return self.watch.taken()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Hold the lock for one step of many; between the steps other callers get their turns."""
        with self.lock:
            self.enter()
            yield

    def reference(self, message_id: int, queue: QueueEntry) -> ReferenceInfo:
        """A reference. Raises MessageMissingError if the message is not in the queue (not any more, or not yet)."""
        return self.state.reference(message_id, queue.record_id)

    def go_on(self) -> None:
        """Continue work that could not be done at once."""
        for step in self.unfinished:
            step()

    def _carry_out(self) -> None:
        """Apply the effects of the groups that are done, in order."""
        groups = self.effects.groups
        while groups and groups[0][0].done:
            completion, effects = groups[0]
            if isinstance(completion.error, NotTakenInError):
                groups.popleft()
                self.take_back(effects)
                continue
            if completion.error is not None:
                self.refusal = completion.error
                raise completion.error
            groups.popleft()
            self.effects.close_group(completion)
            try:
                for act, first, second in effects:
                    act(first, second)
            except BaseException as error:  # what is left of the group would come to no queue
                self.refusal = error if isinstance(error, JournalError) else _interrupted()
                raise
        self.cache.pass_on()
        self.go_on()

    def _arrive_and_settle(self, arrived: References, settled: References) -> None:
        """Apply arrivals and settlements of a group. Their order does not matter: no arriving reference is being
        acknowledged, and no settled one is routed again."""
        self.state.settled_each(settled)
        self.state.arrive_each(arrived)


def _interrupted() -> StateError:
    return StateError("the store was interrupted while durable messages came to their queues: activate it again")


def _nothing(*_: object) -> None:
    """The default for a function of a part that the store has not set."""
