"""What a message store says of itself: messages with their bodies, queues and their counts, why something is there."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import NamedTuple

from journal.errors import InvalidOperationError, MessageMissingError
from journal.store.bodies.cache import read_stored
from journal.store.bodies.chunks import BodyStream
from journal.store.model import Message, QueueConfig, ReferenceInfo
from journal.store.operations.core import StoreBase
from journal.store.queues.entry import AddressEntry, MessageEntry, QueueEntry
from journal.store.queues.state import ALL_LEFT
from journal.store.records import decode_message

_AT_ONCE = 100
"""Queues or addresses that are looked at while others wait for the store."""


class QueueInfo(NamedTuple):
    """A queue and how many messages it has, by where they stand."""

    record_id: int
    config: QueueConfig
    ready: int
    scheduled: int
    held: int
    locked: int
    settling: int
    arriving: int
    bytes: int
    oldest: int
    """Timestamp of the oldest of those first to be delivered, 0 if none is ready."""


class Looking(StoreBase):
    """Operations that change nothing."""

    # ---- messages --------------------------------------------------------------------------------------------------

    def message(self, message_id: int, *, body: bool = True) -> Message:
        """A message; `body` false leaves a large one's body out, as `body_stream` gives it in pieces.

        Reads the local copy, and waits for it if the message is on its way there. Raises MessageMissingError (also for
        what is large, in a transaction that is not committed), DeadlineError, LocalStorageError.
        """
        with self._lock:
            entry = self._enter().message(message_id)
        (data,) = BodyStream(message_id, (message_id,), self._reader(message_id), self._read_timeout_s)
        message = decode_message(data)
        if body and entry.chunks:
            message = replace(message, body=b"".join(self.body_stream(message_id)))
        return message if entry.durable else replace(message, durable=False)

    def body_stream(self, message_id: int) -> BodyStream:
        """A message's body piece by piece, for `for` and `async for`. Raises MessageMissingError."""
        with self._lock:
            entry = self._enter().message(message_id)
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
        return self._settings.read_timeout_ms / 1000

    def _read_piece(self, message_id: int, piece_id: int) -> bytes | None:
        """A message's record or chunk; None while the local copy does not have it. Raises MessageMissingError."""
        while True:
            with self._turn():
                if self._cache.catch_up():
                    break
        with self._lock:
            self._enter().message(message_id)
            kept = self._volatile.get(piece_id) if piece_id in self._volatile else self._cache.get(piece_id)
            tx = self._stored_in.get(message_id)
            if kept is None and tx is not None:
                txn = self._transactions.get(tx)
                kept = None if txn is None else txn.bodies.get(piece_id)
                if kept is None:
                    raise MessageMissingError(
                        f"message {message_id} can be read once transaction {tx} is committed", message_id
                    )
            if kept is not None:
                return kept
            stored_by = self._cache.stored_by(piece_id)
        return read_stored(self._journal, piece_id, stored_by)

    def explain(self, record_id: int) -> list[ReferenceInfo]:
        """Why a message is still there: every queue's reference, its holder and transaction.

        Raises MessageMissingError.
        """
        with self._lock:
            return self._enter().explain(record_id)

    def describe(self, message_id: int) -> MessageEntry:
        """What is known of a message without reading it. Raises MessageMissingError."""
        with self._lock:
            return self._enter().message(message_id)

    # ---- queues ----------------------------------------------------------------------------------------------------

    def browse(self, queue: str, limit: int = 0) -> Iterator[ReferenceInfo]:
        """A queue's messages in delivery order; the first `limit` of them. Consumes nothing.

        Those that are there now, each as it stands when it is looked at: in a long queue others are let in meanwhile,
        and what has gone by then is left out. Raises QueueMissingError, InvalidOperationError (a limit below 0).
        """
        _require_limit(limit)
        with self._lock:
            state = self._enter()
            queue_id = state.queue(queue).record_id
        return iter(list(islice(state.browse(queue_id, self._turn), limit or None)))

    def queues(self) -> list[QueueInfo]:
        """All queues, each as it stands when it is looked at."""
        with self._lock:
            entries = self._enter().queues()
        infos: list[QueueInfo] = []
        for start in range(0, len(entries), _AT_ONCE):
            with self._lock:
                state = self._enter()
                part = entries[start : start + _AT_ONCE]
                infos += [_info(entry) for entry in part if state.has_queue(entry.record_id)]
        return infos

    def queue(self, name: str) -> QueueInfo:
        """Raises QueueMissingError."""
        with self._lock:
            return _info(self._enter().queue(name))

    def addresses(self) -> list[AddressEntry]:
        """All addresses, each as it is when it is looked at."""
        with self._lock:
            entries = self._enter().addresses()
        found: list[AddressEntry] = []
        for start in range(0, len(entries), _AT_ONCE):
            with self._lock:
                self._enter()
                found += [replace(entry) for entry in entries[start : start + _AT_ONCE]]
        return found

    # ---- time ------------------------------------------------------------------------------------------------------

    def next_due(self) -> int:
        """When `tick` has something to do next, in ms since 1970; 0: nothing waits for its time.

        When the next scheduled message is due, or the time is over of holders who have not come back since the load. It
        has passed as long as a `take` that met too much that has expired has not come through.
        """
        with self._lock:
            due = self._enter().next_due()
            if not self._absent:
                return due
            grace_until_ms = self._clock_ms() + math.ceil(self._grace_until_ms - self._elapsed_ms())
            return min(due or grace_until_ms, grace_until_ms)

    def expired(self, limit: int = 1000, *, agreed: bool = True) -> list[tuple[int, str]]:
        """(message, queue) of those that have expired and nobody has: for `expire`.

        The wall clock alone hides a message, and shows it again when it is set back. Here it is told once the clocks
        have agreed on its time for `expiry_agreement_ms`; with `agreed=False`, as soon as it is hidden.

        First come those that were not told before, then those that were told longest ago: what its caller cannot settle
        keeps nothing else from being told. Raises InvalidOperationError (a limit below 0).
        """
        _require_limit(limit)
        found: list[tuple[int, str]] = []
        left: int | None = ALL_LEFT
        while left is not None and len(found) < limit:
            with self._lock:
                state = self._enter()
                agreed_ms, now_ms = self._agreed_ms(), self._clock_ms()
                if agreed:
                    now_ms = math.floor(max(agreed_ms, 0))
                some, left = state.some_expired(now_ms, limit - len(found), left)
                found += [(message, state.queue_of(queue).config.name) for message, queue in some]
        return found


def _require_limit(limit: int) -> None:
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
