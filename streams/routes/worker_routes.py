"""A worker's routes: they are made and checked when it starts, and reported to the control rows while it runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial

from journal.config import Settings
from journal.errors import OperatingError
from journal.kafka.ports import Kafka, TransactionalProducer
from journal.process.background import InBackground
from journal.process.clocks import Clock
from journal.routing.router import Router
from journal.topics.control_keys import control_row, routes_key
from journal.topics.names import OwnTopics
from journal.v1.journal_pb2 import RoutesReport
from streams.routes.counts import ShardCounts
from streams.routes.outgoing import ShardOutgoing
from streams.routes.targets import Sizes, Targets, refresh_quietly

log = logging.getLogger(__name__)

REPORT_EVERY_S = 2.0
"""The shortest time between two reports to the control rows, from which `routes status` shows what was sent."""

REFRESH_EVERY_S, REFRESH_EVERY_S_MAX = 5.0, 60.0
"""How often the targets are looked at again, so that a new max.message.bytes, new partitions, or a topic that was
deleted and created again is noticed. A change that makes a transaction fail is noticed at once."""

_REFRESHED_A_S = 20
"""The average number of topics that are looked at per second. If templates make many topics, each is looked at less
often."""


class WorkerRoutes:
    """The routes of all shards of a worker. The thread that drives the worker calls `tick` and `outgoing`."""

    def __init__(
        self,
        settings: Settings,
        journal_uuid: bytes,
        kafka: Kafka,
        *,
        sized: Callable[[Sizes], Kafka],
        clock: Clock,
        wall_ms: Clock,
        in_background: InBackground,
    ) -> None:
        """`sized` makes Kafka clients whose producers keep to the sizes that it is given. Raises ConfigError."""
        self.targets = Targets(kafka, settings)
        self._settings = settings
        self._uuid = journal_uuid
        self._kafka = kafka
        self._sized = sized
        self._clock = clock
        self._wall_ms = wall_ms
        self._in_background = in_background
        self._counts: dict[int, ShardCounts] = {}
        self._report_at = clock()
        self._refresh_at = clock() + REFRESH_EVERY_S
        self._under_way: Future[None] | None = None
        self._router = Router(
            settings.routing,
            journal=settings.journal,
            own_topics=OwnTopics(settings.journal),
            bytes_max=self.targets.bytes_max,
        )
        """The router that all shards share, so that the names it keeps are bounded once for the whole process."""

    def check(self) -> None:
        """Look up the targets. Raises TopicError for a topic that cannot be a target, OperatingError."""
        self.targets.check()

    def outgoing(self, shard: int) -> ShardOutgoing:
        """The routes of a shard, with new counts."""
        routes = [route.name for route in self._settings.routing.routes]
        counts = self._counts[shard] = ShardCounts(routes, self._wall_ms)
        return ShardOutgoing(shard, self._settings.journal, self._router.reading, self.targets, counts, routes)

    def producer(self, transactional_id: str, sizes: Sizes) -> TransactionalProducer:
        """A producer that keeps to the record and batch sizes of every target."""
        return self._sized(sizes).transactional_producer(transactional_id)

    # ---- reports ---------------------------------------------------------------------------------------------------

    def statuses(self) -> Mapping[int, RoutesReport]:
        """What the routes did, by shard. Thread-safe."""
        now, node = int(self._wall_ms()), self._settings.node
        return {shard: counts.status(self._uuid, shard, node, now) for shard, counts in list(self._counts.items())}

    def forget(self, shard: int) -> None:
        """Note that another worker has the shard now, and reports its counts."""
        self._counts.pop(shard, None)

    def tick(self) -> None:
        """Report changed counts and look at the targets again, when it is time. Both run in the background."""
        if self._under_way is not None and not self._under_way.done():
            return
        now = self._clock()
        if now >= self._refresh_at:
            wanted_s = len(self.targets.bytes_max) / _REFRESHED_A_S
            self._refresh_at = now + min(max(REFRESH_EVERY_S, wanted_s), REFRESH_EVERY_S_MAX)
            self._under_way = self._in_background(partial(refresh_quietly, self.targets))
        elif now >= self._report_at:
            self._report_at = now + REPORT_EVERY_S
            changed = [shard for shard, counts in self._counts.items() if counts.changed]
            if changed:
                self._under_way = self._in_background(partial(self._report, changed))

    def close(self) -> None:
        """Write the last report."""
        if self._under_way is not None:
            self._under_way.result()
        self._report([shard for shard, counts in self._counts.items() if counts.changed])

    def _report(self, shards: list[int]) -> None:
        """Write a report. Nothing depends on it: if it cannot be written now, the next report contains the same
        counts."""
        statuses = {}
        for shard in shards:
            counts = self._counts.get(shard)
            if counts is not None:
                counts.changed = False
                statuses[shard] = counts.status(self._uuid, shard, self._settings.node, int(self._wall_ms()))
        if not statuses:
            return
        rows = [control_row(self._settings.journal, routes_key(shard), status) for shard, status in statuses.items()]
        producer = self._kafka.plain_producer()
        try:
            producer.send(rows, self._settings.request_timeout_ms / 1000)
        except OperatingError as error:
            log.warning("what the routes did cannot be reported now: %s", error)
            for shard in statuses:
                if shard in self._counts:
                    self._counts[shard].changed = True
        finally:
            producer.close()
