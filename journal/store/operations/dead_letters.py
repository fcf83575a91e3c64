"""Messages that were delivered in vain as often as their queue allows, and where they go.

Such a message is never handed out again. When it is given back, or a take comes across it, it is set aside: it is held
in the name of `DEAD_LETTERS` until somebody settles it (`MessageStore.dead`, `MessageStore.dead_letter`). Nothing of
that is in the journal. After a load the message is ready, and the first take that comes across it sets it aside again.
"""

from __future__ import annotations

from itertools import islice

from journal.errors import MessageMissingError, QueueMissingError
from journal.store.model import Delivery, QueueConfig, ReferenceState
from journal.store.operations.core import StoreCore
from journal.store.queues.entry import QueueEntry

DEAD_LETTERS = "dead letters"
"""The holder of messages that are set aside."""

SET_ASIDE_MAX = 250
"""The most messages that one take sets aside."""

_LOOKED_AT = 2
"""The number of messages that were set aside before and are looked at when one more is. So those that were settled are
forgotten sooner than others are added, even if nobody asks for them."""


class DeadMessages:
    """The one rule for dead messages. Its callers hold the store's lock."""

    def __init__(self, core: StoreCore) -> None:
        self._core = core
        self._waiting: dict[tuple[int, int], None] = {}
        """(message, queue) pairs that were set aside, as far as nobody has settled them."""

    def destination(self, queue: QueueConfig) -> str | None:
        """The address of a queue's dead letters; empty if they are deleted, None if they stay where they are.

        They stay in a queue whose dead letters would come back to its own address, and in one whose address was made
        for dead letters and has no other address for them.
        """
        settings = self._core.address_settings.of(queue.address)
        address = queue.dead_letter_address or settings.dead_letter_address
        if not address and not queue.address.startswith(settings.dead_letter_prefix):
            if settings.drop_dead_letters:
                return ""
            address = settings.dead_letter_prefix + queue.address
        return None if address in ("", queue.address) else address

    def limit(self, queue: QueueConfig) -> int:
        """The number of deliveries after which a message of a queue is dead; 0 for no limit."""
        limit = queue.deliveries_max or self._core.address_settings.of(queue.address).deliveries_max
        return limit if limit and self.destination(queue) is not None else 0

    def given_back(self, message_id: int, queue: QueueEntry, deliveries: int) -> None:
        """Set a message aside that has just been given back, if it was delivered too often."""
        if 0 < self.limit(queue.config) <= deliveries:
            self._set_aside(message_id, queue)

    def take_all(self, queue: QueueEntry, holder: str, count: int) -> list[Delivery]:
        """Acquire up to `count` messages that were not delivered too often, and set the others before them aside. After
        `SET_ASIDE_MAX` of those the result is shorter, and whoever watches the queue is told to look again."""
        core, dead = self._core, 0
        found: list[Delivery] = []
        while True:
            taken = core.state.take_all(queue.record_id, holder, count - len(found), core.clock_ms())
            living = self.living(queue, holder, taken)
            found += living
            dead += len(taken) - len(living)
            if len(found) == count or len(taken) == len(living):
                return found
            if dead >= SET_ASIDE_MAX:
                core.watch_queue(queue)
                if queue.watch is not None:
                    queue.watch.has_something(queue)
                return found

    def living(self, queue: QueueEntry, holder: str, taken: list[Delivery]) -> list[Delivery]:
        """Those of the messages that `holder` has just taken that were not delivered too often; the others are set
        aside. Hot path: messages that never came back."""
        if not any(each.deliveries for each in taken) or not (limit := self.limit(queue.config)):
            return taken
        dead = [each.message for each in taken if each.deliveries >= limit]
        for message_id in dead:
            self._core.state.release(message_id, queue.record_id, holder, counts=False)
            self._set_aside(message_id, queue)
        queue.counters.delivered -= len(dead)  # `holder` gets none of them
        queue.counters.released -= len(dead)
        return [each for each in taken if each.deliveries < limit]

    def waiting(self, limit: int) -> list[tuple[int, int]]:
        """The first (message, queue) pairs that wait to be settled. They are put last, so that those that cannot be
        settled do not hide others. A message is ready again if its queue's limit does not hold for it any more."""
        found: list[tuple[int, int]] = []
        for key in self._put_last(limit):
            queue = self._core.state.queue_of(key[1])
            info = self._core.reference(key[0], queue)
            if info.state is ReferenceState.LOCKED or 0 < self.limit(queue.config) <= info.deliveries:
                found.append(key)
            else:
                self.free(key[0], queue)
        return found

    def free(self, message_id: int, queue: QueueEntry) -> None:
        """Make a message ready again if it is set aside."""
        info = self._core.reference(message_id, queue)
        if info.state is ReferenceState.HELD and info.holder == DEAD_LETTERS:
            self._waiting.pop((message_id, queue.record_id), None)
            self._core.state.release(message_id, queue.record_id, counts=False)
            queue.counters.released -= 1

    def _set_aside(self, message_id: int, queue: QueueEntry) -> None:
        self._core.state.acquire(message_id, queue.record_id, DEAD_LETTERS, 0, checked=True)
        queue.counters.delivered -= 1  # nobody got it
        self._put_last(_LOOKED_AT)
        self._waiting[message_id, queue.record_id] = None

    def _put_last(self, limit: int) -> list[tuple[int, int]]:
        """Put the first pairs last, and return them; those that were settled are forgotten."""
        found: list[tuple[int, int]] = []
        for key in [*islice(self._waiting, limit)]:
            del self._waiting[key]
            if self._is_set_aside(*key):
                self._waiting[key] = None
                found.append(key)
        return found

    def _is_set_aside(self, message_id: int, queue_id: int) -> bool:
        """Whether a message is still set aside; a transaction may settle it just now."""
        try:
            info = self._core.reference(message_id, self._core.state.queue_of(queue_id))
        except (MessageMissingError, QueueMissingError):
            return False
        return info.holder == DEAD_LETTERS and info.state in (ReferenceState.HELD, ReferenceState.LOCKED)
