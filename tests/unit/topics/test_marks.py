"""Newest marks and what stops a shard, found from the ends of partitions. The Kafka is the simulated one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from journal.errors import DeadlineError, RowError
from journal.kafka.ports import Sent
from journal.topics.marks import MarkReader
from journal.upkeep.stops import look_ahead
from journal.v1.journal_pb2 import Identity, Mark
from journal.wire.keys import mark_key, record_key
from tests.simulation.broker import SimulatedBroker
from tests.simulation.faults import Fault, Faults
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.timeline import Timeline
from tests.support.build import JOURNAL, BuiltFrame, add, frame, marker

LIMIT_S = 10.0
IDENTITY = Identity(journal=JOURNAL, name="j", shards=1)


class Meanwhile(Faults):
    """Nothing goes wrong, but something happens before a reader's next fetch."""

    def __init__(self) -> None:
        self.before_fetch: list[Callable[[], object]] = []

    def at(self, request: str, node: str) -> Fault:
        if request == "poll" and self.before_fetch:
            self.before_fetch.pop()()
        return Fault.NONE


class Topics:
    """A journal's topics with one shard, written as worker and writer do."""

    def __init__(self) -> None:
        self.meanwhile = Meanwhile()
        self.broker = SimulatedBroker(Timeline(), self.meanwhile)
        self.kafka = SimulatedKafka(self.broker)
        for topic in ("j.wal", "j.table"):
            self.kafka.cluster().create(topic, 1, 1, {}, LIMIT_S)
        self.marks = MarkReader(self.kafka, "j.table", self.broker.timeline.now)

    def write(self, topic: str, *rows: tuple[bytes | None, bytes | None]) -> list[int]:
        producer = self.kafka.transactional_producer(topic)
        producer.init(LIMIT_S)
        offsets = producer.send([Sent(topic, 0, key, value) for key, value in rows], LIMIT_S)
        producer.commit_transaction(LIMIT_S)
        return offsets

    def checkpoint(self, offset: int, rows: int) -> int:
        records = [(record_key(number + 1), b"row") for number in range(rows)]
        return self.write("j.table", *records, (mark_key(0), Mark(offset=offset).SerializeToString()))[-1]

    def frames(self, *frames: BuiltFrame | bytes | None) -> list[int]:
        values = [value.SerializeToString() if isinstance(value, BuiltFrame) else value for value in frames]
        return [self.write("j.wal", (None, value))[0] for value in values]

    def ahead(self, mark: Mark, *skips: int) -> tuple[int, str] | None:
        found = look_ahead(self.kafka, IDENTITY, mark, skips, clock=self.broker.timeline.now, timeout_s=LIMIT_S)
        return None if found.stop is None else (found.stop.offset, found.stop.reason)


# ---- marks ---------------------------------------------------------------------------------------------------


def test_a_table_without_a_mark_has_one_before_the_first_frame() -> None:
    topics = Topics()
    assert topics.marks.newest(0, LIMIT_S).mark == Mark(offset=-1)


@pytest.mark.parametrize("rows", [1, 40])
def test_a_table_with_rows_and_without_a_mark_has_lost_its_end(rows: int) -> None:
    """Workers commit rows with a mark behind them."""
    topics = Topics()
    topics.write("j.table", *[(record_key(number), b"row") for number in range(rows)])
    with pytest.raises(RowError, match=r"j\.table\[0\]@\d+: rows and no mark behind them"):
        topics.marks.newest(0, LIMIT_S)


@pytest.mark.parametrize("rows_behind", [0, 1, 15, 16, 40, 300])
def test_the_newest_mark_is_found_however_many_rows_lie_behind_it(rows_behind: int) -> None:
    topics = Topics()
    topics.checkpoint(3, 5)
    place = topics.checkpoint(8, 400)
    if rows_behind:
        topics.write("j.table", *[(record_key(number), b"stray") for number in range(rows_behind)])
    found = topics.marks.newest(0, LIMIT_S)
    assert (found.mark.offset, found.place) == (8, place)
    assert found.end == place + 2 + (rows_behind + 1 if rows_behind else 0)


def test_a_mark_that_is_compacted_while_it_is_looked_for_gives_way_to_the_newer_one() -> None:
    topics = Topics()
    topics.checkpoint(3, 1)
    places = []

    def compacted() -> None:
        places.append(topics.checkpoint(8, 1))
        topics.broker.compact("j.table", 0)

    topics.meanwhile.before_fetch = [compacted]
    found = topics.marks.newest(0, LIMIT_S)
    assert (found.mark.offset, [found.place]) == (8, places)


def test_whether_there_is_a_mark_is_not_waited_for_for_ever() -> None:
    topics = Topics()
    topics.write("j.table", (record_key(1), b"row"))

    def stray() -> None:
        topics.write("j.table", (record_key(1), b"row"))
        topics.broker.timeline.wait(LIMIT_S, lambda: False)

    topics.meanwhile.before_fetch = [stray]
    with pytest.raises(DeadlineError):
        topics.marks.newest(0, LIMIT_S)


def test_an_open_checkpoint_is_not_seen() -> None:
    topics = Topics()
    place = topics.checkpoint(3, 1)
    producer = topics.kafka.transactional_producer("worker")
    producer.init(LIMIT_S)
    producer.send([Sent("j.table", 0, mark_key(0), Mark(offset=9).SerializeToString())], LIMIT_S)
    assert topics.marks.newest(0, LIMIT_S).place == place


@pytest.mark.parametrize("value", [None, b"\xff", Mark(shard=1).SerializeToString()], ids=["none", "garbage", "other"])
def test_a_mark_that_is_none_is_an_error_with_its_place(value: bytes | None) -> None:
    topics = Topics()
    topics.checkpoint(3, 1)
    (place,) = topics.write("j.table", (mark_key(0), value))
    with pytest.raises(RowError) as error:
        topics.marks.newest(0, LIMIT_S)
    assert (error.value.topic, error.value.partition, error.value.offset) == ("j.table", 0, place)


class ManyTables:
    """A table topic of four shards: one with its mark at the end, one with it before, and two empty ones."""

    def __init__(self) -> None:
        self.broker = SimulatedBroker(Timeline(), Faults())
        self.broker.create_topic("j.table", 4, 1, {})
        self.marks = MarkReader(SimulatedKafka(self.broker, records_per_poll=3), "j.table", self.broker.timeline.now)
        for offset in (3, 8):
            self.write(0, (mark_key(0), Mark(offset=offset).SerializeToString()))
            self.write(1, (mark_key(1), Mark(shard=1, offset=offset).SerializeToString()))
        self.write(1, *self.strays(40))

    def strays(self, count: int) -> list[tuple[bytes, bytes | None]]:
        return [(record_key(number + 1), b"row") for number in range(count)]

    def write(self, shard: int, *rows: tuple[bytes, bytes | None]) -> None:
        self.broker.write("j.table", shard, rows)


def test_the_newest_marks_of_many_shards_are_those_of_each() -> None:
    tables = ManyTables()
    found = tables.marks.newest_of(range(4), LIMIT_S)
    assert found == {shard: tables.marks.newest(shard, LIMIT_S) for shard in range(4)}
    assert [found[shard].mark.offset for shard in range(4)] == [8, 8, -1, -1]


def test_a_mark_that_is_none_among_those_of_many_shards_is_an_error() -> None:
    tables = ManyTables()
    tables.write(0, (mark_key(0), b"\xff"))
    with pytest.raises(RowError):
        tables.marks.newest_of(range(4), LIMIT_S)


def test_the_marks_of_no_shards_are_none() -> None:
    assert ManyTables().marks.newest_of((), LIMIT_S) == {}


# ---- stops ---------------------------------------------------------------------------------------------------


def test_what_can_be_applied_stops_nothing() -> None:
    topics = Topics()
    assert topics.ahead(Mark(offset=-1)) is None
    first, *_ = topics.frames(frame(1, marker()), frame(2, add(1), last=False), frame(3, add(2)))
    assert topics.ahead(Mark(offset=-1)) is None
    assert topics.ahead(Mark(offset=first, number=1, epoch=1)) is None


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (b"garbage", "not a frame"),
        (None, "an empty record is not a frame"),
        (frame(4, add(3)), "frame 4 follows frame 3, and frame 1 was the last"),
        (frame(2, add(3), epoch=2), "a frame without a marker before it"),
        (frame(2, add(3), journal=b"x" * 16), "frame of another journal"),
    ],
)
def test_the_first_record_that_cannot_be_applied_is_the_stop(bad: BuiltFrame | bytes | None, says: str) -> None:
    topics = Topics()
    first, second, _ = topics.frames(frame(1, marker()), bad, frame(2, add(1)))
    mark = Mark(offset=first, number=1, epoch=1)
    stop = topics.ahead(mark)
    assert stop is not None
    assert (stop[0], says in stop[1]) == (second, True)
    assert topics.ahead(mark, second) is None, "an offset that is to be skipped stops nothing"


def test_a_stop_in_the_middle_of_a_group_is_found_and_one_behind_a_group_is_not_yet_one() -> None:
    topics = Topics()
    offsets = topics.frames(frame(1, marker()), frame(2, add(1), last=False), b"garbage", frame(3, add(2)), b"more")
    mark = Mark(offset=offsets[0], number=1, epoch=1)
    assert topics.ahead(mark) == (offsets[2], topics.ahead(mark, 99)[1])  # type: ignore[index]
    assert topics.ahead(mark, offsets[2]) is None


def test_frames_that_are_gone_are_a_stop_that_no_skip_mends() -> None:
    topics = Topics()
    offsets = topics.frames(frame(1, marker()), frame(2, add(1)), frame(3, add(2)))
    log = topics.broker.log("j.wal", 0)
    assert log is not None
    log.trim(offsets[2])
    mark = Mark(offset=offsets[0], number=1, epoch=1)
    at, reason = topics.ahead(mark, offsets[0] + 1) or (0, "")
    assert (at, reason) == (offsets[0] + 1, f"frames are gone: the WAL begins at offset {offsets[2]}")
    assert "the WAL ends" in (topics.ahead(Mark(offset=1000)) or (0, ""))[1]
