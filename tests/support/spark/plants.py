"""A journal of many shards with one history each, and in each shard's table or WAL another thing that is not so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from journal.v1.journal_pb2 import ADD, Mark, Position, Record, Skipped, Transaction, Trim, Updates
from journal.verify import ShardReport, verify_shard
from journal.verify.base import TrimmedBase, base_of, note_transactions, state_digest
from journal.verify.differences import Differences
from journal.verify.table_state import read_table
from journal.wire.keys import (
    RowType,
    mark_key,
    record_id_of,
    record_key,
    row_type,
    skipped_key,
    spilled_replaceable_key,
    staged_key,
    staged_prefix,
    transaction_key,
    updates_key,
)
from tests.support.build import (
    JOURNAL,
    START_MS,
    add,
    commit,
    delete,
    frame,
    marker,
    prepare,
    replace,
    rollback,
    update,
)
from tests.support.fold import fold_entries
from tests.support.golden import WalEntry
from tests.support.spark.frames import TopicRecord

WAL, TABLE = "planted.wal", "planted.table"
LONG = b"0123456789" * 20
ROW_BYTES_MAX = 150
REFUSED = 107
"""More than a report shows of a sort."""
STANDS_AT = 22
"""The offset that the tables stand at; the WAL goes on behind it."""


@dataclass
class Planted:
    """One shard: its WAL, and its table's rows."""

    shard: int
    wal: list[WalEntry]
    rows: dict[bytes, bytes] = field(default_factory=dict)
    behind: list[tuple[bytes, bytes]] = field(default_factory=list)
    """Rows behind the mark's."""

    def id(self, number: int) -> int:
        return number << 10 | self.shard

    @property
    def mark(self) -> bytes:
        return mark_key(self.shard)

    def change_mark(self, **fields: object) -> None:
        mark = Mark.FromString(self.rows[self.mark])
        mark.MergeFrom(Mark(**fields))  # type: ignore[arg-type]
        self.rows[self.mark] = mark.SerializeToString()

    def record(self, number: int, data: bytes) -> bytes:
        position = Position(offset=2, index=0)
        return Record(type=ADD, id=self.id(number), kind=1, data=data, position=position).SerializeToString()

    def replace_frame(self, offset: int, value: bytes) -> None:
        at = next(place for place, entry in enumerate(self.wal) if entry.offset == offset)
        self.wal[at] = WalEntry(offset, self.wal[at].timestamp_ms, value, False)


def history(shard: int, shards: int) -> Planted:
    """Records that stay (1, 3, 4, 8), one that goes (2), updates that are replaced and that spill; transactions that
    commit (7), stay prepared (1031, and one without operations), are dropped by a marker (2055), roll back (3079); a
    stale frame."""

    def id_(number: int) -> int:
        return number << 10 | shard

    tx, in_doubt, dropped, undone, nothing_staged = (number << 10 | shard for number in (7, 8, 9, 10, 12))
    operations = [
        [marker()],
        [add(id_(1)), add(id_(2), b"goes"), add(id_(3), b"three"), update(id_(1), b"first")],
        [replace(id_(1), b"old", subject=1), replace(id_(1), b"new", subject=1), delete(id_(2)), add(id_(4), LONG)],
        [add(id_(5), b"five", tx=tx), update(id_(1), b"in tx", tx=tx), prepare(tx, 2, b"xid")],
        [commit(tx, 2)],
        [
            add(id_(6), b"six", tx=in_doubt),
            delete(id_(3), tx=in_doubt),
            prepare(in_doubt, 2, b"doubt"),
            prepare(nothing_staged),
        ],
        [add(id_(7), b"seven", tx=dropped), add(id_(9), tx=undone), rollback(undone, 1)],
    ]
    entries = [(2 * n, frame(n + 1, *each, issued=n)) for n, each in enumerate(operations)]
    entries += [
        (14, frame(8, marker(b"n" * 16), epoch=2, node="node-2", issued=9)),
        (16, frame(9, add(id_(8), b"eight"), *(update(id_(8), b"u%d" % n + LONG) for n in range(3)), epoch=2)),
        (18, frame(8, add(id_(10)), epoch=1)),
        (20, frame(10, epoch=2)),
        (STANDS_AT, frame(11, replace(id_(8), b"spilled", subject=2), epoch=2, issued=12)),
    ]
    wal = [WalEntry(offset, START_MS + offset, one.SerializeToString(), False) for offset, one in entries]
    planted = Planted(shard, wal)
    planted.rows = fold_entries(wal, JOURNAL, shard, shards, updates_row_bytes_max=ROW_BYTES_MAX).rows
    ahead = frame(12, add(id_(11)), delete(id_(1)), epoch=2).SerializeToString()
    planted.wal.append(WalEntry(24, START_MS + 24, ahead, False))
    return planted


def trim(planted: Planted, shards: int, mark_at: int) -> TrimmedBase:
    """Trim a shard, before anything is planted, at a mark that its tables had: what that wrote down."""
    before = [entry for entry in planted.wal if entry.offset <= mark_at]
    rows = fold_entries(before, JOURNAL, planted.shard, shards, updates_row_bytes_max=ROW_BYTES_MAX).rows
    waiting: dict[bytes, bytes] = {}
    state, _ = read_table(planted.shard, shards, note_transactions(rows.items(), waiting), Differences(planted.shard))
    first = [part.staged[0].position[0] for part in state.transactions.values() if part.staged]
    kept_from = min([*first, mark_at + 1])
    row = Trim(
        shard=planted.shard,
        offset=kept_from,
        mark=Mark.FromString(rows[planted.mark]),
        digest=state_digest(state),
        transactions=[Transaction.FromString(value) for value in waiting.values()],
        operator="me",
    )
    planted.wal = [entry for entry in planted.wal if entry.offset >= kept_from]
    base = base_of(row, kept_from)
    assert base is not None
    return base


def verified(planted: Planted, shards: int, base: TrimmedBase) -> ShardReport:
    """What `verify` says of the shard."""
    rows = [*planted.rows.items(), *planted.behind]
    return verify_shard(
        planted.shard,
        shards,
        JOURNAL,
        wal=[(entry.offset, entry.timestamp_ms, None, entry.value) for entry in planted.wal],
        table=sorted(rows, key=lambda row: row[0] == planted.mark),
        wal_topic=WAL,
        base=base,
    )


def wal_records(planted: Planted) -> Iterator[TopicRecord]:
    for entry in planted.wal:
        yield TopicRecord(WAL, planted.shard, entry.offset, entry.timestamp_ms, entry.value)


def table_records(planted: Planted) -> Iterator[TopicRecord]:
    """Rows with the mark last, those of records written twice: a reader must take the later one."""
    rows = sorted(planted.rows.items(), key=lambda row: row[0] == planted.mark)
    older = [
        (key, Record(type=ADD, id=record_id_of(key), data=b"older").SerializeToString())
        for key, _ in rows
        if row_type(key) is RowType.RECORD
    ]
    for offset, (key, value) in enumerate([*older, *rows, *planted.behind]):
        yield TopicRecord(TABLE, planted.shard, offset, START_MS, value, key)


# ---- what is planted ---------------------------------------------------------------------------------------


def missing(planted: Planted) -> None:
    del planted.rows[record_key(planted.id(3))]


def extra(planted: Planted) -> None:
    planted.rows[record_key(planted.id(50))] = planted.record(50, b"extra")


def changed(planted: Planted) -> None:
    row = Record.FromString(planted.rows[record_key(planted.id(4))])
    row.data = LONG[:-1] + b"x"
    planted.rows[record_key(planted.id(4))] = row.SerializeToString()


def moved(planted: Planted) -> None:
    row = Record.FromString(planted.rows[record_key(planted.id(4))])
    row.position.index += 1
    planted.rows[record_key(planted.id(4))] = row.SerializeToString()


def resurrected(planted: Planted) -> None:
    planted.rows[record_key(planted.id(2))] = planted.record(2, b"goes")


def lost_update(planted: Planted) -> None:
    key = updates_key(planted.id(1))
    row = Updates.FromString(planted.rows[key])
    del row.updates[0]
    planted.rows[key] = row.SerializeToString()


def lost_spilled_update(planted: Planted) -> None:
    prefix = record_key(planted.id(8))
    spilled = [key for key in planted.rows if key.startswith(prefix) and len(key) > len(prefix) + 1]
    del planted.rows[spilled[0]]


def unspilled(planted: Planted) -> None:
    key = updates_key(planted.id(8))
    row = Updates.FromString(planted.rows[key])
    row.spilled = False
    planted.rows[key] = row.SerializeToString()


def updates_of_none(planted: Planted) -> None:
    row = Updates.FromString(planted.rows[updates_key(planted.id(1))])
    row.id = planted.id(60)
    for one in row.updates:
        one.id = 0
    planted.rows[updates_key(planted.id(60))] = row.SerializeToString()


def count_changed(planted: Planted) -> None:
    planted.change_mark(applied=99)


def nonce_changed(planted: Planted) -> None:
    planted.change_mark(nonce=b"m" * 16)


def lost_transaction(planted: Planted) -> None:
    del planted.rows[transaction_key(planted.id(8), planted.shard)]


def lost_staged(planted: Planted) -> None:
    prefix = staged_prefix(planted.id(8), planted.shard)
    del planted.rows[next(key for key in planted.rows if key.startswith(prefix))]


def stray(planted: Planted) -> None:
    planted.behind.append((record_key(planted.id(70)), planted.record(70, b"stray")))


def undecodable(planted: Planted) -> None:
    planted.rows[record_key(planted.id(80))] = b"\xff\xff"


def foreign_marks(planted: Planted) -> None:
    """Behind the shard's own: of another shard, and under a key that is none."""
    mark = Mark(shard=planted.shard + 1, offset=99, epoch=9).SerializeToString()
    planted.behind += [(mark_key(planted.shard + 1), mark), (b"mine", b"\xff")]


def row_of_another_shard(planted: Planted) -> None:
    skip = Skipped(shard=planted.shard + 1, offset=6, timestamp=1).SerializeToString()
    planted.rows[skipped_key(planted.shard + 1, 6)] = skip


def misplaced_update(planted: Planted) -> None:
    key = replaceable_slot(planted)
    planted.rows[spilled_replaceable_key(planted.id(8), 2, 7)] = planted.rows.pop(key)


def replaceable_slot(planted: Planted) -> bytes:
    prefix = record_key(planted.id(8)) + b"\x03"
    return next(key for key in planted.rows if key.startswith(prefix))


def misplaced_staged(planted: Planted) -> None:
    prefix = staged_prefix(planted.id(8), planted.shard)
    key = next(key for key in planted.rows if key.startswith(prefix))
    planted.rows[staged_key(planted.id(8), planted.shard, 10, 77)] = planted.rows.pop(key)


def skipped(planted: Planted) -> None:
    """What `repair skip` does: a worker writes a row for a record that is no frame, and goes on."""
    at = next(place for place, entry in enumerate(planted.wal) if entry.offset == STANDS_AT)
    planted.wal.insert(at, WalEntry(STANDS_AT - 1, START_MS, b"no frame", False))
    row = Skipped(shard=planted.shard, offset=STANDS_AT - 1, timestamp=1)
    planted.rows[skipped_key(planted.shard, row.offset)] = row.SerializeToString()
    planted.change_mark(skipped=1)


def misplaced_skip(planted: Planted) -> None:
    planted.rows[skipped_key(planted.shard, 99)] = Skipped(
        shard=planted.shard, offset=98, timestamp=1
    ).SerializeToString()


def refused(planted: Planted) -> None:
    """By a WAL that is as its tables are."""
    planted.replace_frame(20, frame(10, *[delete(planted.id(90))] * REFUSED, epoch=2).SerializeToString())
    planted.change_mark(rejected=REFUSED)


def damaged(planted: Planted) -> None:
    planted.replace_frame(8, b"garbage")


def damaged_ahead(planted: Planted) -> None:
    planted.replace_frame(24, b"garbage")


def frame_gone(planted: Planted) -> None:
    planted.wal = [entry for entry in planted.wal if entry.offset != 10]


def trimmed(planted: Planted) -> None:
    planted.wal = [entry for entry in planted.wal if entry.offset > 6]


def wal_gone(planted: Planted) -> None:
    planted.wal.clear()


def empty(planted: Planted) -> None:
    planted.wal.clear()
    planted.rows.clear()


def nothing(planted: Planted) -> None: ...


Plant = Callable[[Planted], None]
