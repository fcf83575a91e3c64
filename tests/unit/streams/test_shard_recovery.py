"""What a shard's worker asks of its table partition before it goes on from there."""

from __future__ import annotations

import pytest

from journal.errors import HangingTransactionError
from journal.kafka.control import table_topic
from journal.kafka.ports import Sent
from streams.shard import ShardState
from tests.support.divert import NAME, DivertWorld

LIMIT_S = 5.0


def test_a_transaction_that_nobody_ended_stops_a_recovery_until_it_is_ended() -> None:
    """As KAFKA-20734 leaves one: its end was never written, and whoever committed it is gone."""
    world = DivertWorld([])
    worker = world.worker()
    worker.recover()
    other = world.kafka().transactional_producer("gone")
    other.init(LIMIT_S)
    other.send([Sent(table_topic(NAME), 0, b"r", b"")], LIMIT_S)
    worker = world.worker()
    with pytest.raises(HangingTransactionError, match="nobody ends"):
        worker.recover()
    assert worker.state is ShardState.RECOVERING
    other.abort_transaction(LIMIT_S)
    assert worker.recover() == 0
    assert worker.state is ShardState.RUNNING
