"""`verify` agrees with sound tables and loads, and names each difference."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from journal.v1.journal_pb2 import ADD, Mark, Operation, Record, Transaction, Updates
from journal.verify import Loaded, Report, ShardReport, verify_shard
from journal.verify.differences import KEPT_ALL
from journal.wire import keys
from tests.support.build import JOURNAL, add, commit, delete, marker, prepare, replace, update, wal
from tests.support.fold import fold_entries
from tests.support.golden import WalEntry

BOUND = 100
GROUPS: list[list[Operation]] = [
    [marker()],
    [add(1, b"one"), update(1, b"u"), replace(1, bytes(200), subject=4), add(2, bytes(1000))],
    [add(3, b"staged", tx=7), update(1, b"v", subject=5, tx=7), prepare(7, 2, b"xid")],
    [add(4, b"open", tx=8)],
]


def entries_of(groups: list[list[Operation]]) -> list[WalEntry]:
    return [WalEntry(offset, timestamp, frame.SerializeToString(), False) for offset, timestamp, frame in wal(*groups)]


def tables(entries: list[WalEntry]) -> dict[bytes, bytes]:
    return fold_entries(entries, JOURNAL, 0, 1, updates_row_bytes_max=BOUND).rows


def check(
    entries: list[WalEntry], rows: dict[bytes, bytes] | None = None, loaded: Loaded | None = None, kept_max: int = 100
) -> ShardReport:
    return verify_shard(
        0,
        1,
        JOURNAL,
        wal=[(entry.offset, entry.timestamp_ms, None, entry.value) for entry in entries],
        table=None if rows is None else rows.items(),
        loaded=loaded,
        wal_topic="j.wal",
        rows_in_partition_order=False,
        kept_max=kept_max,
    )


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def dump() -> list[dict[str, Any]]:
    return [
        {
            "type": "record",
            "id": 1,
            "kind": 1,
            "data": encoded(b"one"),
            "updates": [
                {"kind": 2, "data": encoded(b"u"), "subject": 0},
                {"kind": 2, "data": encoded(bytes(200)), "subject": 4},
            ],
        },
        {"type": "record", "id": 2, "kind": 1, "data": encoded(bytes(1000)), "updates": []},
        {
            "type": "prepared",
            "tx": 7,
            "data": encoded(b"xid"),
            "operations": [
                {"op": "add", "id": 3, "kind": 1, "data": encoded(b"staged")},
                {"op": "update", "id": 1, "kind": 2, "data": encoded(b"v"), "subject": 5, "replaceable": False},
            ],
        },
    ]


def test_sound_tables_and_a_sound_load_agree() -> None:
    entries = entries_of(GROUPS)
    report = check(entries, tables(entries), Loaded(6, dump()))
    assert report.agrees
    assert report.lines() == []
    assert (report.records, report.transactions, report.wal_records, report.offset) == (2, 2, 4, 6)


# ---- tables ----------------------------------------------------------------------------------------------------


def spoiled(key: bytes, value: bytes | None) -> ShardReport:
    entries = entries_of(GROUPS)
    rows = tables(entries)
    if value is None:
        del rows[key]
    else:
        rows[key] = value
    return check(entries, rows)


@pytest.mark.parametrize(
    ("key", "value", "what", "named"),
    [
        (keys.record_key(1), None, {"record": 1, "row": 1}, "id 1"),
        (keys.record_key(2), None, {"record": 1}, "1000 bytes, digest"),
        (keys.record_key(5), Record(type=ADD, id=5).SerializeToString(), {"record": 1}, "id 5: expected none"),
        (keys.record_key(2), Record(type=ADD, id=2).SerializeToString(), {"record": 1}, "found kind 0, empty"),
        (keys.record_key(5), Record(type=ADD, id=6).SerializeToString(), {"row": 1}, "a record with id 6"),
        (keys.record_key(2), b"\xff", {"row": 1, "record": 1}, "7200000000"),
        (keys.updates_key(1), None, {"updates": 1, "row": 1}, "`spilled`"),
        (keys.updates_key(2), Updates(id=2).SerializeToString(), {}, ""),
        (keys.updates_key(5), Updates(id=5).SerializeToString(), {"row": 1}, "updates of none"),
        (keys.spilled_replaceable_key(1, 2, 4), None, {"updates": 1}, "2 updates, [1]"),
        (keys.spilled_replaceable_key(1, 2, 5), b"", {"row": 1}, "an update of id 0"),
        (keys.transaction_key(7, 0), None, {"transaction": 1, "row": 1}, "tx 7: expected prepared"),
        (
            keys.transaction_key(9, 0),
            Transaction(tx=9, prepared=True).SerializeToString(),
            {"transaction": 1},
            "tx 9: expected none",
        ),
        (keys.staged_key(7, 0, 4, 0), None, {"staged": 1, "row": 1}, "tx 7: expected 2, [0] add id 3"),
        (keys.mark_key(1), Mark(shard=1).SerializeToString(), {"row": 1}, "of shard 1"),
        (b"what", b"", {"row": 1}, "no row has such a key"),
    ],
    ids=str,
)
def test_a_row_lost_or_changed_is_named(key: bytes, value: bytes | None, what: dict[str, int], named: str) -> None:
    report = spoiled(key, value)
    assert report.differences.counts == what
    assert named in "\n".join(report.lines())
    assert report.agrees == (not what)


@pytest.mark.parametrize("name", ["number", "group", "node", "nonce", "records", "applied", "timestamp"])
def test_every_field_of_the_mark_is_compared(name: str) -> None:
    entries = entries_of(GROUPS)
    mark = Mark.FromString(tables(entries)[keys.mark_key(0)])
    mark.ClearField(name)  # type: ignore[arg-type]
    report = spoiled(keys.mark_key(0), mark.SerializeToString())
    assert report.differences.counts == {"mark": 1}
    assert f"mark: {name}: " in report.lines()[0]


def test_a_record_that_came_back_is_named() -> None:
    entries = entries_of([*GROUPS, [delete(1)]])
    rows = tables(entries)
    ghosts = {key: value for key, value in tables(entries[:-1]).items() if key.startswith(keys.record_key(1))}
    report = check(entries, rows | ghosts)
    assert report.differences.counts == {"record": 1}


def test_tables_are_compared_at_their_own_mark_and_the_wal_is_read_no_further() -> None:
    entries = entries_of([*GROUPS, [delete(1)], [delete(2)]])
    report = check(entries, tables(entries[:4]))
    assert report.agrees
    assert report.wal_records == 4


def test_operations_that_were_rejected_are_named() -> None:
    entries = entries_of([[marker()], [add(1), add(1), commit(7, 1)]])
    report = check(entries, tables(entries))
    assert report.differences.counts == {"rejected": 2}
    assert "operation 2:1: expected to be allowed by its state, found ADD id 1 tx 0" in report.lines()[0]


def test_verify_says_that_rows_behind_the_last_mark_are_not_compared() -> None:
    entries = entries_of(GROUPS)
    rows = list(tables(entries).items())
    mark = next(row for row in rows if row[0] == keys.mark_key(0))
    report = verify_shard(
        0,
        1,
        JOURNAL,
        wal=[(entry.offset, entry.timestamp_ms, None, entry.value) for entry in entries],
        table=[*rows, mark, (keys.record_key(9), None)],
    )
    assert report.agrees
    assert report.unchecked == ["the tables: 1 rows follow the last mark, they are no state yet"]


def test_a_partition_read_in_order_with_its_tombstones_agrees() -> None:
    entries = entries_of([*GROUPS, [delete(1)]])
    before, after = tables(entries[:4]), tables(entries)
    mark = keys.mark_key(0)
    rows: list[tuple[bytes, bytes | None]] = [
        *((key, value) for key, value in before.items() if key != mark),
        (mark, before[mark]),
        *((key, None) for key in before if key not in after),
        *((key, value) for key, value in after.items() if key != mark),
        (mark, after[mark]),
    ]
    report = verify_shard(
        0,
        1,
        JOURNAL,
        wal=[(entry.offset, entry.timestamp_ms, None, entry.value) for entry in entries],
        table=rows,
    )
    assert report.agrees
    assert not report.unchecked


# ---- the WAL ---------------------------------------------------------------------------------------------------


def test_garbage_that_is_not_skipped_is_found_with_its_place() -> None:
    entries = entries_of(GROUPS)
    entries.insert(2, WalEntry(3, 0, b"garbage", False))
    report = check(entries)
    assert not report.agrees
    assert report.lines()[0].startswith("j.wal[0]@3: not a frame: ")


def test_verify_says_that_tables_that_passed_garbage_are_not_compared() -> None:
    entries = entries_of(GROUPS)
    report = check([*entries[:2], WalEntry(3, 0, b"garbage", False), *entries[2:]], tables(entries))
    assert not report.agrees
    assert report.unchecked == ["the tables: they stand at offset 6, where the fold of the WAL did not come"]


def test_a_skipped_record_is_named_and_folded_past() -> None:
    entries = entries_of(GROUPS)
    entries.insert(2, WalEntry(3, 0, b"garbage", True))
    report = check(entries, tables(entries))
    assert report.differences.counts == {"skipped": 1}
    assert "offset 3: expected a frame, found skipped by an operator" in report.lines()[0]
    assert not report.findings
    assert report.agrees


def test_a_gap_is_found() -> None:
    entries = entries_of(GROUPS)
    del entries[2]
    assert "j.wal[0]@6: follows frame 3, but the last one was 2" in check(entries).lines()


@pytest.mark.parametrize(
    ("keep", "found"),
    [
        (slice(2, None), "j.wal[0]@4: the WAL begins with frame 3: what the 2 frames before it made cannot be"),
        (slice(0, 0), "j.wal[0]@6: the WAL is empty: what the frames up to here made cannot be"),
    ],
    ids=["trimmed", "empty"],
)
def test_verify_says_that_a_wal_without_its_beginning_was_not_compared(keep: slice, found: str) -> None:
    entries = entries_of(GROUPS)
    report = check(entries[keep], tables(entries))
    assert not report.agrees
    assert found in report.lines()[0]
    assert report.unchecked == ["the tables: they stand at offset 6, where the fold of the WAL did not come"]
    assert not Report([report]).complete


def test_an_empty_wal_of_empty_tables_agrees() -> None:
    assert check([], {}).agrees


# ---- loads -----------------------------------------------------------------------------------------------------


def loaded_differently(change: str, at: int, **fields: Any) -> ShardReport:
    entries = dump()
    match change:
        case "drop":
            del entries[at]
        case "again":
            entries.append(entries[at])
        case "set":
            entries[at] = entries[at] | fields
    return check(entries_of(GROUPS), loaded=Loaded(6, entries))


@pytest.mark.parametrize(
    ("report", "what"),
    [
        (loaded_differently("drop", 0), "loaded record"),
        (loaded_differently("again", 1), "loaded record"),
        (loaded_differently("set", 1, id=5, kind=1), "loaded record"),
        (loaded_differently("set", 1, kind=9), "loaded record"),
        (loaded_differently("set", 1, data=""), "loaded record"),
        (loaded_differently("set", 0, updates=[]), "loaded updates"),
        (loaded_differently("set", 0, updates=dump()[0]["updates"][::-1]), "loaded updates"),
        (loaded_differently("drop", 2), "loaded transaction"),
        (loaded_differently("again", 2), "loaded transaction"),
        (loaded_differently("set", 2, tx=8), "loaded transaction"),
        (loaded_differently("set", 2, data=""), "loaded transaction"),
        (loaded_differently("set", 2, operations=dump()[2]["operations"][::-1]), "loaded staged"),
    ],
)
def test_a_load_that_differs_is_named(report: ShardReport, what: str) -> None:
    assert report.differences.counts[what] >= 1
    assert not report.agrees


def test_records_of_other_shards_are_passed_over() -> None:
    odd = dump()[0] | {"id": 3, "updates": []}
    entries = [
        WalEntry(offset, 0, frame.SerializeToString(), False) for offset, _, frame in wal([marker()], [add(2, b"e")])
    ]
    even = {"type": "record", "id": 2, "kind": 1, "data": encoded(b"e"), "updates": []}
    report = verify_shard(
        0,
        2,
        JOURNAL,
        wal=[(entry.offset, entry.timestamp_ms, None, entry.value) for entry in entries],
        loaded=Loaded(2, [even, odd]),
    )
    assert report.agrees


def test_tables_and_load_may_stand_at_different_offsets() -> None:
    entries = entries_of([*GROUPS, [delete(1)]])
    assert check(entries, tables(entries), Loaded(6, dump())).agrees
    assert check(entries, tables(entries[:2]), Loaded(6, dump())).agrees


# ---- the report --------------------------------------------------------------------------------------------------


def test_all_differences_are_counted_and_a_bounded_number_is_kept() -> None:
    entries = entries_of([[marker()], [add(id) for id in range(1, 51)]])
    rows = {key: value for key, value in tables(entries).items() if key[:1] != b"r"}
    report = check(entries, rows, kept_max=3)
    assert report.differences.counts == {"record": 50}
    assert len(report.lines()) == 4
    assert report.lines()[-1] == "shard 0: record: …and 47 more"
    assert Report([report, report]).left_out == 94
    whole = check(entries, rows, kept_max=KEPT_ALL)
    assert (len(whole.lines()), Report([whole]).left_out) == (50, 0)


def test_a_report_is_json() -> None:
    entries = entries_of(GROUPS)
    rows = tables(entries)
    del rows[keys.record_key(2)]
    report = json.loads(json.dumps(Report([check(entries, rows)]).to_json()))
    assert report["agrees"] is False
    assert report["complete"] is True
    assert (report["differences"], report["left_out"]) == (1, 0)
    assert report["shards"][0]["differences"]["kept"][0]["key"] == "id 2"
