"""The range of a replay: messages that took effect in a range of time, or messages in a range of ids. Pure."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import NamedTuple

from journal.errors import InvalidOperationError
from journal.limits import ID_MAX

_DIGEST_CHARACTERS = 16


class ReplayRange(NamedTuple):
    """The bounds of a range of time and of a range of ids. The one that was not asked for includes everything."""

    from_ms: int = 0
    """The first moment of the range, in ms since 1970: the broker's time of the frame with which a message took
    effect."""
    to_ms: int = ID_MAX
    """The first moment after the range."""
    first_id: int = 0
    last_id: int = ID_MAX

    @property
    def of_ids(self) -> bool:
        return (self.first_id, self.last_id) != (0, ID_MAX)

    def holds(self, message_id: int, timestamp_ms: int) -> bool:
        return self.first_id <= message_id <= self.last_id and self.from_ms <= timestamp_ms < self.to_ms

    def digest(self, again: int) -> str:
        """A name for a replay of this range. It is always the same for the same range and the same `again`."""
        told = hashlib.sha256(" ".join(map(str, (*self, again))).encode()).hexdigest()
        return told[:_DIGEST_CHARACTERS]

    def __str__(self) -> str:
        if self.of_ids:
            return f"ids {self.first_id} to {self.last_id}"
        return f"{moment(self.from_ms)} to {moment(self.to_ms)}"


def range_of_time(from_ms: int, to_ms: int) -> ReplayRange:
    """The messages that took effect in a range of time. Raises InvalidOperationError for an empty range."""
    if from_ms >= to_ms:
        raise InvalidOperationError(
            f"the range is empty: it ends at {moment(to_ms)} and begins at {moment(from_ms)} (its end is not in it)"
        )
    return ReplayRange(from_ms=from_ms, to_ms=to_ms)


def range_of_ids(first_id: int, last_id: int) -> ReplayRange:
    """The messages in a range of ids. Raises InvalidOperationError for an empty range."""
    if not 0 < first_id <= last_id <= ID_MAX:
        raise InvalidOperationError(
            f"the range of ids {first_id} to {last_id} is empty: ids are 1 to {ID_MAX}, the smaller one first"
        )
    return ReplayRange(first_id=first_id, last_id=last_id)


def moment(ms: int) -> str:
    """A time as text that `--from` takes, from milliseconds since 1970."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
