"""The index in RocksDB gives what one that sorts a dictionary gives."""

from __future__ import annotations

import shutil
import tempfile
from collections import deque
from heapq import merge
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from journal.errors import LocalStorageError
from journal.store.queues.index import Paged
from journal.store.queues.rocks_index import RocksReferenceIndex
from tests.support.references import MemoryIndex

QUEUES = st.sampled_from([1 << 10, 2 << 10, 2**62])
RANKS = st.integers(0, 9)
PLACES = st.one_of(st.integers(0, 20), st.integers(2**64 - 2, 2**64 + 2), st.integers(0, 2**127))
TIMES = st.sampled_from([0, 0, 1, 2, 3, 2**42])
NOW = st.integers(0, 4)
LIMITS = st.integers(1, 5)
ANY = st.integers(0, 1000)


def by_order(paged: Paged) -> tuple[int, int]:
    return paged.rank, paged.place


class IndexMachine(RuleBasedStateMachine):
    """Both indexes are asked the same."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.rocks = RocksReferenceIndex(Path(self.directory.name) / "index")
        self.memory = MemoryIndex()
        self.places: set[tuple[int, int, int]] = set()

    @rule(
        queue=QUEUES, rank=RANKS, place=PLACES, due=TIMES, message=st.integers(1, 9), expires=TIMES, data=st.binary(),
        passed=st.booleans(),
    )  # fmt: skip
    def put(
        self, queue: int, rank: int, place: int, due: int, message: int, expires: int, data: bytes, passed: bool
    ) -> None:
        if (message, queue) not in self.memory.rows and (queue, rank, place) not in self.places:
            self.places.add((queue, rank, place))
            for index in (self.rocks, self.memory):
                index.put(Paged(queue, rank, place, due, message, expires, data, passed and not due))

    @rule(n=ANY)
    def remove(self, n: int) -> None:
        if rows := list(self.memory.rows.values()):
            for index in (self.rocks, self.memory):
                index.remove(rows[n % len(rows)])

    @rule(queue=QUEUES, n=ANY, limit=LIMITS)
    def page(self, queue: int, n: int, limit: int) -> None:
        ranks = sorted({each.rank for each in self.memory.rows.values() if each.queue == queue}) or [4]
        rank = ranks[n % len(ranks)]
        assert self.rocks.page(queue, rank, limit) == self.memory.page(queue, rank, limit)

    @rule(now=NOW, limit=LIMITS)
    def due(self, now: int, limit: int) -> None:
        ours, theirs = self.rocks.due(now, limit), self.memory.due(now, limit)
        assert [each.due for each in ours] == [each.due for each in theirs]
        assert all(self.memory.rows[each.message, each.queue] == each for each in ours)

    @rule(now=NOW)
    def expired(self, now: int) -> None:
        assert list(self.rocks.expired(now)) == list(self.memory.expired(now))

    @rule(now=NOW, limit=LIMITS)
    def passed(self, now: int, limit: int) -> None:
        assert self.rocks.passed(now, limit) == self.memory.passed(now, limit)

    @invariant()
    def the_same_is_in_them(self) -> None:
        assert self.rocks.next_due() == self.memory.next_due()
        for queue in (1 << 10, 2 << 10, 2**62):
            ours, theirs = (list(merge(*index.scan(queue), key=by_order)) for index in (self.rocks, self.memory))
            assert ours == theirs
            for at, begin in enumerate(theirs):
                assert list(merge(*self.rocks.scan(queue, begin.rank, begin.place), key=by_order)) == theirs[at:]
        for message in range(1, 10):
            assert sorted(self.rocks.find(message)) == sorted(self.memory.find(message))

    def teardown(self) -> None:
        self.rocks.close()
        self.directory.cleanup()


def test_the_index_in_rocksdb_equals_one_that_sorts() -> None:
    run_state_machine_as_test(IndexMachine, settings=settings(max_examples=25, stateful_step_count=30))


def test_an_index_begins_empty_and_gives_its_disk_back(tmp_path: Path) -> None:
    directory = tmp_path / "index"
    paged = Paged(1 << 10, 5, 7, 3, 9, 4, b"data")
    directory.mkdir()
    (directory / "left by another process").write_bytes(b"1")
    for _ in range(2):
        index = RocksReferenceIndex(directory)
        assert index.find(9) == []
        index.put(paged)
        assert index.find(9) == [paged]
        index.close()
        assert list(directory.iterdir()) == []


def test_closing_an_index_that_is_well_warns_of_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    RocksReferenceIndex(tmp_path / "index").close()
    assert caplog.messages == []


def test_an_index_that_lost_what_it_could_not_write_tells_nothing_any_more(tmp_path: Path) -> None:
    directory = tmp_path / "index"
    index = RocksReferenceIndex(directory)
    rows = [Paged(1 << 10, 5, place, 0, place << 10, 0, b"x" * 4096) for place in range(1, 20_000)]
    shutil.rmtree(directory)
    with pytest.raises(LocalStorageError, match="cannot write"):
        deque(map(index.put, rows), maxlen=0)
    directory.mkdir()
    for _ in range(2):
        with pytest.raises(LocalStorageError, match="cannot write"):
            index.find(1 << 10)
    index.close()
    assert list(directory.iterdir()) == []
    again = RocksReferenceIndex(directory)
    again.put(rows[0])
    assert again.find(1 << 10) == [rows[0]]
    again.close()


def test_a_directory_that_is_in_the_way_is_a_local_storage_error(tmp_path: Path) -> None:
    (tmp_path / "index").write_bytes(b"a file")
    with pytest.raises(LocalStorageError):
        RocksReferenceIndex(tmp_path / "index")
