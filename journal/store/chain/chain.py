"""`MessageStoreChain`: several message stores driven as one, each with a journal of its own.

Every store gets the same operations in the same order; an operation is complete when all stores have completed it. The
first store answers reads, and an operation that it refuses changes nothing in any store. If a later store refuses an
operation, or any store fails, the stores differ: the chain raises a `ChainError`, which names the store, and accepts
nothing more. `journal.store.chain.realigning` makes the stores equal when they are started again.

Ids of the other stores are computed. The first store issues the ids of messages, bindings and transactions, and these
are the ids of the chain. Every other store gets the same id with one bit set, which no journal reaches when it issues
ids itself (2^52 sequences). So ids that a store issues itself (of chunks, queues) never collide with those that the
chain gives it, an id stays in the virtual shard of its address, no crash can lose the mapping, and it takes no memory.

The other files: `core` (how an operation reaches all stores), `lockstep` (waiting and failing together),
`transactions`, and `streams` (bodies in pieces).
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from types import TracebackType

from journal.append.completion import Completion
from journal.append.operations import PlainOperation
from journal.errors import ChainError, MessageHeldError
from journal.store.address_settings import AddressSettings, KeptSettings, ToldSetting
from journal.store.bodies.chunks import BodyStream
from journal.store.chain.core import LAG_TIMEOUT_S_DEFAULT, ChainCore
from journal.store.chain.lockstep import chained_id
from journal.store.chain.ports import ChainedStore
from journal.store.chain.releasing import release_holder
from journal.store.chain.streams import ChainStreams
from journal.store.chain.transactions import ChainTransactions
from journal.store.model import Delivery, Held, Message, QueueConfig, ReferenceInfo, ReferenceState
from journal.store.operations.look import QueueInfo, Reading
from journal.store.operations.move import DEAD
from journal.store.operations.transactions import Prepared
from journal.store.pending import Moved, Pending, PendingAll
from journal.store.queues.entry import AddressEntry, BindingEntry, MessageEntry
from journal.store.transactions import TransactionInfo

_GIVEN_BACK = (ReferenceState.READY, ReferenceState.SCHEDULED)


class MessageStoreChain:
    """Several stores as one, with the operations of a `MessageStore`, whose docstrings apply here too. Thread-safe.

    If a call of a store blocks (for room in a full queue), the call of the chain blocks too.

    A message that the first store delivers may not be durable in the others yet, and a call that takes, acquires or
    settles it waits for them. So a completion's callback may not call the chain (CallbackError), because it runs in a
    thread for which such a call would wait.
    """

    def __init__(
        self,
        stores: Sequence[ChainedStore],
        *,
        names: Sequence[str] = (),
        lag_timeout_s: float = LAG_TIMEOUT_S_DEFAULT,
    ) -> None:
        """`stores` are started and hold the same messages, as after `realign`. `names` are for errors; without them
        stores are numbered from 1.

        All stores but the first should wait for room in a full queue, because their FullError would come too late to
        refuse an operation.
        """
        self._core = ChainCore(stores, names=names, lag_timeout_s=lag_timeout_s)
        self._first = self._core.first
        self._transactions = ChainTransactions(self._core)
        self._streams = ChainStreams(self._core, self._transactions)

    @property
    def error(self) -> ChainError | None:
        """The error after which the chain accepts nothing more; None while it has met none."""
        return self._core.steps.error

    # ---- objects ---------------------------------------------------------------------------------------------------

    def create_address(self, name: str, duplicate_window: int = 0, tx: int = 0) -> Pending:
        return self._core.same(tx, lambda store, its_tx: store.create_address(name, duplicate_window, its_tx))

    def destroy_address(self, name: str, tx: int = 0) -> Pending:
        pending = self._core.same(tx, lambda store, its_tx: store.destroy_address(name, its_tx, discard=False))
        self._core.discard_leaving()
        return pending

    def create_queue(self, config: QueueConfig, tx: int = 0) -> Pending:
        return self._core.same(tx, lambda store, its_tx: store.create_queue(config, its_tx))

    def change_queue(self, config: QueueConfig) -> Pending:
        return self._core.same(0, lambda store, _: store.change_queue(config))

    def pause(self, queue: str) -> Pending:
        return self._core.same(0, lambda store, _: store.pause(queue))

    def resume(self, queue: str) -> Pending:
        return self._core.same(0, lambda store, _: store.resume(queue))

    def set_address_settings(self, pattern: str, settings: AddressSettings) -> Pending:
        return self._core.same(0, lambda store, _: store.set_address_settings(pattern, settings))

    def unset_address_settings(self, pattern: str) -> Pending:
        return self._core.same(0, lambda store, _: store.unset_address_settings(pattern))

    def destroy_queue(self, name: str, tx: int = 0) -> Pending:
        pending = self._core.same(tx, lambda store, its_tx: store.destroy_queue(name, its_tx, discard=False))
        self._core.discard_leaving()
        return pending

    def bind(self, queue: str, key: str = "", filter: str = "", tx: int = 0) -> Pending:
        with self._core.lock:
            first = self._core.steps.ask_first(lambda store: store.bind(queue, key, filter, tx))
            binding, its_tx = chained_id(first.id), chained_id(tx)
            joined = self._core.steps.join(first, lambda store: store.bind(queue, key, filter, its_tx, id=binding))
            self._core.note_declaring(tx)
            return Pending(first.id, joined.completion)

    def unbind(self, binding_id: int, tx: int = 0) -> Pending:
        its_id, its_tx = chained_id(binding_id), chained_id(tx)
        with self._core.lock:
            first = self._core.steps.ask_first(lambda store: store.unbind(binding_id, tx))
            joined = self._core.steps.join(first, lambda store: store.unbind(its_id, its_tx))
            self._core.note_declaring(tx)
            return Pending(first.id, joined.completion)

    # ---- messages --------------------------------------------------------------------------------------------------

    def store(self, message: Message, tx: int = 0) -> Pending:
        its_tx = chained_id(tx)
        with self._core.lock:
            first = self._core.steps.ask_first(lambda store: store.store(message, tx))
            its_id = chained_id(first.id)
            return self._core.arrives(
                first, first.id, tx, lambda store: store.store(message, its_tx, id=its_id, checked=True)
            )

    def send(self, message: Message, queues: Sequence[str], tx: int = 0) -> Pending:
        its_tx = chained_id(tx)
        with self._core.lock:
            first = self._core.steps.ask_first(lambda store: store.send(message, queues, tx))
            its_id = chained_id(first.id)
            return self._core.arrives(
                first, first.id, tx, lambda store: store.send(message, queues, its_tx, id=its_id, checked=True)
            )

    def send_all(self, messages: Sequence[Message], queues: Sequence[str], tx: int = 0) -> PendingAll:
        its_tx = chained_id(tx)
        with self._core.lock:
            first = self._core.steps.ask_first(lambda store: store.send_all(messages, queues, tx))
            its_ids = [chained_id(each) for each in first.ids]
            joined = self._core.steps.join(
                first, lambda store: store.send_all(messages, queues, its_tx, ids=its_ids, checked=True)
            )
            self._core.expect(first.ids, tx, joined)
            return PendingAll(first.ids, joined.completion)

    def store_stream(self, message: Message, body: Iterable[bytes], queues: Sequence[str] = (), tx: int = 0) -> Pending:
        """Send a message whose body comes in pieces. The first store takes the whole body first; it is kept for the
        other stores meanwhile."""
        return self._streams.store_stream(message, body, queues, tx)

    async def store_stream_async(
        self, message: Message, body: AsyncIterable[bytes], queues: Sequence[str] = (), tx: int = 0
    ) -> Pending:
        """`store_stream` in an event loop, which is not blocked by a slow body or a full journal. The message is
        accepted when this call returns.

        The first store takes the body in the event loop, so its journal must not wait for room by itself
        (`room_timeout_ms` 0). The others may wait, in a thread. If the caller is cancelled, it still waits for that
        thread.
        """
        return await self._streams.store_stream_async(message, body, queues, tx)

    def route(self, message_id: int, queue: str, due: int = 0, tx: int = 0) -> Pending:
        its_id, its_tx = chained_id(message_id), chained_id(tx)
        with self._core.lock:
            first = self._core.steps.ask_first(lambda store: store.route(message_id, queue, due, tx))
            return self._core.arrives(first, message_id, tx, lambda store: store.route(its_id, queue, due, its_tx))

    def delete(self, message_id: int) -> Pending:
        return self._core.of_message(message_id, 0, lambda store, its_id, _: store.delete(its_id))

    def acknowledge(self, message_id: int, queue: str, holder: str = "", tx: int = 0) -> Pending:
        return Pending(message_id, self.acknowledge_all([Held(queue, (message_id,), holder)], tx).completion)

    def acknowledge_all(self, held: Sequence[Held], tx: int = 0) -> PendingAll:
        its_tx = chained_id(tx)
        with self._core.lock:
            first = self._core.steps.ask_first(lambda store: store.acknowledge_all(held, tx))
            joined = self._core.steps.follow(
                first, held, lambda store, its_held: store.acknowledge_all(its_held, its_tx)
            )
            self._core.note_touched(first.ids, tx)
            return PendingAll(first.ids, joined.completion)

    def acquire(self, message_id: int, queue: str, holder: str, tx: int = 0) -> Pending:
        its_tx = chained_id(tx)

        def acquire(store: ChainedStore, held: Sequence[Held]) -> Pending:
            return store.acquire(held[0].messages[0], queue, holder, its_tx, checked=True)

        with self._core.lock:
            first = self._core.steps.ask_first(lambda store: store.acquire(message_id, queue, holder, tx))
            joined = self._core.steps.follow(first, [Held(queue, [message_id])], acquire)
            self._core.note_touched([message_id], tx)
            return Pending(first.id, joined.completion)

    def take(self, queue: str, holder: str) -> Delivery | None:
        taken = self.take_all(queue, holder, 1, bodies=False)
        return taken[0] if taken else None

    def take_all(self, queue: str, holder: str, count: int, *, bodies: bool = True) -> list[Delivery]:
        """Take messages. The first store chooses them, and the others then acquire the same messages."""

        def acquire(store: ChainedStore, held: Sequence[Held]) -> Pending:
            return store.acquire(held[0].messages[0], queue, holder, checked=True)

        with self._core.lock:
            taken = self._core.steps.ask_first(lambda store: store.take_all(queue, holder, count, bodies=bodies))
            for each in taken:
                self._core.steps.follow(Pending(each.message), [Held(queue, [each.message])], acquire)
            return taken

    def release(self, message_id: int, queue: str, holder: str = "", tx: int = 0, *, counts: bool = True) -> Pending:
        its_id, its_tx = chained_id(message_id), chained_id(tx)

        def release(store: ChainedStore) -> Pending:
            try:
                return store.release(its_id, queue, holder, its_tx, counts=counts)
            except MessageHeldError:
                for each in store.explain(its_id):
                    if each.queue == queue and each.state in _GIVEN_BACK:
                        # that store has released the reference earlier, because its time for absent holders was over
                        return store.deliveries(its_id, queue, each.deliveries + counts, its_tx)
                raise

        with self._core.lock:
            first = self._core.steps.ask_first(
                lambda store: store.release(message_id, queue, holder, tx, counts=counts)
            )
            self._core.steps.await_arrival(message_id)
            joined = self._core.steps.join(first, release)
            self._core.note_touched([message_id], tx)
            return Pending(first.id, joined.completion)

    def release_holder(self, name: str, *, counts: bool = True) -> Pending:
        """Release in steps, so that others use the chain between them: each step of the first store is followed by the
        same one of the others."""
        return release_holder(self._core, name, counts=counts)

    def reattach(self, holder: str) -> list[tuple[int, str]]:
        """The messages that `holder` has according to the first store, which lists them without the chain's lock."""
        with self._core.lock:
            held = self._core.steps.ask_first(lambda store: store.reattaching(holder))
            for place in range(1, len(self._core.stores)):
                self._core.steps.ask_other(place, lambda store: store.reattaching(holder))
        return [*held]

    def deliveries(self, message_id: int, queue: str, count: int, tx: int = 0) -> Pending:
        return self._core.of_message(
            message_id, tx, lambda store, its_id, its_tx: store.deliveries(its_id, queue, count, its_tx)
        )

    def schedule(self, message_id: int, queue: str, due: int, tx: int = 0) -> Pending:
        return self._core.of_message(
            message_id, tx, lambda store, its_id, its_tx: store.schedule(its_id, queue, due, its_tx)
        )

    def move(self, message_id: int, queue: str, address: str, queues: Sequence[str], reason: str, tx: int = 0) -> Moved:
        its_tx = chained_id(tx)

        def move(store: ChainedStore, its_id: int, copy: int) -> Moved:
            return store.move(its_id, queue, address, queues, reason, id=copy, tx=its_tx)

        with self._core.lock:
            first = self._core.steps.ask_first(
                lambda store: store.move(message_id, queue, address, queues, reason, tx=tx)
            )
            return self._core.copied(first, message_id, queue, tx, move)

    def expire(self, message_id: int, queue: str, tx: int = 0, *, queues: Sequence[str] = ()) -> Moved:
        def expire(store: ChainedStore, its_id: int, chosen: Sequence[str], copy: int, its_tx: int) -> Moved:
            return store.expire(its_id, queue, queues=chosen, id=copy, tx=its_tx)

        return self._core.dispose(message_id, queue, queues, tx, expire)

    def dead_letter(
        self, message_id: int, queue: str, tx: int = 0, *, queues: Sequence[str] = (), reason: str = DEAD
    ) -> Moved:
        def dead_letter(store: ChainedStore, its_id: int, chosen: Sequence[str], copy: int, its_tx: int) -> Moved:
            return store.dead_letter(its_id, queue, queues=chosen, reason=reason, id=copy, tx=its_tx)

        return self._core.dispose(message_id, queue, queues, tx, dead_letter)

    def tick(self) -> int:
        """Call `tick` of the first store. The other stores follow when one of the affected messages is next used."""
        with self._core.lock:
            return self._core.steps.ask_first(lambda store: store.tick())

    # ---- transactions ----------------------------------------------------------------------------------------------

    def begin(self) -> int:
        return self._transactions.begin()

    def prepare(self, tx: int, data: bytes = b"") -> Prepared:
        """Prepare a transaction. `not_durable` names the parts that are not durable in the first store."""
        return self._transactions.prepare(tx, data)

    def commit(self, tx: int, *, then: Sequence[PlainOperation] = ()) -> Pending:
        """Commit a transaction. `then` are operations on records of the first store's journal; the other stores do not
        get them."""
        return self._transactions.commit(tx, then=then)

    def rollback(self, tx: int, *, release: bool = False) -> Pending:
        return self._transactions.rollback(tx, release=release)

    # ---- reads, which the first store answers -----------------------------------------------------------------------

    def message(self, message_id: int, *, body: bool = True) -> Message:
        return self._first.message(message_id, body=body)

    def bodies(self, message_ids: Sequence[int]) -> Reading:
        return self._first.bodies(message_ids)

    def body_stream(self, message_id: int) -> BodyStream:
        return self._first.body_stream(message_id)

    def describe(self, message_id: int) -> MessageEntry:
        return self._first.describe(message_id)

    def explain(self, record_id: int) -> list[ReferenceInfo]:
        return self._first.explain(record_id)

    def browse(self, queue: str, limit: int = 0) -> Iterator[ReferenceInfo]:
        return self._first.browse(queue, limit)

    def queue(self, name: str) -> QueueInfo:
        return self._first.queue(name)

    def queues(self) -> list[QueueInfo]:
        return self._first.queues()

    def address(self, name: str) -> AddressEntry:
        return self._first.address(name)

    def addresses(self) -> list[AddressEntry]:
        return self._first.addresses()

    def address_settings(self) -> list[KeptSettings]:
        return self._first.address_settings()

    def settings_of(self, address: str) -> dict[str, ToldSetting]:
        return self._first.settings_of(address)

    def bindings(self, queue: str) -> list[BindingEntry]:
        return self._first.bindings(queue)

    def holders(self) -> list[str]:
        return self._first.holders()

    def is_empty(self, tx: int) -> bool:
        return self._first.is_empty(tx)

    def transaction(self, tx: int) -> TransactionInfo:
        return self._first.transaction(tx)

    def transactions(self) -> list[TransactionInfo]:
        return self._first.transactions()

    def in_doubt(self) -> list[TransactionInfo]:
        return self._first.in_doubt()

    def next_due(self) -> int:
        return self._first.next_due()

    def dead(self, limit: int = 1000) -> list[tuple[int, str]]:
        return self._first.dead(limit)

    def expired(self, limit: int = 1000, *, agreed: bool = True) -> list[tuple[int, str]]:
        return self._first.expired(limit, agreed=agreed)

    # ---- the chain as a whole ---------------------------------------------------------------------------------------

    def room(self) -> Completion:
        """A future that is done when all stores have room."""
        return self._core.all(lambda store: store.room())

    def flush(self) -> Completion:
        """A future that is done when everything accepted so far is durable in all stores."""
        return self._core.all(lambda store: store.flush())

    def close(self) -> None:
        """Close every store, in order, even if one of them raises an error."""
        with ExitStack() as stack:
            for store in reversed(self._core.stores):
                stack.callback(store.close)

    def __enter__(self) -> MessageStoreChain:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
