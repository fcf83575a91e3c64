"""A shard and the frames of its WAL: checkpoints, what it tells agents, and what stops it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import pytest

from journal.errors import CorruptionError, FrameError, GapError
from journal.topics.names import control_topic, table_topic, wal_topic
from journal.v1.journal_pb2 import Operation, SkipRequest
from journal.wire.keys import RowType, mark_key, record_key, row_type, skipped_key
from streams.agents.agents import Agent, AgentCalls, OperationAgents
from streams.reading.records import Record
from streams.worker.shard import ShardWorker
from streams.worker.shard_standing import ShardState
from tests.simulation.broker import SimulatedBroker
from tests.simulation.disk import Disk, SimulatedStore
from tests.simulation.faults import Faults
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.timeline import Timeline
from tests.support.build import (
    JOURNAL,
    START_MS,
    BuiltFrame,
    add,
    commit,
    delete,
    frame,
    marker,
    prepare,
    replace,
    rollback,
    update,
    wal,
)
from tests.support.shards import shard_config

NAME = "j"

LIFE: list[list[Operation]] = [
    [marker()],
    [add(n, b"record %d" % n) for n in range(1, 9)],
    [update(1, b"a"), update(2, b"b"), replace(2, b"c"), delete(3), add(9), update(9)],
    [delete(1), add(1, b"again"), update(1, b"d"), replace(2, b"e"), update(9, b"f" * 80)],
    [add(20, tx=7), update(4, b"g", tx=7), delete(5, tx=7), add(21, tx=8), add(12)],
    [],
    [prepare(7, 3), rollback(8, 1), update(12, b"h")],
    [update(6), commit(7, 3), update(20, b"i"), delete(4), add(10)],
    [delete(2), delete(9), add(11), add(9, b"again")],
    [update(9, b"j"), delete(11), add(11), update(1, b"k")],
]
"""The operations of one shard, group by group: several on one record in a frame, and transactions that end in it."""


def recorded(frames: Iterable[tuple[int, int, BuiltFrame]]) -> list[Record]:
    return [(offset, stamp, value.SerializeToString()) for offset, stamp, value in frames]


class ShardWorld:
    """A cluster with a shard's WAL, and a machine for its worker."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.timeline = Timeline()
        self.broker = SimulatedBroker(self.timeline, Faults())
        self.disk = Disk()
        self.records = records
        for topic in (wal_topic(NAME), table_topic(NAME), control_topic(NAME)):
            self.broker.create_topic(topic, 1, 1, {})
        for _, _, value in records:
            self.broker.write(wal_topic(NAME), 0, [(None, value), (None, b"")])  # a marker takes an offset too

    def wall_ms(self) -> float:
        return self.timeline.now() * 1000

    def _store(self) -> SimulatedStore:
        return SimulatedStore(self.disk, Faults(), "node")

    def shard(self, **config: object) -> ShardWorker:
        """A worker's part for the shard, recovered."""
        shard = ShardWorker(
            0,
            shard_config(NAME, **config),
            SimulatedKafka(self.broker),
            self._store(),
            clock=self.timeline.now,
            wall_ms=self.wall_ms,
        )
        shard.recover()
        return shard

    def table(self) -> dict[bytes, bytes]:
        log = self.broker.log(table_topic(NAME), 0)
        assert log is not None
        rows = {record.key: record.value for record in log.fetch(0, 0, 100_000, committed=True)}
        return {key: value for key, value in rows.items() if key is not None and value is not None}


def request(offset: int) -> SkipRequest:
    return SkipRequest(journal=JOURNAL, shard=0, offset=offset, operator="operator")


@pytest.mark.parametrize("at_once", [1, 3, len(LIFE)])
def test_a_shard_that_tells_what_happened_leaves_the_same_table(at_once: int) -> None:
    """A shard with agents of operations looks at its operations one by one."""
    tables = []
    agents = OperationAgents([Agent("agent", lambda each: None, None)], AgentCalls(asyncio.new_event_loop()))
    for tell in (agents, None):
        world = ShardWorld(recorded(wal(*LIFE)))
        shard = world.shard(updates_row_bytes_max=64, tell=tell)
        for first in range(0, len(world.records), at_once):
            assert shard.take(world.records[first : first + at_once]) is None
            assert shard.checkpoint_if_due(now=True)
        assert shard.committed == world.records[-1][0]
        assert world.disk.rows == world.table()
        tables.append(world.table())
    assert tables[0] == tables[1]
    assert {row_type(key) for key in tables[0]} >= {RowType.RECORD, RowType.UPDATES, RowType.MARK}


def test_a_frame_is_not_applied_where_it_is_to_be_skipped() -> None:
    world = ShardWorld(recorded(wal([marker()], [add(1)], [add(2)])))
    offset = world.records[1][0]
    shard = world.shard()
    shard.allow_skips({offset: request(offset)})
    shard.take(world.records)
    shard.checkpoint_if_due(now=True)
    assert skipped_key(0, offset) in world.table()
    assert record_key(1) not in world.table()
    assert record_key(2) in world.table()


def test_a_marker_cuts_the_gathering_off() -> None:
    frames = wal([marker()], [add(1)])
    frames.append((4, START_MS, frame(3, marker(bytes(16)), epoch=2)))
    world = ShardWorld(recorded(frames))
    shard = world.shard(checkpoint_interval_s=10.0)
    shard.take(world.records[:1])
    assert shard.due_in() == 0.0
    shard.checkpoint_if_due()
    shard.take(world.records[1:2])
    assert shard.due_in() == 10.0
    shard.take(world.records[2:])
    assert shard.due_in() == 0.0
    assert shard.checkpoint_if_due()
    assert shard.committed == 4


def test_a_checkpoint_takes_so_many_bytes_of_the_wal() -> None:
    world = ShardWorld(recorded(wal([marker()], *([add(n, b"x" * 50 * n)] for n in range(1, 9)))))
    records = world.records
    sizes = [len(value) for _, _, value in records]
    for count in range(2, len(records)):
        full, room = (ShardWorld(records).shard(checkpoint_bytes_max=sum(sizes[:count]) + more) for more in (0, 1))
        full.take(records[:1])
        assert full.take(records) == records[count][0]
        assert full.next_offset == records[count - 1][0] + 1
        assert full.due_in() == 0.0
        assert room.take(records[: count + 1]) is None
        full.checkpoint_if_due()
        assert full.take(records[count : count + 1]) is None  # it counts anew


# ---- what stops a shard --------------------------------------------------------------------------------------------


def stopped_with(bad: BuiltFrame) -> tuple[ShardWorker, ShardWorld]:
    frames = [*wal([marker()], [add(1)]), (4, START_MS, bad), (6, START_MS, frame(4, add(9)))]
    world = ShardWorld(recorded(frames))
    shard = world.shard(checkpoint_interval_s=10.0)
    shard.take(world.records[:1])
    shard.checkpoint_if_due(now=True)
    assert shard.take(world.records) is None
    return shard, world


@pytest.mark.parametrize(
    ("bad", "kind", "reason"),
    [
        (frame(9, add(2)), GapError, "frame 9 follows frame 8, and frame 2 was the last"),
        (frame(2, add(2)), GapError, "frame 2 follows frame 1"),
        (frame(3, marker()), FrameError, "a second marker in epoch 1"),
        (frame(3, add(2), epoch=2), FrameError, "a frame without a marker before it in epoch 2"),
        (frame(3, add(2), journal=bytes(16)), FrameError, "frame of another journal"),
        (frame(3, add(0)), FrameError, "id 0 is not positive"),
    ],
    ids=["gap", "again", "second_marker", "no_marker", "another_journal", "id_zero"],
)
def test_what_cannot_be_applied_stops_the_shard(bad: BuiltFrame, kind: type[CorruptionError], reason: str) -> None:
    shard, world = stopped_with(bad)
    assert shard.stopped_by is None
    assert shard.due_in() == 0.0  # what came before is checkpointed at once
    assert shard.checkpoint_if_due()
    assert shard.state is ShardState.STOPPED
    assert shard.committed == 2
    assert {record_key(1), mark_key(0)} <= world.table().keys()
    assert record_key(2) not in world.table()
    stop = shard.stopped_by
    assert type(stop) is kind
    assert reason in str(stop)
    assert (stop.topic, stop.partition, stop.offset) == (wal_topic(NAME), 0, 4)


def test_a_frame_out_of_sequence_is_skipped_when_it_comes_again() -> None:
    shard, world = stopped_with(frame(9, add(2)))
    shard.checkpoint_if_due()
    assert shard.allow_skips({4: request(4)})
    assert shard.recover() == 3
    good = (6, START_MS, frame(3, add(9)).SerializeToString())
    assert shard.take([world.records[2], good]) is None
    assert shard.checkpoint_if_due(now=True)
    assert shard.stopped_by is None
    assert {skipped_key(0, 4), record_key(9)} <= world.table().keys()
