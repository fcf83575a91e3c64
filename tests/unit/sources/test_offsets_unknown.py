"""What the journal's writer makes of a commit of offsets without an answer: the others' groups do not feel it."""

from __future__ import annotations

import pytest

from journal.append.group import FrameNumbers, Group
from journal.append.writing import Claim
from journal.errors import NotTakenInError
from journal.kafka.ports import Consumed
from journal.process.clocks import Timing
from journal.topics.control_keys import EPOCH_KEY, control_row
from journal.topics.names import control_topic, wal_topic, writer_id
from journal.v1.journal_pb2 import ADD, Epoch
from journal.wal.config import WriterConfig
from journal.wal.fencing import Fence
from journal.wal.reading import WalReader
from journal.wal.writer import Writer
from tests.simulation.broker import SimulatedBroker
from tests.simulation.faults import Fault, Faults
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.timeline import Timeline
from tests.support.build import JOURNAL

LIMIT_S = 5.0
SOURCE = ("orders", 0)


class FirstOffsets(Faults):
    """Meets the first commit of offsets, and no later one."""

    def __init__(self, fault: Fault) -> None:
        self._fault = fault

    def at(self, request: str, node: str) -> Fault:
        if request != "commit_offsets":
            return Fault.NONE
        met, self._fault = self._fault, Fault.NONE
        return met

    def late_by_s(self) -> float:
        """Behind the next instance's init, if it is late at all."""
        return LIMIT_S + 0.02


class UnknownOffsetsScene:
    """An active node's writer."""

    def __init__(self, fault: Fault) -> None:
        broker = SimulatedBroker(Timeline(), FirstOffsets(fault))
        for topic in (wal_topic("j"), control_topic("j")):
            broker.create_topic(topic, 1, 1, {})
        self.kafka = SimulatedKafka(broker)
        counter = Epoch(epoch=1, node="node", nonce=b"nonce")
        self.kafka.plain_producer().send([control_row("j", EPOCH_KEY, counter)], LIMIT_S)
        first = self.kafka.transactional_producer(writer_id("j"))
        first.init(LIMIT_S)
        self._now = broker.timeline.now

        def pause(seconds: float) -> None:
            broker.timeline.wait(seconds, lambda: False)

        timing = Timing(self._now, pause, LIMIT_S, 10 * LIMIT_S, LIMIT_S)
        self._writer = Writer(
            self.kafka,
            WriterConfig("j", JOURNAL, 1, 0.0, 0.0, 0.0, 1 << 20),
            Claim(1, "node", b"nonce"),
            Fence(self.kafka, "j", timing),
            first,
            FrameNumbers((0,), 0),
            [0],
            timing,
        )

    def write(self, record_id: int, consumed: Consumed | None = None) -> Group:
        group = Group(1, 900_000, consumed)
        group.put(0, ADD, record_id, 1, b"")
        self._writer.write(group)
        return group

    def written(self) -> list[int]:
        """Ids of the records in the committed WAL."""
        reader = WalReader(self.kafka, "j", JOURNAL, 1, self._now)
        end = reader.high_watermarks([0], LIMIT_S)[0]
        return [each.id for _, frame in reader.frames(0, 0, end, LIMIT_S) for each in frame.operations()]

    def offset(self) -> int | None:
        return self.kafka.cluster().stable_offsets("group", [SOURCE], LIMIT_S).get(SOURCE)


@pytest.mark.parametrize("fault", [Fault.LOSE_REQUEST, Fault.LOSE_RESPONSE, Fault.LATE])
def test_a_group_whose_offsets_have_no_answer_is_not_taken_in_and_a_new_instance_goes_on(fault: Fault) -> None:
    scene = UnknownOffsetsScene(fault)
    assert isinstance(scene.write(1, Consumed("group", {SOURCE: 7})).completion.error, NotTakenInError)
    assert (scene.written(), scene.offset()) == ([], None)
    assert scene.write(2).completion.error is None
    assert (scene.written(), scene.offset()) == ([2], None)
    assert scene.write(3, Consumed("group", {SOURCE: 7})).completion.error is None
    assert (scene.written(), scene.offset()) == ([2, 3], 7)
