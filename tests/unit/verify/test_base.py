"""A trimmed WAL is checked from the digest of its tables: sound tables agree, and later faults are found."""

from __future__ import annotations

import random

import pytest

from journal.v1.journal_pb2 import ADD, Mark, Operation, Record, Transaction, Trim
from journal.verify import ShardReport, verify_shard
from journal.verify.base import TrimmedBase, note_transactions, state_digest
from journal.verify.differences import Differences
from journal.verify.table_state import read_table
from journal.wire import keys
from tests.support.build import JOURNAL, add, commit, delete, marker, prepare, replace, rollback, update, wal
from tests.support.fold import fold_entries
from tests.support.golden import WalEntry

BOUND = 100
SEEDS = range(150)


def entries_of(groups: list[list[Operation]]) -> list[WalEntry]:
    return [WalEntry(offset, timestamp, frame.SerializeToString(), False) for offset, timestamp, frame in wal(*groups)]


def tables(entries: list[WalEntry]) -> dict[bytes, bytes]:
    return fold_entries(entries, JOURNAL, 0, 1, updates_row_bytes_max=BOUND).rows


def base_at(entries: list[WalEntry]) -> TrimmedBase:
    """The base that a trim behind these records writes down."""
    rows = tables(entries)
    open_rows: dict[bytes, bytes] = {}
    state, _ = read_table(0, 1, note_transactions(rows.items(), open_rows), Differences(0))
    transactions = [Transaction.FromString(value) for value in open_rows.values()]
    row = Trim(mark=Mark.FromString(rows[keys.mark_key(0)]), digest=state_digest(state), transactions=transactions)
    return TrimmedBase.of(row, "trimmed")


def check(entries: list[WalEntry], base: TrimmedBase, rows: dict[bytes, bytes], start: int = 0) -> ShardReport:
    """Check a WAL that begins at `start`."""
    return verify_shard(
        0,
        1,
        JOURNAL,
        wal=[(entry.offset, entry.timestamp_ms, None, entry.value) for entry in entries if entry.offset >= start],
        table=rows.items(),
        rows_in_partition_order=False,
        base=base,
    )


class History:
    """Groups of operations that the state allows."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._ids: set[int] = set()
        self._staged: dict[int, list[Operation]] = {}
        self._prepared: set[int] = set()
        self._tx = 0
        self.first_staged: dict[int, int] = {}
        self.groups: list[list[Operation]] = [[marker()]]

    def grow(self, groups: int) -> None:
        for _ in range(groups):
            self.groups.append([self._operation() for _ in range(self._random.randint(1, 4))])

    def _operation(self) -> Operation:
        choice = self._random.random()
        free = self._free()
        if choice < 0.2 and self._tx < 40:
            return self._stage()
        if choice < 0.3 and self._staged:
            return self._settle()
        if choice < 0.6 or not free:
            new = self._random.choice([id for id in range(1, 400) if id not in self._ids and id not in self._locked()])
            self._ids.add(new)
            return add(new, self._random.randbytes(self._random.choice([0, 3, 60])))
        id = self._random.choice(free)
        if choice < 0.75:
            self._ids.discard(id)
            return delete(id)
        data = self._random.randbytes(self._random.choice([1, 80]))
        return update(id, data) if choice < 0.9 else replace(id, data, subject=self._random.randint(0, 2))

    def _locked(self) -> set[int]:
        return {op.id for ops in self._staged.values() for op in ops}

    def _free(self) -> list[int]:
        return sorted(self._ids - self._locked())

    def _stage(self) -> Operation:
        unprepared = [tx for tx in self._staged if tx not in self._prepared]
        if unprepared and self._random.random() < 0.5:
            tx = self._random.choice(unprepared)
        else:
            self._tx += 1
            tx = self._tx
            self.first_staged[tx] = len(self.groups)
        free = self._free()
        if free and self._random.random() < 0.5:
            op = delete(self._random.choice(free), tx=tx)
        else:
            op = add(1000 + tx * 100 + len(self._staged.get(tx, [])), b"staged", tx=tx)
        self._staged.setdefault(tx, []).append(op)
        return op

    def _settle(self) -> Operation:
        tx = self._random.choice(sorted(self._staged))
        count = len(self._staged[tx])
        if tx not in self._prepared and self._random.random() < 0.6:
            self._prepared.add(tx)
            return prepare(tx, count, b"xid" * 20)
        staged = self._staged.pop(tx)
        self.first_staged.pop(tx)
        if self._random.random() < 0.5:
            return rollback(tx, count)
        for op in staged:
            (self._ids.add if op.type == ADD else self._ids.discard)(op.id)
        return commit(tx, count)

    @property
    def oldest_open(self) -> int:
        """The group that holds the first operation of an unsettled transaction."""
        return min(self.first_staged.values(), default=len(self.groups))


@pytest.mark.parametrize("seed", SEEDS)
def test_sound_tables_agree_with_a_fold_from_the_trim(seed: int) -> None:
    history = History(seed)
    history.grow(seed % 12 + 1)
    before = entries_of(history.groups)
    oldest, base = history.oldest_open, base_at(before)
    start = before[oldest].offset if oldest < len(before) else before[-1].offset + 1
    history.grow(seed % 7)
    entries = entries_of(history.groups)
    report = check(entries, base, tables(entries), start)
    assert report.differences.lines() == []
    assert report.findings == []
    assert report.base == f"checked from offset {base.mark.offset + 1} on: trimmed"


GROUPS: list[list[Operation]] = [[marker()], [add(1, b"one"), add(2, b"two")], [update(1, b"u"), add(3, b"three")]]


def test_the_digest_checks_records_from_before_a_trim_while_all_of_them_exist() -> None:
    entries = entries_of([*GROUPS, [add(4, b"four")]])
    base, rows = base_at(entries[:3]), tables(entries)
    assert check(entries, base, rows, start=2).unchecked == []
    row = Record.FromString(rows[keys.record_key(2)])
    row.data = b"another"
    rows[keys.record_key(2)] = row.SerializeToString()
    assert set(check(entries, base, rows, start=2).differences.counts) == {"digest"}


def test_once_a_record_from_before_a_trim_is_deleted_verify_says_that_the_others_are_unchecked() -> None:
    entries = entries_of([*GROUPS, [delete(1)]])
    report = check(entries, base_at(entries[:3]), tables(entries), start=2)
    assert report.agrees
    (reason,) = report.unchecked
    assert reason.startswith("what the 2 records from before offset")


def test_a_lost_record_from_before_a_trim_is_a_difference() -> None:
    entries = entries_of([*GROUPS, [delete(1)], [add(9)]])
    base, rows = base_at(entries[:3]), tables(entries)
    del rows[keys.record_key(2)]
    assert "record" in check(entries, base, rows).differences.counts


def test_an_updated_record_that_the_tables_do_not_have_is_a_difference() -> None:
    entries = entries_of([*GROUPS, [update(2, b"late")]])
    base, rows = base_at(entries[:3]), tables(entries)
    del rows[keys.record_key(2)]
    lines = " ".join(check(entries, base, rows).differences.lines())
    assert "id 2" in lines


def test_records_added_after_a_trim_are_compared() -> None:
    entries = entries_of([*GROUPS, [delete(1), add(4, b"four")]])
    base, rows = base_at(entries[:3]), tables(entries)
    row = Record.FromString(rows[keys.record_key(4)])
    row.data = b"another"
    rows[keys.record_key(4)] = row.SerializeToString()
    assert check(entries, base, rows).differences.counts == {"record": 1}


def test_a_record_that_came_back_is_a_difference() -> None:
    entries = entries_of([*GROUPS, [delete(1)]])
    base, rows = base_at(entries[:3]), tables(entries)
    rows[keys.record_key(1)] = tables(entries[:3])[keys.record_key(1)]
    assert "record" in check(entries, base, rows).differences.counts


@pytest.mark.parametrize("settle", [commit, rollback])
def test_a_prepared_transaction_does_not_get_operations_of_an_older_one_with_its_number(settle) -> None:
    entries = entries_of(
        [
            [marker()],
            [add(1, b"first", tx=7), add(2, b"first", tx=7)],
            [settle(7, 2)],
            [add(3, b"second", tx=7), add(4, b"second", tx=7)],
            [prepare(7, 2, b"xid")],
            [add(5, b"behind the trim")],
        ]
    )
    report = check(entries, base_at(entries[:5]), tables(entries), start=1)
    assert report.agrees, report.lines()
