"""What all operations of a chain share: its stores, its lock, and how an operation reaches every store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType

from journal.append.callbacks import CallersLock
from journal.append.completion import Completion
from journal.errors import ConfigError
from journal.store.chain.lockstep import Joined, Lockstep, chained_id
from journal.store.chain.ports import ChainedStore
from journal.store.model import Held
from journal.store.pending import Moved, Pending

LAG_TIMEOUT_S_DEFAULT = 30.0


class _Turn(CallersLock):
    """The lock of a chain. A holder that is interrupted (Ctrl-C) after the first store has accepted something, and
    before the others have, breaks the chain."""

    def __init__(self, steps: Lockstep) -> None:
        super().__init__()
        self._steps = steps

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and self._steps.leads:
            self._steps.interrupted(error)
        self._steps.leads = False
        super().__exit__(kind, error, trace)


class ChainCore:
    """The stores of a chain, and what the chain knows about them. Every operation that changes something holds the
    lock."""

    def __init__(
        self,
        stores: Sequence[ChainedStore],
        *,
        names: Sequence[str] = (),
        lag_timeout_s: float = LAG_TIMEOUT_S_DEFAULT,
    ) -> None:
        if not stores:
            raise ConfigError("a chain needs at least one store")
        names = names or [f"store {number} of {len(stores)}" for number in range(1, len(stores) + 1)]
        if len(names) != len(stores):
            raise ConfigError(f"stores and names must be as many, not {len(stores)} and {len(names)}")
        self.stores = tuple(stores)
        self.first = stores[0]
        self.steps = Lockstep(self.stores, tuple(names), lag_timeout_s)
        self.lock = _Turn(self.steps)
        self.in_transaction: dict[int, list[int]] = {}
        """Messages that a transaction touches. They differ between the stores until all stores have settled it."""
        self.begun: set[int] = set()
        """Open transactions that this chain has begun."""
        self.declaring: set[int] = set()
        """Transactions that create or destroy addresses, queues or bindings."""

    # ---- calling all stores -----------------------------------------------------------------------------------------

    def same(self, tx: int, call: Callable[[ChainedStore, int], Pending]) -> Pending:
        """Do one operation in all stores. `call(store, tx)` does it in one store, in which the transaction has the id
        `tx`."""
        its_tx = chained_id(tx)
        with self.lock:
            first = self.steps.ask_first(lambda store: call(store, tx))
            joined = self.steps.join(first, lambda store: call(store, its_tx))
            self.note_declaring(tx)
            return Pending(first.id, joined.completion)

    def discard_leaving(self) -> None:
        """Have all stores discard the messages of destroyed queues and addresses. The caller does not hold the lock,
        because that takes long, and no other operation finds these messages."""
        for place in range(len(self.stores)):
            self.steps.ask_other(place, lambda store: store.discard_leaving())

    def all(self, call: Callable[[ChainedStore], Completion]) -> Completion:
        """Do one operation in all stores; the result is done when the completions of all stores are."""
        with self.lock:
            first = self.steps.ask_first(call)
            return self.steps.join(Pending(0, first), lambda store: Pending(0, call(store))).completion

    def of_message(self, message_id: int, tx: int, call: Callable[[ChainedStore, int, int], Pending]) -> Pending:
        """Do an operation on a message that is in all stores, or will be.

        `call(store, message, tx)` does it in one store, and gets the ids that the message and the transaction have
        there.
        """
        its_id, its_tx = chained_id(message_id), chained_id(tx)
        with self.lock:
            first = self.steps.ask_first(lambda store: call(store, message_id, tx))
            self.steps.await_arrival(message_id)
            joined = self.steps.join(first, lambda store: call(store, its_id, its_tx))
            self.note_touched([message_id], tx)
            return Pending(first.id, joined.completion)

    def arrives(self, first: Pending, message_id: int, tx: int, call: Callable[[ChainedStore], Pending]) -> Pending:
        """Give the other stores a message that the first one has; it is delivered once all have it."""
        joined = self.steps.join(first, call)
        self.expect([message_id], tx, joined)
        return Pending(first.id, joined.completion)

    def dispose(
        self,
        message_id: int,
        queue: str,
        queues: Sequence[str],
        tx: int,
        call: Callable[[ChainedStore, int, Sequence[str], int, int], Moved],
    ) -> Moved:
        """Move a message to a dead-letter or expiry address in all stores.

        In `call(store, message, queues, copy, tx)`, `copy` is the id of the copy; it is 0 for the store that issues
        this id.

        The first store chooses the queues of the copy, because the queues of another store may have other depths at
        this moment.
        """
        its_tx = chained_id(tx)
        with self.lock:
            first = self.steps.ask_first(lambda store: call(store, message_id, queues, 0, tx))

            def follow(store: ChainedStore, its_id: int, copy: int) -> Moved:
                return call(store, its_id, first.queues, copy, its_tx)

            return self.copied(first, message_id, queue, tx, follow)

    def copied(
        self,
        first: Moved,
        message_id: int,
        queue: str,
        tx: int,
        call: Callable[[ChainedStore, int, int], Pending],
    ) -> Moved:
        """Make the other stores do what the first one did: move the message to the same queues, with the same copy.
        There is no copy if `first` has no id."""
        copy = chained_id(first.id)
        held = [Held(queue, [message_id])]
        joined = self.steps.follow(first, held, lambda store, its_held: call(store, its_held[0].messages[0], copy))
        self.note_touched([message_id], tx)
        if first.id:
            self.expect([first.id], tx, joined)
        return Moved(first.id, joined.completion, first.queues)

    def expect(self, message_ids: Sequence[int], tx: int, joined: Joined) -> None:
        """Make later operations on these messages wait: with `tx`, until all stores have settled that transaction;
        otherwise until `joined` is done."""
        if tx:
            self.note_touched(message_ids, tx)
        else:
            self.steps.arrivals.expect(message_ids, joined)

    def note_touched(self, message_ids: Sequence[int], tx: int) -> None:
        if tx:
            self.in_transaction.setdefault(tx, []).extend(message_ids)

    def note_declaring(self, tx: int) -> None:
        if tx:
            self.declaring.add(tx)

    def settled(self, tx: int, joined: Joined) -> None:
        """Called when a transaction is being settled: later operations on its messages wait until all stores have
        settled it."""
        touched = self.in_transaction.pop(tx, None)
        if touched is None or tx in self.declaring:
            # the transaction may have touched more than is known here: names, or messages before this chain began
            self.steps.wait_before_next(joined)
        else:
            self.steps.arrivals.expect(touched, joined)
        self.declaring.discard(tx)
        self.begun.discard(tx)
