"""Somebody else's transaction stands open in the WAL: what is committed behind it is there, and cannot be read yet."""

from __future__ import annotations

import pytest

from journal.append.completion import Completion
from journal.errors import FencedError, OutcomeUnknownError
from journal.topics.names import wal_topic
from tests.simulation.broker import Instance
from tests.simulation.faults import Fault
from tests.simulation.partition import PartitionLog
from tests.simulation.setting import JOURNAL, REQUEST_S
from tests.simulation.test_traces import Stage

FOREIGN_S = 4 * REQUEST_S
"""How long it stays open: several reads wait for it in vain."""


def open_foreign(stage: Stage, shard: int = 0, *, seconds: float = FOREIGN_S) -> PartitionLog:
    """Somebody writes to a shard, and is not heard of again; its log."""
    foreign = stage.broker.init_producer("foreign")
    assert isinstance(foreign, Instance)
    wal = wal_topic(JOURNAL), shard
    stage.broker.add_partitions("foreign", foreign, [wal], seconds)
    stage.broker.produce("foreign", foreign, *wal, [(b"foreign", b"foreign")])
    log = stage.broker.log(*wal)
    assert log is not None
    return log


@pytest.mark.parametrize("shard", [0, 1])
def test_a_successor_goes_on_from_the_last_frame_that_a_foreign_transaction_hides(shard: int) -> None:
    stage = Stage(shards=2)
    first = stage.active_node("first")
    log = open_foreign(stage, shard)
    hidden = []
    for record_id in range(2, 8):
        hidden.append(first.add(record_id, b"hidden %d" % record_id))
        stage.until(lambda: hidden[-1].done)
    assert [completion.error for completion in hidden] == [None] * 6
    assert log.last_stable < log.end
    successor = stage.node("successor")
    stage.until(lambda: successor.active)
    assert log.last_stable == log.end  # it has waited for that
    assert set(stage.history.tenures[-1].load.seen.records) == set(range(2, 8))
    completion = successor.add(8, b"behind")
    stage.until(lambda: completion.done)
    assert completion.error is None
    stage.judge()


def test_a_group_that_a_foreign_transaction_hides_is_not_sent_again() -> None:
    stage = Stage()
    node = stage.active_node("node")
    log = open_foreign(stage)
    before = stage.script.asked.count(("node", "produce"))
    stage.script.meet("node", "end_transaction", Fault.LOSE_RESPONSE)
    completion = node.add(1, b"once")
    stage.until(lambda: completion.done)
    assert completion.error is None
    assert log.last_stable == log.end
    assert stage.script.asked.count(("node", "produce")) == before + 1
    again = node.add(2, b"next")
    stage.until(lambda: again.done)
    assert again.error is None
    stage.judge()


def test_a_group_that_a_foreign_transaction_hides_for_too_long_has_an_unknown_outcome() -> None:
    stage = Stage()
    node = stage.active_node("node")
    open_foreign(stage, seconds=60.0)
    stage.script.meet("node", "end_transaction", Fault.LOSE_RESPONSE)
    completion = node.add(1, b"hidden")
    stage.until(lambda: completion.done)
    assert isinstance(completion.error, OutcomeUnknownError)
    successor = stage.node("successor")
    assert not stage.scheduler.run(20.0, lambda: successor.active)  # rather none than one that breaks the chain
    stage.run(60.0)
    later = stage.active_node("later")
    assert set(stage.history.tenures[-1].load.seen.records) == {1}
    assert later.active
    stage.judge()


def told_behind_a_foreign_transaction(fault: Fault) -> Completion:
    """What a fenced node is told of a commit that met `fault`, while a transaction is open behind its frames."""
    stage = Stage()
    zombie = stage.active_node("zombie")
    stage.script.meet("zombie", "end_transaction", fault)
    stage.script.hold("zombie", "start_and_end")
    completion = zombie.add(1, b"written, or not")
    stage.until_held("zombie")
    successor = stage.node("successor")
    stage.until(lambda: successor.active)
    log = open_foreign(stage, seconds=60.0)
    stage.script.release("zombie")
    stage.until(lambda: completion.done)
    assert log.last_stable < log.end
    stage.judge()
    return completion


def test_a_fenced_node_waits_for_no_transaction_behind_its_own_frames() -> None:
    assert told_behind_a_foreign_transaction(Fault.LOSE_RESPONSE).error is None


def test_a_fenced_node_is_told_failed_by_the_marker_in_front_of_it() -> None:
    assert isinstance(told_behind_a_foreign_transaction(Fault.LOSE_REQUEST).error, FencedError)
