"""The local batch of a checkpoint: made while its rows are on their way, written when they are committed, then gone."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping

import pytest

from journal.errors import RouteStopError
from journal.fold.rows import Change
from journal.topics.names import table_topic, wal_topic
from streams.worker.shard import ShardWorker
from streams.worker.shard_checkpoint import CheckpointSender
from streams.worker.shard_standing import ShardState
from tests.simulation.broker import SimulatedBroker
from tests.simulation.disk import Disk, SimulatedStore
from tests.simulation.faults import Faults
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.timeline import Timeline
from tests.support.build import add, marker, wal
from tests.support.shards import shard_config

NAME = "j"


class PackedBatch:
    """What a store gives for rows that it has packed."""

    def __init__(self, write: Callable[[Mapping[bytes, bytes]], None]) -> None:
        self._write = write

    def __call__(self, named: Mapping[bytes, bytes]) -> None:
        self._write(named)


class PackingStore(SimulatedStore):
    """Knows which batches are still there."""

    def __init__(self, disk: Disk, committed: Callable[[], int]) -> None:
        super().__init__(disk, Faults(), "node")
        self._committed = committed
        self.batches: list[weakref.ref[PackedBatch]] = []
        self.packed_at: list[int] = []
        """How many rows of the table were committed then."""

    def packed(self, rows: Iterable[Change]) -> Callable[[Mapping[bytes, bytes]], None]:
        self.packed_at.append(self._committed())
        batch = PackedBatch(super().packed(rows))
        self.batches.append(weakref.ref(batch))
        return batch


class PackingScene:
    """A shard that has gathered what its WAL holds."""

    def __init__(self) -> None:
        timeline = Timeline()
        broker = SimulatedBroker(timeline, Faults())
        for topic in (wal_topic(NAME), table_topic(NAME)):
            broker.create_topic(topic, 1, 1, {})
        records = [(offset, stamp, frame.SerializeToString()) for offset, stamp, frame in wal([marker()], [add(1)])]
        broker.write(wal_topic(NAME), 0, [(None, value) for _, _, value in records])
        self.disk = Disk()
        log = broker.log(table_topic(NAME), 0)
        assert log is not None
        self.committed = lambda: len(log.fetch(0, 0, 1000, committed=True))
        self.store = PackingStore(self.disk, self.committed)
        kafka, config = SimulatedKafka(broker), shard_config(NAME)
        self.shard = ShardWorker(0, config, kafka, self.store, clock=timeline.now, wall_ms=timeline.now)
        self.shard.recover()
        self.shard.take(records)


def test_a_batch_is_made_once_before_the_commit_and_gone_when_it_is_written() -> None:
    scene = PackingScene()
    before = dict(scene.disk.rows)
    assert scene.shard.checkpoint_if_due(now=True)
    assert (scene.store.packed_at, scene.committed()) == ([0], 2)
    assert scene.disk.rows != before
    assert [batch() for batch in scene.store.batches] == [None]


def test_a_batch_is_gone_though_the_error_that_ended_its_checkpoint_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is to be opened anew could not be."""
    scene = PackingScene()

    def stopped(
        self: object, fold: object, facts: object, changes: object, meanwhile: Callable[[], object], **how: bool
    ) -> None:
        meanwhile()
        raise RouteStopError("a route cannot send", offset=1, retried=False)

    monkeypatch.setattr(CheckpointSender, "send", stopped)
    before = dict(scene.disk.rows)
    assert not scene.shard.checkpoint_if_due(now=True)
    assert scene.shard.state is ShardState.RECOVERING
    assert scene.disk.rows == before
    assert [batch() for batch in scene.store.batches] == [None]
