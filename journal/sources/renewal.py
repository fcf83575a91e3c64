"""Commits offsets again that have not changed for long, so that brokers do not forget them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from journal.errors import NotTakenInError
from journal.kafka.ports import Position
from journal.sources.batch import SourceBatch
from journal.sources.positions import Partition
from journal.sources.taking import SourceTaking

log = logging.getLogger(__name__)

COMMIT_AGAIN_S = 24 * 60 * 60.0
"""How often offsets are committed again. Brokers forget an offset of a group without members some time after its own
last commit (offsets.retention.minutes, seven days by default), even if other offsets of the group are committed
often."""
_COMMIT_SOONER_S = 600.0
"""The pause before the next try, after such a commit has failed."""


class Renewal:
    """Commits old offsets again. The sources' thread uses it, and nothing depends on the result."""

    def __init__(self, taking: SourceTaking, every_s: float) -> None:
        self._taking = taking
        self._every_s = every_s
        self._due_at = 0.0

    def renew(self, committed: Callable[[], Mapping[Partition, Position]], name_of: Callable[[Partition], str]) -> None:
        """Commit offsets again if it is time, also those of stopped sources. `name_of` gives a partition's source, or
        an empty text.

        The offsets are read from Kafka first, because Kafka deletes them with their topic.
        """
        if time.monotonic() < self._due_at:
            return
        self._due_at = time.monotonic() + _COMMIT_SOONER_S  # a later time is set below if all are committed
        of_sources: dict[str, dict[Partition, Position]] = {}
        for partition, position in committed().items():
            if name := name_of(partition):
                of_sources.setdefault(name, {})[partition] = position
        refused = 0
        for name, positions in of_sources.items():
            offsets = {partition: position.offset for partition, position in positions.items()}
            ids = {partition: position.topic_id for partition, position in positions.items()}
            try:
                self._taking.land(self._taking.submit(SourceBatch(offsets=offsets), ids))
            except NotTakenInError as error:
                log.warning("the offsets of source %s cannot be committed again now: %s", name, error)
                refused += 1
        if not refused:
            self._due_at = time.monotonic() + self._every_s
