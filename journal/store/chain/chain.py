"""`MessageStoreChain`: several message stores driven as one, each with a journal of its own.

Every store sees the same operations in the same order; an operation is complete when all have completed it. The first
store answers reads, and what it refuses is refused with nothing changed anywhere. What a later store then refuses, or
any store fails at, leaves the stores different: that is a `ChainError`, which names the store, and the chain accepts
nothing more. `journal.store.chain.realigning` brings them in line when they are started again.

Ids are derived, not remembered: the first store issues a message's, a binding's and a transaction's id, which is the
chain's, and every other store is given that id with a bit set that no journal reaches when it issues ids itself (2^52
sequences). So what a store issues for itself (chunks, queues) never meets what the chain gives it, an id stays in the
virtual shard of its address, no crash can lose the mapping, and it costs no memory.

The parts: `chain_looking` (reads), `chain_base` (how an operation reaches all stores), `chain_settling` (transactions),
`chain_streaming` (bodies in pieces), `lockstep` (waiting and failing together).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType

from journal.append.completion import Completion
from journal.errors import MessageHeldError
from journal.store.chain.lockstep import chained_id
from journal.store.chain.ports import ChainedStore
from journal.store.chain.streams import ChainStreaming
from journal.store.model import Delivery, Message, QueueConfig, ReferenceState
from journal.store.pending import Moved, Pending, PendingAll

_GIVEN_BACK = (ReferenceState.READY, ReferenceState.SCHEDULED)


class MessageStoreChain(ChainStreaming):
    """Stores as one. Thread-safe. What a store blocks for (room in a full queue), the chain blocks for.

    A message that the first store delivers may not be durable in the others yet; whoever takes, acquires or settles it
    waits for them. So a completion's callback that calls the chain is refused (CallbackError): it runs in a thread that
    is waited for.
    """

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
            return self._arrives(
                first, first.id, tx, lambda store: store.store(message, its_tx, id=its_id, checked=True)
            )

    def send(self, message: Message, queues: Sequence[str], tx: int = 0) -> Pending:
        its_tx = chained_id(tx)
        with self._lock:
            first = self._steps.ask_first(lambda store: store.send(message, queues, tx))
            its_id = chained_id(first.id)
            return self._arrives(
                first, first.id, tx, lambda store: store.send(message, queues, its_tx, id=its_id, checked=True)
            )

    def send_all(self, messages: Sequence[Message], queues: Sequence[str], tx: int = 0) -> PendingAll:
        its_tx = chained_id(tx)
        with self._lock:
            first = self._steps.ask_first(lambda store: store.send_all(messages, queues, tx))
            its_ids = [chained_id(each) for each in first.ids]
            joined = self._steps.join(
                first, lambda store: store.send_all(messages, queues, its_tx, ids=its_ids, checked=True)
            )
            self._expect(first.ids, tx, joined)
            return PendingAll(first.ids, joined.completion)

    def route(self, message_id: int, queue: str, due: int = 0, tx: int = 0) -> Pending:
        its_id, its_tx = chained_id(message_id), chained_id(tx)
        with self._lock:
            first = self._steps.ask_first(lambda store: store.route(message_id, queue, due, tx))
            return self._arrives(first, message_id, tx, lambda store: store.route(its_id, queue, due, its_tx))

    def delete(self, message_id: int) -> Pending:
        return self._of_message(message_id, 0, lambda store, its_id, _: store.delete(its_id))

    def acknowledge(self, message_id: int, queue: str, holder: str = "", tx: int = 0) -> Pending:
        its_tx = chained_id(tx)
        with self._lock:
            first = self._steps.ask_first(lambda store: store.acknowledge(message_id, queue, holder, tx))
            joined = self._steps.follow(
                first, [message_id], queue, lambda store, its_ids: store.acknowledge(its_ids[0], queue, holder, its_tx)
            )
            self._note_touched([message_id], tx)
            return Pending(first.id, joined.completion)

    def acknowledge_all(self, message_ids: Sequence[int], queue: str, holder: str = "", tx: int = 0) -> PendingAll:
        its_tx = chained_id(tx)
        with self._lock:
            first = self._steps.ask_first(lambda store: store.acknowledge_all(message_ids, queue, holder, tx))
            joined = self._steps.follow(
                first, first.ids, queue, lambda store, its_ids: store.acknowledge_all(its_ids, queue, holder, its_tx)
            )
            self._note_touched(first.ids, tx)
            return PendingAll(first.ids, joined.completion)

    def acquire(self, message_id: int, queue: str, holder: str, tx: int = 0) -> Pending:
        its_tx = chained_id(tx)

        def acquire(store: ChainedStore, its_ids: Sequence[int]) -> Pending:
            return store.acquire(its_ids[0], queue, holder, its_tx, checked=True)

        with self._lock:
            first = self._steps.ask_first(lambda store: store.acquire(message_id, queue, holder, tx))
            joined = self._steps.follow(first, [message_id], queue, acquire)
            self._note_touched([message_id], tx)
            return Pending(first.id, joined.completion)

    def take(self, queue: str, holder: str) -> Delivery | None:
        """The first store chooses; the others acquire the same message behind it."""

        def acquire(store: ChainedStore, its_ids: Sequence[int]) -> Pending:
            return store.acquire(its_ids[0], queue, holder, checked=True)

        with self._lock:
            delivery = self._steps.ask_first(lambda store: store.take(queue, holder))
            if delivery is not None:
                self._steps.follow(Pending(delivery.message), [delivery.message], queue, acquire)
            return delivery

    def release(self, message_id: int, queue: str, holder: str = "", tx: int = 0, *, counts: bool = True) -> Pending:
        its_id, its_tx = chained_id(message_id), chained_id(tx)

        def release(store: ChainedStore) -> Pending:
            try:
                return store.release(its_id, queue, holder, its_tx, counts=counts)
            except MessageHeldError:
                for each in store.explain(its_id):
                    if each.queue == queue and each.state in _GIVEN_BACK:
                        # the time of those who do not come back was over earlier there
                        return store.deliveries(its_id, queue, each.deliveries + counts, its_tx)
                raise

        with self._lock:
            first = self._steps.ask_first(lambda store: store.release(message_id, queue, holder, tx, counts=counts))
            self._steps.await_arrival(message_id)
            joined = self._steps.join(first, release)
            self._note_touched([message_id], tx)
            return Pending(first.id, joined.completion)

    def release_holder(self, name: str, *, counts: bool = True) -> Pending:
        return self._same(0, lambda store, _: store.release_holder(name, counts=counts))

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

    def move(self, message_id: int, queue: str, address: str, queues: Sequence[str], reason: str, tx: int = 0) -> Moved:
        its_tx = chained_id(tx)

        def move(store: ChainedStore, its_id: int, copy: int) -> Moved:
            return store.move(its_id, queue, address, queues, reason, id=copy, tx=its_tx)

        with self._lock:
            first = self._steps.ask_first(lambda store: store.move(message_id, queue, address, queues, reason, tx=tx))
            return self._copied(first, message_id, queue, tx, move)

    def expire(self, message_id: int, queue: str, tx: int = 0, *, queues: Sequence[str] = ()) -> Moved:
        def expire(store: ChainedStore, its_id: int, chosen: Sequence[str], copy: int, its_tx: int) -> Moved:
            return store.expire(its_id, queue, queues=chosen, id=copy, tx=its_tx)

        return self._dispose(message_id, queue, queues, tx, expire)

    def dead_letter(self, message_id: int, queue: str, tx: int = 0, *, queues: Sequence[str] = ()) -> Moved:
        def dead_letter(store: ChainedStore, its_id: int, chosen: Sequence[str], copy: int, its_tx: int) -> Moved:
            return store.dead_letter(its_id, queue, queues=chosen, id=copy, tx=its_tx)

        return self._dispose(message_id, queue, queues, tx, dead_letter)

    def tick(self) -> int:
        """As a store's, of the first; the others follow when a message that this concerns is next used."""
        with self._lock:
            return self._steps.ask_first(lambda store: store.tick())

    # ---- the whole -------------------------------------------------------------------------------------------------

    def room(self) -> Completion:
        """Done when all stores have room."""
        return self._all(lambda store: store.room())

    def flush(self) -> Completion:
        """Done when everything accepted so far is durable in all stores."""
        return self._all(lambda store: store.flush())

    def close(self) -> None:
        """Close every store, in order, also behind one that raises."""
        with ExitStack() as stack:
            for store in reversed(self._stores):
                stack.callback(store.close)

    def __enter__(self) -> MessageStoreChain:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
