"""`MessageStoreChain`: several message stores driven as one, each with a journal of its own.

Every store sees the same operations in the same order; an operation is complete when all have completed it. The first
store answers reads, and what it refuses is refused with nothing changed anywhere. What a later store then refuses, or
any store fails at, leaves the stores different: that is a `ChainError`, which names the store, and the chain accepts
nothing more. `journal.store.realigning` brings them in line when they are started again.

Ids are derived, not remembered: the first store issues a message's, a binding's and a transaction's id, which is the
chain's, and every other store is given that id with a bit set that no journal reaches when it issues ids itself (2^52
sequences). So what a store issues for itself (chunks, queues) never meets what the chain gives it, an id stays in the
virtual shard of its address, no crash can lose the mapping, and it costs no memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

from journal.errors import ConfigError, TransactionUnknownError
from journal.store.chained import ChainedStore, ChainError
from journal.store.lockstep import Joined, Lockstep, chained_id
from journal.store.model import Delivery, Message, QueueConfig, ReferenceInfo
from journal.store.pending import Pending

LAG_TIMEOUT_S_DEFAULT = 30.0


class MessageStoreChain:
    """Stores as one. Thread-safe. What a store blocks for (room in a full queue), the chain blocks for.

    A message that the first store delivers may not be durable in the others yet; whoever takes, acquires or settles it
    waits for them. So callbacks of completions must not call the chain: they run in the threads that are waited for.
    """

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
        self._stores = tuple(stores)
        self._first = self._stores[0]
        self._lock = threading.Lock()
        self._steps = Lockstep(self._stores, tuple(names), lag_timeout_s)
        self._in_transaction: dict[int, list[int]] = {}
        """Messages that a transaction touches: no store has them all in the same state before all have settled it."""
        self._begun: set[int] = set()
        """Open transactions of this life."""
        self._declaring: set[int] = set()
        """Transactions that create or destroy something."""

    @property
    def error(self) -> ChainError | None:
        """Why nothing more is accepted; None while all is well."""
        return self._steps.error

    # ---- objects ---------------------------------------------------------------------------------------------------

    def create_address(self, name: str, duplicate_window: int = 0, tx: int = 0) -> Pending:
        return self._same(tx, lambda store, its_tx: store.create_address(name, duplicate_window, its_tx))

    def destroy_address(self, name: str, tx: int = 0) -> Pending:
        return self._same(tx, lambda store, its_tx: store.destroy_address(name, its_tx))

    def create_queue(self, config: QueueConfig, tx: int = 0) -> Pending:
        return self._same(tx, lambda store, its_tx: store.create_queue(config, its_tx))

    def destroy_queue(self, name: str, tx: int = 0) -> Pending:
        return self._same(tx, lambda store, its_tx: store.destroy_queue(name, its_tx))

    def bind(self, queue: str, key: str = "", filter: str = "", tx: int = 0) -> Pending:
        with self._lock:
            first = self._steps.ask_first(lambda store: store.bind(queue, key, filter, tx))
            binding, its_tx = chained_id(first.id), chained_id(tx)
            joined = self._steps.join(first, lambda store: store.bind(queue, key, filter, its_tx, id=binding))
            self._note_declaring(tx)
            return Pending(first.id, joined.completion)

    def unbind(self, binding_id: int, tx: int = 0) -> Pending:
        its_id, its_tx = chained_id(binding_id), chained_id(tx)
        with self._lock:
            first = self._steps.ask_first(lambda store: store.unbind(binding_id, tx))
            joined = self._steps.join(first, lambda store: store.unbind(its_id, its_tx))
            self._note_declaring(tx)
            return Pending(first.id, joined.completion)

    # ---- messages --------------------------------------------------------------------------------------------------

    def store(self, message: Message, tx: int = 0) -> Pending:
        its_tx = chained_id(tx)
        with self._lock:
            first = self._steps.ask_first(lambda store: store.store(message, tx))
            its_id = chained_id(first.id)
            return self._arrives(first, first.id, tx, lambda store: store.store(message, its_tx, id=its_id))

    def send(self, message: Message, queues: Sequence[str], tx: int = 0) -> Pending:
        its_tx = chained_id(tx)
        with self._lock:
            first = self._steps.ask_first(lambda store: store.send(message, queues, tx))
            its_id = chained_id(first.id)
            return self._arrives(first, first.id, tx, lambda store: store.send(message, queues, its_tx, id=its_id))

    def route(self, message_id: int, queue: str, due: int = 0, tx: int = 0) -> Pending:
        its_id, its_tx = chained_id(message_id), chained_id(tx)
        with self._lock:
            first = self._steps.ask_first(lambda store: store.route(message_id, queue, due, tx))
            return self._arrives(first, message_id, tx, lambda store: store.route(its_id, queue, due, its_tx))

    def acknowledge(self, message_id: int, queue: str, holder: str = "", tx: int = 0) -> Pending:
        its_tx = chained_id(tx)
        with self._lock:
            first = self._steps.ask_first(lambda store: store.acknowledge(message_id, queue, holder, tx))
            joined = self._steps.follow(
                first, message_id, queue, lambda store, its_id: store.acknowledge(its_id, queue, holder, its_tx)
            )
            self._note_touched(message_id, tx)
            return Pending(first.id, joined.completion)

    def acquire(self, message_id: int, queue: str, holder: str, tx: int = 0) -> Pending:
        its_tx = chained_id(tx)
        with self._lock:
            first = self._steps.ask_first(lambda store: store.acquire(message_id, queue, holder, tx))
            joined = self._steps.follow(
                first, message_id, queue, lambda store, its_id: store.acquire(its_id, queue, holder, its_tx)
            )
            self._note_touched(message_id, tx)
            return Pending(first.id, joined.completion)

    def take(self, queue: str, holder: str) -> Delivery | None:
        """The first store chooses; the others acquire the same message behind it."""
        with self._lock:
            delivery = self._steps.ask_first(lambda store: store.take(queue, holder))
            if delivery is not None:
                taken = Pending(delivery.message)
                self._steps.follow(
                    taken, delivery.message, queue, lambda store, its_id: store.acquire(its_id, queue, holder)
                )
            return delivery

    def release(self, message_id: int, queue: str, holder: str = "", tx: int = 0) -> Pending:
        return self._of_message(
            message_id, tx, lambda store, its_id, its_tx: store.release(its_id, queue, holder, its_tx)
        )

    def release_holder(self, name: str) -> Pending:
        return self._same(0, lambda store, _: store.release_holder(name))

    def reattach(self, holder: str) -> list[tuple[int, str]]:
        """What the first store says that `holder` holds."""
        with self._lock:
            held = self._steps.ask_first(lambda store: store.reattach(holder))
            for place in range(1, len(self._stores)):
                self._steps.ask_other(place, lambda store: store.reattach(holder))
            return held

    def deliveries(self, message_id: int, queue: str, count: int, tx: int = 0) -> Pending:
        return self._of_message(
            message_id, tx, lambda store, its_id, its_tx: store.deliveries(its_id, queue, count, its_tx)
        )

    def schedule(self, message_id: int, queue: str, due: int, tx: int = 0) -> Pending:
        return self._of_message(
            message_id, tx, lambda store, its_id, its_tx: store.schedule(its_id, queue, due, its_tx)
        )

    def move(
        self, message_id: int, queue: str, address: str, queues: Sequence[str], reason: str, tx: int = 0
    ) -> Pending:
        its_tx = chained_id(tx)

        def move(store: ChainedStore, its_id: int, copy: int) -> Pending:
            return store.move(its_id, queue, address, queues, reason, id=copy, tx=its_tx)

        with self._lock:
            first = self._steps.ask_first(lambda store: store.move(message_id, queue, address, queues, reason, tx=tx))
            return self._copied(first, message_id, queue, tx, move)

    def expire(self, message_id: int, queue: str, tx: int = 0) -> Pending:
        its_tx = chained_id(tx)
        with self._lock:
            first = self._steps.ask_first(lambda store: store.expire(message_id, queue, tx=tx))
            return self._copied(
                first,
                message_id,
                queue,
                tx,
                lambda store, its_id, copy: store.expire(its_id, queue, id=copy, tx=its_tx),
            )

    # ---- transactions ----------------------------------------------------------------------------------------------

    def begin(self) -> int:
        with self._lock:
            tx = self._steps.ask_first(lambda store: store.begin())
            for place in range(1, len(self._stores)):
                self._steps.ask_other(place, lambda store: store.begin(chained_id(tx)))
            self._in_transaction[tx] = []
            self._begun.add(tx)
            return tx

    def prepare(self, tx: int, data: bytes = b"") -> Pending:
        with self._lock:
            first = self._steps.ask_first(lambda store: store.prepare(tx, data))
            return Pending(tx, self._steps.join(first, lambda store: store.prepare(chained_id(tx), data)).completion)

    def commit(self, tx: int) -> Pending:
        with self._lock:
            first = self._steps.ask_first(lambda store: store.commit(tx))
            joined = self._steps.join(first, lambda store: self._settle(tx, store.commit))
            self._settled(tx, joined)
            return Pending(tx, joined.completion)

    def rollback(self, tx: int) -> Pending:
        with self._lock:
            first = self._steps.ask_first(lambda store: store.rollback(tx))
            joined = self._steps.join(first, lambda store: self._settle(tx, store.rollback))
            self._settled(tx, joined)
            return Pending(tx, joined.completion)

    def _settle(self, tx: int, settle: Callable[[int], Pending]) -> Pending:
        """Another store may have settled what was in doubt before a crash, and the first one not."""
        try:
            return settle(chained_id(tx))
        except TransactionUnknownError:
            if tx in self._begun:
                raise
            return Pending(tx)

    # ---- reads: the first store's ----------------------------------------------------------------------------------

    def message(self, message_id: int) -> Message:
        return self._first.message(message_id)

    def browse(self, queue: str) -> Iterator[ReferenceInfo]:
        return self._first.browse(queue)

    def explain(self, record_id: int) -> Sequence[ReferenceInfo]:
        return self._first.explain(record_id)

    def close(self) -> None:
        """Close every store, in order, also behind one that raises."""
        with ExitStack() as stack:
            for store in reversed(self._stores):
                stack.callback(store.close)

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _same(self, tx: int, call: Callable[[ChainedStore, int], Pending]) -> Pending:
        """An operation that is the same in every store, but for the transaction's number."""
        its_tx = chained_id(tx)
        with self._lock:
            first = self._steps.ask_first(lambda store: call(store, tx))
            joined = self._steps.join(first, lambda store: call(store, its_tx))
            self._note_declaring(tx)
            return Pending(first.id, joined.completion)

    def _of_message(self, message_id: int, tx: int, call: Callable[[ChainedStore, int, int], Pending]) -> Pending:
        """An operation on a message that is in all stores, or will be; with its id and the transaction's number."""
        its_id, its_tx = chained_id(message_id), chained_id(tx)
        with self._lock:
            first = self._steps.ask_first(lambda store: call(store, message_id, tx))
            self._steps.await_arrival(message_id)
            joined = self._steps.join(first, lambda store: call(store, its_id, its_tx))
            self._note_touched(message_id, tx)
            return Pending(first.id, joined.completion)

    def _arrives(self, first: Pending, message_id: int, tx: int, call: Callable[[ChainedStore], Pending]) -> Pending:
        joined = self._steps.join(first, call)
        self._expect(message_id, tx, joined)
        return Pending(first.id, joined.completion)

    def _copied(
        self,
        first: Pending,
        message_id: int,
        queue: str,
        tx: int,
        call: Callable[[ChainedStore, int, int], Pending],
    ) -> Pending:
        """The first store made a copy, if its pending has an id."""
        copy = chained_id(first.id)
        joined = self._steps.follow(first, message_id, queue, lambda store, message: call(store, message, copy))
        self._note_touched(message_id, tx)
        if first.id:
            self._expect(first.id, tx, joined)
        return Pending(first.id, joined.completion)

    def _expect(self, message_id: int, tx: int, joined: Joined) -> None:
        """The message is delivered once this is durable, or once `tx` is committed."""
        if tx:
            self._note_touched(message_id, tx)
        else:
            self._steps.arrivals.expect((message_id,), joined)

    def _note_touched(self, message_id: int, tx: int) -> None:
        if tx:
            self._in_transaction.setdefault(tx, []).append(message_id)

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
