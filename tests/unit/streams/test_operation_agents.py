"""`on_operation` agents: what they give is in the checkpoint's transaction, whatever goes wrong at whatever step."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from random import Random
from typing import Any

import pytest

from journal.errors import AgentError, OperatingError
from journal.kafka.ports import Sent
from journal.topics.names import control_topic, table_topic, wal_topic
from journal.v1.journal_pb2 import Mark
from journal.wire.keys import mark_key
from streams.agents.agents import Agent, AgentCalls, OperationAgents, Told
from streams.agents.facts import FrameFacts
from streams.worker.shard import ShardWorker
from streams.worker.shard_config import ShardConfig
from streams.worker.shard_standing import ShardState
from streams.worker.worker import Worker
from tests.simulation.broker import SimulatedBroker
from tests.simulation.disk import Disk, SimulatedStore
from tests.simulation.faults import Fault, Faults, SimulatedCrash
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.timeline import Timeline
from tests.support.build import add, commit, delete, marker, prepare, rollback, update, wal
from tests.support.fault_at import FaultAt
from tests.support.shards import shard_config

NAME = "j"
OUT = "out"
GROUPS = [
    [marker()],
    [add(1, b"a"), update(1, b"u")],
    [add(2, b"short"), delete(2)],
    [add(3, b"t", tx=9), prepare(9, 1)],
    [add(4, b"b")],
    [commit(9, 1), delete(1)],
    [add(5, b"r", tx=10), prepare(10, 1)],
    [rollback(10, 1)],
]
GIVEN = [
    b"2/0/0 1 a",
    b"2/1/0 1 u",
    b"4/0/0 2 short",
    b"4/1/0 2 ",
    b"8/0/0 4 b",
    b"10/0/1 3 t",
    b"10/1/0 1 ",
]
FAULTS = [fault for fault in Fault if fault is not Fault.NONE]


def give_all(told: Told) -> Iterator[tuple[None, bytes]]:
    yield None, b"%d/%d/%d %d %s" % (*told.position, told.operation.id, told.operation.data)


class AgentWorld:
    """A shard's WAL, and its worker with an agent."""

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self.timeline = Timeline()
        self.broker = SimulatedBroker(self.timeline, faults)
        self.loop = asyncio.new_event_loop()
        self.agents = OperationAgents([Agent("all", give_all, OUT)], AgentCalls(self.loop))
        self.disk = Disk()
        for topic in (wal_topic(NAME), table_topic(NAME), control_topic(NAME), OUT):
            self.broker.create_topic(topic, 1, 1, {})
        self.frames = [(offset, stamp, frame.SerializeToString()) for offset, stamp, frame in wal(*GROUPS)]
        for _, _, value in self.frames:
            self.broker.write(wal_topic(NAME), 0, [(None, value), (None, b"")])  # a marker takes an offset too

    def config(self) -> ShardConfig:
        return shard_config(NAME, tell=self.agents)

    def worker(self) -> ShardWorker:
        store = SimulatedStore(self.disk, self.faults, "node")
        now = self.timeline.now
        return ShardWorker(
            0, self.config(), SimulatedKafka(self.broker), store, clock=now, wall_ms=lambda: self.timeline.now() * 1000
        )

    def records(self, topic: str) -> list[tuple[bytes | None, bytes | None]]:
        log = self.broker.log(topic, 0)
        assert log is not None
        return [(record.key, record.value) for record in log.fetch(0, 0, 1000, committed=True)]

    def given(self) -> list[bytes | None]:
        return [value for _, value in self.records(OUT)]

    def marked(self) -> int:
        marks = [value for key, value in self.records(table_topic(NAME)) if key == mark_key(0)]
        return Mark.FromString(marks[-1] or b"").offset if marks else -1

    def run(self, at_once: int) -> None:
        """The whole WAL, checkpointed every `at_once` frames, by one process after another."""
        for _ in range(10):
            try:
                self._one_process(at_once)
                return
            except SimulatedCrash:
                self.disk.crash(Random(0))
            except OperatingError:
                self.timeline.wait(1.0, lambda: False)
        raise AssertionError("ten processes were not enough")

    def _one_process(self, at_once: int) -> None:
        worker = self.worker()
        worker.recover()
        while self.marked() < self.frames[-1][0]:
            if worker.state is not ShardState.RUNNING:
                self.timeline.wait(1.0, lambda: False)
                worker.recover()
            following = worker.next_offset or 0
            worker.take([frame for frame in self.frames if frame[0] >= following][:at_once])
            worker.checkpoint_if_due(now=True)


@pytest.mark.parametrize("at_once", [1, 3, 100])
def test_operations_are_told_in_wal_order_and_transactional_ones_at_their_commit(at_once: int) -> None:
    world = AgentWorld(Faults())
    world.run(at_once)
    assert world.given() == GIVEN
    assert world.agents.told == {"all": len(GIVEN)}


@pytest.mark.parametrize("fault", FAULTS)
def test_one_fault_at_any_step_changes_nothing_of_what_is_given(fault: Fault) -> None:
    counting = FaultAt()
    AgentWorld(counting).run(2)
    for step in range(1, counting.step + 1):
        world = AgentWorld(FaultAt(fault, step))
        world.run(2)
        world.timeline.wait(30.0, lambda: False)
        assert world.given() == GIVEN, f"{fault} at step {step}"


# ---- calling -------------------------------------------------------------------------------------------------------


@pytest.fixture
def calls() -> Iterator[AgentCalls]:
    """Calls beside an event loop that runs, as an app's does."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield AgentCalls(loop)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


async def async_outputs(told: int) -> list[tuple[str, bytes]]:
    return [("k", b"%d" % told)]


async def async_yields(told: int) -> AsyncIterator[tuple[str, bytes]]:
    yield "k", b"%d" % told


class AsyncObject:
    async def __call__(self, told: int) -> list[tuple[str, bytes]]:
        return [("k", b"%d" % told)]


def plain_yields(told: int) -> Iterator[tuple[str, bytes]]:
    yield "k", b"%d" % told


@pytest.mark.parametrize(
    "function", [async_outputs, async_yields, AsyncObject(), plain_yields, lambda told: [("k", b"%d" % told)]]
)
def test_an_agent_may_be_any_kind_of_function(calls: AgentCalls, function: object) -> None:
    agent = Agent("agent", function, OUT)  # type: ignore[arg-type]
    assert calls.call(agent, 0, [1, 2]) == [Sent(OUT, -1, b"k", b"1"), Sent(OUT, -1, b"k", b"2")]


@pytest.mark.parametrize(
    ("output", "to", "what"),
    [
        (("k", b"v"), None, "it has no topic|has no topic"),
        ("text", OUT, "'t' is no output"),
        ([("k",)], OUT, "is no output"),
        ([("k", 1)], OUT, "is no output"),
        (7, OUT, "TypeError"),
    ],
)
def test_what_cannot_be_sent_names_the_agent_and_the_shard(
    calls: AgentCalls, output: object, to: str | None, what: str
) -> None:
    given = [output] if isinstance(output, tuple) else output
    with pytest.raises(AgentError, match=rf"agent odd, shard 3: .*({what})"):
        calls.call(Agent("odd", lambda told: given, to), 3, [1])


def test_an_async_agent_that_takes_too_long_is_cancelled(calls: AgentCalls) -> None:
    cancelled = threading.Event()

    async def slow(told: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with pytest.raises(AgentError, match=r"agent slow, shard 0: took longer than 0\.05 s"):
        calls.call(Agent("slow", slow, None, timeout_s=0.05), 0, [1])
    assert cancelled.wait(60)


def leave(told: int) -> None:
    raise SystemExit(3)


async def leave_async(told: int) -> None:
    raise SystemExit(3)


@pytest.mark.parametrize("function", [leave, leave_async])
def test_an_agent_that_exits_counts_as_one_that_raised(calls: AgentCalls, function: Callable[[int], object]) -> None:
    for _ in range(2):
        with pytest.raises(AgentError, match=r"agent leave, shard 0: SystemExit\(3\)"):
            calls.call(Agent("leave", function, None, timeout_s=5.0), 0, [1])


def test_an_error_of_one_agent_is_shown_until_it_is_told_again(calls: AgentCalls) -> None:
    broken = True

    def fragile(told: Told) -> None:
        if broken:
            raise ValueError("no")

    agents = OperationAgents([Agent("fragile", fragile, None)], calls)
    happened = [(add(1), 4, 0, 0)]
    frames = {4: FrameFacts(1, "node", 2, 3)}
    with pytest.raises(AgentError, match="no"):
        agents(5, happened, frames)
    assert list(agents.errors) == [("fragile", 5)]
    broken = False
    assert agents(5, happened, frames) == []
    assert agents.errors == {}


# ---- what holds a shard up ------------------------------------------------------------------------------------------


class ServedAgents:
    """A worker of a world's shard, which is given all frames that it wants at once."""

    def __init__(self, world: AgentWorld) -> None:
        self._world = world
        self.worker = Worker(
            world.config(),
            SimulatedKafka(world.broker),
            lambda shard: SimulatedStore(world.disk, world.faults, "node"),
            clock=world.timeline.now,
            wall_ms=lambda: world.timeline.now() * 1000,
            fenced_pause_s=1.0,
        )
        self._positions = dict(self.worker.assigned({0}))

    def serve(self, seconds: float) -> set[bool]:
        """Whether an agent is named as failing, behind every turn."""
        world, named = self._world, set()
        until = world.timeline.now() + seconds
        while world.timeline.now() < until:
            self._positions.update(self.worker.seeks())
            frames = [frame for frame in world.frames if frame[0] >= self._positions.get(0, 10**6)]
            self._positions.clear()
            self.worker.frames(0, frames)
            world.timeline.wait(max(0.001, self.worker.tick()), lambda: False)
            named.add(bool(world.agents.errors))
        return named


def test_what_was_before_the_group_that_an_agent_fails_at_is_given() -> None:
    broken = True

    def fragile(told: Told) -> Iterator[tuple[None, bytes]]:
        if broken and told.operation.data == b"b":
            raise ValueError("no")
        yield from give_all(told)

    world = AgentWorld(Faults())
    world.agents = OperationAgents([Agent("all", fragile, OUT)], AgentCalls(world.loop))
    served = ServedAgents(world)
    served.serve(5.0)
    assert world.given() == GIVEN[:4]
    broken = False
    served.serve(5.0)
    assert world.given() == GIVEN


def test_an_agent_that_has_no_time_for_all_of_a_backlog_gets_through_it() -> None:
    """Its time is for all that it is told at once."""
    world = AgentWorld(Faults())

    class Timed(AgentCalls):
        def call(self, agent: Agent, shard: int, tellings: Sequence[Any]) -> list[Sent]:
            if len(tellings) > 2:
                raise AgentError(f"agent {agent.name}, shard {shard}: took longer than {agent.timeout_s:g} s")
            return super().call(agent, shard, tellings)

    world.agents = OperationAgents([Agent("all", give_all, OUT)], Timed(world.loop))
    ServedAgents(world).serve(15.0)
    assert world.given() == GIVEN
    assert world.agents.errors == {}


def test_what_an_agent_failed_at_is_forgotten_with_the_shard() -> None:
    def fragile(told: Told) -> None:
        raise ValueError("no")

    world = AgentWorld(Faults())
    world.agents = OperationAgents([Agent("fragile", fragile, None)], AgentCalls(world.loop))
    served = ServedAgents(world)
    assert True in served.serve(3.0)
    served.worker.revoked([0])
    served.worker.assigned(())
    assert world.agents.errors == {}


# ---- what Kafka refuses ---------------------------------------------------------------------------------------------


def test_an_agent_of_which_kafka_refuses_an_output_is_named_until_it_is_mended_and_told_once_a_second() -> None:
    world = AgentWorld(Faults())
    world.broker.topics[OUT].config["max.message.bytes"] = "4"
    served = ServedAgents(world)
    served.serve(2.0)
    told = world.agents.told["all"]
    assert served.serve(10.0) == {True}
    assert 0 < world.agents.told["all"] - told <= 11 * len(GIVEN)
    assert "agent all, shard 0: topic out refuses what it gives" in world.agents.errors["all", 0]
    world.broker.topics[OUT].config["max.message.bytes"] = "1000"
    served.serve(3.0)
    assert world.agents.errors == {}
    assert world.given() == GIVEN
