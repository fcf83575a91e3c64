"""A shard that gets its frames sorted: the table is the same, and what it cannot take sorted comes again as it lies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

import pytest

from journal.errors import CorruptionError, FrameError, GapError
from journal.fold.sorted_frame import SortedFrame
from journal.fold.sorting import sort_frame
from journal.topics.control_keys import control_row, skip_key
from journal.topics.names import control_topic, table_topic, wal_topic
from journal.v1.journal_pb2 import Frame, Operation, SkipRequest
from journal.wire.keys import RowType, mark_key, record_key, row_type, skipped_key
from streams.agents.agents import Agent, AgentCalls, OperationAgents, Told
from streams.reading.records import Prepared, Record
from streams.worker.shard import ShardWorker
from streams.worker.shard_standing import ShardState
from streams.worker.worker import IDLE_TICK_S, Worker
from tests.simulation.broker import SimulatedBroker
from tests.simulation.disk import Disk, SimulatedStore
from tests.simulation.faults import Faults
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.timeline import Timeline
from tests.support.as_written import as_written
from tests.support.build import (
    JOURNAL,
    START_MS,
    add,
    commit,
    delete,
    frame,
    marker,
    prepare,
    replace,
    rollback,
    unchained,
    update,
    wal,
)
from tests.support.routes import RoutesWorld, message
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


def recorded(frames: Iterable[tuple[int, int, Frame]]) -> list[Record]:
    return [(offset, stamp, as_written(value)) for offset, stamp, value in frames]


def is_sorted(value: bytes | SortedFrame) -> bool:
    return isinstance(value, SortedFrame)


def sorted_ones(records: Iterable[Record], chosen: Callable[[int], bool] = lambda n: True) -> list[Prepared]:
    """Records with those sorted whose place `chosen` says, if they are frames."""

    def value_of(place: int, offset: int, value: bytes) -> bytes | SortedFrame:
        if not chosen(place):
            return value
        try:
            return sort_frame(value, offset, JOURNAL, 0, 1)
        except FrameError:
            return value

    return [(offset, stamp, value_of(place, offset, value)) for place, (offset, stamp, value) in enumerate(records)]


class SortedWorld:
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

    def worker(self, **config: object) -> Worker:
        return Worker(
            shard_config(NAME, **config),
            SimulatedKafka(self.broker),
            lambda shard: self._store(),
            clock=self.timeline.now,
            wall_ms=self.wall_ms,
            fenced_pause_s=1.0,
        )

    def skip(self, offset: int) -> None:
        """An operator asks for that."""
        row = control_row(NAME, skip_key(0, offset), request(offset))
        self.broker.write(row.topic, row.partition, [(row.key, row.value)])

    def table(self) -> dict[bytes, bytes]:
        log = self.broker.log(table_topic(NAME), 0)
        assert log is not None
        rows = {record.key: record.value for record in log.fetch(0, 0, 100_000, committed=True)}
        return {key: value for key, value in rows.items() if key is not None and value is not None}


def request(offset: int) -> SkipRequest:
    return SkipRequest(journal=JOURNAL, shard=0, offset=offset, operator="operator")


# ---- sorted and not ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_once", [1, 3, len(LIFE)])
@pytest.mark.parametrize(
    "chosen",
    [lambda n: True, lambda n: n % 2 == 0, lambda n: n % 2 == 1, lambda n: n % 3 > 0, lambda n: n > 5],
    ids=["all", "even", "odd", "two_of_three", "the_last"],
)
def test_sorted_frames_and_others_in_turn_leave_the_same_table(chosen: Callable[[int], bool], at_once: int) -> None:
    """Checkpoints fall behind every so many frames."""
    tables = []
    for which in (lambda n: False, chosen):
        world = SortedWorld(recorded(wal(*LIFE)))
        shard = world.shard(updates_row_bytes_max=64)
        prepared = sorted_ones(world.records, which)
        assert any(is_sorted(value) for *_, value in prepared) is (which is chosen)
        for first in range(0, len(prepared), at_once):
            assert shard.take(prepared[first : first + at_once]) is None
            assert shard.checkpoint_if_due(now=True)
        assert shard.committed == world.records[-1][0]
        assert world.disk.rows == world.table()
        tables.append(world.table())
    assert tables[0] == tables[1]
    assert {row_type(key) for key in tables[0]} >= {RowType.RECORD, RowType.UPDATES, RowType.MARK}


def test_a_shard_that_tells_what_happened_leaves_the_same_table() -> None:
    """A shard with agents of operations looks at its operations in their order."""
    tables = []
    agents = OperationAgents([Agent("agent", lambda each: None, None)], AgentCalls(asyncio.new_event_loop()))
    for tell in (agents, None):
        world = SortedWorld(recorded(wal(*LIFE)))
        shard = world.shard(updates_row_bytes_max=64, tell=tell)
        prepared = world.records if tell else sorted_ones(world.records)
        for first in range(0, len(prepared), 2):
            assert shard.take(prepared[first : first + 2]) is None
            assert shard.checkpoint_if_due(now=True)
        tables.append(world.table())
    assert tables[0] == tables[1]


def test_a_shard_that_recovers_takes_sorted_frames_again_from_behind_its_mark() -> None:
    world = SortedWorld(recorded(wal(*LIFE)))
    prepared = sorted_ones(world.records)
    shard = world.shard()
    shard.take(prepared[:4])
    shard.checkpoint_if_due(now=True)
    shard.take(prepared[4:6])
    shard.release()  # without a checkpoint of those
    shard = world.shard()
    shard.take(prepared)
    shard.checkpoint_if_due(now=True)
    plain = SortedWorld(recorded(wal(*LIFE)))
    other = plain.shard()
    other.take(plain.records)
    other.checkpoint_if_due(now=True)
    assert unchained(world.table()) == unchained(plain.table())


# ---- what is refused -----------------------------------------------------------------------------------------------


def is_untouched(shard: ShardWorker) -> bool:
    """Whether it has applied nothing since it recovered, and waits for nothing."""
    return shard.next_offset == shard.committed + 1 and shard.due_in() is None and shard.state is ShardState.RUNNING


def test_a_shard_that_nothing_is_asked_of_takes_what_is_sorted() -> None:
    assert not SortedWorld([]).shard().wants_unsorted


def test_a_shard_whose_operations_are_told_refuses_what_is_sorted() -> None:
    told: list[int] = []

    def telling(each: Told) -> None:
        told.append(each.operation.id)

    world = SortedWorld(recorded(wal([marker()], [add(1), add(2)])))
    agents = OperationAgents([Agent("agent", telling, None)], AgentCalls(asyncio.new_event_loop()))
    shard = world.shard(tell=agents)
    assert shard.wants_unsorted
    assert shard.take(sorted_ones(world.records)) == 0
    assert is_untouched(shard)
    assert shard.take(world.records) is None
    shard.checkpoint_if_due(now=True)
    assert told == [1, 2]


def test_a_shard_with_routes_refuses_what_is_sorted() -> None:
    world = RoutesWorld(wal([marker()], [message(1, b"sent")]))
    shard = world.worker()
    shard.recover()
    assert shard.wants_unsorted
    assert shard.take(sorted_ones(world.frames)) == 0
    assert is_untouched(shard)
    assert shard.take(world.frames) is None
    shard.checkpoint_if_due(now=True)
    assert world.sent() == [b"sent"]


def test_where_something_is_to_be_skipped_nothing_sorted_is_taken_until_that_is_checkpointed() -> None:
    world = SortedWorld(recorded(wal(*LIFE)))
    prepared = sorted_ones(world.records)
    shard = world.shard()
    skipped = world.records[3][0]
    shard.allow_skips({skipped: request(skipped)})
    assert shard.wants_unsorted
    assert shard.take(prepared) == 0
    assert is_untouched(shard)
    assert shard.take([*world.records[:2], *prepared[2:]]) == prepared[2][0]  # what was taken before stays
    assert shard.take(world.records[2:5]) is None
    assert shard.take(prepared[5:]) == prepared[5][0]  # it is behind, and not checkpointed
    assert shard.next_offset == prepared[4][0] + 1
    shard.checkpoint_if_due(now=True)
    assert not shard.wants_unsorted
    assert shard.take(prepared[5:]) is None
    shard.checkpoint_if_due(now=True)
    assert shard.committed == prepared[-1][0]
    table = world.table()
    assert skipped_key(0, skipped) in table
    assert table[record_key(1)].startswith(add(1, b"record 1").SerializeToString())  # its delete was left out


def test_a_frame_that_is_sorted_is_not_applied_where_it_is_to_be_skipped() -> None:
    world = SortedWorld(recorded(wal([marker()], [add(1)], [add(2)])))
    offset = world.records[1][0]
    shard = world.shard()
    shard.allow_skips({offset: request(offset)})
    shard.take(world.records[:1])
    assert shard.take(sorted_ones(world.records)[1:]) == offset
    shard.take(world.records[1:])
    shard.checkpoint_if_due(now=True)
    assert skipped_key(0, offset) in world.table()
    assert record_key(1) not in world.table()
    assert record_key(2) in world.table()


def test_what_is_to_be_skipped_at_or_below_the_mark_asks_for_nothing() -> None:
    world = SortedWorld(recorded(wal([marker()], [add(1)], [add(2)])))
    prepared = sorted_ones(world.records)
    shard = world.shard()
    shard.take(prepared[:2])
    shard.checkpoint_if_due(now=True)
    shard.allow_skips({offset: request(offset) for offset in (0, shard.committed)})
    assert not shard.wants_unsorted
    assert shard.take(prepared[2:]) is None
    shard.allow_skips({100: request(100)})
    assert shard.wants_unsorted
    shard.allow_skips({})
    assert not shard.wants_unsorted


def test_a_refusal_in_the_middle_of_a_group_goes_on_there() -> None:
    frames = [(0, START_MS, frame(1, marker())), (2, START_MS, frame(2, add(1), group=2, last=False))]
    frames.append((3, START_MS, frame(3, add(2), group=2)))
    world = SortedWorld(recorded(frames))
    shard = world.shard()
    prepared = sorted_ones(world.records)
    assert shard.take(prepared[:2]) is None
    shard.allow_skips({9: request(9)})
    assert shard.take(prepared) == 3
    assert shard.due_in() is None  # the group is not whole
    assert shard.take(world.records[2:]) is None
    assert shard.checkpoint_if_due(now=True)
    assert shard.committed == 3


def test_the_worker_seeks_what_a_shard_refuses_and_says_which_want_nothing_sorted() -> None:
    garbage = (4, START_MS, b"garbage")
    frames = recorded(wal([marker()], [add(1)]))
    frames += [garbage, *recorded([(6, START_MS, frame(3, add(2))), (8, START_MS, frame(4, add(3)))])]
    world = SortedWorld(frames)
    worker = world.worker(checkpoint_interval_s=0.1)
    worker.assigned({0})
    assert list(worker.unsorted()) == []
    worker.frames(0, sorted_ones(frames))
    assert worker.states() == {0: ShardState.STOPPED}
    world.skip(4)
    world.timeline.wait(2 * IDLE_TICK_S, lambda: False)
    worker.tick()
    assert worker.states() == {0: ShardState.RUNNING}
    assert worker.seeks() == {0: 3}
    assert list(worker.unsorted()) == [0]
    worker.frames(0, sorted_ones(frames[2:]))
    assert worker.seeks() == {0: 6}  # the garbage was skipped
    worker.frames(0, frames[3:4])
    assert list(worker.unsorted()) == [0]
    world.timeline.wait(IDLE_TICK_S, lambda: False)
    worker.tick()
    assert worker.applied() == {0: 7}
    assert list(worker.unsorted()) == []
    worker.frames(0, sorted_ones(frames[4:]))
    assert worker.seeks() == {}
    worker.stop()
    assert worker.applied() == {0: 9}
    assert {record_key(each) for each in (1, 2, 3)} <= world.table().keys()


def test_frames_that_come_sorted_all_the_same_are_left_out_until_they_are_read_again() -> None:
    world = SortedWorld(recorded(wal([marker()], [add(1)], [add(2)])))
    told: list[int] = []
    agents = OperationAgents(
        [Agent("agent", lambda each: told.append(each.operation.id), None)], AgentCalls(asyncio.new_event_loop())
    )
    worker = world.worker(tell=agents)
    worker.assigned({0})
    worker.frames(0, sorted_ones(world.records))
    worker.frames(0, world.records[1:])  # read ahead, from behind what was refused
    assert worker.stopped() == {}
    assert worker.seeks() == {0: 0}
    worker.frames(0, world.records)
    worker.stop()
    assert told == [1, 2]


# ---- checkpoints ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prepare_records", [list, sorted_ones], ids=["plain", "sorted"])
def test_a_marker_cuts_the_gathering_off(prepare_records: Callable[[Sequence[Record]], Sequence[Prepared]]) -> None:
    frames = wal([marker()], [add(1)])
    frames.append((4, START_MS, frame(3, marker(bytes(16)), epoch=2)))
    world = SortedWorld(recorded(frames))
    prepared = prepare_records(world.records)
    shard = world.shard(checkpoint_interval_s=10.0)
    shard.take(prepared[:1])
    assert shard.due_in() == 0.0
    shard.checkpoint_if_due()
    shard.take(prepared[1:2])
    assert shard.due_in() == 10.0
    shard.take(prepared[2:])
    assert shard.due_in() == 0.0
    assert shard.checkpoint_if_due()
    assert shard.committed == 4


@pytest.mark.parametrize("prepare_records", [list, sorted_ones], ids=["plain", "sorted"])
def test_a_checkpoint_takes_so_many_bytes_of_the_wal(
    prepare_records: Callable[[Sequence[Record]], Sequence[Prepared]],
) -> None:
    world = SortedWorld(recorded(wal([marker()], *([add(n, b"x" * 50 * n)] for n in range(1, 9)))))
    sizes = [len(value) for _, _, value in world.records]
    prepared = prepare_records(world.records)
    for count in range(2, len(prepared)):
        full, room = (
            SortedWorld(world.records).shard(checkpoint_bytes_max=sum(sizes[:count]) + more) for more in (0, 1)
        )
        full.take(prepared[:1])
        assert full.take(prepared) == prepared[count][0]
        assert full.next_offset == prepared[count - 1][0] + 1
        assert full.due_in() == 0.0
        assert room.take(prepared[: count + 1]) is None
        full.checkpoint_if_due()
        assert full.take(prepared[count : count + 1]) is None  # it counts anew


# ---- what stops a shard --------------------------------------------------------------------------------------------


def stopped_with(
    bad: Frame, prepared: Callable[[Sequence[Record]], Sequence[Prepared]]
) -> tuple[ShardWorker, SortedWorld]:
    frames = [*wal([marker()], [add(1)]), (4, START_MS, bad), (6, START_MS, frame(4, add(9)))]
    world = SortedWorld(recorded(frames))
    shard = world.shard(checkpoint_interval_s=10.0)
    shard.take(prepared(world.records)[:1])
    shard.checkpoint_if_due(now=True)
    assert shard.take(prepared(world.records)) is None
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
def test_what_cannot_be_applied_stops_the_shard_sorted_or_not(
    bad: Frame, kind: type[CorruptionError], reason: str
) -> None:
    stops = []
    for prepared in (list, sorted_ones):
        shard, world = stopped_with(bad, prepared)
        assert shard.stopped_by is None
        assert shard.due_in() == 0.0  # what came before is checkpointed at once
        assert shard.checkpoint_if_due()
        assert shard.state is ShardState.STOPPED
        assert shard.committed == 2
        assert {record_key(1), mark_key(0)} <= world.table().keys()
        assert record_key(2) not in world.table()
        stop = shard.stopped_by
        assert type(stop) is kind
        stops.append((str(stop), stop.reason, stop.topic, stop.partition, stop.offset))
    assert stops[0] == stops[1]
    assert reason in stops[1][0]
    assert stops[1][2:] == (wal_topic(NAME), 0, 4)


def test_a_frame_out_of_sequence_that_came_sorted_is_skipped_when_it_comes_again() -> None:
    shard, world = stopped_with(frame(9, add(2)), sorted_ones)
    shard.checkpoint_if_due()
    assert shard.allow_skips({4: request(4)})
    start = shard.recover()
    assert start == 3
    assert shard.wants_unsorted
    assert shard.take(sorted_ones(world.records)[2:]) == 4
    good = (6, START_MS, frame(3, add(9)).SerializeToString())
    assert shard.take([world.records[2], good]) is None
    assert shard.checkpoint_if_due(now=True)
    assert shard.stopped_by is None
    assert {skipped_key(0, 4), record_key(9)} <= world.table().keys()
