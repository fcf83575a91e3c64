"""A node whose last group is in the WAL, and that learns with it that another node is active by now."""

from __future__ import annotations

import pytest

from journal.errors import FencedError
from journal.fencing import Claim, Fence, Timing
from journal.group import FrameNumbers, Group
from journal.kafka.control import EPOCH_KEY, control_row, control_topic, wal_topic, writer_id
from journal.kafka.ports import FatalProducerError
from journal.v1.journal_pb2 import ADD, Epoch
from journal.writer import Writer, WriterConfig
from tests.simulation.broker import SimulatedBroker
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.producers import SimulatedTransactionalProducer
from tests.simulation.timeline import Timeline
from tests.support.build import JOURNAL

LIMIT_S = 5.0


def test_the_group_is_told_done_and_the_node_steps_down_at_once() -> None:
    broker = SimulatedBroker(Timeline())
    for topic in (wal_topic("j"), control_topic("j")):
        broker.create_topic(topic, 1, 1, {})
    kafka = SimulatedKafka(broker)

    def claim(epoch: int, nonce: bytes) -> None:
        row = control_row("j", EPOCH_KEY, Epoch(epoch=epoch, node="node", nonce=nonce))
        kafka.plain_producer().send([row], LIMIT_S)

    class OvertakenInItsCommit:
        """A producer whose commit has no answer; meanwhile another node has become active."""

        def __init__(self, inner: SimulatedTransactionalProducer) -> None:
            self.send = inner.send
            self.close = inner.close
            self._inner = inner

        def commit_transaction(self, timeout_s: float) -> bool:
            self._inner.commit_transaction(timeout_s)
            claim(2, b"another")
            raise FatalProducerError("no answer")

    claim(1, b"nonce")
    inner = kafka.transactional_producer(writer_id("j"))
    inner.init(LIMIT_S)
    timing = Timing(broker.timeline.now, broker.timeline.pass_to, LIMIT_S, 10 * LIMIT_S, LIMIT_S)
    writer = Writer(
        kafka,
        WriterConfig("j", JOURNAL, 1, 0.0, 0.0, 0.0, 1 << 20),
        Claim(1, "node", b"nonce"),
        Fence(kafka, "j", timing),
        OvertakenInItsCommit(inner),  # type: ignore[arg-type]  # the rest of the port is not used
        FrameNumbers((0,), 0),
        [0],
        timing,
    )
    group = Group(1, 900_000)
    group.put(0, ADD, 1, 1, b"")
    with pytest.raises(FencedError, match="is in the WAL"):
        writer.write(group)
    assert group.completion.done
    assert group.completion.error is None
