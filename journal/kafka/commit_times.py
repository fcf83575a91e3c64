"""How long commits take, and so how soon a request may be repeated without one being taken for two.

A repeated EndTxn leaves a copy that may still arrive, and would commit half of the next transaction. librdkafka tells
nobody that it has repeated a request; but it does so no sooner than its back-off, so that a call which took less was
served by one request. The back-off is a producer's from its making on. Where every commit takes longer than the usual
one, by network or broker, each of them would look like two: the next producer has one that is longer than they take.
"""

from __future__ import annotations

from collections import deque

from journal.kafka.settings import RETRY_BACKOFF_MS

BACKOFF_MS_MAX = 4000
"""Half of what a record has to be delivered; and who commits so slowly is not an active node for long."""

_LONGER = 4
"""Times as long as a commit takes: they vary."""
_KEPT = 4
"""The shortest of so many counts: one that a failure delayed says nothing of the others."""


class CommitTimes:
    """Those of one transactional id, over all of its producers. One thread at a time uses these; any makes the next."""

    def __init__(self) -> None:
        self._took_s: dict[str, deque[float]] = {}
        self.backoff_ms = RETRY_BACKOFF_MS
        """The next producer waits so long before it asks again. Any thread may read it."""

    def took(self, call: str, seconds: float) -> None:
        """A successful call of this name has taken so long."""
        self._took_s.setdefault(call, deque(maxlen=_KEPT)).append(seconds)
        usual_s = max(min(took) for took in self._took_s.values())
        self.backoff_ms = max(RETRY_BACKOFF_MS, min(BACKOFF_MS_MAX, int(_LONGER * 1000 * usual_s)))
