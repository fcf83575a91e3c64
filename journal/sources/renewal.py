"""Offsets that have not changed for long are committed again, so that brokers do not forget them."""

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
"""Brokers forget an offset of a group without members so long after its own last commit (offsets.retention.minutes,
seven days unless set otherwise), however busy the group's other partitions are."""
_COMMIT_SOONER_S = 600.0
"""The pause after one of these commits has failed."""


class Renewal:
    """Commits old offsets again. Used by the sources' thread; nothing depends on it."""

    def __init__(self, taking: SourceTaking, every_s: float) -> None:
        self._taking = taking
        self._every_s = every_s
        self._due_at = 0.0

    def renew(self, committed: Callable[[], Mapping[Partition, Position]], name_of: Callable[[Partition], str]) -> None:
        """Commit again if it is time, for stopped sources too; `name_of` gives a partition's source, empty if it has
        none.

        They are as Kafka has them now, which is asked for: it forgets them with their topics.
        """
        if time.monotonic() < self._due_at:
            return
        self._due_at = time.monotonic() + _COMMIT_SOONER_S  # unless all are committed below
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
