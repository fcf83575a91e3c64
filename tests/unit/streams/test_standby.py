"""A worker's warm copies of other workers' shards: each follows until its store is taken, whatever becomes of that."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from journal.disk.ports import LocalStore
from journal.disk.rocks import RocksStore
from journal.errors import LocalDamageError, LocalStorageError
from journal.fold.rows import Change
from journal.table.replica import Replica
from journal.v1.journal_pb2 import ADD, Mark, Record
from journal.wire.keys import RECORD_TAG, mark_key, record_id_of, record_key
from journal.wire.rows import mark_name
from streams.worker.standby import StandbyCopies
from tests.simulation.broker import SimulatedBroker
from tests.simulation.faults import Fault, Faults
from tests.simulation.kafka import SimulatedKafka
from tests.support.paced import PAUSE_S, PacedTimeline

SHARDS = 2
LIMIT_S = 30.0
OPEN_S = 1.0
TOPIC = "table"


class StandbyDisk(RocksStore):
    """A shard's store on a disk that does what a test says."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.damaged = False
        self.spoiled = False
        """Whether it may lack something, as a damaged one does until it is cleared; nothing of it tells that."""
        self.refusals = 0
        """How often it refuses to be cleared, and is then half of what it was."""
        self.numbers: list[int] = []
        """Ids of the records, in the order of their writes. Any thread may read this list."""

    def named(self, name: bytes) -> bytes | None:
        if self.damaged:
            raise LocalDamageError("a damaged file")
        return super().named(name)

    def write(
        self, rows: Iterable[Change], named: Mapping[bytes, bytes], *, durable: bool = True, synced: bool = False
    ) -> None:
        if self.damaged:
            raise LocalDamageError("a damaged file")
        written = list(rows)
        super().write(written, named, durable=durable, synced=synced)
        self.numbers += [record_id_of(key) for key, value in written if key.startswith(RECORD_TAG) and value]

    def damage(self) -> None:
        self.damaged = self.spoiled = True

    def clear(self) -> None:
        self.damaged = False
        if self.refusals:
            self.refusals -= 1
            raise LocalStorageError("a full disk")
        self.spoiled = False
        self.numbers.clear()
        super().clear()


class Away(Faults):
    """Brokers that answer or do not."""

    def __init__(self) -> None:
        self.away = False

    def at(self, request: str, node: str) -> Fault:
        return Fault.LOSE_REQUEST if self.away else Fault.NONE


class Standbys:
    """Copies of a table of two shards, which has one checkpoint in each."""

    def __init__(self, directory: Path) -> None:
        self.faults = Away()
        self.disks: dict[int, StandbyDisk] = {}
        self.unopenable: set[int] = set()
        self.damaged_at_first: set[int] = set()
        self._directory = directory
        self._timeline = PacedTimeline()
        self._broker = SimulatedBroker(self._timeline, self.faults)
        self._broker.create_topic(TOPIC, SHARDS, 1, {})
        self._marks: dict[int, bytes] = {}
        for shard in range(SHARDS):
            self.checkpoint(shard, 1)
        self.copies = StandbyCopies(self._store, self._replica, OPEN_S, count_again_s=PAUSE_S)

    def _store(self, shard: int) -> LocalStore:
        if shard in self.unopenable:
            raise LocalStorageError("too many open files")
        disk = self.disks[shard] = StandbyDisk(self._directory / str(shard))
        if shard in self.damaged_at_first:
            disk.damage()
        return disk

    def _replica(self, shard: int, store: LocalStore) -> Replica:
        return Replica(
            SimulatedKafka(self._broker),
            TOPIC,
            [shard],
            store,
            b"identity",
            clock=self._timeline.now,
            wall_ms=lambda: self._timeline.now() * 1000,
            delete_retention_ms=10**9,
            min_compaction_lag_ms=10**9,
            held_bytes_max=10**6,
            counts_rows=True,
        )

    def write(self, shard: int, *rows: tuple[bytes, bytes]) -> None:
        self._broker.write(TOPIC, shard, rows)

    def checkpoint(self, shard: int, number: int, records: int = 0) -> None:
        """A worker's, the so many-th: one record, and the mark, which says how many records there are, or `records`."""
        previous = mark_name(self._marks[shard]) if shard in self._marks else 0
        mark = Mark(shard=shard, offset=number, epoch=1, records=records or number, previous=previous)
        self._marks[shard] = mark.SerializeToString()
        row = Record(type=ADD, id=number, data=b"%d" % number).SerializeToString()
        self.write(shard, (record_key(number), row), (mark_key(shard), self._marks[shard]))

    def wait_until_at(self, shard: int, number: int) -> None:
        """Until a copy has the checkpoint, and every record of those before it."""
        wait_until(lambda: self.disks[shard].numbers == list(range(1, number + 1)))


def records_of(store: LocalStore | None) -> list[int]:
    """Ids of the records in a store that was taken from its standby."""
    assert store is not None
    with closing(store):
        return [record_id_of(key) for key, _ in store.scan(RECORD_TAG)]


def wait_until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < until
        time.sleep(PAUSE_S)


@pytest.fixture
def standbys(tmp_path: Path) -> Iterator[Standbys]:
    made = Standbys(tmp_path)
    with closing(made.copies):
        yield made


def test_a_store_that_is_taken_has_what_was_there_is_open_and_is_followed_no_more(standbys: Standbys) -> None:
    standbys.copies.follow({0, 1})
    for shard in range(SHARDS):
        standbys.wait_until_at(shard, 1)
    standbys.checkpoint(0, 2)
    standbys.wait_until_at(0, 2)
    taken = standbys.copies.take(0)
    assert taken is standbys.disks[0]
    for shard in range(SHARDS):
        standbys.checkpoint(shard, 3 - shard)
    standbys.wait_until_at(1, 2)
    assert standbys.copies.take(0) is None
    assert records_of(taken) == [1, 2]


@pytest.mark.parametrize("refusals", [0, 1])
def test_a_copy_that_is_damaged_while_it_follows_is_built_anew_as_soon_as_it_can_be(
    standbys: Standbys, refusals: int, caplog: pytest.LogCaptureFixture
) -> None:
    standbys.copies.follow({0, 1})
    for shard in range(SHARDS):
        standbys.wait_until_at(shard, 1)
    standbys.checkpoint(0, 2)
    standbys.wait_until_at(0, 2)
    disk = standbys.disks[0]
    disk.refusals = refusals
    disk.damage()
    standbys.checkpoint(0, 3)
    standbys.wait_until_at(0, 3)
    assert not disk.spoiled
    assert "shard 0: the standby copy is damaged, and built anew: a damaged file" in caplog.messages
    assert ("shard 0: the standby copy cannot follow: a full disk" in caplog.messages) is bool(refusals)
    standbys.checkpoint(0, 4)
    standbys.wait_until_at(0, 4)
    assert records_of(standbys.copies.take(0)) == [1, 2, 3, 4]


def test_a_copy_that_follows_no_more_is_known_and_by_what_it_ended(standbys: Standbys) -> None:
    standbys.copies.follow({0, 1})
    for shard in range(SHARDS):
        standbys.wait_until_at(shard, 1)
    assert standbys.copies.ended() == {}
    standbys.write(0, (b"no key", b"no row"))
    standbys.checkpoint(0, 2)
    wait_until(lambda: standbys.copies.ended() != {})
    assert [shard for shard, why in standbys.copies.ended().items() if "no key" in why or "6e6f206b6579" in why] == [0]
    standbys.checkpoint(1, 2)
    standbys.wait_until_at(1, 2)


def test_a_copy_that_is_damaged_when_it_is_opened_is_built_anew(standbys: Standbys) -> None:
    standbys.damaged_at_first.add(0)
    standbys.copies.follow({0})
    standbys.wait_until_at(0, 1)
    assert not standbys.disks[0].spoiled


def test_a_shard_whose_store_cannot_be_opened_is_left_out_and_tried_again(
    standbys: Standbys, caplog: pytest.LogCaptureFixture
) -> None:
    standbys.unopenable.add(0)
    standbys.copies.follow({0, 1})
    standbys.wait_until_at(1, 1)
    assert "shard 0: no standby copy: too many open files" in caplog.messages
    assert standbys.copies.take(0) is None
    standbys.unopenable.clear()
    standbys.copies.follow({0, 1})
    standbys.wait_until_at(0, 1)


def test_a_copy_goes_on_once_kafka_answers_again(standbys: Standbys, caplog: pytest.LogCaptureFixture) -> None:
    standbys.faults.away = True
    standbys.copies.follow({0})
    wait_until(lambda: any("the standby copy cannot follow" in line for line in caplog.messages))
    standbys.faults.away = False
    standbys.wait_until_at(0, 1)


def test_a_copy_of_a_table_that_holds_what_it_must_not_hold_stops_and_can_be_taken(
    standbys: Standbys, caplog: pytest.LogCaptureFixture
) -> None:
    standbys.copies.follow({0})
    standbys.wait_until_at(0, 1)
    standbys.write(0, (b"\xff no row of ours", b""))
    wait_until(lambda: any("the standby copy follows no more" in line for line in caplog.messages))
    assert records_of(standbys.copies.take(0)) == [1]


def test_a_copy_whose_table_has_other_numbers_of_rows_is_built_anew_until_the_table_is_mended(
    standbys: Standbys, caplog: pytest.LogCaptureFixture
) -> None:
    standbys.checkpoint(0, 2, records=7)
    standbys.copies.follow({0})
    wait_until(lambda: "2 records" in standbys.copies.ended().get(0, ""))
    assert any(line.startswith("shard 0: the standby copy is built anew: shard 0 has") for line in caplog.messages)
    standbys.checkpoint(0, 3)
    wait_until(lambda: standbys.copies.ended() == {})
    standbys.checkpoint(0, 4)
    standbys.wait_until_at(0, 4)
    assert records_of(standbys.copies.take(0)) == [1, 2, 3, 4]
