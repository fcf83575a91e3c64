"""Effects of time: scheduled messages become due, messages expire, and absent holders lose their messages."""

from __future__ import annotations

import math

from journal.store.operations.core import StoreCore
from journal.store.operations.dead_letters import DeadMessages
from journal.store.operations.hold import HoldOperations
from journal.store.operations.look import require_limit
from journal.store.queues.state import ALL_LEFT

UNSURE_MS = 100
"""How soon a refused take is tried again while the node does not know that it is still active."""

_ROOM_MS = 20
"""The time until messages are given back again for which the journal had no room."""


class DueOperations:
    """The operations of a store that depend on the time: `tick` does what is due now, and `next_due` says when there is
    more to do."""

    def __init__(self, core: StoreCore, hold: HoldOperations, dead_letters: DeadMessages) -> None:
        self._core = core
        self._dead_letters = dead_letters
        self._hold = hold

    def tick(self) -> int:
        with self._core.lock:
            state = self._core.enter()
            self._hold.let_go_of_absent()
            self._hold.give_back_left()
            if self._core.journal.current:
                self._core.watch.look_again()
            return state.due(self._core.clock_ms())

    def next_due(self) -> int:
        core = self._core
        with core.lock:
            times = [core.enter().next_due()]
            if core.absent:
                times.append(core.clock_ms() + math.ceil(core.grace_until_ms - core.elapsed_ms()))
            if core.watch.refused:
                times.append(core.clock_ms() + UNSURE_MS)
            if self._hold.has_left:
                times.append(core.clock_ms() + _ROOM_MS)
            return min((each for each in times if each), default=0)

    def dead(self, limit: int) -> list[tuple[int, str]]:
        require_limit(limit)
        with self._core.lock:
            state = self._core.enter()
            found = self._dead_letters.waiting(limit)
            return [(message_id, state.queue_of(queue_id).config.name) for message_id, queue_id in found]

    def expired(self, limit: int = 1000, *, agreed: bool = True) -> list[tuple[int, str]]:
        require_limit(limit)
        found: list[tuple[int, str]] = []
        left: int | None = ALL_LEFT
        while left is not None and len(found) < limit:
            with self._core.lock:
                state = self._core.enter()
                agreed_ms, now_ms = self._core.agreed_ms(), self._core.clock_ms()
                if agreed:
                    now_ms = math.floor(max(agreed_ms, 0))
                some, left = state.some_expired(now_ms, limit - len(found), left)
                found += [(message, state.queue_of(queue).config.name) for message, queue in some]
        return found
