"""Adds messages from Kafka topics: they are stored and routed like sent ones, together with the offsets of their
records.

A batch is one group of the journal, and one Kafka transaction with the consumed offsets: after any crash both are
there, or neither. If Kafka takes neither while this node stays active, the batch is undone completely.

Hot path: many plain messages to one queue, in runs. The lock is held for the whole batch, so batches must be small.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from journal.append.completion import Completion
from journal.append.operations import AnyOperation, NewRecords
from journal.errors import DuplicateMessageError, QueueMissingError
from journal.kafka.ports import Consumed, Sent
from journal.store.duplicates import DuplicateWindow, Reservation
from journal.store.incoming import Incoming, PlainRun
from journal.store.message_records import decode_message, encode_message
from journal.store.model import PRIORITY_DEFAULT, Message, QueueConfig, Routing
from journal.store.operations.add import MessageAdder
from journal.store.operations.core import StoreCore
from journal.store.operations.discard import MessageDiscard
from journal.store.operations.effects import Effect
from journal.store.operations.garbage import Garbage
from journal.store.operations.ids import StoreIds
from journal.store.queues.entry import AddressEntry, QueueEntry
from journal.store.queues.runs import Run
from journal.store.queues.state import QueueState
from journal.store.records import encode_acknowledgement, encode_duplicate
from journal.v1.journal_pb2 import ADD, UPDATE
from journal.v1.store_pb2 import ACKNOWLEDGE, CHUNK, DUPLICATE, MESSAGE, ROUTE, Acknowledgement
from journal.wire.ids import SHARD_MASK

_NOBODY = -1
"""The number under which a batch reserves duplicate-detection ids and locks references. No transaction has this
number."""

Takes = Callable[[Message, QueueConfig], bool]
"""A function that tells whether a queue with a filter takes a message. It must be quick, and not call the store."""


class Settles(NamedTuple):
    """A stored durable message that a batch acknowledges in a durable queue, such as a request whose reply has come."""

    message: int
    queue: str
    expired: bool = False
    """Whether it is settled as expired instead of consumed."""


@dataclass(slots=True, eq=False)
class TakenIn:
    """A batch that the journal has accepted: how many messages it stores, and how many were left out."""

    completion: Completion
    messages: int
    unrouted: int
    """Messages that no queue of their address takes."""
    duplicates: int
    """Messages whose duplicate-detection id was seen before."""


class _Way:
    """The queues that messages of an address go to."""

    __slots__ = (
        "_anycast", "_filtered", "_given", "_multicast", "_takes", "address", "always", "single", "virtual_shard",
        "window",
    )  # fmt: skip

    def __init__(
        self, address: AddressEntry, queues: Sequence[QueueEntry], window: DuplicateWindow | None, takes: Takes
    ) -> None:
        self.address = address
        self.window = window
        self.virtual_shard = address.record_id & SHARD_MASK
        self._multicast = [queue for queue in queues if queue.config.routing is Routing.MULTICAST]
        self._anycast = [queue for queue in queues if queue.config.routing is Routing.ANYCAST]
        self._takes = takes
        self._given: dict[int, int] = {}
        self._filtered = any(queue.config.filter for queue in queues)
        self.always = None if self._filtered or len(self._anycast) > 1 else [*self._multicast, *self._anycast]
        """The queues of every message, if all messages of the address go to the same ones."""
        durable = self.always is not None and len(self.always) == 1 and self.always[0].config.durable
        self.single = self.always[0] if self.always and durable else None
        """The only queue of all messages, if there is one and it is durable."""

    def queues(self, incoming: Incoming) -> list[QueueEntry]:
        """The queues for a message: all multicast queues that take it, and the anycast queue with the fewest messages
        among those that take it."""
        message = incoming.message
        if message is None and self._filtered:
            message = decode_message(incoming.data)
        targets = [queue for queue in self._multicast if self._is_taken(message, queue)]
        given = self._given
        fewest = min(
            [queue for queue in self._anycast if self._is_taken(message, queue)],
            key=lambda queue: queue.messages + given.get(queue.record_id, 0),
            default=None,
        )
        if fewest is not None:
            given[fewest.record_id] = given.get(fewest.record_id, 0) + 1
            targets.append(fewest)
        return targets

    def _is_taken(self, message: Message | None, queue: QueueEntry) -> bool:
        return not queue.config.filter or (message is not None and self._takes(message, queue.config))


class _Plain(NamedTuple):
    """Plain messages of one address, all for its only queue."""

    ids: Sequence[int]
    data: Sequence[bytes]
    timestamps: Sequence[int]
    address_id: int
    queue: QueueEntry
    rows: list[Run]
    """The rows of these messages in the state, once they are stored."""


class _Stored(NamedTuple):
    """A message of a batch that is not plain, with the facts that the store needs."""

    id: int
    data: bytes
    size: int
    timestamp: int
    message: Message | None
    """The message; None for a plain one, as in `Incoming`."""
    chunks: tuple[int, ...]
    address_id: int
    queues: Sequence[QueueEntry]


@dataclass(slots=True, eq=False)
class _Batch:
    """The operations that a batch appends, and their effects on the queues."""

    operations: list[AnyOperation] = field(default_factory=list)
    stored: list[_Plain | _Stored] = field(default_factory=list)
    """The messages that the batch stores, in order."""
    reservations: list[tuple[DuplicateWindow, Reservation]] = field(default_factory=list)
    locked: list[tuple[int, int]] = field(default_factory=list)
    """(message, queue) pairs that it acknowledges."""
    messages: int = 0
    unrouted: int = 0
    duplicates: int = 0


class TakeInOperations:
    """The operation that takes messages in, and the questions that its caller asks first."""

    def __init__(
        self, core: StoreCore, ids: StoreIds, adder: MessageAdder, discard: MessageDiscard, garbage: Garbage
    ) -> None:
        self._core = core
        self._ids = ids
        self._adder = adder
        self._discard = discard
        self._garbage = garbage

    def incoming(self, message: Message) -> Incoming:
        if not message.durable:
            message = replace(message, durable=True)
        if len(message.body) <= self._core.inline_bytes_max:
            return Incoming(message.address, encode_message(message), message.timestamp, message)
        self._adder.require_size(message)
        return Incoming(message.address, b"", message.timestamp, message)

    def take_in(
        self,
        messages: Sequence[Incoming | PlainRun],
        consumed: Consumed,
        beside: Sequence[Sent],
        takes: Takes,
        settles: Sequence[Settles] = (),
    ) -> TakenIn:
        with self._core.lock:
            state = self._core.enter()
            batch = _Batch()
            try:
                self._fill(state, batch, messages, takes)
                for settled in settles:
                    self._lock_settled(state, batch, settled)
                completion = self._core.journal.take_in(batch.operations, consumed, beside)
            except BaseException:
                self._settle_windows(batch, entered=False)
                self._unlock_settled(state, batch)
                raise
            self._expect(state, batch, completion)
            return TakenIn(completion, batch.messages, batch.unrouted, batch.duplicates)

    def ways_in(self, addresses: Collection[str]) -> dict[str, list[QueueConfig]]:
        with self._core.lock:
            state = self._core.enter()
            return {
                name: [queue.config for queue in state.queues_of(name)] for name in addresses if state.has_address(name)
            }

    # ---- before it is accepted -------------------------------------------------------------------------------------

    def _fill(self, state: QueueState, batch: _Batch, messages: Sequence[Incoming | PlainRun], takes: Takes) -> None:
        ways = self._ways(state, {each.address for each in messages}, takes)
        for incoming in messages:
            way = ways[incoming.address]
            if isinstance(incoming, Incoming):
                self._add(batch, way, self._ids.issue(way.virtual_shard, durable=True), incoming)
                continue
            ids = self._ids.issue_many(way.virtual_shard, len(incoming.data))
            if (queue := way.single) is not None:
                batch.operations.append(NewRecords(MESSAGE, ids, incoming.data, ROUTE, queue.record_id))
                batch.stored.append(_Plain(ids, incoming.data, incoming.timestamps, way.address.record_id, queue, []))
                batch.messages += len(ids)
            else:
                for message_id, each in zip(ids, incoming.each(), strict=True):
                    self._add(batch, way, message_id, each)

    def _add(self, batch: _Batch, way: _Way, message_id: int, incoming: Incoming) -> None:
        """Add one message of any kind to a batch."""
        targets = way.always or way.queues(incoming)
        if not targets:
            batch.unrouted += 1
            return
        _, data, timestamp, message = incoming
        if message and message.duplicate_id and way.window and not self._enters(batch, way, message.duplicate_id):
            batch.duplicates += 1
            return
        chunks: tuple[int, ...] = ()
        size = 0
        if not data:
            assert message is not None, "a plain message is small"
            out, pieces = self._adder.in_chunks(message, way.virtual_shard)
            batch.operations += [(ADD, chunk_id, CHUNK, piece, False, 0) for chunk_id, piece in pieces]
            data, chunks, size = out.data, out.chunks, out.body_bytes
        batch.operations.append((ADD, message_id, MESSAGE, data, False, 0))
        for queue in targets:
            if queue.config.durable:
                batch.operations.append((UPDATE, message_id, ROUTE, b"", False, queue.record_id))
        size += len(data)
        stored = _Stored(message_id, data, size, timestamp, message, chunks, way.address.record_id, targets)
        batch.stored.append(stored)
        batch.messages += 1

    def _ways(self, state: QueueState, names: Collection[str], takes: Takes) -> dict[str, _Way]:
        ways: dict[str, _Way] = {}
        for name in names:
            address, there = state.address(name), state.queues_of(name)
            if not there:
                raise QueueMissingError(f"address {name} has no queue that could take a message")
            window = self._core.windows[address.record_id] if address.duplicate_window else None
            ways[name] = _Way(address, there, window, takes)
        return ways

    def _enters(self, batch: _Batch, way: _Way, duplicate_id: bytes) -> bool:
        """Reserve a duplicate-detection id; False if it was seen before."""
        window = way.window
        assert window is not None
        try:
            window.check(duplicate_id)
        except DuplicateMessageError:
            return False
        slot = window.next_slot(_NOBODY)
        batch.reservations.append((window, window.reserve(duplicate_id, slot, _NOBODY)))
        entered = encode_duplicate(duplicate_id)
        batch.operations.append((UPDATE, way.address.record_id, DUPLICATE, entered, True, slot))
        return True

    @staticmethod
    def _lock_settled(state: QueueState, batch: _Batch, settled: Settles) -> None:
        """Lock the references that a batch acknowledges. Their messages are deleted later, because the batch may still
        fail."""
        queue_id = state.queue(settled.queue).record_id
        state.lock(settled.message, queue_id, _NOBODY)
        batch.locked.append((settled.message, queue_id))
        reason = Acknowledgement.EXPIRED if settled.expired else Acknowledgement.CONSUMED
        batch.operations.append((UPDATE, settled.message, ACKNOWLEDGE, encode_acknowledgement(reason), False, queue_id))

    @staticmethod
    def _unlock_settled(state: QueueState, batch: _Batch) -> None:
        for message_id, queue_id in batch.locked:
            state.unlock(message_id, queue_id)

    # ---- until it is durable ---------------------------------------------------------------------------------------

    def _expect(self, state: QueueState, batch: _Batch, completion: Completion) -> None:
        """Note that the journal has accepted a batch. Its messages arrive in their queues when it is durable."""
        for each in batch.stored:
            if isinstance(each, _Plain):
                run = state.store_routed(
                    each.ids,
                    each.address_id,
                    each.queue.record_id,
                    sizes=[*map(len, each.data)],
                    timestamps=each.timestamps,
                    priorities=[PRIORITY_DEFAULT] * len(each.ids),
                )
                each.rows.append(run)
                self._core.cache.put_all(completion, each.ids, each.data, sum(map(len, each.data)))
                self._discard.taking_in.add(each.ids, each.address_id)
                continue
            message = each.message
            due = 0 if message is None else message.due
            state.store(
                each.id,
                each.address_id,
                priority=PRIORITY_DEFAULT if message is None else message.priority,
                size=each.size,
                expires=0 if message is None else message.expires,
                timestamp=each.timestamp,
                due=due,
                chunks=each.chunks,
            )
            self._core.cache.put(completion, each.id, each.data)
            self._discard.taking_in.add([each.id], each.address_id)
            for queue in each.queues:
                state.route(each.id, queue.record_id, due=due)
        batch.operations = []
        self._core.effects.when_durable(completion, self._is_taken_in, batch, None)

    def _is_taken_in(self, batch: _Batch, _: None) -> None:
        state = self._core.state
        self._settle_windows(batch, entered=True)
        left: list[int] = []  # the queues of these messages were destroyed meanwhile
        for each in batch.stored:
            if isinstance(each, _Plain):
                self._forget_taken(each.ids)
                if not state.arrive_run(each.rows[0], each.queue.record_id):
                    left += [message_id for message_id in each.ids if not state.remainder(message_id)[1]]
                continue
            self._discard.taking_in.discard(each.id)
            for queue in each.queues:
                state.arrive(each.id, queue.record_id)
            if not state.remainder(each.id)[1]:
                left.append(each.id)
        for message_id, queue_id in batch.locked:
            chunks = state.remainder(message_id)[2]
            if state.acknowledge(message_id, queue_id, tx=_NOBODY):
                self._discard.drop_bodies(message_id, chunks)
                self._garbage.add([(message_id, *chunks)])
            state.settled(message_id, queue_id)
        if left:
            self._discard.discard(left)

    def _forget_taken(self, message_ids: Sequence[int]) -> None:
        for message_id in message_ids:
            self._discard.taking_in.discard(message_id)

    def take_back(self, effects: Sequence[Effect]) -> None:
        state = self._core.state
        for _, batch, _ in effects:
            assert isinstance(batch, _Batch)
            self._settle_windows(batch, entered=False)
            self._unlock_settled(state, batch)
            for each in batch.stored:
                if isinstance(each, _Plain):
                    self._forget_taken(each.ids)
                    for message_id in each.ids:
                        self._withdraw(state, message_id, [each.queue], ())
                else:
                    self._discard.taking_in.discard(each.id)
                    self._withdraw(state, each.id, each.queues, each.chunks)

    def _withdraw(
        self, state: QueueState, message_id: int, queues: Sequence[QueueEntry], chunks: tuple[int, ...]
    ) -> None:
        for queue in queues:
            state.withdraw(message_id, queue.record_id)
        state.forget(message_id)
        self._discard.drop_bodies(message_id, chunks)

    def _settle_windows(self, batch: _Batch, *, entered: bool) -> None:
        of_window: dict[int, tuple[DuplicateWindow, list[Reservation]]] = {}
        for window, reservation in batch.reservations:
            of_window.setdefault(reservation.address, (window, []))[1].append(reservation)
        for window, reservations in of_window.values():
            window.settle(reservations, entered=entered)
