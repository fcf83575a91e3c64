"""A node that is suspended in mid-commit while others take over, and the WAL is trimmed beyond all that it had written,
still learns whether its last group was committed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from journal.append.group import FrameNumbers, Group
from journal.append.writing import Claim
from journal.config import load_settings
from journal.errors import FatalProducerError, FencedError, OutcomeUnknownError
from journal.kafka.ports import Sent
from journal.process.clocks import Timing
from journal.topics.control_keys import EPOCH_KEY, IDENTITY_KEY, archive_key, control_row
from journal.topics.control_reading import read_control
from journal.topics.names import control_topic, table_topic, wal_topic, writer_id
from journal.upkeep.trim import Trimming
from journal.v1.journal_pb2 import ADD, Archive, Epoch, Identity, Mark
from journal.wal.config import WriterConfig
from journal.wal.fencing import Fence
from journal.wal.writer import Writer
from journal.wire.frames import FORMAT, MAGIC
from journal.wire.keys import mark_key
from tests.simulation.broker import SimulatedBroker
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.producers import SimulatedTransactionalProducer
from tests.simulation.timeline import Timeline
from tests.support.build import JOURNAL, add, frame, marker

LIMIT_S = 5.0
LONG = 20
SETTINGS = load_settings(None, journal="j", bootstrap_servers="nowhere:1")


class Suspended:
    """A producer whose commit, which may or may not reach the broker, has no answer; `meanwhile` happens before it
    is told."""

    def __init__(
        self, inner: SimulatedTransactionalProducer, meanwhile: Callable[[], None], *, committed: bool
    ) -> None:
        self.send = inner.send
        self.close = inner.close
        self._inner = inner
        self._meanwhile = meanwhile
        self._committed = committed

    def commit_transaction(self, timeout_s: float) -> bool:
        if self._committed:
            self._inner.commit_transaction(timeout_s)
        else:
            self._inner.abort_transaction(timeout_s)
        self._meanwhile()
        raise FatalProducerError("no answer")


class Scene:
    """A journal of one shard, all of which is archived, and that a node of epoch 1 has written for long."""

    def __init__(self) -> None:
        self.broker = SimulatedBroker(Timeline())
        self.kafka = SimulatedKafka(self.broker)
        for topic in (wal_topic("j"), control_topic("j"), table_topic("j")):
            self.broker.create_topic(topic, 1, 1, {})
        identity = Identity(magic=MAGIC, format=FORMAT, journal=JOURNAL, name="j", shards=1)
        archive = Archive(journal=JOURNAL, shard=0, offset=10**6, path="/a")
        self.send(control_row("j", IDENTITY_KEY, identity), control_row("j", archive_key(0), archive))
        self.number = 0
        self.active(1)
        for _ in range(LONG):
            self.append(1)
        self.number += 1  # that node's next group, which is on its way

    def send(self, *records: Sent) -> None:
        self.kafka.plain_producer().send(records, LIMIT_S)

    def append(self, epoch: int, *, begins: bool = False) -> None:
        self.number += 1
        self.epoch = epoch
        value = frame(self.number, marker() if begins else add(self.number), epoch=epoch)
        producer = self.kafka.transactional_producer("another")
        producer.init(LIMIT_S)
        producer.send([Sent(wal_topic("j"), 0, None, value.SerializeToString())], LIMIT_S)
        producer.commit_transaction(LIMIT_S)

    def active(self, epoch: int) -> None:
        counter = Epoch(epoch=epoch, node="node", nonce=b"nonce %d" % epoch)
        self.send(control_row("j", EPOCH_KEY, counter))
        self.append(epoch, begins=True)

    def take_over(self, epoch: int) -> None:
        self.active(epoch)
        for _ in range(LONG):
            self.append(epoch)

    def trim(self) -> None:
        """Once the tables have everything."""
        end = self.kafka.reader(wal_topic("j")).start_and_end(0, LIMIT_S)[1]
        mark = Mark(shard=0, offset=end - 2, number=self.number, epoch=self.epoch)
        self.send(Sent(table_topic("j"), 0, mark_key(0), mark.SerializeToString()))
        rows = read_control(self.kafka, "j", self.broker.timeline.now, LIMIT_S)
        trimming = Trimming(self.kafka, SETTINGS, rows, lambda *_: None, without_archive=False)
        trimming.delete(trimming.plan("me", 1.0))

    def write_last(self, meanwhile: Callable[[], None], *, committed: bool) -> Group:
        """The suspended node's last group. Raises what becomes of it."""
        inner = self.kafka.transactional_producer(writer_id("j"))
        inner.init(LIMIT_S)
        timing = Timing(self.broker.timeline.now, self.broker.timeline.pass_to, LIMIT_S, 10 * LIMIT_S, LIMIT_S)
        last = self.number - 1
        writer = Writer(
            self.kafka,
            WriterConfig("j", JOURNAL, 1, 0.0, 0.0, 0.0, 1 << 20),
            Claim(1, "node", b"nonce 1"),
            Fence(self.kafka, "j", timing),
            Suspended(inner, meanwhile, committed=committed),  # type: ignore[arg-type]  # the rest is not used
            FrameNumbers((last,), last),
            [self.kafka.reader(wal_topic("j")).start_and_end(0, LIMIT_S)[1]],
            timing,
        )
        group = Group(1, 900_000)
        group.put(0, ADD, 10**6, 1, b"")
        writer.write(group)
        return group


@pytest.mark.parametrize(
    ("committed", "told"), [(True, "the last group is in the WAL"), (False, "the group is not in the WAL")]
)
def test_a_node_that_was_suspended_in_mid_commit_learns_its_outcome_from_what_the_trims_have_noted(
    committed: bool, told: str
) -> None:
    scene = Scene()

    def meanwhile() -> None:
        if not committed:
            scene.number -= 1  # the successor's marker has the number that the group would have had
        for epoch in (2, 3):
            scene.take_over(epoch)
            scene.trim()

    before = scene.kafka.reader(wal_topic("j")).start_and_end(0, LIMIT_S)[1]
    with pytest.raises(FencedError, match=told):
        scene.write_last(meanwhile, committed=committed)
    start, end = scene.kafka.reader(wal_topic("j")).start_and_end(0, LIMIT_S)
    assert before < start
    assert end - start == 2, "one frame, and the end of its transaction"


@pytest.mark.parametrize("left", [0, 1], ids=["all", "but_the_last_frame"])
@pytest.mark.parametrize("epochs", [(2,), (2, 3)], ids=["one_successor", "two_successors"])
@pytest.mark.parametrize("committed", [True, False])
def test_a_wal_that_something_but_a_trim_has_deleted_leaves_the_outcome_unknown(
    committed: bool, epochs: tuple[int, ...], left: int
) -> None:
    scene = Scene()

    def meanwhile() -> None:
        if not committed:
            scene.number -= 1
        for epoch in epochs:
            scene.active(epoch)
            scene.append(epoch)
        end = scene.kafka.reader(wal_topic("j")).start_and_end(0, LIMIT_S)[1]
        scene.kafka.cluster().delete_records(wal_topic("j"), {0: end - 2 * left}, LIMIT_S)

    with pytest.raises(OutcomeUnknownError, match="frames are gone"):
        scene.write_last(meanwhile, committed=committed)


def test_the_active_node_learns_an_outcome_from_the_wal_however_often_that_was_trimmed() -> None:
    scene = Scene()
    scene.trim()

    def meanwhile() -> None:
        scene.trim()

    scene.write_last(meanwhile, committed=True)
    start, end = scene.kafka.reader(wal_topic("j")).start_and_end(0, LIMIT_S)
    assert end - start == 2
