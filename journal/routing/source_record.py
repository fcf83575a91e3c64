"""A record that a source has consumed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from journal.routing.outcomes import Header


class SourceRecord(NamedTuple):
    """A record of a source's topic. `timestamp` is ms since 1970."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] | None = ()
    """The headers; None if they cannot be read, because a header's name is not UTF-8."""
