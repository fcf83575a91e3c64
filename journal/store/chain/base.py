"""What all parts of a chain share: its stores, its lock, and how an operation reaches them one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from journal.append.callbacks import CallersLock
from journal.append.completion import Completion
from journal.errors import ChainError, ConfigError
from journal.store.chain.lockstep import Joined, Lockstep, chained_id
from journal.store.chain.ports import ChainedStore
from journal.store.chain.reads import ChainLooking
from journal.store.pending import Moved, Pending

LAG_TIMEOUT_S_DEFAULT = 30.0


class ChainBase(ChainLooking):
    """The parts' common ground. Every public operation that changes something holds the lock."""

    def __init__(
        self,
        stores: Sequence[ChainedStore],
        *,
        names: Sequence[str] = (),
        lag_timeout_s: float = LAG_TIMEOUT_S_DEFAULT,
    ) -> None:
        """`stores` are live and hold the same: `realign` sees to that. `names` are for errors; without them stores are
        numbered from 1.

        All but the first should wait for room in a full queue: their FullError comes too late to refuse anything.
        """
        if not stores:
            raise ConfigError("a chain needs at least one store")
        names = names or [f"store {number} of {len(stores)}" for number in range(1, len(stores) + 1)]
        if len(names) != len(stores):
            raise ConfigError(f"{len(stores)} stores have {len(names)} names")
        super().__init__(stores[0])
        self._stores = tuple(stores)
        self._lock = CallersLock()
        self._steps = Lockstep(self._stores, tuple(names), lag_timeout_s)
        self._in_transaction: dict[int, list[int]] = {}
        """Messages that a transaction touches: no store has them all in the same state before all have settled it."""
        self._begun: set[int] = set()
        """Open transactions of this life."""
        self._declaring: set[int] = set()
        """Transactions that create or destroy something."""
        self._abandoned: list[int] = []
        """Transactions of the chain's own that are still to be rolled back."""

    @property
    def error(self) -> ChainError | None:
        """Why nothing more is accepted; None while all is well."""
        return self._steps.error

    # ---- asking all of them ----------------------------------------------------------------------------------------

    def _same(self, tx: int, call: Callable[[ChainedStore, int], Pending]) -> Pending:
        """An operation that is the same in every store, but for the transaction's number."""
        its_tx = chained_id(tx)
        with self._lock:
            first = self._steps.ask_first(lambda store: call(store, tx))
            joined = self._steps.join(first, lambda store: call(store, its_tx))
            self._note_declaring(tx)
            return Pending(first.id, joined.completion)

    def _all(self, call: Callable[[ChainedStore], Completion]) -> Completion:
        with self._lock:
            first = self._steps.ask_first(call)
            return self._steps.join(Pending(0, first), lambda store: Pending(0, call(store))).completion

    def _of_message(self, message_id: int, tx: int, call: Callable[[ChainedStore, int, int], Pending]) -> Pending:
        """An operation on a message that is in all stores, or will be; with its id and the transaction's number."""
        its_id, its_tx = chained_id(message_id), chained_id(tx)
        with self._lock:
            first = self._steps.ask_first(lambda store: call(store, message_id, tx))
            self._steps.await_arrival(message_id)
            joined = self._steps.join(first, lambda store: call(store, its_id, its_tx))
            self._note_touched([message_id], tx)
            return Pending(first.id, joined.completion)

    def _arrives(self, first: Pending, message_id: int, tx: int, call: Callable[[ChainedStore], Pending]) -> Pending:
        joined = self._steps.join(first, call)
        self._expect([message_id], tx, joined)
        return Pending(first.id, joined.completion)

    def _dispose(
        self,
        message_id: int,
        queue: str,
        queues: Sequence[str],
        tx: int,
        call: Callable[[ChainedStore, int, Sequence[str], int, int], Moved],
    ) -> Moved:
        """`call(store, message, queues, copy, tx)`, with a copy of 0 for the store that issues its id.

        Where the copy goes, the first store decides: the queues of another one may have other depths at this moment.
        """
        its_tx = chained_id(tx)
        with self._lock:
            first = self._steps.ask_first(lambda store: call(store, message_id, queues, 0, tx))

            def follow(store: ChainedStore, its_id: int, copy: int) -> Moved:
                return call(store, its_id, first.queues, copy, its_tx)

            return self._copied(first, message_id, queue, tx, follow)

    def _copied(
        self,
        first: Moved,
        message_id: int,
        queue: str,
        tx: int,
        call: Callable[[ChainedStore, int, int], Pending],
    ) -> Moved:
        """The first store made a copy, if its pending has an id."""
        copy = chained_id(first.id)
        joined = self._steps.follow(first, [message_id], queue, lambda store, its_ids: call(store, its_ids[0], copy))
        self._note_touched([message_id], tx)
        if first.id:
            self._expect([first.id], tx, joined)
        return Moved(first.id, joined.completion, first.queues)

    def _expect(self, message_ids: Sequence[int], tx: int, joined: Joined) -> None:
        """The messages are delivered once this is durable, or once `tx` is committed."""
        if tx:
            self._note_touched(message_ids, tx)
        else:
            self._steps.arrivals.expect(message_ids, joined)

    def _note_touched(self, message_ids: Sequence[int], tx: int) -> None:
        if tx:
            self._in_transaction.setdefault(tx, []).extend(message_ids)

    def _note_declaring(self, tx: int) -> None:
        if tx:
            self._declaring.add(tx)

    def _settled(self, tx: int, joined: Joined) -> None:
        """Whoever goes on with what the transaction touched waits until all stores have settled it."""
        touched = self._in_transaction.pop(tx, None)
        if touched is None or tx in self._declaring:
            self._steps.wait_before_next(joined)  # of an earlier life of this chain, nobody knows what it touched
        else:
            self._steps.arrivals.expect(touched, joined)
        self._declaring.discard(tx)
        self._begun.discard(tx)
