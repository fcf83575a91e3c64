"""An activation at its gate says what it waits for, and the command that starts the worker that is missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from journal.activate.gate_wait import GateWait
from journal.errors import KafkaUnavailableError
from journal.process.background import at_once
from journal.process.waits import SAY_AFTER_S
from journal.v1.journal_pb2 import Mark
from tests.simulation.timeline import Timeline

GATE_S = 60.0
STEP_S = 0.5


def said(workers: Callable[[], Sequence[str]], caplog: pytest.LogCaptureFixture, last_s: float) -> list[str]:
    """What an activation says that stands at its gate for so long."""
    timeline = Timeline()
    wait = GateWait("orders", workers, clock=timeline.now, beside=at_once)
    began = timeline.now()
    while timeline.now() - began <= last_s:
        wait({shard: Mark(shard=shard) for shard in (0, 3)})
        timeline.pass_to(timeline.now() + STEP_S)
    return caplog.messages


def test_it_says_within_seconds_that_no_worker_is_running_and_how_to_start_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    (line,) = said(lambda: [], caplog, SAY_AFTER_S + STEP_S)
    assert "waiting for a worker to bring shards 0, 3 up to this activation" in line
    assert line.endswith("no worker is running, start one: kafka-journal worker -j orders")


def test_workers_that_run_are_named_with_the_command_that_shows_how_far_they_are(
    caplog: pytest.LogCaptureFixture,
) -> None:
    (line,) = said(lambda: ["two", "one"], caplog, SAY_AFTER_S + STEP_S)
    assert line.endswith("running workers: one, two; `kafka-journal status -j orders` shows how far they are")


def test_it_does_not_claim_that_no_worker_runs_where_kafka_does_not_say(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> Sequence[str]:
        raise KafkaUnavailableError("away")

    (line,) = said(fail, caplog, SAY_AFTER_S + STEP_S)
    assert "Kafka does not say which workers run" in line


def test_a_gate_that_opens_soon_says_nothing_and_asks_nobody(caplog: pytest.LogCaptureFixture) -> None:
    asked: list[str] = []

    def workers() -> Sequence[str]:
        asked.append("")
        return []

    assert said(workers, caplog, SAY_AFTER_S - 2 * STEP_S) == []
    assert asked == []


def test_it_says_so_ever_less_often(caplog: pytest.LogCaptureFixture) -> None:
    assert 4 <= len(said(lambda: [], caplog, GATE_S)) <= 6
