"""A shard's WAL with messages in it, routes, and its worker on a simulated cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any

from journal.config import Settings
from journal.errors import OperatingError
from journal.kafka.ports import Kafka
from journal.process.background import at_once
from journal.routing.config import RoutingConfig
from journal.store.message_records import encode_message
from journal.store.model import Message, Value
from journal.topics.names import control_topic, table_topic, wal_topic
from journal.v1.journal_pb2 import Mark, Operation
from journal.v1.store_pb2 import CHUNK, MESSAGE
from journal.wire.keys import mark_key
from streams.routes.targets import Sizes
from streams.routes.worker_routes import WorkerRoutes
from streams.worker.shard import ShardWorker
from streams.worker.shard_config import ShardConfig
from streams.worker.shard_standing import ShardState
from tests.simulation.broker import SimulatedBroker
from tests.simulation.disk import Disk, SimulatedStore
from tests.simulation.faults import Faults, SimulatedCrash
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.timeline import Timeline
from tests.support.build import JOURNAL, BuiltFrame, add
from tests.support.shards import shard_config

NAME = "j"
OUT, DEAD = "out", "dead"
FIRST_MS = 1_600_000_000_000
"""When the first frame was appended; each following one is a second later."""
TOPIC = {"max.message.bytes": "1048588"}


def message(
    id: int, body: bytes = b"", address: str = "a", *, tx: int = 0, headers: Mapping[str, Value] | None = None
) -> Operation:
    """An operation that adds a message."""
    return add(id, encode_message(Message(address, body, {}, dict(headers or {}))), kind=MESSAGE, tx=tx)


def large(id: int, chunks: Sequence[int], body_bytes: int, *, tx: int = 0) -> Operation:
    """One whose body is in chunks."""
    return add(id, encode_message(Message("a"), chunks=chunks, body_bytes=body_bytes), kind=MESSAGE, tx=tx)


def chunk(id: int, data: bytes, *, tx: int = 0) -> Operation:
    return add(id, data, kind=CHUNK, tx=tx)


def one_route(name: str = "r", topic: str = OUT, **fields: Any) -> dict[str, Any]:
    return {"name": name, "targets": [{"topic": topic, "value": "body"}], **fields}


class RoutesWorld:
    """A shard's WAL, and its worker with routes."""

    def __init__(
        self,
        frames: Iterable[tuple[int, int, BuiltFrame]],
        *routes: dict[str, Any],
        faults: Faults | None = None,
        topics: Mapping[str, Mapping[str, str]] | None = None,
        records_per_produce: int = 1_000_000,
        **routing: Any,
    ) -> None:
        self._records_per_produce = records_per_produce
        self.faults = faults or Faults()
        self.timeline = Timeline()
        self.broker = SimulatedBroker(self.timeline, self.faults)
        self.disk = Disk()
        self.routing = RoutingConfig.model_validate({"routes": routes or [one_route()], **routing})
        self.sized: list[Sizes] = []
        self.passes: set[int] = set()
        self.replication = 1
        for topic in (wal_topic(NAME), table_topic(NAME), control_topic(NAME)):
            self.broker.create_topic(topic, 1, 1, {})
        for topic, config in ({OUT: TOPIC, DEAD: TOPIC} if topics is None else topics).items():
            self.broker.create_topic(topic, 1, 1, config)
        self.frames = [(offset, stamp, frame.SerializeToString()) for offset, stamp, frame in frames]
        log = self.broker.log(wal_topic(NAME), 0)
        assert log is not None
        for at, (_, _, value) in enumerate(self.frames):
            stamp = FIRST_MS + at * 1000
            log.append(stamp, None, value)
            log.mark(stamp, 1, 0, commit=True)  # takes an offset too

    # ---- workers ---------------------------------------------------------------------------------------------------

    def kafka(self) -> SimulatedKafka:
        return SimulatedKafka(self.broker, records_per_produce=self._records_per_produce)

    def routes(self) -> WorkerRoutes:
        settings = Settings(journal=NAME, node="worker", replication=self.replication, routing=self.routing)
        kafka = self.kafka()

        def sized(sizes: Sizes) -> Kafka:
            self.sized.append(sizes)
            return kafka

        return WorkerRoutes(
            settings,
            JOURNAL,
            kafka,
            sized=sized,
            clock=self.timeline.now,
            wall_ms=self.wall_ms,
            in_background=at_once,
        )

    def wall_ms(self) -> float:
        return self.timeline.now() * 1000

    def config(self, routes: WorkerRoutes | None) -> ShardConfig:
        return shard_config(NAME, checkpoint_bytes_max=100_000_000, held_bytes_max=10**8, routes=routes)

    def worker(self, routes: WorkerRoutes | None = None) -> ShardWorker:
        """A process' worker, which has not recovered yet."""
        if routes is None:
            routes = self.routes()
            routes.check()
        store = SimulatedStore(self.disk, self.faults, "node")
        worker = ShardWorker(0, self.config(routes), self.kafka(), store, clock=self.timeline.now, wall_ms=self.wall_ms)
        worker.allow_skips({}, self.passes)
        return worker

    def run(self, at_once: int | Sequence[int]) -> None:
        """The whole WAL, with a checkpoint after so many frames, or after these counts in turn, by one process after
        another."""
        worker: ShardWorker | None = None
        for _ in range(30):
            try:
                worker = worker or self.worker()
                worker.recover()
                self.drive(worker, at_once)
            except SimulatedCrash:
                worker = None
                self.disk.crash(Random(0))
            except OperatingError:
                # the same process tries again: it alone knows that its copy is damaged, and builds it anew
                self.timeline.wait(1.0, lambda: False)
            else:
                return
        raise AssertionError("thirty tries were not enough")

    def drive(self, worker: ShardWorker, at_once: int | Sequence[int] = 1) -> None:
        """Until the end of the WAL is marked, or the shard stops."""
        turns = [at_once] if isinstance(at_once, int) else list(at_once)
        turn = 0
        while self.marked() < self.frames[-1][0]:
            if worker.state is ShardState.STOPPED:
                return
            if worker.state is not ShardState.RUNNING:
                self.timeline.wait(1.0, lambda: False)
                worker.recover()
            following = worker.next_offset or 0
            worker.take([frame for frame in self.frames if frame[0] >= following][: turns[turn % len(turns)]])
            worker.checkpoint_if_due(now=True)
            turn += 1

    # ---- what came of it -------------------------------------------------------------------------------------------

    def records(self, topic: str) -> list[tuple[bytes | None, bytes | None]]:
        log = self.broker.log(topic, 0)
        assert log is not None
        return [(record.key, record.value) for record in log.fetch(0, 0, 100_000, committed=True)]

    def sent(self, topic: str = OUT) -> list[bytes | None]:
        """The values of a topic's committed records."""
        return [value for _, value in self.records(topic)]

    def marked(self) -> int:
        marks = [value for key, value in self.records(table_topic(NAME)) if key == mark_key(0)]
        return Mark.FromString(marks[-1] or b"").offset if marks else -1
