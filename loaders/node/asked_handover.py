"""The hand-over that was asked for at a node last: by its owner, or by the node itself for its own sake."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from journal.process.clocks import Clock
from loaders.node.duty import Request


@dataclass(frozen=True, slots=True)
class Asking:
    """One such request: of which epoch, to whom, when, and whether somebody waits for it."""

    epoch: int
    to: str
    at: float
    awaited: bool


class Asked:
    """Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._asking: Asking | None = None
        self.beginning = threading.Lock()
        """Held while a hand-over begins: until then it can be withdrawn."""
        self.begun = 0
        """The epoch of the last one that began."""

    def ask(self, epoch: int, to: str, *, awaited: bool) -> Asking:
        """Have the node of an epoch hand over to `to` (empty: to anybody). Who waits for it has to withdraw it."""
        asking = self._asking = Asking(epoch, to, self._clock(), awaited)
        return asking

    def withdraw(self, asking: Asking) -> None:
        """If it has not begun when this returns, it does not any more."""
        with self.beginning:
            if self._asking is asking:
                self._asking = None

    def or_newer(self, other: Request | None) -> Request | None:
        """The newer one of what was asked for here and `other`."""
        asking = self._asking
        if asking is None:
            return other
        own = Request(asking.epoch, asking.to, self._clock() - asking.at, asking.awaited)
        return own if other is None or own.age_s < other.age_s else other
