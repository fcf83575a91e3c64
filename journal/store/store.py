"""`MessageStore`: what a broker writes against, on any journal.

    loader = QueueLoader(...)
    journal.activate(loader)
    store = MessageStore(journal)
    store.start(loader.loaded)
    store.create_address("orders").wait()
    store.create_queue(QueueConfig("orders/eu", "orders")).wait()
    sent = store.send(Message("orders", b"..."), ["orders/eu"])
    ...
    delivery = store.take("orders/eu", holder="session 7")
    store.acknowledge(delivery.message, "orders/eu", holder="session 7").wait()

Every operation that changes something is accepted or refused at once and gives a `Pending`, which is complete when the
operation is durable; `send_all` and `acknowledge_all` do so for many messages, all or none. All are thread-safe. The
parts: `declaring` (addresses, queues, bindings), `streaming`, `sending` and `sending_all` (store, send, route),
`taking_in` (from Kafka topics), `consuming` (take, acquire, release), `acknowledging`, `moving` (move, expire, dead
letters), `settling` (transactions), `looking` (messages, queues).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType

from journal.append.completion import Completion
from journal.errors import ClosedError, JournalError, StateError
from journal.process.clocks import monotonic_ms
from journal.store.operations.core import ClockMs
from journal.store.operations.declare import Declaring
from journal.store.operations.move import Moving
from journal.store.operations.send_all import SendingAll
from journal.store.operations.take_in import TakingIn
from journal.store.ports import StoreJournal
from journal.store.queues.loaded import LoadedStore
from journal.store.restoring import restore_transactions, restore_windows
from journal.store.settings import StoreSettings


def wall_clock_ms() -> int:
    """Milliseconds since 1970."""
    return int(time.time() * 1000)


class MessageStore(Declaring, TakingIn, SendingAll, Moving):
    """The message store of one activation of a journal. When that is fenced or fails, so is the store, for good."""

    def __init__(
        self,
        journal: StoreJournal,
        settings: StoreSettings | None = None,
        *,
        clock_ms: ClockMs = wall_clock_ms,
        elapsed_ms: Callable[[], float] = monotonic_ms,
    ) -> None:
        """`journal` is started. `clock_ms` gives milliseconds since 1970, `elapsed_ms` those of a clock that is never
        set.

        Raises ConfigError for settings that the journal's limits contradict, LocalStorageError if there is no place to
        swap to.
        """
        settings = settings or StoreSettings()
        settings.require_fit(journal.limits)
        super().__init__(journal, settings, clock_ms, elapsed_ms)
        self._started = self._closed = False

    def start(self, loaded: LoadedStore) -> None:
        """Go on from what the journal's activation has loaded; delete what nothing refers to. Once.

        What holders hold stays theirs for `acquire_grace_ms` from now, and for good if they come back for it.
        Transactions in doubt are as they were: what they add is not visible, what they acknowledge and change is
        locked, what they destroy is gone.
        """
        with self._lock:
            if self._started:
                raise StateError("the store was started")
            self._started = True
            state = self._state = loaded.state
            addresses = state.addresses()
            self._transactions.update(restore_transactions(loaded, self._settings.transaction_bodies_bytes_max))
            self._windows.update(restore_windows(loaded, addresses, self._transactions))
            self._declaring.update({tx: txn for tx, txn in self._transactions.items() if txn.declared})
            for txn in self._transactions.values():
                self._stored_in.update(dict.fromkeys(txn.stored, txn.tx))
                for message_id in txn.stored:
                    address_id = state.address(state.message(message_id).address).record_id
                    self._unrouted.add([message_id], address_id)
                    txn.addresses.add(address_id)
            state.hold_all_over()
            absent = set(state.holders())
            for txn in self._transactions.values():
                acquired = {key: changed.holder for key, changed in txn.changed.items() if changed.holder}
                txn.unclaimed.update(dict.fromkeys(acquired, False))
                absent.update(acquired.values())
            self._absent = dict.fromkeys(sorted(absent))
            self._grace_until_ms = self._elapsed_ms() + self._settings.acquire_grace_ms
            self._garbage.extend(loaded.orphans)
            self.orphaned_messages = loaded.orphaned_messages
            self._refusal = None
            self._journal.ended.add_callback(self._end)
            self._collect()

    def _end(self, error: JournalError | None) -> None:
        """The node is not active any more: whoever comes is told so, whatever it wants. Called by the journal."""
        if self._refusal is None:
            self._refusal = error

    orphaned_messages: int = 0
    """How many messages without references the load has found."""

    def tick(self) -> int:
        """Do what time brings: what is due becomes ready (how many), the absent let go of what they had held over.

        `take` does both by itself; this is for brokers that wait for `next_due` rather than ask. What is due becomes
        ready in batches, the earliest first, and what has expired is passed in batches where a `take` stopped: while
        `next_due` has passed, there is more.
        """
        with self._lock:
            state = self._enter()
            self._let_go_of_absent()
            self._give_back_left()
            return state.due(self._clock_ms())

    def room(self) -> Completion:
        """Done when operations that met FullError may be tried again, first come first served."""
        return self._journal.room()

    def flush(self) -> Completion:
        """Done when everything accepted so far is durable."""
        return self._journal.flush()

    @property
    def volatile_bytes(self) -> tuple[int, int]:
        """Bodies of what is not durable: bytes in memory, and of swap files."""
        with self._lock:
            self._enter()
            return self._volatile.memory_bytes, self._volatile.swapped_bytes

    @property
    def cached_bytes(self) -> int:
        """Bodies of durable messages that the local copy does not have yet."""
        with self._lock:
            self._enter()
            self._cache.pass_on()
            return self._cache.bytes

    def close(self) -> None:
        """Refuse everything, and let go of what is not durable. The journal stays open: it is its owner's."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._refusal = ClosedError("the store was closed")
                self._volatile.close()

    def __enter__(self) -> MessageStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
