"""A node whose last group is in the WAL, and that learns with it that another node is active by now."""

from __future__ import annotations

import pytest

from journal.append.group import FrameNumbers, Group
from journal.append.writing import Claim
from journal.errors import FatalProducerError, FencedError, OutcomeUnknownError
from journal.process.clocks import Timing
from journal.topics.control_keys import EPOCH_KEY, control_row
from journal.topics.names import control_topic, wal_topic, writer_id
from journal.v1.journal_pb2 import ADD, Epoch
from journal.wal.config import WriterConfig
from journal.wal.fencing import Fence
from journal.wal.writer import Writer
from tests.simulation.broker import SimulatedBroker
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.producers import SimulatedTransactionalProducer
from tests.simulation.timeline import Timeline
from tests.support.build import JOURNAL

LIMIT_S = 5.0


class Scene:
    """The node of epoch 1, and another that becomes active while a commit of the first has no answer."""

    def __init__(self, shards: int) -> None:
        self.broker = SimulatedBroker(Timeline())
        for topic, partitions in ((wal_topic("j"), shards), (control_topic("j"), 1)):
            self.broker.create_topic(topic, partitions, 1, {})
        self.kafka = SimulatedKafka(self.broker)
        self.claim(1, b"nonce")
        inner = self.kafka.transactional_producer(writer_id("j"))
        inner.init(LIMIT_S)
        timing = Timing(self.broker.timeline.now, self.broker.timeline.pass_to, LIMIT_S, 10 * LIMIT_S, LIMIT_S)
        self.writer = Writer(
            self.kafka,
            WriterConfig("j", JOURNAL, shards, 0.0, 0.0, 0.0, 1 << 20),
            Claim(1, "node", b"nonce"),
            Fence(self.kafka, "j", timing),
            self._overtaken(inner),  # type: ignore[arg-type]  # the rest of the port is not used
            FrameNumbers((0,) * shards, 0),
            [0] * shards,
            timing,
        )

    def claim(self, epoch: int, nonce: bytes) -> None:
        row = control_row("j", EPOCH_KEY, Epoch(epoch=epoch, node="node", nonce=nonce))
        self.kafka.plain_producer().send([row], LIMIT_S)

    def _overtaken(self, inner: SimulatedTransactionalProducer) -> object:
        claim = self.claim

        class OvertakenInItsCommit:
            """A producer whose commit has no answer; meanwhile another node has become active."""

            send = inner.send
            close = inner.close

            def commit_transaction(self, timeout_s: float) -> bool:
                inner.commit_transaction(timeout_s)
                claim(2, b"another")
                raise FatalProducerError("no answer")

        return OvertakenInItsCommit()


def group_in(shards: int, *touched: int) -> Group:
    group = Group(shards, 900_000)
    for shard in touched:
        group.put(shard, ADD, shards + shard, 1, b"")
    return group


def test_a_group_in_the_wal_of_an_overtaken_node_is_told_done_and_the_node_steps_down_at_once() -> None:
    group = group_in(1, 0)
    with pytest.raises(FencedError, match="is in the WAL"):
        Scene(1).writer.write(group)
    assert group.completion.done
    assert group.completion.error is None


def test_no_group_is_told_done_before_one_in_front_of_it_that_cannot_be_seen() -> None:
    scene = Scene(2)
    scene.broker.depose(wal_topic("j"), 1, ["node"], 1e6, writes=False)  # it shows nothing of what is sent now
    groups = [group_in(2, 0, 1), group_in(2, 0)]
    gathered = groups[1:]

    def join(operations: int, size: int, *, complete: bool) -> Group | None:
        return gathered.pop() if gathered else None

    with pytest.raises(OutcomeUnknownError):
        scene.writer.write(groups[0], join)
    assert [group.completion.done and group.completion.error is None for group in groups] == [False, False]
