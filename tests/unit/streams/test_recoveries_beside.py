"""Recoveries that wait for their turn, or take long: what they hold up, and what becomes of them."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

from journal.disk.ports import LocalStore
from journal.disk.slots import take_slot
from journal.errors import ClosedError, LocalStorageError
from journal.topics.names import control_topic, table_topic, wal_topic
from streams.worker.shard_standing import ShardState
from streams.worker.worker import Worker
from tests.simulation.broker import SimulatedBroker
from tests.simulation.disk import Disk, SimulatedStore
from tests.simulation.faults import Fault, Faults
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.timeline import Timeline
from tests.support.build import add, marker, wal
from tests.support.shards import shard_config

pytestmark = pytest.mark.timeout(30)

T = TypeVar("T")

NAME = "j"
SHARDS = 3
WAIT_S = 20.0


class HeldRecoveries:
    """One at a time in a thread of its own, each when it may."""

    def __init__(self) -> None:
        self.futures: list[Future[object]] = []
        self._may = threading.Semaphore(0)
        self._pool = ThreadPoolExecutor(1)

    def __call__(self, call: Callable[[], T], /) -> Future[T]:
        def held() -> T:
            assert self._may.acquire(timeout=WAIT_S)
            return call()

        future = self._pool.submit(held)
        self.futures.append(future)
        return future

    def until_begun(self) -> None:
        """Wait for the thread to have the first."""
        while not self.futures[0].running():
            pass

    def finish_next(self) -> None:
        """The first that is not over."""
        first = next(future for future in self.futures if not future.done())
        self._may.release()
        first.exception(WAIT_S)


class CountedInits(Faults):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def at(self, request: str, node: str) -> Fault:
        self.count += request == "init"
        return super().at(request, node)


class TwoShards:
    def __init__(self, require_place: Callable[[], None] = lambda: None) -> None:
        self.timeline = Timeline()
        self.inits = CountedInits()
        self.recoveries = HeldRecoveries()
        broker = SimulatedBroker(self.timeline, self.inits)
        for topic in (wal_topic(NAME), table_topic(NAME), control_topic(NAME)):
            broker.create_topic(topic, SHARDS, 1, {})
        self.frames = [
            (offset, stamp, frame.SerializeToString()) for offset, stamp, frame in wal([marker()], [add(SHARDS)])
        ]
        for _, _, value in self.frames:
            broker.write(wal_topic(NAME), 0, [(None, value), (None, b"")])  # a marker takes an offset too
        self._disks = [Disk() for _ in range(SHARDS)]
        self.full: set[int] = set()
        """Shards whose stores cannot be opened."""
        self.worker = Worker(
            shard_config(NAME, shards=SHARDS),
            SimulatedKafka(broker),
            self._store,
            clock=self.timeline.now,
            wall_ms=lambda: self.timeline.now() * 1000,
            fenced_pause_s=1.0,
            recovering=self.recoveries,
            require_place=require_place,
        )

    def _store(self, shard: int) -> LocalStore:
        if shard in self.full:
            raise LocalStorageError("the disk is full")
        return SimulatedStore(self._disks[shard], Faults(), "node")

    def recover(self) -> dict[int, int]:
        """Until nothing recovers any more; where to read from."""
        while not all(future.done() for future in self.recoveries.futures):
            self.recoveries.finish_next()
        self.worker.tick()
        return self.worker.seeks()


def test_shards_are_taken_over_while_others_recover_and_those_that_are_ready_go_on() -> None:
    world = TwoShards()
    worker = world.worker
    worker.assigned({0, 1})
    world.recoveries.finish_next()
    worker.tick()
    assert worker.seeks() == {0: 0}
    worker.revoked({0, 1})
    taking = threading.Thread(target=worker.assigned, args=({0, 1, 2},), daemon=True)
    taking.start()
    taking.join(10.0)
    assert not taking.is_alive()
    worker.frames(0, world.frames)
    assert worker.applied() == {0: world.frames[-1][0] + 1}
    assert world.recover().keys() == {1, 2}
    worker.stop()


def test_a_recovery_that_waits_is_dropped_with_its_shard_and_fences_nobody() -> None:
    world = TwoShards()
    worker = world.worker
    worker.assigned({0, 1, 2})
    world.recoveries.until_begun()
    worker.revoked({0, 1, 2})
    worker.assigned({0, 2})
    assert worker.states().keys() == {0, 2}
    assert world.recover().keys() == {0, 2}
    assert world.inits.count == 2
    worker.revoked({0, 2})
    worker.assigned({0, 1, 2})
    assert world.recover().keys() == {1}
    assert set(worker.states().values()) == {ShardState.RUNNING}
    worker.stop()


def test_a_worker_that_is_abandoned_behind_an_error_ends_its_recoveries() -> None:
    world = TwoShards()
    worker = world.worker
    worker.assigned({0, 1})
    under_way, waits = world.recoveries.futures
    world.recoveries.until_begun()
    world.full = {2}
    with pytest.raises(LocalStorageError):
        worker.assigned({0, 1, 2})
    ending = threading.Thread(target=worker.abandon)
    ending.start()
    while not waits.cancelled():
        assert ending.is_alive()
    world.recoveries.finish_next()
    ending.join(WAIT_S)
    assert isinstance(under_way.result(), ClosedError)
    assert world.inits.count == 1


def test_nothing_is_left_to_abandon_behind_a_stop() -> None:
    world = TwoShards()
    world.worker.assigned({0, 1})
    world.recover()
    world.worker.stop()
    world.worker.abandon()
    assert world.worker.states() == {}


def test_a_worker_whose_directory_is_deleted_says_so_and_ends(tmp_path: Path) -> None:
    slot = take_slot(tmp_path / "state", "worker")
    worker = TwoShards(slot.require).worker
    worker.assigned({0})
    worker.tick()
    shutil.rmtree(tmp_path / "state")
    with pytest.raises(LocalStorageError, match=r"worker-0 is no longer this process'.* start it again"):
        worker.tick()
    worker.abandon()
    slot.release()
