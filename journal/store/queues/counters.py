"""What has happened in a queue since the activation, counted."""

from __future__ import annotations

from typing import NamedTuple

from journal.v1.store_pb2 import Acknowledgement

Reason = Acknowledgement.Reason


class QueueCounts(NamedTuple):
    """Numbers of messages, cumulative since the activation. Nothing of them is in the journal."""

    added: int = 0
    """Messages that have arrived in the queue."""
    delivered: int = 0
    """Acquisitions by holders."""
    acknowledged: int = 0
    released: int = 0
    """Messages that were given back, counted as a delivery or not."""
    expired: int = 0
    dead: int = 0
    """Messages that were settled as dead letters."""
    moved: int = 0
    dropped: int = 0
    """Messages that were purged."""


class HolderInfo(NamedTuple):
    """Somebody who has messages of a queue."""

    holder: str
    messages: int
    acted_ms: int
    """When it last acquired, released or acknowledged messages, in ms since 1970; 0 if it has not since the load."""


class QueueCounters:
    """The counters of one queue. The store's lock guards them.

    Hot path: what arrives is not counted. It follows from what is there, what is gone, and what was there at the load.
    """

    __slots__ = ("delivered", "gone", "of_reason", "released", "there_before")

    def __init__(self, there_before: int = 0) -> None:
        self.delivered = 0
        self.released = 0
        self.gone = 0
        """Messages that were settled, for whatever reason."""
        self.of_reason: dict[int, int] = {}
        """Messages that were settled for another reason than that they were consumed."""
        self.there_before = there_before
        """Messages that were there at the load."""

    def settled(self, reason: int, count: int = 1) -> None:
        """Note the reason for which messages are settled."""
        if reason != Reason.CONSUMED:
            self.of_reason[reason] = self.of_reason.get(reason, 0) + count

    def counts(self, there: int) -> QueueCounts:
        """The counters, where `there` messages are in the queue now."""
        other = self.of_reason.get
        return QueueCounts(
            added=there + self.gone - self.there_before,
            delivered=self.delivered,
            acknowledged=self.gone - sum(self.of_reason.values()),
            released=self.released,
            expired=other(Reason.EXPIRED, 0),
            dead=other(Reason.DEAD, 0),
            moved=other(Reason.MOVED, 0),
            dropped=other(Reason.PURGED, 0),
        )
