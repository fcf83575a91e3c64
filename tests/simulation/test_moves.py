"""Shards that move, and that come back to their worker, as chosen traces on the simulated Kafka."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from journal.errors import CorruptionError
from streams.worker.shard_standing import UNREADABLE_RETRY_S, ShardState
from streams.worker.worker import RECOVERING_TICK_S, Worker
from tests.simulation.disk import Disk, SimulatedStore
from tests.simulation.node import Node
from tests.simulation.node_copy import identity_of_copy
from tests.simulation.scheduler import Process
from tests.simulation.setting import FENCED_PAUSE_S
from tests.simulation.test_traces import Stage
from tests.simulation.worker_process import WorkerProcess

T = TypeVar("T")

REJOIN_S = 1.0


def write(stage: Stage, node: Node, record_id: int) -> int:
    """Add a record; the WAL offset behind it (of the first shard)."""
    completion = node.add(record_id, b"%d" % record_id)
    stage.until(lambda: completion.done)
    assert completion.error is None
    log = stage.broker.log("sim.wal", 0)
    assert log is not None
    return log.last_stable - 1  # a transaction's end is a record of the log


def recoveries(stage: Stage, worker: WorkerProcess) -> int:
    return stage.script.asked.count((worker.process.name, "init"))


def test_a_shard_that_comes_back_goes_on_without_a_recovery() -> None:
    stage = Stage(shards=2)
    node = stage.active_node("node")
    before = recoveries(stage, stage.worker)
    stage.worker.wanted = frozenset({0})
    stage.run(1.0)
    assert recoveries(stage, stage.worker) == before
    stage.worker.wanted = frozenset({0, 1})
    stage.run(1.0)
    assert recoveries(stage, stage.worker) == before + 1  # the shard that was away recovers
    for record_id in range(1, 9):
        write(stage, node, record_id)
    stage.until(lambda: len(stage.worker.caught_up) == 2)
    stage.run(1.0)
    assert recoveries(stage, stage.worker) == before + 1
    stage.judge()


def test_a_shard_that_another_had_meanwhile_is_recovered_as_soon_as_the_broker_refuses_its_checkpoint() -> None:
    stage = Stage(rejoin_s=REJOIN_S)
    node = stage.active_node("node")
    write(stage, node, 1)
    stage.run(1.0)
    stage.worker.wanted = frozenset()
    stage.run(REJOIN_S / 4)  # given back, and not yet heard of what follows
    other = stage.start_worker("other", 0)
    offset = write(stage, node, 2)
    stage.until(lambda: other.caught_up.get(0, 0) >= offset)
    other.wanted = frozenset()
    stage.worker.wanted = frozenset({0})
    before = recoveries(stage, stage.worker)
    offset = write(stage, node, 3)
    stage.run(REJOIN_S + FENCED_PAUSE_S / 2)
    assert recoveries(stage, stage.worker) == before + 1
    assert stage.worker.caught_up[0] >= offset
    stage.judge()


def test_a_shard_that_its_successor_took_waits_for_being_revoked() -> None:
    stage = Stage()
    node = stage.active_node("node")
    write(stage, node, 1)
    stage.run(1.0)
    other = stage.start_worker("other", 0)
    stage.run(1.0)
    before = recoveries(stage, stage.worker)
    offset = write(stage, node, 2)
    stage.run(FENCED_PAUSE_S / 2)
    assert recoveries(stage, stage.worker) == before
    assert other.caught_up[0] >= offset
    stage.worker.wanted = frozenset()
    stage.run(2 * FENCED_PAUSE_S)
    assert recoveries(stage, stage.worker) == before
    stage.judge()


# ---- recoveries beside everything else -------------------------------------------------------------------------------


class Held:
    """What recovers shards, when it is told to."""

    def __init__(self) -> None:
        self._calls: list[tuple[Future[Any], Callable[[], Any]]] = []

    def __call__(self, call: Callable[[], T], /) -> Future[T]:
        future: Future[T] = Future()
        self._calls.append((future, call))
        return future

    def begin(self) -> None:
        """None of those that were asked for waits for its turn any more."""
        for future, _ in self._calls:
            future.set_running_or_notify_cancel()

    def finish_next(self) -> None:
        future, call = self._calls.pop(0)
        if future.running() or future.set_running_or_notify_cancel():
            future.set_result(call())


def drive(stage: Stage, steps: Callable[[Worker, Held], None]) -> None:
    """A worker with two shards, whose recoveries are held, driven by `steps`."""
    stage.worker.wanted = None
    stage.run(1.0)
    process = Process("driven")

    def main() -> None:
        setting, held, disks = stage.setting, Held(), {0: Disk(), 1: Disk()}
        kafka = setting.kafka(process.name)
        worker = Worker(
            setting.shard_config(identity_of_copy(setting, kafka)),
            kafka,
            lambda shard: SimulatedStore(disks[shard], setting.broker.faults, process.name),
            clock=setting.scheduler.now,
            wall_ms=setting.wall_ms(process.name),
            fenced_pause_s=FENCED_PAUSE_S,
            recovering=held,
        )
        steps(worker, held)
        worker.stop()

    stage.scheduler.spawn(process, main)
    stage.until(lambda: not process.alive)
    stage.judge()


def test_a_shard_is_read_when_it_has_recovered_whatever_becomes_of_the_others() -> None:
    def steps(worker: Worker, held: Held) -> None:
        assert worker.assigned({0, 1}) == {}
        worker.frames(0, [(0, 0, b"not asked for")])
        assert worker.tick() == RECOVERING_TICK_S
        assert worker.seeks() == {}
        held.finish_next()
        assert worker.tick() == RECOVERING_TICK_S
        assert worker.seeks().keys() == {0}
        held.finish_next()
        worker.tick()
        assert worker.seeks().keys() == {1}
        assert set(worker.states().values()) == {ShardState.RUNNING}

    drive(Stage(shards=2), steps)


def test_a_rebalance_does_not_wait_for_recoveries_and_one_that_comes_too_late_is_let_go() -> None:
    def steps(worker: Worker, held: Held) -> None:
        worker.assigned({0, 1})
        held.begin()
        worker.revoked({0, 1})
        assert worker.assigned({0}) == {}  # still on its way: its recovery counts
        held.finish_next()
        worker.tick()
        assert worker.seeks().keys() == {0}
        assert worker.states()[1] is ShardState.RECOVERING
        held.finish_next()
        worker.tick()
        assert worker.states() == {0: ShardState.RUNNING}
        assert worker.seeks() == {}

    drive(Stage(shards=2), steps)


def test_a_shard_that_recovers_between_two_rebalances_goes_on_from_there() -> None:
    def steps(worker: Worker, held: Held) -> None:
        worker.assigned({0, 1})
        worker.revoked({0, 1})
        held.finish_next()
        worker.tick()
        assert worker.seeks() == {}
        assert worker.assigned({0, 1}).keys() == {0}
        held.finish_next()
        worker.tick()
        assert worker.seeks().keys() == {1}

    drive(Stage(shards=2), steps)


def test_a_worker_that_stops_begins_no_recovery_that_waits_for_its_turn() -> None:
    def steps(worker: Worker, held: Held) -> None:
        worker.assigned({0, 1})
        held.finish_next()
        worker.tick()
        before = stage.script.asked.count(("driven", "init"))
        worker.stop()
        assert stage.script.asked.count(("driven", "init")) == before
        assert worker.states() == {}

    stage = Stage(shards=2)
    drive(stage, steps)


# ---- a WAL that cannot be read ---------------------------------------------------------------------------------------


def test_a_shard_that_cannot_be_read_stops_alone_and_is_tried_again() -> None:
    def steps(worker: Worker, held: Held) -> None:
        worker.assigned({0, 1})
        held.finish_next()
        held.finish_next()
        worker.tick()
        assert worker.seeks().keys() == {0, 1}
        error = CorruptionError("damaged", topic="sim.wal", partition=1, offset=7)
        worker.unreadable(1, error)
        assert worker.states() == {0: ShardState.RUNNING, 1: ShardState.STOPPED}
        assert worker.stopped() == {1: error}
        worker.tick()
        assert worker.seeks() == {}
        stage.scheduler.pause(UNREADABLE_RETRY_S)
        worker.tick()
        held.finish_next()
        worker.tick()
        assert worker.seeks().keys() == {1}
        assert worker.stopped() == {}

    stage = Stage(shards=2)
    drive(stage, steps)
