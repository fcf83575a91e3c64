"""Reading a message store: messages with their bodies, queues with their counts, and the state of a message in each
queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import NamedTuple

from journal.errors import InvalidOperationError, MessageMissingError
from journal.store.bodies.cache import read_stored
from journal.store.bodies.chunks import BodyStream
from journal.store.message_records import decode_message
from journal.store.model import Delivery, Message, QueueConfig, ReferenceInfo
from journal.store.operations.core import StoreCore
from journal.store.queues.counters import HolderInfo, QueueCounts
from journal.store.queues.entry import AddressEntry, MessageEntry, QueueEntry

_AT_ONCE = 100
"""The number of queues or addresses that are read while the lock is held once."""


class QueueInfo(NamedTuple):
    """A queue and how many messages it has in each state, as `queue` and `queues` tell it."""

    record_id: int
    config: QueueConfig
    ready: int
    scheduled: int
    """Messages whose due time is in the future."""
    held: int
    """Messages that holders have acquired."""
    locked: int
    """Messages that transactions acknowledge or change."""
    settling: int
    """Messages whose acknowledgement may not be durable yet."""
    arriving: int
    """Messages that are not durable yet, or that transactions in doubt will add."""
    bytes: int
    """Bytes of all these messages."""
    oldest: int
    """The smallest timestamp of the first messages of all priorities; 0 if no message is ready."""


class Reading:
    """Messages that are being read: await it in an event loop, where a thread reads them, or `wait` in a thread."""

    def __init__(self, read: Callable[[], dict[int, Message]]) -> None:
        self._read = read

    def wait(self) -> dict[int, Message]:
        """Read the messages in this thread; gives them by id. Messages that are gone are left out."""
        return self._read()

    def __await__(self) -> Generator[object, None, dict[int, Message]]:
        return asyncio.to_thread(self._read).__await__()


class LookOperations:
    """Operations that change nothing."""

    def __init__(self, core: StoreCore) -> None:
        self._core = core

    # ---- messages --------------------------------------------------------------------------------------------------

    def message(self, message_id: int, *, body: bool = True) -> Message:
        with self._core.lock:
            entry = self._core.enter().message(message_id)
        (data,) = BodyStream(message_id, (message_id,), self._reader(message_id), self._read_timeout_s)
        message = content_of(data, durable=entry.durable)
        if body and entry.chunks:
            message = replace(message, body=b"".join(self.body_stream(message_id)))
        return message

    def in_memory(self, message_id: int) -> tuple[bytes | None, bool]:
        """The data of a message's record, None if it is not in memory; and whether the message is durable. Its caller
        holds the store's lock."""
        core = self._core
        if message_id in core.volatile:
            return core.volatile.in_memory(message_id), False
        return core.cache.get(message_id), True

    def with_contents(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Deliveries with their contents, as far as these are in memory. Its caller holds the store's lock."""
        found = [(each, *self.in_memory(each.message)) for each in deliveries]
        return [
            each if data is None else each._replace(content=content_of(data, durable=durable))
            for each, data, durable in found
        ]

    def bodies(self, message_ids: Sequence[int]) -> Reading:
        return Reading(partial(self._read_all, tuple(message_ids)))

    def _read_all(self, message_ids: Sequence[int]) -> dict[int, Message]:
        found: dict[int, Message] = {}
        for message_id in message_ids:
            with suppress(MessageMissingError):
                found[message_id] = self.message(message_id, body=False)
        return found

    def body_stream(self, message_id: int) -> BodyStream:
        with self._core.lock:
            entry = self._core.enter().message(message_id)
        read = self._reader(message_id)
        if entry.chunks:
            return BodyStream(message_id, entry.chunks, read, self._read_timeout_s)

        def read_body(piece_id: int) -> bytes | None:
            data = read(piece_id)
            return None if data is None else decode_message(data).body

        return BodyStream(message_id, (message_id,), read_body, self._read_timeout_s)

    def _reader(self, message_id: int) -> Callable[[int], bytes | None]:
        return partial(self._read_piece, message_id)

    @property
    def _read_timeout_s(self) -> float:
        return self._core.settings.read_timeout_ms / 1000

    def _read_piece(self, message_id: int, piece_id: int) -> bytes | None:
        """The data of a message's record or chunk; None while the local copy does not have it.

        Raises MessageMissingError.
        """
        while True:
            with self._core.turn():
                if self._core.cache.catch_up():
                    break
        with self._core.lock:
            self._core.enter().message(message_id)
            kept = (
                self._core.volatile.get(piece_id) if piece_id in self._core.volatile else self._core.cache.get(piece_id)
            )
            tx = self._core.transactions.stored_in.get(message_id)
            if kept is None and tx is not None:
                txn = self._core.transactions.open.get(tx)
                kept = None if txn is None else txn.bodies.get(piece_id)
                if kept is None:
                    raise MessageMissingError(
                        f"message {message_id} can be read once transaction {tx} is committed", message_id
                    )
            if kept is not None:
                return kept
            stored_by = self._core.cache.stored_by(piece_id)
        return read_stored(self._core.journal, piece_id, stored_by)

    def explain(self, record_id: int) -> list[ReferenceInfo]:
        with self._core.lock:
            return self._core.enter().explain(record_id)

    def describe(self, message_id: int) -> MessageEntry:
        with self._core.lock:
            return self._core.enter().message(message_id)

    # ---- queues ----------------------------------------------------------------------------------------------------

    def browse(self, queue: str, limit: int = 0) -> Iterator[ReferenceInfo]:
        require_limit(limit)
        with self._core.lock:
            state = self._core.enter()
            queue_id = state.queue(queue).record_id
        return iter(list(islice(state.browse(queue_id, self._core.turn), limit or None)))

    def counters(self, queue: str) -> QueueCounts:
        with self._core.lock:
            entry = self._core.enter().queue(queue)
            return entry.counters.counts(entry.there)

    def holding(self, queue: str) -> list[HolderInfo]:
        with self._core.lock:
            state = self._core.enter()
            return state.holding(state.queue(queue).record_id)

    def queues(self) -> list[QueueInfo]:
        core = self._core
        with core.lock:
            entries = core.enter().queues()
        infos: list[QueueInfo] = []
        for start in range(0, len(entries), _AT_ONCE):
            with core.lock:
                state = core.enter()
                part = entries[start : start + _AT_ONCE]
                infos += [_info(entry) for entry in part if state.has_queue(entry.record_id)]
        return infos

    def queue(self, name: str) -> QueueInfo:
        with self._core.lock:
            return _info(self._core.enter().queue(name))

    def address(self, name: str) -> AddressEntry:
        with self._core.lock:
            return replace(self._core.enter().address(name))

    def addresses(self) -> list[AddressEntry]:
        core = self._core
        with core.lock:
            entries = core.enter().addresses()
        found: list[AddressEntry] = []
        for start in range(0, len(entries), _AT_ONCE):
            with core.lock:
                core.enter()
                found += [replace(entry) for entry in entries[start : start + _AT_ONCE]]
        return found

    # ---- bodies in memory ------------------------------------------------------------------------------------------

    def volatile_bytes(self) -> tuple[int, int]:
        core = self._core
        with core.lock:
            core.enter()
            return core.volatile.memory_bytes, core.volatile.swapped_bytes

    def cached_bytes(self) -> int:
        core = self._core
        with core.lock:
            core.enter()
            core.cache.pass_on()
            return core.cache.bytes


def content_of(data: bytes, *, durable: bool) -> Message:
    """The message in the data of its record."""
    message = decode_message(data)
    return message if durable else replace(message, durable=False)


def require_limit(limit: int) -> None:
    """Raises InvalidOperationError for a limit below 0."""
    if limit < 0:
        raise InvalidOperationError(f"a limit of {limit} is below 0")


def _info(entry: QueueEntry) -> QueueInfo:
    return QueueInfo(
        entry.record_id,
        entry.config,
        entry.ready,
        entry.scheduled,
        entry.held,
        entry.locked,
        entry.settling,
        entry.arriving,
        entry.bytes,
        entry.oldest,
    )
