"""A cluster that is too slow for what has gathered: it gets less at a time, until it takes it, and then more again."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import pytest

from journal.append.group import FrameNumbers, Group
from journal.append.writing import Claim
from journal.errors import FatalProducerError, FencedError, OutcomeUnknownError
from journal.kafka.ports import Sent
from journal.process.clocks import Timing
from journal.topics.control_keys import EPOCH_KEY, control_row
from journal.topics.names import control_topic, table_topic, wal_topic, writer_id
from journal.v1.journal_pb2 import ADD, Epoch, Operation
from journal.wal.config import WriterConfig
from journal.wal.fencing import Fence
from journal.wal.portion import Portion
from journal.wal.writer import Writer
from streams.worker.worker import Worker
from tests.simulation.broker import SimulatedBroker
from tests.simulation.disk import Disk, SimulatedStore
from tests.simulation.faults import Faults
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.producers import SimulatedTransactionalProducer
from tests.simulation.timeline import Timeline
from tests.support.build import JOURNAL, add, commit, frame, marker, prepare, wal
from tests.support.frames import read_frame
from tests.support.shards import shard_config

LIMIT_S = 5.0
SIZE = 1000
"""The bytes of a record's data."""


def test_a_transaction_has_less_after_a_failure_and_more_after_successes_that_mean_something() -> None:
    portion = Portion(1000)
    portion.failed(800)
    assert portion.bytes == 200
    for _ in range(100):
        portion.succeeded(50)
    assert portion.bytes == 200
    sizes = []
    while portion.bytes < 1000:
        portion.succeeded(portion.bytes)
        sizes.append(portion.bytes)
    assert sizes == sorted(set(sizes))
    assert 10 < len(sizes) < 20
    portion.succeeded(5000)
    assert portion.bytes == 1000


def test_what_cannot_be_divided_and_gets_through_shows_how_much_does() -> None:
    portion = Portion(10_000)
    for _ in range(20):
        portion.failed(4000)
    assert portion.bytes == 1
    portion.succeeded(3000)
    assert portion.bytes > 3000


class Narrow:
    """A producer of a cluster through which only so much gets in a transaction's time."""

    def __init__(self, inner: SimulatedTransactionalProducer, cluster: Cluster) -> None:
        self._inner = inner
        self._cluster = cluster
        self.connect, self.init, self.close = inner.connect, inner.init, inner.close
        self._sent = 0

    def send(self, records: Iterable[Sent], timeout_s: float) -> list[int]:
        records = list(records)
        self._sent = sum(len(record.value or b"") for record in records)
        return self._inner.send(records, timeout_s)

    def send_rows(self, topic: str, partition: int, rows: Iterable[tuple[bytes, bytes | None]], *_: float, **__) -> int:
        return self.send([Sent(topic, partition, *row) for row in rows], LIMIT_S)[-1]

    def commit_transaction(self, timeout_s: float) -> bool:
        self._cluster.sizes.append(self._sent)
        if self._sent > self._cluster.bytes_max:
            raise FatalProducerError("the coordinator has timed it out", fenced=False)
        return self._inner.commit_transaction(timeout_s)


class Cluster(SimulatedKafka):
    def __init__(self, broker: SimulatedBroker, bytes_max: int) -> None:
        super().__init__(broker)
        self.bytes_max = bytes_max
        self.sizes: list[int] = []
        """The bytes of each transaction that was to be committed."""

    def transactional_producer(self, transactional_id: str) -> Narrow:  # type: ignore[override]
        return Narrow(super().transactional_producer(transactional_id), self)


def broker_with(*topics: str) -> SimulatedBroker:
    broker = SimulatedBroker(Timeline(), Faults())
    for topic in topics:
        broker.create_topic(topic, 1, 1, {})
    return broker


class Writing:
    """A writer, and groups of one record each that wait for it."""

    def __init__(self, bytes_max: int) -> None:
        self.broker = broker_with(wal_topic("j"), control_topic("j"))
        self.cluster = Cluster(self.broker, bytes_max)
        self.claim(1)
        producer = self.cluster.transactional_producer(writer_id("j"))
        producer.init(LIMIT_S)
        now = self.broker.timeline.now
        timing = Timing(now, self.broker.timeline.pass_to, LIMIT_S, 2 * LIMIT_S, LIMIT_S, wall_s=now)
        self.writer = Writer(
            self.cluster,
            WriterConfig("j", JOURNAL, 1, 0.0, 0.0, 0.0, 1 << 20),
            Claim(1, "node", b"nonce"),
            Fence(self.cluster, "j", timing),
            producer,  # type: ignore[arg-type]  # the rest of the port is not used
            FrameNumbers((0,), 0),
            [0],
            timing,
        )
        self.waiting: deque[Group] = deque()
        self.groups: list[Group] = []

    def claim(self, epoch: int) -> None:
        row = control_row("j", EPOCH_KEY, Epoch(epoch=epoch, node="node", nonce=b"nonce"))
        self.cluster.plain_producer().send([row], LIMIT_S)

    def overtake(self) -> None:
        """Another node becomes active: its init ends what is open, and its marker follows the last frame in the WAL."""
        self.cluster.transactional_producer(writer_id("j")).init(LIMIT_S)
        self.claim(2)
        taking_over = frame(len(self.written()) + 1, marker(), epoch=2)
        self.broker.write(wal_topic("j"), 0, [(None, taking_over.SerializeToString())])

    def wait(self, count: int) -> None:
        for _ in range(count):
            group = Group(1, 900_000)
            group.put(0, ADD, len(self.groups) + 1, 1, b"x" * SIZE)
            self.groups.append(group)
            self.waiting.append(group)

    def joining(self, operations: int, size: int, *, complete: bool) -> Group | None:
        if not self.waiting or not complete or self.waiting[0].bytes > size:
            return None
        return self.waiting.popleft()

    def write(self) -> None:
        self.writer.write(self.waiting.popleft(), self.joining)

    def written(self) -> list[int]:
        """Ids of the records in the committed WAL."""
        log = self.broker.log(wal_topic("j"), 0)
        assert log is not None
        frames = [read_frame(record.value) for record in log.fetch(0, 0, 10_000, committed=True)]
        return [op.id for frame in frames for op in frame.operations if op.type == ADD]


def test_groups_that_are_too_much_for_a_transaction_are_in_the_wal_once_and_in_order_by_several() -> None:
    writing = Writing(6 * SIZE)
    writing.wait(30)
    writing.write()
    assert [group.completion.error for group in writing.groups] == [None] * 30
    assert writing.written() == [*range(1, 31)]
    assert writing.writer.recoveries.times == 1
    assert writing.cluster.sizes[0] > 30 * SIZE
    assert len(writing.cluster.sizes) < 20


def test_the_next_groups_are_fewer_at_once_and_become_more_while_they_get_through() -> None:
    writing = Writing(6 * SIZE)
    writing.wait(30)
    writing.write()
    writing.cluster.sizes.clear()
    writing.cluster.bytes_max = 1_000_000
    writing.wait(200)
    while writing.waiting:
        writing.write()
    assert writing.written() == [*range(1, 231)]
    assert writing.cluster.sizes[0] < 10 * SIZE
    assert writing.cluster.sizes == sorted(writing.cluster.sizes[:-1]) + writing.cluster.sizes[-1:]
    assert max(writing.cluster.sizes) > 20 * SIZE


def test_a_group_that_is_too_much_by_itself_is_unknown_in_the_end_and_those_before_it_are_done() -> None:
    writing = Writing(2 * SIZE)
    writing.wait(2)
    large = Group(1, 900_000)
    large.put(0, ADD, 3, 1, b"x" * 5 * SIZE)
    writing.waiting.append(large)
    with pytest.raises(OutcomeUnknownError):
        writing.write()
    assert [group.completion.error for group in writing.groups] == [None, None]
    assert isinstance(large.completion.error, OutcomeUnknownError)
    assert writing.written() == [1, 2]


def test_a_node_that_is_fenced_between_two_of_several_transactions_tells_each_group_what_became_of_it() -> None:
    writing = Writing(3 * SIZE)
    writing.wait(8)
    sizes = writing.cluster.sizes

    class Fencing(list[int]):
        """Another node takes over behind the second transaction that is committed."""

        def append(self, size: int) -> None:
            super().append(size)
            if len(self) == 4:
                writing.overtake()

    writing.cluster.sizes = Fencing(sizes)
    with pytest.raises(FencedError):
        writing.write()
    done = [group.completion.error is None for group in writing.groups]
    assert sum(done) == len(writing.written())
    assert 0 < sum(done) < 8
    assert done == sorted(done, reverse=True)
    assert all(isinstance(group.completion.error, FencedError) for group in writing.groups[sum(done) :])


def adds(first: int, count: int) -> list[list[Operation]]:
    """Groups of one record each."""
    return [[add(first + n, b"x" * SIZE)] for n in range(count)]


class Following:
    """A worker without routes or agents that is behind, by these groups."""

    def __init__(self, bytes_max: int, *groups: list[Operation]) -> None:
        self.broker = broker_with(wal_topic("j"), table_topic("j"), control_topic("j"))
        self.cluster = Cluster(self.broker, bytes_max)
        written = wal([marker()], *groups)
        self.frames = [(offset, stamp, frame.SerializeToString()) for offset, stamp, frame in written]
        for _, _, value in self.frames:
            self.broker.write(wal_topic("j"), 0, [(None, value), (None, b"")])  # a marker takes an offset too
        disk = Disk()
        timeline = self.broker.timeline
        self.worker = Worker(
            shard_config("j", checkpoint_interval_s=1.0),
            self.cluster,
            lambda _: SimulatedStore(disk, Faults(), "node"),
            clock=timeline.now,
            wall_ms=lambda: timeline.now() * 1000,
            fenced_pause_s=1.0,
        )

    def run(self) -> None:
        """All of the WAL, as many frames at once as there are."""
        at = self.worker.assigned({0})[0]
        end = self.frames[-1][0] + 1
        while self.worker.applied().get(0, 0) < end:
            self.worker.frames(0, [frame for frame in self.frames if frame[0] >= at])
            at = end
            self.broker.timeline.wait(self.worker.tick(), lambda: False)
            at = self.worker.seeks().get(0, at)


def test_a_worker_that_is_far_behind_checkpoints_as_much_as_gets_through() -> None:
    following = Following(8 * SIZE, *adds(1, 100))
    following.run()
    too_large = [size for size in following.cluster.sizes if size > 8 * SIZE]
    assert max(too_large) > 100 * SIZE
    assert len(too_large) < 10
    assert len(following.cluster.sizes) < 50


def test_a_settlement_that_is_more_than_gets_through_with_others_is_checkpointed_alone() -> None:
    """A settlement cannot be divided; the bound of what may be staged is there so that each gets through alone."""
    staged = [add(n, b"x" * SIZE, tx=7) for n in range(1, 6)]
    settled = [[*staged, prepare(7, 5)], *adds(100, 8), [commit(7, 5)], *adds(200, 8)]
    following = Following(6 * SIZE, *settled)
    following.run()
    assert max(following.cluster.sizes) > 10 * SIZE
    assert len(following.cluster.sizes) < 40
