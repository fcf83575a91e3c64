"""Idle time-outs of both directions, by a clock that the caller reads.

Nothing counts bytes or reads times for each frame: a look compares how often bytes came and went with the last look.
"""

from __future__ import annotations

from typing import NamedTuple


class IdleVerdict(NamedTuple):
    """The result of a look at the clock."""

    silent: bool
    """The peer has been silent for too long."""

    send: bool
    """Something must be sent, so that the peer does not think the same of us."""

    again: float | None
    """When to look again; None for never."""


class IdleClock:
    """When bytes last came and went, as far as looks at it have shown."""

    def __init__(self, local_ms: int) -> None:
        """`local_ms` is the time-out that the peer is told. Its silence is believed after twice that, because it may
        have begun just after the last byte, and the way takes time too."""
        self.local_s = 2 * local_ms / 1000
        self._received = self._taken = -1
        self._came = self._went = 0.0

    def look(self, now: float, received: int, taken: int, remote_ms: int | None) -> IdleVerdict:
        """`received` and `taken` count how often bytes came and went; `remote_ms` is the peer's time-out."""
        if received != self._received:
            self._received, self._came = received, now
        if taken != self._taken:
            self._taken, self._went = taken, now
        deadlines = []
        if self.local_s:
            deadlines.append(self._came + self.local_s)
            if now >= deadlines[0]:
                return IdleVerdict(True, False, None)
        send = False
        if remote_ms:
            half = remote_ms / 2000
            send = now >= self._went + half
            deadlines.append(now + half if send else self._went + half)
        return IdleVerdict(False, send, min(deadlines, default=None))
