"""The state of each source. The sources' thread writes it, and any thread reads it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from journal.process.clocks import wall_ms
from journal.routing.latency import Latency
from journal.routing.outcomes import Reason


@dataclass(slots=True)
class SourceStatus:
    """The state and figures of one source since this node was last active."""

    name: str
    partitions: int = 0
    records: int = 0
    """Records consumed and committed."""
    messages: int = 0
    """Messages that these records became."""
    refused: Counter[Reason] = field(default_factory=Counter)
    dead_letters: int = 0
    lag: int = 0
    latency: Latency = field(default_factory=Latency)
    """The latency of batches, from the timestamp of the oldest record to the commit. Batches without timestamps are not
    measured."""
    error: str = ""
    """The reason for which the source is stopped; empty if it is not."""
    waits: bool = False
    """Whether the source goes on by itself, because the cause of its stop is checked again now and then."""

    def as_json(self, now_ms: float) -> dict[str, Any]:
        """The state in the form in which the control socket gives it."""
        return {
            "source": self.name,
            "state": "running" if not self.error else "waiting" if self.waits else "stopped",
            "partitions": self.partitions,
            "records": self.records,
            "messages": self.messages,
            "refused": {
                reason.value: count for reason, count in sorted(self.refused.items(), key=lambda e: e[0].value)
            },
            "dead_letters": self.dead_letters,
            "lag": self.lag,
            "latency_ms": self.latency.last_ms,
            "latency_ms_max": self.latency.highest_ms(now_ms),
            "error": self.error,
        }


class SourcesStatus:
    """The states of all sources. Thread-safe."""

    def __init__(self, sources: Mapping[str, SourceStatus], clock_ms: Callable[[], float] = wall_ms) -> None:
        self._lock = threading.Lock()
        self._clock_ms = clock_ms
        self._sources = dict(sources)
        self._paused = False
        self._error = ""
        self._unrouted = 0
        self._duplicates = 0

    def change(self, source: str, **counts: int) -> None:
        """Add to counts of a source."""
        with self._lock:
            status = self._sources[source]
            for name, count in counts.items():
                setattr(status, name, getattr(status, name) + count)

    def committed(self, source: str, oldest_ms: int) -> None:
        """Note that a batch with records of a source is committed; `oldest_ms` is their earliest timestamp, or 0."""
        if oldest_ms:
            with self._lock:
                self._sources[source].latency.measure(oldest_ms, self._clock_ms())

    def refuse(self, source: str, reasons: Counter[Reason]) -> None:
        with self._lock:
            self._sources[source].refused.update(reasons)

    def stands(self, source: str, *, partitions: int | None = None, lag: int | None = None) -> None:
        with self._lock:
            status = self._sources[source]
            status.partitions = status.partitions if partitions is None else partitions
            status.lag = status.lag if lag is None else lag

    def stop(self, source: str, error: str, *, waits: bool) -> bool:
        """Note the reason for which a source is stopped; an empty `error` means that it goes on. Returns whether
        `error` has changed."""
        with self._lock:
            status = self._sources[source]
            before, status.error, status.waits = status.error, error, waits
            return error != before

    def dropped(self, unrouted: int, duplicates: int) -> None:
        """Count messages that no queue takes, and messages with a duplicate-detection id that was seen before."""
        with self._lock:
            self._unrouted += unrouted
            self._duplicates += duplicates

    def pause(self, *, paused: bool) -> None:
        """Note whether the sources wait because the journal is full."""
        with self._lock:
            self._paused = paused

    def fail(self, error: str) -> None:
        """Note the reason for which all sources wait; empty if they do not."""
        with self._lock:
            self._error = error

    def as_json(self) -> dict[str, Any]:
        """The states in the form in which the control socket gives them."""
        now_ms = self._clock_ms()
        with self._lock:
            state = "waiting" if self._error else "paused" if self._paused else "running"
            return {
                "state": state,
                "error": self._error,
                "unrouted": self._unrouted,
                "duplicates": self._duplicates,
                "sources": [status.as_json(now_ms) for status in self._sources.values()],
            }
