"""Local copies and time, with named cases that seeds have found."""

from __future__ import annotations

from journal.replica import Replica
from journal.v1.journal_pb2 import Mark
from journal.wire.keys import mark_key
from tests.simulation.broker import SimulatedBroker
from tests.simulation.disk import Disk, SimulatedStore
from tests.simulation.faults import Faults
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.timeline import Timeline

COMPACTION_LAG_S = 2.0


def test_a_copy_that_took_longer_than_the_compaction_lag_is_readable_without_another_row() -> None:
    timeline = Timeline()
    broker = SimulatedBroker(timeline)
    broker.create_topic("table", 1, 1, {})
    mark = Mark(shard=0, offset=3, epoch=1)
    broker.write("table", 0, [(mark_key(0), mark.SerializeToString())])
    replica = Replica(
        SimulatedKafka(broker),
        "table",
        [0],
        SimulatedStore(Disk(), Faults(), "node", timeline.now),
        b"identity",
        clock=timeline.now,
        wall_ms=lambda: timeline.now() * 1000,
        delete_retention_ms=60_000,
        min_compaction_lag_ms=int(COMPACTION_LAG_S * 1000),
        held_bytes_max=1000,
    )
    replica.open(1.0)
    timeline.wait(2 * COMPACTION_LAG_S, lambda: False)
    replica.catch_up(1.0)
    assert replica.readable
    assert replica.mark(0) == mark
