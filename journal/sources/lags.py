"""How many offsets a source is behind the ends of its partitions."""

from __future__ import annotations

from collections.abc import Mapping

from journal.errors import OperatingError
from journal.sources.consumer import SourceConsumer
from journal.sources.positions import Partition


def known_lag(consumer: SourceConsumer, offsets: Mapping[Partition, int]) -> int | None:
    """The lag of partitions that are being consumed, from what the consumer knows; None while it knows nothing of
    them."""
    found = consumer.lag(offsets)
    return sum(found.values()) if found else None


def asked_lag(consumer: SourceConsumer, offsets: Mapping[Partition, int], timeout_s: float) -> int | None:
    """The lag of partitions that are not being consumed, asked from the brokers for each; None if one does not answer
    in time."""
    try:
        return sum(max(0, consumer.latest(part, timeout_s) - offset) for part, offset in offsets.items())
    except OperatingError:
        return None
