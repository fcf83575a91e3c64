"""How long commits take. The retry back-off of producers follows from it.

When librdkafka repeats an EndTxn request, the first copy may still arrive later, and would then commit half of the next
transaction. librdkafka does not report that it has repeated a request. But it repeats a request only after its
back-off, so a call that took less time than that made one request. If every commit takes longer than the usual
back-off, each one would look repeated. So the next producer of the id gets a back-off that is longer than its commits
take.
"""

from __future__ import annotations

from collections import deque

from journal.kafka.settings import RETRY_BACKOFF_MS

BACKOFF_MS_MAX = 4000
"""Largest back-off: half of the time in which a record must be delivered. A node that commits more slowly does not stay
active for long."""

_LONGER = 4
"""The back-off is this many times as long as a commit usually takes, because some commits take longer than usual."""
_KEPT = 4
"""Number of times that are remembered for each call. The shortest of them is the usual time, because a failure may have
delayed the others."""


class CommitTimes:
    """Commit times of one transactional id, over all of its producers. One producer's thread at a time adds to them;
    any thread makes the next producer."""

    def __init__(self) -> None:
        self._took_s: dict[str, deque[float]] = {}
        self.backoff_ms = RETRY_BACKOFF_MS
        """Back-off of the next producer, in ms. Any thread may read it."""

    def took(self, call: str, seconds: float) -> None:
        """Note that a successful call of this name has taken so many seconds."""
        self._took_s.setdefault(call, deque(maxlen=_KEPT)).append(seconds)
        usual_s = max(min(took) for took in self._took_s.values())
        self.backoff_ms = max(RETRY_BACKOFF_MS, min(BACKOFF_MS_MAX, int(_LONGER * 1000 * usual_s)))
