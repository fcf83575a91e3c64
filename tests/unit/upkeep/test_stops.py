"""What `status`, `verify` and `repair` say about a shard whose WAL cannot be read further."""

from __future__ import annotations

import pytest

from journal.errors import CorruptionError
from journal.kafka.ports import LogRecord
from journal.topics.names import wal_topic
from journal.upkeep.stops import look_ahead
from journal.v1.journal_pb2 import Identity, Mark
from tests.simulation.broker import SimulatedBroker
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.readers import SimulatedReader
from tests.simulation.timeline import Timeline
from tests.support.build import JOURNAL, add, marker, wal

IDENTITY = Identity(journal=JOURNAL, name="j", shards=1)
DAMAGED_AT = 2


def test_a_damaged_batch_stops_its_shard_at_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    timeline = Timeline()
    broker = SimulatedBroker(timeline)
    broker.create_topic(wal_topic("j"), 1, 1, {})
    for _, _, frame in wal([marker()], [add(1)]):
        broker.write(wal_topic("j"), 0, [(None, frame.SerializeToString()), (None, b"")])

    def damaged(self: SimulatedReader, timeout_s: float) -> list[LogRecord]:
        raise CorruptionError("damaged", topic=wal_topic("j"), partition=0, offset=DAMAGED_AT)

    monkeypatch.setattr(SimulatedReader, "poll", damaged)
    stop = look_ahead(SimulatedKafka(broker), IDENTITY, Mark(offset=0), (), clock=timeline.now, timeout_s=5.0).stop
    assert stop is not None
    assert (stop.offset, stop.reason, stop.record) == (DAMAGED_AT, "damaged", None)
