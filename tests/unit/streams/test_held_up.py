"""A shard that is held up, by an agent that never returns, a disk or a broker: it waits, and nothing else does."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

import pytest

from journal.errors import CorruptionError, FrameError
from journal.process.background import InBackground, at_once, in_thread
from journal.topics.names import control_topic, table_topic, wal_topic
from journal.v1.journal_pb2 import Operation
from streams.agents.agents import Agent, AgentCalls, OperationAgents, Told
from streams.apps.host import AgentShell
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
TOLD = [(2, b"a"), (4, b"b"), (6, b"c"), (8, b"d")]
"""WAL offsets and data of what is told of them, in each shard."""


def groups(shard: int) -> list[list[Operation]]:
    return [[marker()], *([add(2 * n + shard, data)] for n, (_, data) in enumerate(TOLD, 1))]


def beside(call: Callable[[], T], /) -> Future[T]:
    """In a thread of its own, which is waited for unless an agent holds it up: simulated time is for one at a time."""
    future = in_thread(call)
    wait([future], 0.2)
    return future


class StalledDisk(Faults):
    """A disk that takes no write from `begins` on, before `ends` is set."""

    def __init__(self) -> None:
        self.begins, self.ends = False, threading.Event()

    def at(self, request: str, node: str) -> Fault:
        if self.begins and request == "disk_write":
            self.ends.wait(20)
        return Fault.NONE


class HeldUpWorld:
    """Two shards with much the same WAL, and a worker, with an agent or without."""

    def __init__(
        self,
        agent: Callable[[Told], object] | None = None,
        *,
        stall: StalledDisk | None = None,
        reading: InBackground = at_once,
        opening: InBackground = at_once,
        **config: float,
    ) -> None:
        """`stall` is of the first shard's disk, once it is recovered."""
        self.timeline = Timeline()
        self.broker = SimulatedBroker(self.timeline, Faults())
        for topic in (wal_topic(NAME), table_topic(NAME), control_topic(NAME)):
            self.broker.create_topic(topic, 2, 1, {})
        self.frames = {
            shard: [(offset, stamp, frame.SerializeToString()) for offset, stamp, frame in wal(*groups(shard))]
            for shard in (0, 1)
        }
        for shard, frames in self.frames.items():
            for _, _, value in frames:
                self.broker.write(wal_topic(NAME), shard, [(None, value), (None, b"")])  # a marker takes an offset too
        tell = None
        if agent is not None:
            tell = OperationAgents([Agent("agent", agent, None)], AgentCalls(asyncio.new_event_loop()))
        disks = {0: Disk(), 1: Disk()}
        self.worker = Worker(
            shard_config(NAME, shards=2, tell=tell, **config),
            SimulatedKafka(self.broker),
            lambda shard: SimulatedStore(disks[shard], (stall if shard == 0 else None) or Faults(), "node"),
            clock=lambda: self.timeline.now(),
            wall_ms=lambda: self.timeline.now() * 1000,
            fenced_pause_s=1.0,
            checkpointing=beside,
            reading=reading,
            opening=opening,
        )
        self.at = dict(self.worker.assigned({0, 1}))
        if stall is not None:
            stall.begins = True

    def turn(self) -> None:
        """Give the worker the next frame of each shard, as it wants them."""
        for shard, all_frames in self.frames.items():
            if frames := [frame for frame in all_frames if frame[0] >= self.at[shard]][:1]:
                self.at[shard] = frames[-1][0] + 1
                self.worker.frames(shard, frames)
        self.timeline.wait(max(0.001, self.worker.tick()), lambda: False)
        self.at.update(self.worker.seeks())

    def turn_until(self, done: Callable[[], bool]) -> None:
        while not done():
            self.turn()

    def is_applied(self, shard: int) -> bool:
        return self.worker.applied().get(shard, 0) > self.frames[shard][-1][0]


def test_a_shard_whose_agent_does_not_return_holds_up_no_other_and_goes_on_where_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("streams.worker.held_shard.CHECKPOINT_WAIT_S", 0.05)
    returns = threading.Event()
    told: list[tuple[int, int, bytes]] = []

    def slow(each: Told) -> None:
        if each.shard == 0:
            returns.wait(60)
        told.append((each.shard, each.position[0], each.operation.data))

    world = HeldUpWorld(slow)
    world.turn_until(lambda: world.is_applied(1))
    assert not world.is_applied(0)
    assert set(world.worker.states().values()) == {ShardState.RUNNING}
    returns.set()
    world.turn_until(lambda: world.is_applied(0))
    world.worker.stop()
    assert world.worker.states() == {}
    assert sorted(told) == [(shard, *each) for shard in (0, 1) for each in TOLD]


def test_a_worker_stops_though_an_agent_never_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("worker.REVOKE_WAIT_S", "worker.END_WAIT_S", "held_shard.CHECKPOINT_WAIT_S"):
        monkeypatch.setattr(f"streams.worker.{name}", 0.05)
    returns = threading.Event()

    def stuck(each: Told) -> None:
        if each.shard == 0:
            returns.wait(60)

    world = HeldUpWorld(stuck)
    world.turn_until(lambda: world.is_applied(1))
    shell = AgentShell(world.worker, None)
    shell.stop()
    assert list(shell.left) == [0]
    returns.set()


def test_a_shard_whose_disk_does_not_answer_holds_up_no_other_and_goes_on_where_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("streams.worker.held_shard.CHECKPOINT_WAIT_S", 0.05)
    stall = StalledDisk()
    world = HeldUpWorld(stall=stall)
    world.turn_until(lambda: world.is_applied(1))
    assert not world.is_applied(0)
    stall.ends.set()
    world.turn_until(lambda: world.is_applied(0))
    assert world.worker.stopped() == {}
    world.worker.stop()
    assert world.worker.held_up() == []


def test_a_worker_ends_though_a_disk_does_not_answer_and_names_the_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("worker.REVOKE_WAIT_S", "worker.END_WAIT_S", "held_shard.CHECKPOINT_WAIT_S"):
        monkeypatch.setattr(f"streams.worker.{name}", 0.05)
    stall = StalledDisk()
    world = HeldUpWorld(stall=stall)
    world.turn_until(lambda: world.is_applied(1))
    world.worker.stop()
    assert world.worker.held_up() == [0]
    stall.ends.set()


def test_control_rows_that_cannot_be_read_hold_up_no_shard() -> None:
    """A stopped shard looks for a skip request every second."""
    may_read = threading.Event()

    def later(call: Callable[[], T], /) -> Future[T]:
        def read() -> T:
            may_read.wait(20)
            return call()

        return in_thread(read)

    world = HeldUpWorld(reading=later)
    (good, bad, *_), worker = world.frames[0], world.worker
    worker.frames(0, [good, (bad[0], bad[1], b"garbage")])
    world.frames[0] = []
    world.turn_until(lambda: world.is_applied(1))
    assert worker.states() == {0: ShardState.STOPPED, 1: ShardState.RUNNING}
    may_read.set()
    worker.stop()


class SlowAgent:
    """An agent that is held up by the first shard until it may return, or a long time."""

    def __init__(self) -> None:
        self.returns, self.returned = threading.Event(), threading.Event()

    def __call__(self, each: Told) -> None:
        if each.shard == 0:
            self.returns.wait(20)
            self.returned.set()


def test_a_shard_that_stops_waits_for_its_agent_and_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.worker.held_shard.CHECKPOINT_WAIT_S", 0.05)
    slow = SlowAgent()
    world = HeldUpWorld(slow, checkpoint_interval_s=10.0)
    worker, (*good, last) = world.worker, world.frames[0]
    garbage = (last[0], last[1], b"garbage")
    worker.frames(0, [*good, garbage])
    assert not slow.returned.is_set()
    worker.frames(0, [garbage, last])
    world.turn_until(lambda: world.is_applied(1))
    assert worker.states() == {0: ShardState.RUNNING, 1: ShardState.RUNNING}
    slow.returns.set()
    while worker.states()[0] is ShardState.RUNNING:
        worker.tick()
    assert worker.applied()[0] == good[-1][0] + 1
    assert isinstance(stop := worker.stopped()[0], FrameError)
    assert stop.offset == last[0]
    worker.stop()


def test_a_shard_that_cannot_be_read_on_waits_for_its_agent_and_holds_up_no_other() -> None:
    slow = SlowAgent()
    world = HeldUpWorld(slow, checkpoint_interval_s=10.0)
    worker, good = world.worker, world.frames[0][:2]
    for frame in good:
        worker.frames(0, [frame])
    worker.unreadable(0, error := CorruptionError("damaged", topic=wal_topic(NAME), partition=0, offset=7))
    assert not slow.returned.is_set()
    assert worker.stopped() == {}
    slow.returns.set()
    while worker.states()[0] is ShardState.RUNNING:
        worker.tick()
    assert worker.applied()[0] == good[-1][0] + 1
    assert worker.stopped() == {0: error}
    worker.stop()


def test_a_checkpoint_that_falls_due_as_it_is_asked_for_waits_for_the_next_tick() -> None:
    """Not in the worker's thread, which an agent would hold up."""
    threads: set[str] = set()

    def noting(each: Told) -> None:
        threads.add(threading.current_thread().name)

    world = HeldUpWorld(noting, checkpoint_interval_s=0.5)
    clock = world.timeline.now

    def hurrying() -> float:
        world.timeline.wait(0.3, lambda: False)
        return clock()

    world.timeline.now = hurrying  # type: ignore[method-assign]
    world.turn_until(lambda: world.is_applied(0) and world.is_applied(1))
    world.worker.stop()
    assert threading.current_thread().name not in threads


def test_a_shard_that_cannot_be_recovered_says_why_until_it_is() -> None:
    broken = True

    def fragile(each: Told) -> None:
        if broken and each.shard == 0 and each.operation.data == b"c":
            raise ValueError("no")

    world = HeldUpWorld(fragile)
    world.turn_until(lambda: bool(world.worker.waiting()))
    assert list(world.worker.waiting()) == [0]
    broken = False
    world.turn_until(lambda: world.is_applied(0))
    assert world.worker.waiting() == {}
    world.worker.stop()


def test_a_copy_that_does_not_open_yet_is_waited_for_and_the_wait_says_what_ends_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("journal.process.waits.SAY_AFTER_S", 0.01)
    waits, disk_answers = logging.getLogger("journal.waits"), threading.Event()

    def opening(call: Callable[[], T], /) -> Future[T]:
        def open_late() -> T:
            disk_answers.wait(20)
            return call()

        return in_thread(open_late)

    def answers(_: logging.LogRecord) -> bool:
        disk_answers.set()
        return True

    waits.addFilter(answers)
    try:
        world = HeldUpWorld(opening=opening)
    finally:
        waits.removeFilter(answers)
    assert "waiting for the local copy of shard 0 to open, 0 s so far: it ends when the disk answers" in caplog.text
    world.turn_until(lambda: world.is_applied(0))
    world.worker.stop()


def test_a_call_that_takes_longer_than_it_may_is_named_as_long_as_it_does() -> None:
    returns = threading.Event()

    def slow(told: int) -> None:
        returns.wait(60)

    calls = AgentCalls(asyncio.new_event_loop())
    thread = threading.Thread(target=calls.call, args=(Agent("slow", slow, None, timeout_s=0.05), 3, [1]))
    thread.start()
    while not calls.late():
        thread.join(0.01)
    ((name, shard, why),) = calls.late()
    assert (name, shard) == ("slow", 3)
    assert "agent slow, shard 3: has not returned for" in why
    returns.set()
    thread.join()
    assert calls.late() == []
