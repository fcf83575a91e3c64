"""The offset at which a partition without a committed offset begins."""

from __future__ import annotations

from journal.routing.parts import EARLIEST, LATEST, start_ms
from journal.sources.consumer import SourceConsumer
from journal.sources.positions import Partition


def start_of(consumer: SourceConsumer, partition: Partition, start: str, timeout_s: float) -> int:
    """The offset that a source's `start` means in this partition at this time. Raises OperatingError."""
    if start == EARLIEST:
        return consumer.earliest(partition, timeout_s)
    moment = start_ms(start)
    if start == LATEST or moment is None:
        return consumer.latest(partition, timeout_s)
    return consumer.at(partition, moment, timeout_s)
