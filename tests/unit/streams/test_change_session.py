"""What an agent of changes gives is given once, whatever fails or takes over."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from random import Random

import pytest

from journal.errors import (
    AbortableProducerError,
    AgentError,
    FatalProducerError,
)
from journal.kafka.ports import Sent
from streams.agents.agents import Agent
from streams.agents.changes import Changes
from tests.simulation.disk import Disk
from tests.simulation.faults import Fault
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.producers import SimulatedTransactionalProducer
from tests.support.fault_at import FaultAt
from tests.unit.streams.change_scene import (
    CHECKPOINTS,
    FAULTS,
    NUMBERED,
    OPENING,
    OUT,
    ChangeWorld,
    FaultsByChance,
    number,
    run_through,
)


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("fault", FAULTS)
def test_one_fault_at_any_step_changes_nothing_of_what_is_given(fault: Fault, elsewhere: bool) -> None:
    counting = FaultAt(uncounted=[OPENING])
    run_through(ChangeWorld(counting), None)
    for step in range(1, counting.step + 1):
        world = ChangeWorld(FaultAt(fault, step, uncounted=[OPENING]))
        run_through(world, None if elsewhere else Random(step))
        world.away(30.0)
        assert world.given() == NUMBERED, f"{fault} at step {step}"


def test_a_second_crash_while_the_copy_is_brought_to_where_the_agent_stands_changes_nothing() -> None:
    counting = FaultAt(uncounted=[OPENING])
    run_through(ChangeWorld(counting), None)
    writes = [step for step, request in enumerate(counting.requests, 1) if request == "disk_write"]
    for first in writes:
        for second in range(first + 1, first + 25):
            world = ChangeWorld(FaultAt(Fault.CRASH_BEFORE, first, second, uncounted=[OPENING]))
            run_through(world, Random(first))
            assert world.given() == NUMBERED, f"crashes at steps {first} and {second}"


@pytest.mark.parametrize("seed", range(60))
def test_many_faults_change_nothing_of_what_is_given(seed: int) -> None:
    chance = Random(seed)
    world = ChangeWorld(FaultsByChance(chance))
    run_through(world, chance)
    world.away(30.0)
    assert world.given() == NUMBERED


def test_a_copy_that_is_ahead_of_where_another_went_on_is_built_anew() -> None:
    tellings: list[list[tuple[int, bytes]]] = []

    def quiet(changes: Changes) -> Iterator[tuple[bytes, str]]:
        told = [(change.id, change.new.data) for change in changes.records() if change.new is not None]
        tellings.append(told)
        if not told or changes.first:
            yield b"", json.dumps(changes.mark.offset)

    world = ChangeWorld(agent=quiet)
    world.agent = Agent("agent", quiet, OUT, every_s=1e-6)
    world.checkpoint({1: b"a"})
    world.checkpoint({})
    first = world.session()
    first.open()
    world.checkpoint({2: b"b", 3: b"c"})
    first.follow(lambda: [(2, b"b"), (3, b"c")] in tellings)
    elsewhere = world.session(Disk(), SimulatedKafka(world.broker, records_per_poll=1))
    elsewhere.open()
    before = len(world.given())
    elsewhere.follow(lambda: len(world.given()) > before)
    tellings.clear()
    world.tell_until(lambda: [] in tellings)
    assert tellings[0] == [(2, b"b"), (3, b"c")]


def test_a_session_that_was_paused_while_another_took_over_gives_nothing_more() -> None:
    world = ChangeWorld()
    world.checkpoint(CHECKPOINTS[0])
    paused = world.session()
    paused.open()

    def other_takes_over() -> bool:
        if world.written == 1 and world.given():
            world.checkpoint(CHECKPOINTS[1])
            world.tell_until(lambda: len(world.given()) == 4, Disk())
            world.checkpoint(CHECKPOINTS[3])
        return False

    with pytest.raises(FatalProducerError) as raised:
        paused.follow(other_takes_over)
    assert raised.value.fenced
    assert world.given() == NUMBERED[:4]
    world.tell_until(lambda: len(world.given()) == 6)
    assert world.given() == NUMBERED


def test_an_agent_that_raises_leaves_no_trace_and_is_told_the_same_again() -> None:
    tellings: list[list[tuple[int, bool]]] = []

    def moody(changes: Changes) -> Iterator[tuple[bytes, str]]:
        tellings.append([(change.id, changes.first) for change in changes.records()])
        yield from number(changes)
        if len(tellings) == 1:
            raise ValueError("not today")

    world = ChangeWorld(agent=moody)
    world.checkpoint(CHECKPOINTS[0])
    with pytest.raises(AgentError, match="agent agent, shard 0: ValueError"):
        world.tell_until(lambda: False)
    assert world.given() == []
    world.tell_until(lambda: len(world.given()) == 2)
    assert world.given() == NUMBERED[:2]
    assert tellings == [[(1, True), (2, True)]] * 2


class AbortingOnce(SimulatedKafka):
    """Its first transaction cannot be committed."""

    has_aborted = False

    def transactional_producer(self, transactional_id: str) -> SimulatedTransactionalProducer:
        kafka, producer = self, super().transactional_producer(transactional_id)
        send = producer.send

        def once(records: Iterable[Sent], timeout_s: float) -> list[int]:
            offsets = send(records, timeout_s)
            if not kafka.has_aborted:
                kafka.has_aborted = True
                raise AbortableProducerError("not enough replicas")
            return offsets

        producer.send = once  # type: ignore[method-assign]
        return producer


def test_a_transaction_that_cannot_be_committed_is_an_error_like_others_and_not_tried_again_at_once() -> None:
    world = ChangeWorld()
    world.checkpoint(CHECKPOINTS[0])
    kafka = AbortingOnce(world.broker)
    session = world.session(kafka=kafka)
    session.open()
    with pytest.raises(AbortableProducerError):
        session.follow(lambda: False)
    assert world.given() == []
    session = world.session(kafka=kafka)
    session.open()
    session.follow(world.until(lambda: len(world.given()) == 2))
    assert world.given() == NUMBERED[:2]


def test_a_telling_counts_once_it_is_committed() -> None:
    world = ChangeWorld()
    world.checkpoint(CHECKPOINTS[0])
    world.broker.topics[OUT].config["max.message.bytes"] = "4"
    session = world.session()
    session.open()
    with pytest.raises(FatalProducerError) as raised:
        session.follow(lambda: False)
    assert raised.value.refused_topic == OUT
    assert session.told == 0
    world.broker.topics[OUT].config["max.message.bytes"] = "1000"
    session = world.session()
    session.open()
    session.follow(world.until(lambda: bool(world.given())))
    assert session.told == 1
