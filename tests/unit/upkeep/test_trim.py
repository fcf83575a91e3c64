"""How far a shard's WAL can be trimmed, and that nothing is deleted before the control row is written."""

from __future__ import annotations

import pytest
from google.protobuf.message import Message

from journal.config import load_settings
from journal.errors import OperatingError, TrimError
from journal.kafka.ports import Sent
from journal.topics.control_keys import IDENTITY_KEY, archive_key, control_row
from journal.topics.control_reading import read_control
from journal.topics.control_rows import ControlRows
from journal.upkeep.trim import ShardTrim, Trimming
from journal.v1.journal_pb2 import Archive, Identity, Mark, Trim
from journal.wire.frames import FORMAT, MAGIC
from journal.wire.keys import mark_key
from tests.simulation.broker import SimulatedBroker
from tests.simulation.faults import Fault, Faults
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.timeline import Timeline
from tests.support.build import JOURNAL, add, frame, marker

LIMIT_S = 10.0
ALL_ARCHIVED = 10**6
IDENTITY = Identity(magic=MAGIC, format=FORMAT, journal=JOURNAL, name="j", shards=1)
SETTINGS = load_settings(None, journal="j", bootstrap_servers="nowhere:1")


class Deaf(Faults):
    """Requests of administration get no answer while `on` is set."""

    on = False

    def at(self, request: str, node: str) -> Fault:
        return Fault.LOSE_REQUEST if self.on and request == "admin" else Fault.NONE


class Scene:
    """A journal of one shard. Its WAL is given as epochs: a negative one is a frame behind a newer marker, and 0 is
    garbage."""

    def __init__(self, *epochs: int, archived: int = ALL_ARCHIVED) -> None:
        self.faults = Deaf()
        self.broker = SimulatedBroker(Timeline(), self.faults)
        self.kafka = SimulatedKafka(self.broker)
        for topic in ("j.wal", "j.table", "j.control"):
            self.kafka.cluster().create(topic, 1, 1, {}, LIMIT_S)
        self._written = self._newest = 0
        self.write(*epochs)
        self.tell(IDENTITY_KEY, IDENTITY)
        if archived:
            self.tell(archive_key(0), Archive(journal=JOURNAL, shard=0, offset=archived, path="/a"))

    def write(self, *epochs: int) -> None:
        """Write frames of these epochs, and a worker's mark behind them."""
        producer = self.kafka.transactional_producer("writer")
        producer.init(LIMIT_S)
        for epoch in epochs:
            self._written += 1
            operation = marker() if epoch > self._newest else add(self._written)
            self._newest = max(self._newest, epoch)
            value = frame(self._written, operation, epoch=abs(epoch)).SerializeToString() if epoch else b"garbage"
            self._last = producer.send([Sent("j.wal", 0, None, value)], LIMIT_S)[0]
            producer.commit_transaction(LIMIT_S)
        producer.close()
        mark = Mark(shard=0, offset=self._last, epoch=self._newest, number=self._written)
        self.kafka.plain_producer().send([Sent("j.table", 0, mark_key(0), mark.SerializeToString())], LIMIT_S)

    def tell(self, key: bytes, row: Message) -> None:
        """Write a control row."""
        producer = self.kafka.plain_producer()
        producer.send([control_row("j", key, row)], LIMIT_S)
        producer.close()

    @property
    def rows(self) -> ControlRows:
        return read_control(self.kafka, "j", self.broker.timeline.now, LIMIT_S)

    def trimming(self, *, without_archive: bool = False) -> Trimming:
        return Trimming(self.kafka, SETTINGS, self.rows, lambda *_: None, without_archive=without_archive)

    def delete_below(self, offset: int) -> None:
        """Delete records, as retention does, or an operator with kafka-delete-records."""
        self.kafka.cluster().delete_records("j.wal", {0: offset}, LIMIT_S)

    def plan(self) -> ShardTrim:
        return self.trimming().plan("me", 1.0)[0]

    def start(self) -> int:
        return self.kafka.reader("j.wal").start_and_end(0, LIMIT_S)[0]


@pytest.mark.parametrize(
    ("epochs", "offset", "passed"),
    [
        ((1,), 0, {}),
        ((1, 2), 2, {1: 1}),
        ((1, 1, 1, 1), 6, {1: 1}),
        ((1, 1, 1, 2, 2, 2, 2, 2, 2), 16, {1: 1, 2: 4}),
        ((1, 2, 2, 3), 6, {1: 1, 2: 2}),
        ((1, 1, 2, 2, 3, 3, 4, 4, 5, 5), 18, {1: 1, 2: 3, 3: 5, 4: 7, 5: 9}),
        # frames of an older epoch lie behind the marker, wherever the search begins
        ((1, 1, 1, 1, 2, -1, -1, -1, -1, 2), 18, {1: 1, 2: 5}),
        ((1, 2, 2, 3, -2, 3, -1, 3), 14, {1: 1, 2: 2, 3: 4}),
        # records that are no frames do not count
        ((1, 1, 1, 0, 0, 2), 10, {1: 1}),
        ((1, 1, 1, 2, 0, 0, 0), 6, {1: 1}),
    ],
)
def test_the_last_transaction_is_kept_and_the_markers_below_are_named(
    epochs: tuple[int, ...], offset: int, passed: dict[int, int]
) -> None:
    plan = Scene(*epochs).plan()
    assert plan.offset == offset
    assert ({marker.epoch: marker.number for marker in plan.row.passed} if plan.row else {}) == passed


def test_a_later_trim_names_the_markers_of_earlier_ones_too() -> None:
    scene = Scene(1, 1, 2, 2)
    for epoch in (3, 4):
        trimming = scene.trimming()
        trimming.delete(trimming.plan("me", 1.0))
        scene.write(epoch, epoch)
    row = scene.plan().row
    assert row is not None
    assert [(marker.epoch, marker.number) for marker in row.passed] == [(1, 1), (2, 3), (3, 5), (4, 7)]


def test_records_that_are_not_archived_are_kept() -> None:
    plan = Scene(1, 1, 1, 1, 1, 1, 2, 2, archived=2).plan()
    assert (plan.offset, plan.held_by) == (2, "the archive at /a")


def test_an_archive_of_another_journal_does_not_count() -> None:
    scene = Scene(1, 1, 2)
    scene.tell(archive_key(0), Archive(journal=bytes(16), shard=0, offset=ALL_ARCHIVED, path="/a"))
    with pytest.raises(TrimError, match="has no archive"):
        scene.trimming()


def test_the_records_are_deleted_once_the_control_row_says_so() -> None:
    scene = Scene(1, 1, 1, 1, 1, 2)
    trimming = scene.trimming()
    plan = trimming.plan("me", 1.0)
    scene.faults.on = True
    with pytest.raises(OperatingError):
        trimming.delete(plan)
    scene.faults.on = False
    row = scene.rows.trims[0]
    assert (row.offset, row.mark.offset, row.operator, row.archived) == (10, 10, "me", True)
    assert scene.start() == 0
    again = scene.trimming()
    again.delete(again.plan("me", 2.0))
    assert scene.start() == 10
    assert scene.plan().offset == 10


def test_only_one_of_two_trims_at_once_deletes() -> None:
    scene = Scene(1, 1, 1, 1, 1, 2)
    one, other = scene.trimming(), scene.trimming()
    plan = one.plan("me", 1.0)
    other.delete(other.plan("somebody else", 2.0))
    with pytest.raises(TrimError, match="trimmed by somebody else"):
        one.delete(plan)
    assert (scene.rows.trims[0].operator, scene.start()) == ("somebody else", 10)


def test_records_that_an_archive_begun_meanwhile_lacks_are_kept() -> None:
    scene = Scene(1, 1, 1, archived=0)
    trimming = scene.trimming(without_archive=True)
    plan = [ShardTrim(0, 0, 2, "nothing", Trim(journal=JOURNAL, offset=2))]
    scene.tell(archive_key(0), Archive(journal=JOURNAL, shard=0, offset=1, path="/a"))
    with pytest.raises(TrimError, match="its archive was begun"):
        trimming.delete(plan)
    assert scene.start() == 0


@pytest.mark.parametrize(
    ("now", "deletes"),
    [
        (Archive(archive=b"a", offset=ALL_ARCHIVED + 1, path="/a"), True),
        (Archive(archive=b"a", offset=1, path="/a"), False),
        (Archive(archive=b"b", offset=1, path="/b"), False),
        (Archive(archive=b"b", offset=ALL_ARCHIVED, path="/b"), False),
    ],
    ids=["went on", "less", "replaced", "replaced by one of as much"],
)
def test_records_that_an_archive_that_replaced_another_meanwhile_lacks_are_kept(now: Archive, deletes: bool) -> None:
    scene = Scene(1, 1, 1, 1, 1, 2, archived=0)
    scene.tell(archive_key(0), Archive(journal=JOURNAL, archive=b"a", offset=ALL_ARCHIVED, path="/a"))
    trimming = scene.trimming()
    plan = trimming.plan("me", 1.0)
    now.journal = JOURNAL
    scene.tell(archive_key(0), now)
    if deletes:
        trimming.delete(plan)
        assert scene.start() == 10
        return
    with pytest.raises(TrimError, match=f"the archive at {now.path} took the place"):
        trimming.delete(plan)
    assert (scene.rows.trims, scene.start()) == ({}, 0)


def test_without_an_archive_a_wal_whose_beginning_somebody_else_deleted_is_not_trimmed() -> None:
    scene = Scene(1, 1, 1, 1, 1, 2, archived=0)
    scene.delete_below(2)
    with pytest.raises(TrimError, match="could not be compared"):
        scene.trimming(without_archive=True).plan("me", 1.0)
    assert (scene.rows.trims, scene.start()) == ({}, 2)
