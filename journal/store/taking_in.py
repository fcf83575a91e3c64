"""Messages that come from Kafka topics: stored and routed as sent ones are, with what was consumed for them.

A batch is one group of the journal, and one Kafka transaction with the consumed offsets: after any crash both are
there, or neither. Should Kafka take neither while this node stays active, it is as if the batch had never been.

Hot path: many messages to one queue. The lock is held once for a batch, so a batch is not large.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from journal.acceptance import PlainOperation
from journal.completion import Completion
from journal.errors import DuplicateMessageError, MessageTooLargeError, QueueMissingError
from journal.kafka.ports import Consumed, Sent
from journal.store.base import SHARD_MASK, Effect
from journal.store.duplicates import DuplicateWindow, Reservation
from journal.store.model import Message, QueueConfig, Routing
from journal.store.queue_entry import AddressEntry, QueueEntry
from journal.store.queue_state import QueueState
from journal.store.records import encode_acknowledgement, encode_duplicate, encode_message
from journal.store.sending import Sending
from journal.v1.journal_pb2 import ADD, UPDATE
from journal.v1.store_pb2 import ACKNOWLEDGE, CHUNK, DUPLICATE, MESSAGE, ROUTE, Acknowledgement

_NOBODY = -1
"""Reserves duplicate ids of a batch, and locks what it settles: no transaction has this number."""

Takes = Callable[[Message, QueueConfig], bool]
"""Whether a queue with a filter takes a message. Quick, and without calling the store."""


class Incoming(NamedTuple):
    """A durable message on its way in, encoded outside of the store's lock."""

    message: Message
    data: bytes
    """Of a small one; empty: its record also names its chunks, which have no ids yet."""


class Settles(NamedTuple):
    """A stored durable message that a batch acknowledges in a durable queue."""

    message: int
    queue: str
    expired: bool = False
    """It has waited in vain."""


@dataclass(slots=True, eq=False)
class TakenIn:
    """A batch that the journal has accepted: how many messages it stores, and what of it is not stored."""

    completion: Completion
    messages: int
    unrouted: int
    """No queue of their address takes them."""
    duplicates: int
    """Their duplicate-detection id was seen."""


class _Way:
    """Where messages of an address go."""

    __slots__ = ("_anycast", "_given", "_multicast", "_takes", "address", "always", "virtual_shard", "window")

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
        filtered = any(queue.config.filter for queue in queues)
        self.always = None if filtered or len(self._anycast) > 1 else [*self._multicast, *self._anycast]
        """The queues of every message, if that is no question."""

    def queues(self, message: Message) -> list[QueueEntry]:
        """All multicast queues that take it, and of the anycast ones that do the one with the fewest messages."""
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

    def _is_taken(self, message: Message, queue: QueueEntry) -> bool:
        return not queue.config.filter or self._takes(message, queue.config)


_Stored = tuple[int, Message, bytes, tuple[int, ...], int, Sequence[QueueEntry]]
"""A message of a batch as the store is to know it: id, message, data, chunks, the address' id, queues."""


@dataclass(slots=True, eq=False)
class _Batch:
    """What a batch appends, and what that means for the queues."""

    operations: list[PlainOperation] = field(default_factory=list)
    stored: list[_Stored] = field(default_factory=list)
    reservations: list[tuple[DuplicateWindow, Reservation]] = field(default_factory=list)
    locked: list[tuple[int, int]] = field(default_factory=list)
    """References that it acknowledges: message and queue."""
    unrouted: int = 0
    duplicates: int = 0


class TakingIn(Sending):
    """The operation that takes messages in."""

    def incoming(self, message: Message) -> Incoming:
        """Encode a message; it is durable from here on. Raises MessageTooLargeError, InvalidOperationError."""
        if not message.durable:
            message = replace(message, durable=True)
        if len(message.body) <= self._inline_bytes_max:
            return Incoming(message, encode_message(message))
        if len(message.body) > self._settings.message_bytes_max:
            raise MessageTooLargeError(
                f"a body of {len(message.body)} bytes is over {self._settings.message_bytes_max} (message_bytes_max)"
            )
        return Incoming(message, b"")

    def take_in(
        self,
        messages: Sequence[Incoming],
        consumed: Consumed,
        beside: Sequence[Sent],
        takes: Takes,
        settles: Sequence[Settles] = (),
    ) -> TakenIn:
        """Store messages and route them to queues of their address, in one group with what was consumed for them.

        `beside` are records that go to other topics with them; `takes` is asked for queues with a filter; `settles` are
        messages that are acknowledged with it. The completion is told NotTakenInError if nothing of it is there:
        consume again from the committed offsets. Raises AddressMissingError, QueueMissingError (the address has none),
        MessageMissingError, MessageHeldError (of what it settles), FullError, InvalidOperationError; then nothing was
        changed.
        """
        with self._lock:
            state = self._enter()
            batch = _Batch()
            try:
                self._fill(state, batch, messages, takes)
                for settled in settles:
                    self._lock_settled(state, batch, settled)
                completion = self._journal.take_in(batch.operations, consumed, beside)
            except BaseException:
                self._settle_windows(batch, entered=False)
                self._unlock_settled(state, batch)
                raise
            self._expect(state, batch, completion)
            return TakenIn(completion, len(batch.stored), batch.unrouted, batch.duplicates)

    def ways_in(self, addresses: Collection[str]) -> dict[str, list[QueueConfig]]:
        """The queues of those of the addresses that there are."""
        with self._lock:
            state = self._enter()
            there = {entry.name for entry in state.addresses()}
            found: dict[str, list[QueueConfig]] = {name: [] for name in addresses if name in there}
            for queue in state.queues():
                if queue.config.address in found:
                    found[queue.config.address].append(queue.config)
            return found

    # ---- before it is accepted -------------------------------------------------------------------------------------

    def _fill(self, state: QueueState, batch: _Batch, messages: Sequence[Incoming], takes: Takes) -> None:
        ways = self._ways(state, {each.message.address for each in messages}, takes)
        ids = self._journal.new_ids([ways[each.message.address].virtual_shard for each in messages])
        operations, stored = batch.operations, batch.stored
        for message_id, (message, data) in zip(ids, messages, strict=True):
            way = ways[message.address]
            targets = way.always or way.queues(message)
            if not targets:
                batch.unrouted += 1
                continue
            if message.duplicate_id and way.window is not None and not self._enters(batch, way, message.duplicate_id):
                batch.duplicates += 1
                continue
            chunks: tuple[int, ...] = ()
            if not data:
                data, chunks = self._chunked(batch, way, message)
            operations.append((ADD, message_id, MESSAGE, data, False, 0))
            for queue in targets:
                if queue.config.durable:
                    operations.append((UPDATE, message_id, ROUTE, b"", False, queue.record_id))
            stored.append((message_id, message, data, chunks, way.address.record_id, targets))

    def _ways(self, state: QueueState, names: Collection[str], takes: Takes) -> dict[str, _Way]:
        queues: dict[str, list[QueueEntry]] = {name: [] for name in names}
        for entry in state.queues() if names else ():
            if entry.config.address in queues:
                queues[entry.config.address].append(entry)
        ways: dict[str, _Way] = {}
        for name, there in queues.items():
            address = state.address(name)
            if not there:
                raise QueueMissingError(f"address {name} has no queue that could take a message")
            window = self._windows[address.record_id] if address.duplicate_window else None
            ways[name] = _Way(address, there, window, takes)
        return ways

    def _enters(self, batch: _Batch, way: _Way, duplicate_id: bytes) -> bool:
        """Reserve a duplicate-detection id; False if it was seen."""
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

    def _chunked(self, batch: _Batch, way: _Way, message: Message) -> tuple[bytes, tuple[int, ...]]:
        """The record of a large message, whose chunks are appended before it; and their ids."""
        pieces = list(_pieces(message.body, self._settings.chunk_bytes))
        ids = self._journal.new_ids([way.virtual_shard] * len(pieces))
        for chunk_id, piece in zip(ids, pieces, strict=True):
            batch.operations.append((ADD, chunk_id, CHUNK, piece, False, 0))
        return encode_message(replace(message, body=b""), chunks=ids, body_bytes=len(message.body)), tuple(ids)

    @staticmethod
    def _lock_settled(state: QueueState, batch: _Batch, settled: Settles) -> None:
        """The last reference's message is deleted later, as what is not referred to is: the group may yet not be."""
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
        """The journal has taken it: it is on its way into its queues."""
        put, store, route = self._cache.put, state.store, state.route
        for message_id, message, data, chunks, address_id, targets in batch.stored:
            due, size = message.due, len(data) + (len(message.body) if chunks else 0)
            store(
                message_id,
                address_id,
                priority=message.priority,
                size=size,
                expires=message.expires,
                timestamp=message.timestamp,
                due=due,
                chunks=chunks,
            )
            put(completion, message_id, data)
            self._taking_in[message_id] = address_id
            for queue in targets:
                route(message_id, queue.record_id, due=due)
        batch.operations = []
        self._when_durable(completion, self._is_taken_in, batch, None)

    def _is_taken_in(self, batch: _Batch, _: None) -> None:
        state = self._state
        self._settle_windows(batch, entered=True)
        left = []
        taking_in, arrive, remainder = self._taking_in, state.arrive, state.remainder
        for message_id, _message, _data, _chunks, _address_id, targets in batch.stored:
            del taking_in[message_id]
            for queue in targets:
                arrive(message_id, queue.record_id)
            if not remainder(message_id)[1]:
                left.append(message_id)  # its queues were destroyed meanwhile
        for message_id, queue_id in batch.locked:
            chunks = state.remainder(message_id)[2]
            if state.acknowledge(message_id, queue_id, tx=_NOBODY):
                self._drop_bodies(message_id, chunks)
                self._garbage.append((message_id, *chunks))
            state.settled(message_id, queue_id)
        if left:
            self._discard(left)

    def _take_back(self, effects: Sequence[Effect]) -> None:
        state = self._state
        for _, batch, _ in effects:
            assert isinstance(batch, _Batch)
            self._settle_windows(batch, entered=False)
            self._unlock_settled(state, batch)
            for message_id, _message, _data, chunks, _address_id, targets in batch.stored:
                del self._taking_in[message_id]
                for queue in targets:
                    state.withdraw(message_id, queue.record_id)
                state.forget(message_id)
                self._drop_bodies(message_id, chunks)

    def _settle_windows(self, batch: _Batch, *, entered: bool) -> None:
        of_window: dict[int, tuple[DuplicateWindow, list[Reservation]]] = {}
        for window, reservation in batch.reservations:
            of_window.setdefault(reservation.address, (window, []))[1].append(reservation)
        for window, reservations in of_window.values():
            window.settle(reservations, entered=entered)


def _pieces(body: bytes, size: int) -> Iterator[bytes]:
    return (body[start : start + size] for start in range(0, len(body), size))
