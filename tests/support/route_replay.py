"""A shard that its worker has applied, and replays of its routes on the same simulated cluster."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from journal.config import Settings
from journal.topics.control_rows import ControlRows
from journal.v1.journal_pb2 import Identity, SkipRequest, Trim
from streams.routes.replay import RouteReplay
from streams.routes.replay_range import ReplayRange
from streams.routes.targets import Sizes
from tests.simulation.kafka import SimulatedKafka
from tests.support.build import JOURNAL, BuiltFrame
from tests.support.routes import DEAD, NAME, OUT, RoutesWorld

ALL = ReplayRange()


class ReplayWorld(RoutesWorld):
    """What the worker sent is left out of account by `replayed`."""

    def __init__(self, frames: Iterable[tuple[int, int, BuiltFrame]], *routes: Any, **more: Any) -> None:
        super().__init__(frames, *routes, **more)
        self.skips: dict[tuple[int, int], SkipRequest] = {}
        self.trims: dict[int, Trim] = {}
        self.last: RouteReplay | None = None
        worker = self.worker()
        worker.recover()
        self.drive(worker, 100)
        self._before = {topic: len(self.sent(topic)) for topic in (OUT, DEAD)}

    def replay(
        self, range_: ReplayRange = ALL, route: str = "r", kafka: SimulatedKafka | None = None, **more: Any
    ) -> RouteReplay:
        """One run, not begun yet."""
        identity = Identity(journal=JOURNAL, name=NAME, shards=1)
        rows = ControlRows(
            identity,
            skips=self.skips,
            trims=self.trims,
            route_skips={(0, offset): SkipRequest() for offset in self.passes},
        )
        settings = Settings(journal=NAME, node="operator", replication=1, routing=self.routing)
        kafka = kafka or self.kafka()

        def sized(sizes: Sizes) -> SimulatedKafka:
            self.sized.append(sizes)
            return kafka

        run = RouteReplay(
            settings, rows, kafka, route, range_, sized=sized, records_at_once=2, clock=self.timeline.now, **more
        )
        self.last = run
        return run

    def replayed(self, topic: str = OUT) -> list[bytes | None]:
        """What the replays have sent."""
        return self.sent(topic)[self._before[topic] :]

    def done(self) -> Any:
        """What the last run did in its shard."""
        assert self.last is not None
        (shard,) = self.last.replayed
        return shard
