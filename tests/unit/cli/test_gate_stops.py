"""A gate that does not open is ended for what only a repair mends, soon, and for nothing else."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from typing import Any

import pytest

from journal.cli.status.gate_stops import STILL_S, GateStops
from journal.errors import CorruptionError, DeadlineError, GateTimeoutError
from journal.kafka.ports import LogRecord
from journal.process.background import at_once
from journal.process.commands import command
from journal.upkeep.stops import Stop
from journal.v1.journal_pb2 import Mark
from tests.simulation.timeline import Timeline

FOREIGN = Stop(41, "not a frame", LogRecord(0, 41, 0, None, b"garbage"), None)
DAMAGED = Stop(41, "its checksum is wrong", None, None)
GATE_S = 60.0
STEP_S = 0.5


class Looks:
    """What is looked at, and found."""

    def __init__(self, found: Callable[[], Mapping[int, Stop]]) -> None:
        self.asked: list[list[int]] = []
        self._found = found

    def __call__(self, shards: Collection[int]) -> Mapping[int, Stop]:
        self.asked.append(list(shards))
        return self._found()


def marks(*shards: int, offset: int = 7) -> dict[int, Mark]:
    return {shard: Mark(shard=shard, offset=offset) for shard in shards}


def wait(stops: GateStops, timeline: Timeline, waiting: Callable[[float], dict[int, Mark]]) -> None:
    """Stand at a gate to its time-out; it waits for `waiting`, a function of the time."""
    began = timeline.now()
    while (now := timeline.now() - began) < GATE_S:
        stops(waiting(now))
        timeline.pass_to(timeline.now() + STEP_S)


def wait_to_the_end(looks: Looks, waiting: Callable[[float], dict[int, Mark]] = lambda _: marks(0)) -> None:
    timeline = Timeline()
    stops = GateStops("j", looks, clock=timeline.now, beside=at_once)
    wait(stops, timeline, waiting)
    assert not stops.told


def test_a_shard_that_only_a_repair_lets_go_on_ends_the_wait_within_seconds_and_is_named() -> None:
    timeline = Timeline()
    looks = Looks(lambda: {0: FOREIGN})
    stops = GateStops("j", looks, clock=timeline.now, beside=at_once)
    began = timeline.now()
    with pytest.raises(GateTimeoutError) as caught:
        wait(stops, timeline, lambda _: marks(0, 2))
    assert STILL_S <= timeline.now() - began <= STILL_S + 2 * STEP_S
    assert stops.told
    headline, *lines = str(caught.value).splitlines()
    assert headline.endswith("stopped until they are repaired: 0")
    assert "shard 0 is STOPPED at j.wal[0]@41: not a frame" in lines
    assert lines[-1].endswith(command("repair skip", 0, 41, journal="j"))
    assert looks.asked == [[0, 2]]


@pytest.mark.parametrize("found", [{}, {0: DAMAGED}], ids=["no worker", "damaged batch"])
def test_what_may_heal_by_itself_is_waited_for_and_looked_at_ever_less_often(found: dict[int, Stop]) -> None:
    looks = Looks(lambda: found)
    wait_to_the_end(looks)
    assert 3 <= len(looks.asked) <= 5


@pytest.mark.parametrize("error", [DeadlineError("no answer"), CorruptionError("damaged")])
def test_brokers_that_do_not_answer_end_no_wait(error: Exception) -> None:
    def fails() -> Mapping[int, Stop]:
        raise error

    looks = Looks(fails)
    wait_to_the_end(looks)
    assert len(looks.asked) > 1


def test_a_shard_that_moves_is_not_looked_at() -> None:
    looks = Looks(lambda: {0: FOREIGN})
    wait_to_the_end(looks, lambda now: marks(0, offset=int(now)))
    assert looks.asked == []


def test_the_stop_of_a_shard_that_has_passed_meanwhile_ends_nothing() -> None:
    timeline = Timeline()
    looking: list[Future[Any]] = []

    def later(call: Callable[[], Any]) -> Future[Any]:
        looking.append(Future())
        return looking[-1]

    stops = GateStops("j", Looks(dict), clock=timeline.now, beside=later)
    for _ in range(10):
        stops(marks(0, 1))
        timeline.pass_to(timeline.now() + STEP_S)
    (look,) = looking
    look.set_result({0: FOREIGN})
    stops(marks(1))
    assert not stops.told
