"""Figures of what the routes did in one shard since its worker took it over, for metrics and `routes status`."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from journal.process.clocks import Clock
from journal.routing.latency import Latency
from journal.v1.journal_pb2 import RouteCounts, RoutesReport


class Refused(NamedTuple):
    """A message that a route did not send, and after which the shard went on."""

    route: str
    reason: str
    detail: str
    dead_letter: bool


@dataclass(slots=True)
class Checkpointed:
    """The records that routes send in one checkpoint. The counts include them once the checkpoint is committed."""

    sent: Counter[str] = field(default_factory=Counter)
    """The number of records by route."""
    refused: list[Refused] = field(default_factory=list)
    oldest_ms: int = 0
    """When the oldest of these messages was written to the WAL, in ms since 1970; 0 if there is none."""


@dataclass(slots=True)
class _OneRoute:
    sent: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    dead_letters: int = 0
    last_error: str = ""
    last_error_at: int = 0


class ShardCounts:
    """The counts of a shard's routes. Thread-safe: the shard's thread counts, and other threads report."""

    def __init__(self, routes: Iterable[str], wall_ms: Clock) -> None:
        self._wall_ms = wall_ms
        self._lock = threading.Lock()
        self._routes = {name: _OneRoute() for name in routes}
        self._since = int(wall_ms())
        self._offset = -1
        self._latency = Latency()
        self._stopped, self._stopped_at, self._stopped_since = "", -1, 0
        """The text, the WAL offset and the time of the stop by a route. Offset and time stay while the shard is stopped
        for another reason."""
        self.changed = True
        """Whether a count has changed since the last report."""

    def committed(self, done: Checkpointed, offset: int, now_ms: int) -> None:
        """Note that a checkpoint up to a WAL offset is committed."""
        with self._lock:
            self._offset = offset
            if not done.sent and not done.refused:
                return
            for name, count in done.sent.items():
                self._routes[name].sent += count
            for route, reason, detail, dead_letter in done.refused:
                counts = self._routes[route]
                counts.refused[reason] += 1
                counts.dead_letters += dead_letter
                counts.last_error, counts.last_error_at = detail, now_ms
            if done.oldest_ms:
                self._latency.measure(done.oldest_ms, now_ms)
            self.changed = True

    def stands(self, stopped: str, offset: int) -> None:
        """Note why a route has stopped the shard, and before which WAL offset; an empty text means that it is not
        stopped."""
        with self._lock:
            self.changed |= stopped != self._stopped
            self._stopped = stopped
            if stopped and offset != self._stopped_at:
                self._stopped_at, self._stopped_since = offset, int(self._wall_ms())

    def status(self, journal: bytes, shard: int, worker: str, now_ms: int) -> RoutesReport:
        with self._lock:
            return RoutesReport(
                journal=journal,
                shard=shard,
                worker=worker,
                since=self._since,
                timestamp=now_ms,
                offset=self._offset,
                routes=[_row(name, route) for name, route in self._routes.items()],
                latency_ms=self._latency.last_ms,
                latency_ms_max=self._latency.highest_ms(now_ms),
                stopped=self._stopped,
                stopped_at=self._stopped_at if self._stopped else 0,
                stopped_since=self._stopped_since if self._stopped else 0,
            )


def _row(name: str, route: _OneRoute) -> RouteCounts:
    return RouteCounts(
        route=name,
        sent=route.sent,
        refused=dict(route.refused),
        dead_letters=route.dead_letters,
        last_error=route.last_error,
        last_error_at=route.last_error_at,
    )
