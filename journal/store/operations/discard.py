"""Messages that no queue refers to: how the store finds, forgets and deletes them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from journal.store.by_address import ByAddress
from journal.store.operations.core import StoreCore
from journal.store.operations.garbage import Garbage
from journal.store.operations.ids import StoreIds


class MessageDiscard:
    """Forgets messages and all that is kept of them. Its callers hold the store's lock, except those of
    `discard_leaving`."""

    def __init__(self, core: StoreCore, ids: StoreIds, garbage: Garbage) -> None:
        self._core = core
        self._ids = ids
        self._garbage = garbage
        self.taking_in = ByAddress()
        """Messages that were taken in from topics and may not be durable yet."""
        self.unrouted = ByAddress()
        """Messages that are in no queue, not yet or for good."""
        self.leaving: deque[Iterator[Sequence[int]]] = deque()
        """Messages without references whose queue or address was destroyed, in parts."""

    def drop_bodies(self, message_id: int, chunks: tuple[int, ...] = ()) -> None:
        """Drop the bodies of a message that are kept outside of the journal. Bodies in the cache are dropped with their
        group."""
        volatile = self._core.volatile
        volatile.drop(message_id)
        if self._ids.chosen:
            self._ids.chosen.discard(message_id)
        for chunk in chunks:
            volatile.drop(chunk)

    def forget(self, message_id: int, chunks: tuple[int, ...]) -> None:
        """Forget a message without references, and drop its bodies."""
        self._core.state.forget(message_id)
        self.unrouted.discard(message_id)
        self.drop_bodies(message_id, chunks)

    def discard(self, messages: Sequence[int]) -> None:
        """Forget messages without references now, and have them deleted in bounded groups when the store goes on."""
        for message_id in messages:
            if message_id in self.taking_in:
                continue  # such a message is forgotten or deleted later, when it is known whether the journal has it
            entry = self._core.state.message(message_id)
            if entry.durable:
                self._garbage.add([(message_id, *entry.chunks)])
            self.forget(message_id, entry.chunks)

    def discard_leaving(self) -> None:
        """Discard the messages of destroyed queues and addresses. Between the parts, other callers may take the
        lock."""
        while self.leaving:
            with self._core.turn():
                part = next(self.leaving[0], None) if self.leaving else None
                if part is not None:
                    self.discard(part)
                elif self.leaving:
                    self.leaving.popleft()
            if part is not None:
                self._garbage.delete_some()  # without the lock: a group of deletions takes longer than a part
