"""The requests of operators to leave something out of stopped shards, read from the control rows."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple

from journal.errors import OperatingError
from journal.kafka.ports import Kafka
from journal.process.background import InBackground
from journal.process.clocks import Clock
from journal.topics.control_reading import read_control
from journal.v1.journal_pb2 import SkipRequest
from streams.worker.shard_config import ShardConfig

log = logging.getLogger(__name__)

SKIPS_EVERY_S = 1.0
"""How often a worker with a stopped shard looks for requests."""


class ShardSkips(NamedTuple):
    """The requests for one shard, by WAL offset."""

    requests: dict[int, SkipRequest]
    """Frames to be skipped."""
    passes: set[int]
    """WAL offsets at which messages that no route can send are left out."""


class SkipReading:
    """Reads the requests in the background, one reading at a time."""

    def __init__(self, kafka: Kafka, config: ShardConfig, clock: Clock, reading: InBackground) -> None:
        self._read = partial(read_skips, kafka, config.journal, clock, config.request_timeout_s)
        self._clock = clock
        self._reading = reading
        self._under_way: Future[dict[int, ShardSkips]] | None = None
        self._begun_at = clock()

    @property
    def is_due(self) -> bool:
        """Whether the last reading began long enough ago."""
        return self._clock() - self._begun_at >= SKIPS_EVERY_S

    def begin(self) -> None:
        """Begin to read, unless a reading is under way."""
        self._begun_at = self._clock()
        if self._under_way is None:
            self._under_way = self._reading(self._read)

    def take(self) -> dict[int, ShardSkips] | None:
        """The requests that the last reading has found, given once; None if none has succeeded."""
        if self._under_way is None or not self._under_way.done():
            return None
        read, self._under_way = self._under_way, None
        try:
            return read.result()
        except OperatingError as error:
            log.warning("skip requests cannot be read yet: %s", error)
            return None


def read_skips(kafka: Kafka, journal: str, clock: Clock, timeout_s: float) -> dict[int, ShardSkips]:
    """The requests for all shards that have any. Raises OperatingError."""
    rows = read_control(kafka, journal, clock, timeout_s)
    found: dict[int, ShardSkips] = {}
    for (shard, offset), request in rows.skips.items():
        found.setdefault(shard, ShardSkips({}, set())).requests[offset] = request
    for shard, offset in rows.route_skips:
        found.setdefault(shard, ShardSkips({}, set())).passes.add(offset)
    return found
