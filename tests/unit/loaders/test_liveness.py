"""Who is active and who could follow, from control rows; and how long the WAL has stood still."""

from __future__ import annotations

import pytest

from journal.errors import ActiveNodeError
from journal.kafka.ports import Sent
from journal.topics.control_rows import ControlRows, NodeRow
from journal.v1.journal_pb2 import Epoch, Identity, NodeStatus, Released
from loaders.node.liveness import LastActive, WalWatch, fit_standbys, is_gone, last_active, require_no_active_node
from tests.simulation.broker import SimulatedBroker
from tests.simulation.faults import Faults
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.timeline import Timeline

NOW_MS = 1_000_000.0


def node(name: str, *, role: str = "standby", fit: bool = True, ago_ms: int = 0, **more: int) -> tuple[str, NodeRow]:
    status = NodeStatus(name=name, role=role, fit=fit, report_ms=1000, **more)
    return name, NodeRow(status, int(NOW_MS) - ago_ms)


def test_the_last_active_node_is_that_of_the_newest_epoch() -> None:
    assert last_active(ControlRows()) is None
    rows = ControlRows(epoch=Epoch(epoch=2, node="one"), released=Released(epoch=1, node="zero", to="one"))
    assert last_active(rows) == LastActive(2, "one", released=False)
    rows = ControlRows(epoch=Epoch(epoch=2, node="one"), released=Released(epoch=2, node="one", to="two"))
    assert last_active(rows) == LastActive(2, "one", released=True, to="two")


def test_how_long_an_active_node_may_be_silent_is_its_own_setting_if_it_said_so() -> None:
    said = last_active(ControlRows(epoch=Epoch(epoch=2, node="one", fence_check_ms=9000)))
    assert said is not None
    assert said.silence_s(3.0) == 18.0
    older = last_active(ControlRows(epoch=Epoch(epoch=2, node="one")))
    assert older is not None
    assert older.silence_s(3.0) == 6.0


@pytest.mark.parametrize(("said_ms", "refused"), [(0, False), (1000, False), (9000, True)])
def test_a_command_waits_for_a_node_as_long_as_that_may_be_silent(
    broker: SimulatedBroker, said_ms: int, refused: bool
) -> None:
    kafka, clock = SimulatedKafka(broker), Clock()
    kafka.cluster().create("j.wal", 1, 1, {}, 1.0)
    rows = ControlRows(Identity(shards=1), Epoch(epoch=2, node="one", fence_check_ms=said_ms))
    producer = kafka.plain_producer()

    def pause(seconds: float) -> None:
        before, clock.now = clock.now, clock.now + seconds
        if before < 9.0 <= clock.now:
            producer.send([Sent("j.wal", 0, None, b"heartbeat")], 1.0)

    def ask() -> None:
        require_no_active_node(kafka, "j", rows, clock=clock, pause=pause, fence_check_s=3.0)

    if refused:
        with pytest.raises(ActiveNodeError, match=r"node one is active in epoch 2: .*--node.*--take-over"):
            ask()
    else:
        ask()


def test_a_node_is_gone_once_its_report_is_late_by_more_than_an_interval() -> None:
    assert not is_gone(node("one", ago_ms=2000)[1], NOW_MS)
    assert is_gone(node("one", ago_ms=2001)[1], NOW_MS)


def test_the_best_standby_is_preferred_or_lags_least() -> None:
    nodes = dict(
        (
            node("active", role="active"),
            node("far", lag_offsets=9),
            node("near", lag_offsets=1),
            node("preferred", lag_offsets=5, preferred=True),
            node("unfit", fit=False),
            node("gone", ago_ms=5000),
        )
    )
    rows = ControlRows(nodes=nodes)
    assert fit_standbys(rows, NOW_MS) == ["preferred", "near", "far"]
    assert fit_standbys(rows, NOW_MS, {"active", "far", "gone", "unfit"}) == ["far"]
    assert fit_standbys(rows, NOW_MS, ()) == []


@pytest.fixture
def broker() -> SimulatedBroker:
    return SimulatedBroker(Timeline(), Faults())


def test_a_wal_stands_still_between_two_looks_that_saw_the_same(broker: SimulatedBroker) -> None:
    kafka, clock = SimulatedKafka(broker), Clock()
    kafka.cluster().create("j.wal", 2, 1, {}, 1.0)
    watch = WalWatch(kafka, "j", 2, clock)
    assert watch.look(1.0) == 0.0
    clock.now = 5.0
    assert watch.look(1.0) == 5.0
    kafka.plain_producer().send([Sent("j.wal", 1, None, b"heartbeat")], 1.0)
    assert watch.still_s == 5.0
    clock.now = 6.0
    assert watch.look(1.0) == 0.0
    clock.now = 8.0
    assert watch.look(1.0) == 2.0
    watch.forget()
    clock.now = 9.0
    assert watch.look(1.0) == 0.0
    clock.now = 10.0
    assert watch.look(1.0) == 1.0


class Clock:
    """Time that passes when it is told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now
