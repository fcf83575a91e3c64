"""What a shard's worker asks of its table partition before it goes on from there."""

from __future__ import annotations

import pytest

from journal.errors import ClosedError, CountError, HangingTransactionError, RowError
from journal.kafka.ports import Sent
from journal.topics.names import table_topic
from journal.wire.keys import mark_key, record_key
from streams.worker.shard import ShardWorker
from streams.worker.shard_standing import UNREADABLE_RETRY_S, ShardState
from streams.worker.worker import Worker
from tests.simulation.disk import Disk, SimulatedStore
from tests.simulation.faults import Fault, Faults
from tests.support.build import delete, marker, wal
from tests.support.deposed import DeposedKafka
from tests.support.routes import NAME, RoutesWorld, message

LIMIT_S = 5.0


def test_a_transaction_that_nobody_ended_stops_a_recovery_until_it_is_ended() -> None:
    """KAFKA-20734 leaves such a transaction: its end was never written, and the producer that committed it is gone."""
    world = RoutesWorld([])
    worker = world.worker()
    worker.recover()
    other = world.kafka().transactional_producer("gone")
    other.init(LIMIT_S)
    other.send([Sent(table_topic(NAME), 0, b"r", b"")], LIMIT_S)
    worker = world.worker()
    with pytest.raises(HangingTransactionError, match="nobody ends"):
        worker.recover()
    assert worker.state is ShardState.RECOVERING
    other.abort_transaction(LIMIT_S)
    assert worker.recover() == 0
    assert worker.state is ShardState.RUNNING


def test_a_copy_that_writing_finds_damaged_is_built_anew_from_the_table() -> None:
    """A compaction reads what nobody asked for in years; RocksDB then refuses every write."""
    world = RoutesWorld(wal([marker()], [message(1)], [message(2)], [delete(1)]))
    worker = world.worker()
    worker.recover()
    worker.take(world.frames[:2])
    worker.checkpoint_if_due(now=True)
    world.disk.damaged = True
    world.drive(worker)
    assert worker.state is ShardState.RUNNING
    assert not world.disk.damaged
    table = dict(world.records(table_topic(NAME)))
    assert world.disk.rows == {key: value for key, value in table.items() if value is not None}


def test_a_table_that_lacks_rows_of_its_mark_is_no_base_for_more() -> None:
    """The cleaner took a record away for its tombstone, and then Kafka lost the tombstone with the mark behind it."""
    world = RoutesWorld(wal([marker()], [message(1)], [message(2)], [delete(1)]))
    worker = world.worker()
    worker.recover()
    worker.take(world.frames[:3])
    worker.checkpoint_if_due(now=True)
    table = world.broker.topics[table_topic(NAME)].logs[0]
    lost = table.append(0, record_key(1), None)
    table.compact(world.timeline.now(), 0.0, 1.0)
    table.lose(lost)
    world.disk.clear()
    with pytest.raises(CountError, match=f"{table_topic(NAME)} itself is so.*repair table"):
        world.worker().recover()


def test_a_table_that_has_rows_and_no_mark_is_no_base_for_more() -> None:
    """The cleaner took all marks away but the newest, and then Kafka lost that one."""
    world = RoutesWorld(wal([marker()], [message(1)], [message(2)], [delete(1)]))
    worker = world.worker()
    worker.recover()
    for count in (2, 3):
        worker.take(world.frames[:count])
        worker.checkpoint_if_due(now=True)
    table = world.broker.topics[table_topic(NAME)].logs[0]
    newest = [entry.offset for entry in table.entries if entry.key == mark_key(0)][-1]
    table.compact(world.timeline.now(), 0.0, 1.0)
    table.lose(newest)
    assert table.fetch(0, 0, 9, committed=True)
    for keeps_copy in (True, False):
        if not keeps_copy:
            world.disk.clear()
        worker = world.worker()
        with pytest.raises(RowError, match=r"rows and no mark.*OPERATIONS"):
            worker.recover()


def test_a_worker_whose_table_lost_its_end_reads_it_anew_before_it_goes_on() -> None:
    """All brokers lost power, say, and the worker's producer was never told."""
    world = RoutesWorld(wal([marker()], [message(1)], [message(2)], [delete(1)]))
    worker = world.worker()
    worker.recover()
    worker.take(world.frames[:3])
    worker.checkpoint_if_due(now=True)
    table = world.broker.topics[table_topic(NAME)].logs[0]
    table.lose(0)
    worker.take(world.frames[3:])
    assert not worker.checkpoint_if_due(now=True)
    assert not table.fetch(0, 0, 9, committed=True), "it was aborted"
    world.drive(worker)
    assert {key for key, value in world.disk.rows.items() if value} == {record_key(2), mark_key(0)}


def test_a_recovery_is_given_up_when_its_worker_stops() -> None:
    class Stopping(Faults):
        """The worker is told to stop once its recovery has begun."""

        def at(self, request: str, node: str) -> Fault:
            if request == "init":
                worker.give_up()
            return Fault.NONE

    world = RoutesWorld([], faults=Stopping())
    worker = world.worker()
    with pytest.raises(ClosedError, match="given up"):
        worker.recover()
    worker.release()


def test_a_shard_whose_table_cannot_be_read_goes_on_when_it_can() -> None:
    world = RoutesWorld(wal([marker()], [message(1)]))
    first = world.worker()
    first.recover()
    world.drive(first)
    table = world.broker.log(table_topic(NAME), 0)
    assert table is not None
    table.damaged.add(table.end - 2)
    world.disk.clear()
    worker = Worker(
        world.config(None),
        world.kafka(),
        lambda shard: SimulatedStore(world.disk, world.faults, "node"),
        clock=world.timeline.now,
        wall_ms=world.wall_ms,
        fenced_pause_s=1.0,
    )
    assert worker.assigned([0]) == {}
    assert "damaged" in str(worker.stopped()[0])
    table.lead()  # another replica has it whole
    world.timeline.wait(UNREADABLE_RETRY_S, lambda: False)
    worker.tick()
    assert worker.seeks() == {0: first.committed + 1}
    assert worker.stopped() == {}


def test_no_checkpoint_follows_a_table_that_only_a_deposed_leader_shows() -> None:
    """Such a checkpoint would lack the tombstone of a record that was added and deleted in what that leader hides."""
    world = RoutesWorld(wal([marker()], [message(1)], [message(2)], [delete(1)]))
    kafka = DeposedKafka(world.broker)

    def shard_worker() -> ShardWorker:
        store = SimulatedStore(Disk(), world.faults, "node")
        return ShardWorker(0, world.config(None), kafka, store, clock=world.timeline.now, wall_ms=world.wall_ms)

    first = shard_worker()
    first.recover()
    first.take(world.frames[:1])
    first.checkpoint_if_due(now=True)
    kafka.depose(table_topic(NAME))
    first.take(world.frames[1:3])
    first.checkpoint_if_due(now=True)
    second = shard_worker()
    assert second.recover() == 1  # from the first checkpoint on
    second.take(world.frames[1:])
    second.checkpoint_if_due(now=True)
    assert second.state is ShardState.RECOVERING
    kafka.reads_left.clear()
    world.drive(second)
    rows = dict(world.records(table_topic(NAME)))
    records = [key for key, value in rows.items() if value is not None and key[:1] == b"r"]
    assert records == [record_key(2)]
