"""A followed state on a real RocksDB: what it costs to finish, when it is dropped, and what damage comes to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from rocksdict import DbClosedError

from journal.disk.rocks import RocksStore
from journal.errors import CountError, LocalDamageError
from journal.load.loading import LoadCounts, LoadedUpdate
from journal.v1.journal_pb2 import (
    ADD,
    DELETE,
    Mark,
    Operation,
    Record,
    Staged,
    Transaction,
    Update,
    Updates,
)
from journal.wire.keys import record_key, staged_key, transaction_key, updates_key
from tests.support.build import START_MS, add, delete, frame, marker, prepare, update
from tests.support.children.loaders import KeptState
from tests.support.followed import COMPACTION_LAG_S, FollowedTable

MANY = 2000


class ScanCountingStore(RocksStore):
    """A store that counts what is iterated."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.scans: list[bytes] = []

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        self.scans.append(prefix)
        return super().scan(prefix)


class PlainLoader:
    """A loader that cannot be kept warm."""

    def __init__(self) -> None:
        self.ids: list[int] = []

    def begin(self, marks: Mapping[int, Mark]) -> None: ...

    def record(
        self, record_id: int, kind: int, data: bytes, updates: Sequence[LoadedUpdate], position: tuple[int, int, int]
    ) -> None:
        self.ids.append(record_id)

    def prepared(self, tx: int, data: bytes, operations: Sequence[Operation]) -> None: ...

    def complete(self, counts: LoadCounts) -> None: ...


class RefusingLoader(KeptState):
    """A loader with a fault of its own."""

    def deleted(self, record_id: int) -> None:
        raise KeyError(record_id)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ScanCountingStore]:
    opened = ScanCountingStore(tmp_path / "copy")
    yield opened
    opened.close()


def many(table: FollowedTable) -> None:
    """A checkpoint with many records, each with an update."""
    table.apply(0, frame(1, marker()))
    adds = [operation for id in range(1, MANY + 1) for operation in (add(id, b"a"), update(id, b"u"))]
    table.apply(1, frame(2, *adds))
    table.checkpoint()


def finish_after_a_few_changes(table: FollowedTable) -> KeptState:
    table.apply(2, frame(3, delete(1), update(2, b"v"), add(MANY + 1), delete(3, tx=7), prepare(7, 1, b"xid")))
    table.checkpoint()
    table.read_to_the_end()
    table.finish()
    state = table.following.loader
    assert isinstance(state, KeptState)
    return state


def test_finishing_a_warm_state_scans_no_record(store: ScanCountingStore) -> None:
    table = FollowedTable(store)
    many(table)
    table.follow()
    store.scans.clear()
    state = finish_after_a_few_changes(table)
    assert state.counts == LoadCounts(records=MANY, updates=MANY, prepared=1, operations=1)
    assert (state.scanned, state.changes) == (MANY, 3)
    assert [prefix for prefix in store.scans if prefix[:1] == b"r"] == []


def test_what_was_not_warm_is_loaded_when_it_is_finished(store: ScanCountingStore) -> None:
    table = FollowedTable(store)
    many(table)
    state = finish_after_a_few_changes(table)
    assert (state.scanned, state.changes) == (MANY, 0)
    assert table.following.finished


def test_a_plain_loader_is_told_everything_at_the_end_and_nothing_before(store: ScanCountingStore) -> None:
    table = FollowedTable(store, PlainLoader)
    many(table)
    table.follow()
    loader = table.following.loader
    assert isinstance(loader, PlainLoader)
    assert (loader.ids, table.following.warm, table.following.follows) == ([], False, False)
    table.following.finish(table.replica.marks(), lambda done, total: None)
    assert len(loader.ids) == MANY
    assert table.following.loader is loader


def test_records_of_several_shards_are_followed_together(store: ScanCountingStore) -> None:
    table = FollowedTable(store, shards=2)
    for shard in (0, 1):
        table.apply(0, frame(1, marker()), shard)
        table.apply(1, frame(2, add(1 << 10 | shard), add(2 << 10 | shard)), shard)
        table.checkpoint(shard)
    table.follow()
    table.apply(2, frame(3, delete(1 << 10 | 1), update(2 << 10 | 1, b"u")), 1)
    table.checkpoint(1)
    table.follow()
    table.check()


@pytest.mark.parametrize("row_bytes_max", [0, 30])
def test_updates_beyond_their_row_are_told_in_their_order(store: ScanCountingStore, row_bytes_max: int) -> None:
    table = FollowedTable(store, updates_row_bytes_max=row_bytes_max)
    table.apply(0, frame(1, marker(), issued=1))
    table.apply(1, frame(2, add(1, b"a")))
    table.checkpoint()
    table.follow()
    for number in range(5):
        table.apply(2 + number, frame(3 + number, update(1, b"u%d" % number)))
        table.checkpoint()
        table.follow()
    table.check()


def test_a_copy_that_is_building_again_drops_the_state_and_a_new_loader_begins_when_it_can_be_read(
    store: ScanCountingStore,
) -> None:
    table = FollowedTable(store, records_per_poll=1)
    many(table)
    table.follow()
    dropped = table.following.loader
    for number in (3, 4):
        table.apply(number, frame(number, update(number, b"w")))
        table.checkpoint()
    table.pass_time(COMPACTION_LAG_S * 3, compact=True)
    table.poll()
    assert (table.replica.readable, table.following.warm, table.following.loader) == (False, False, None)
    table.follow()
    assert table.following.warm
    assert table.following.loader is not dropped
    table.check()


def test_a_state_stays_warm_when_the_copy_is_only_opened_again(store: ScanCountingStore) -> None:
    table = FollowedTable(store)
    many(table)
    table.follow()
    warm = table.following.loader
    table.apply(2, frame(3, delete(5)))
    table.checkpoint()
    table.replica.poll(1.0)
    table.replica.open(1.0)
    table.follow()
    assert table.following.loader is warm
    table.check()


def test_a_loader_that_raises_costs_the_warm_state_and_not_the_copy(store: ScanCountingStore) -> None:
    table = FollowedTable(store, RefusingLoader)
    many(table)
    table.follow()
    table.apply(2, frame(3, delete(5)))
    table.checkpoint()
    table.follow()
    assert (table.following.warm, type(table.following.failure)) == (False, KeyError)
    assert table.replica.marks()[0].records == MANY - 1
    table.follow()
    assert not table.following.warm
    table.following.restart()
    table.follow()
    assert table.following.warm
    table.check()


def test_a_state_that_has_not_as_many_records_as_the_marks_say_is_loaded_anew(store: ScanCountingStore) -> None:
    table = FollowedTable(store)
    many(table)
    table.follow()
    warm = table.following.loader
    marks = {0: Mark.FromString(table.replica.marks()[0].SerializeToString())}
    marks[0].records += 1
    assert not table.following.is_at(marks)
    table.finish()
    assert table.following.loader is not warm


# ---- the store ---------------------------------------------------------------------------------------------------


def flip_a_byte_of_the_rows(directory: Path) -> None:
    largest = max(directory.glob("*.sst"), key=lambda file: file.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 0xFF
    largest.write_bytes(content)


@pytest.mark.parametrize(
    "read",
    [
        lambda store: list(store.scan(b"r")),
        lambda store: list(store.snapshot().scan(b"r")),
        lambda store: [store.snapshot().get(record_key(id)) for id in range(MANY)],
    ],
)
def test_a_read_of_damaged_files_is_an_error_and_not_the_end_of_the_rows(
    tmp_path: Path, read: Callable[[RocksStore], object]
) -> None:
    store = RocksStore(tmp_path / "copy")
    store.write([(record_key(id), bytes(500)) for id in range(MANY)], {b"a": b"b"})
    store.flush()
    store.close()
    flip_a_byte_of_the_rows(tmp_path / "copy")
    damaged = RocksStore(tmp_path / "copy")
    with pytest.raises(LocalDamageError):
        read(damaged)
    damaged.close()


def test_a_closed_store_says_so_to_whoever_still_reads(tmp_path: Path) -> None:
    store = RocksStore(tmp_path / "copy")
    store.write([(record_key(1), b"a")], {})
    store.close()
    with pytest.raises(DbClosedError):
        store.get(record_key(1))
    reopened = RocksStore(tmp_path / "copy")
    assert reopened.get(record_key(1)) == b"a"
    reopened.close()


# ---- a copy that is not what its marks say -----------------------------------------------------------------------


GHOSTS = {
    "record": (record_key(MANY + 9), Record(type=ADD, id=MANY + 9).SerializeToString()),
    "update": (updates_key(2), Updates(id=2, updates=[Update(id=2, kind=1)] * 2).SerializeToString()),
    "staged operation": (staged_key(7, 0, 1, 0), Staged(type=DELETE, id=2, tx=7).SerializeToString()),
    "prepared part": (transaction_key(7, 0), Transaction(tx=7, prepared=True, shards=1).SerializeToString()),
}


@pytest.mark.parametrize("ghost", GHOSTS.values(), ids=GHOSTS)
def test_a_load_of_other_rows_than_the_marks_say_is_refused(
    store: ScanCountingStore, ghost: tuple[bytes, bytes]
) -> None:
    table = FollowedTable(store)
    many(table)
    table.follow()
    assert table.following.warm
    store.write([ghost], {})
    with pytest.raises(
        CountError, match=rf"shard 0 has .* its mark at WAL offset 1 says {MANY:,} records, {MANY:,} updates"
    ):
        table.loaded()
    table.following.restart()
    table.follow()
    assert isinstance(table.following.failure, LocalDamageError)


def test_a_load_that_lacks_a_row_is_refused_and_a_copy_that_was_just_built_is_not_to_blame(
    store: ScanCountingStore,
) -> None:
    table = FollowedTable(store)
    many(table)
    table.broker.write("table", 0, [(record_key(5), None), (updates_key(5), None)])
    table.folds[0].apply(2, START_MS, frame(3, add(MANY + 1)))
    table.checkpoint()
    table.follow()
    assert isinstance(table.following.failure, CountError)
    assert f"shard 0 has {MANY:,} records, {MANY - 1:,} updates" in str(table.following.failure)
    assert "`kafka-journal verify -j table` names where" in str(table.following.failure)


def test_a_warm_state_with_other_numbers_than_the_marks_is_loaded_again(store: ScanCountingStore) -> None:
    table = FollowedTable(store)
    many(table)
    table.follow()
    marks = table.replica.marks()
    marks[0].updates += 1
    assert not table.following.is_at(marks)
