"""The hand-over that a node was last asked for in its own process: by its owner, or by the node itself."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from journal.process.clocks import Clock
from loaders.node.duty import HandOverRequest


@dataclass(frozen=True, slots=True)
class Asking:
    """One request to hand over: the epoch that it is for, the successor, the time when it came, and whether a caller
    waits for it."""

    epoch: int
    to: str
    at: float
    awaited: bool


class AskedHandOver:
    """The newest request of this process. Every method may be called from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._asking: Asking | None = None
        self.beginning = threading.Lock()
        """A hand-over begins while this lock is held. Until then its request can be withdrawn."""
        self.begun = 0
        """The epoch of the last hand-over that has begun."""

    def ask(self, epoch: int, to: str, *, awaited: bool) -> Asking:
        """Ask the active node of `epoch` to hand over to `to`, or to anybody if `to` is empty. A caller that waits must
        withdraw its request afterwards."""
        asking = self._asking = Asking(epoch, to, self._clock(), awaited)
        return asking

    def withdraw(self, asking: Asking) -> None:
        """Take a request back. Once this returns, the hand-over has begun or never will."""
        with self.beginning:
            if self._asking is asking:
                self._asking = None

    def or_newer(self, other: HandOverRequest | None) -> HandOverRequest | None:
        """The newer of `other` and this process' own request."""
        asking = self._asking
        if asking is None:
            return other
        own = HandOverRequest(asking.epoch, asking.to, self._clock() - asking.at, asking.awaited)
        return own if other is None or own.age_s < other.age_s else other
