"""Views of queues: those of a read-only load, and those of a working store."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import NamedTuple, Protocol

from journal.cli.operations.ports import Json
from journal.cli.operations.queue_lines import depth_of, queue_line
from journal.errors import InvalidOperationError, MessageMissingError, QueueMissingError, RowError, StoreError
from journal.fold.rows import Base
from journal.store.message_records import decode_message
from journal.store.model import Message, ReferenceInfo, ReferenceState
from journal.store.operations.look import QueueInfo
from journal.store.queues.entry import MessageEntry
from journal.store.queues.loaded import LoadedStore
from journal.store.queues.state import QueueState
from journal.store.restoring import restore_transactions
from journal.store.store import MessageStore
from journal.v1.journal_pb2 import Record
from journal.wire.keys import record_key
from journal.words import counted

log = logging.getLogger(__name__)

BROWSE_MAX = 100_000
"""The largest number of messages that one look at a working store reads, because the store's users wait while it is
read."""

_NOT_HELD = (ReferenceState.LOCKED, ReferenceState.SCHEDULED)
_AWAY = (ReferenceState.HELD, *_NOT_HELD)
_LOOK_BEHIND_THEM = 1000
_LOOK_FURTHER = 8


class Browsed(NamedTuple):
    """A message in a queue."""

    info: ReferenceInfo
    entry: MessageEntry
    message: Message
    """The message, without the body of a large one."""


class QueuesView(Protocol):
    """The questions of commands about queues."""

    @property
    def orphaned(self) -> int:
        """The number of messages without any reference that still have to be deleted."""

    @property
    def deleted_by(self) -> str:
        """A text that says what will delete a message without any reference."""

    def lines(self, now_ms: float) -> list[Json]:
        """All queues as `--json` prints them, by name."""

    def browse(self, queue: str, limit: int) -> tuple[int, Iterator[Browsed]]:
        """The number of messages in a queue, and the first `limit` (0: all). Raises QueueMissingError."""

    def references(self, message_id: int) -> Sequence[ReferenceInfo]:
        """The message's places in its queues; empty if no queue refers to it."""


# ---- a load ------------------------------------------------------------------------------------------------


class LoadedQueues:
    """The queues of a read-only load and their rows, as a store that starts from this load has them.

    If a transaction in doubt does not fit them, they are shown without some of its effects.
    """

    deleted_by = "the next activation deletes it"

    def __init__(self, loaded: LoadedStore, base: Base) -> None:
        for prepared in loaded.prepared:
            try:
                restore_transactions(replace(loaded, prepared=[prepared]), 0)
            except (RowError, StoreError) as error:
                log.warning("transaction %d in doubt is not shown in the queues as it is: %s", prepared.tx, error)
        self._loaded = loaded
        self._base = base
        self.orphaned = loaded.orphaned_messages

    def lines(self, now_ms: float) -> list[Json]:
        return queue_lines(self._loaded.state, now_ms)

    def browse(self, queue: str, limit: int) -> tuple[int, Iterator[Browsed]]:
        entry = self._loaded.state.queue(queue)
        total = depth_of(entry)
        return total, self._browse(entry.record_id, min(total, limit or total))

    def _browse(self, queue_id: int, count: int) -> Iterator[Browsed]:
        state = self._loaded.state
        for _, info in zip(range(count), state.browse(queue_id), strict=False):
            yield Browsed(info, state.message(info.message), read_message(self._base, info.message))

    def references(self, message_id: int) -> Sequence[ReferenceInfo]:
        try:
            return self._loaded.state.explain(message_id)
        except MessageMissingError:
            return ()


def queue_lines(state: QueueState, now_ms: float) -> list[Json]:
    """Queues of a state as `--json` prints them, by name."""
    holders: dict[int, Counter[str]] = {}
    away: dict[int, list[int]] = {}
    for holder in state.holders():
        for message, queue in state.held_by(holder):
            holders.setdefault(queue, Counter())[holder] += 1
            away.setdefault(queue, []).append(message)
    for entry in state.queues():
        if entry.locked or entry.scheduled:
            front = islice(state.browse(entry.record_id), BROWSE_MAX)
            away.setdefault(entry.record_id, []).extend(info.message for info in front if info.state in _NOT_HELD)
    return [
        queue_line(
            entry,
            state.bindings(entry.record_id),
            holders.get(entry.record_id, {}),
            _oldest(map(state.message, away.get(entry.record_id, ()))),
            now_ms,
        )
        for entry in sorted(state.queues(), key=lambda entry: entry.config.name)
    ]


def _oldest(messages: Iterable[MessageEntry]) -> int:
    """The lowest timestamp; 0 if there is none."""
    return min((entry.timestamp for entry in messages if entry.timestamp), default=0)


def read_message(base: Base, message_id: int) -> Message:
    """A message from its record, without the body of a large one."""
    return decode_message(Record.FromString(base.get(record_key(message_id)) or b"").data)


# ---- a working store ----------------------------------------------------------------------------------------


class StoreQueues:
    """The queues of a store that is in use. The queues are read one after the other, so their figures are not of the
    same moment."""

    deleted_by = "it is about to be deleted, or was stored without a queue"
    orphaned = 0

    def __init__(self, store: MessageStore, *, browse_max: int = BROWSE_MAX) -> None:
        self._store = store
        self._browse_max = browse_max

    def lines(self, now_ms: float) -> list[Json]:
        store = self._store
        found = []
        for info in sorted(store.queues(), key=lambda info: info.config.name):
            with suppress(QueueMissingError):  # the queue was destroyed meanwhile
                name = info.config.name
                oldest = self._oldest_away(info)
                counts, holding = store.counters(name), store.holding(name)
                holders = {each.holder: each.messages for each in holding}
                found.append(queue_line(info, store.bindings(name), holders, oldest, now_ms, counts, holding))
        return found

    def _oldest_away(self, queue: QueueInfo) -> int:
        """The lowest timestamp of the messages that are held, locked or scheduled among a queue's first `browse_max`.

        Held and locked messages were the first to be delivered, so most of them are near the front.
        """
        wanted = queue.held + queue.locked
        if not (wanted or queue.scheduled):
            return 0
        count = wanted + _LOOK_BEHIND_THEM
        while True:
            count = min(count, self._browse_max)
            looked = list(self._store.browse(queue.config.name, count))
            away = [info for info in looked if info.state in _AWAY]
            found = sum(info.state is not ReferenceState.SCHEDULED for info in away)
            if found >= wanted or len(looked) < count or count == self._browse_max:
                break
            count *= _LOOK_FURTHER
        return _oldest(filter(None, (self._describe(info.message) for info in away)))

    def _describe(self, message_id: int) -> MessageEntry | None:
        try:
            return self._store.describe(message_id)
        except MessageMissingError:
            return None

    def browse(self, queue: str, limit: int) -> tuple[int, Iterator[Browsed]]:
        """The first messages. Raises InvalidOperationError for more than `browse_max`."""
        total = depth_of(self._store.queue(queue))
        if min(total, limit or total) > self._browse_max:
            raise InvalidOperationError(
                f"queue {queue} has {counted(total, 'message')}, and a running node shows up to {self._browse_max:,}: "
                f"--limit {self._browse_max}, or without --node"
            )
        return total, self._browse(queue, limit)

    def _browse(self, queue: str, limit: int) -> Iterator[Browsed]:
        """The first messages, without those that were deleted meanwhile or are about to be deleted."""
        store = self._store
        for info in store.browse(queue, limit):
            entry = self._describe(info.message)
            if entry is None or info.state is ReferenceState.SETTLING:
                continue
            try:
                message = store.message(info.message, body=False)
            except MessageMissingError:
                continue
            yield Browsed(info, entry, message)

    def references(self, message_id: int) -> Sequence[ReferenceInfo]:
        try:
            return self._store.explain(message_id)
        except MessageMissingError:
            return ()
