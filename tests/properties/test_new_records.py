"""Records in columns, new or to be deleted, are the same operations one by one: accepted or refused alike, in the same
frames."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from journal.append.acceptance import Acceptance
from journal.append.consumed_groups import ConsumedGroups
from journal.append.group import FrameNumbers, FrameOrigin, Group
from journal.append.operations import AnyOperation, Append, DeletedRecords, NewRecords, PlainOperation
from journal.errors import JournalError
from journal.kafka.ports import Consumed, Sent
from journal.limits import Limits
from journal.v1.journal_pb2 import ADD, DELETE, UPDATE
from journal.wire.ids import make_id
from tests.support.cores import Committing, active_core

SHARDS = 3
LIMITS = Limits(frame_bytes_max=40_000, data_bytes_max=20_000)
CONSUMED = Consumed("group", {("orders", 0): 7})
LIVE = [make_id(number, shard) for number in (1, 2) for shard in (0, 4)]
IN_TRANSACTION = make_id(3, 4)
UPDATED = LIVE[-1]
"""In the same transaction."""
_LONG = [b"x" * size for size in (16_000, 16_383, 16_384, 19_999, 20_000, 20_001)]

data = st.one_of(st.binary(max_size=40), st.sampled_from(_LONG))
some_new = st.builds(
    lambda shard, first, data, kinds, subject: NewRecords(
        kinds[0], [make_id(first + n, shard) for n in range(len(data))], data, kinds[1], subject
    ),
    st.sampled_from([0, 4]),
    st.integers(2, 40),
    st.lists(data, min_size=1, max_size=8),
    st.tuples(st.integers(0, 255), st.integers(0, 255)),
    st.sampled_from([0, 1, 2**62]),
)
some_ids = st.lists(st.sampled_from([make_id(number, 4) for number in range(1, 9)]), min_size=1, max_size=6)
some_deleted = st.one_of(
    st.builds(DeletedRecords, some_ids, st.integers(0, 255), data, st.sampled_from([0, 1, 2**62])),
    st.builds(DeletedRecords, st.just([make_id(1, 0), make_id(2, 0)]), st.just(36), data, st.just(7)),
)
some_plain = st.one_of(
    st.builds(lambda each, kind: (UPDATE, each, kind, b"", False, 0), st.sampled_from(LIVE), st.integers(0, 255)),
    st.builds(lambda each: (DELETE, each, 0, b"", False, 0), st.sampled_from(LIVE)),
    st.builds(lambda number, each: (ADD, make_id(number, 1), 1, each, False, 0), st.integers(1, 40), data),
)


def one_by_one(operations: Sequence[AnyOperation]) -> list[PlainOperation]:
    found: list[PlainOperation] = []
    for each in operations:
        if isinstance(each, NewRecords):
            for record_id, record in zip(each.ids, each.data, strict=True):
                found.append((ADD, record_id, each.kind, record, False, 0))
                found.append((UPDATE, record_id, each.update_kind, b"", False, each.subject))
        elif isinstance(each, DeletedRecords):
            for record_id in each.ids:
                found.append((UPDATE, record_id, each.kind, each.data, False, each.subject))
                found.append((DELETE, record_id, 0, b"", False, 0))
        else:
            found.append(each)
    return found


def acceptance() -> Acceptance:
    made = Acceptance(SHARDS, LIMITS)
    made.load_records(LIVE)
    made.transactions.operate([Append(IN_TRANSACTION % SHARDS, ADD, IN_TRANSACTION, 1, b"", tx=9)])
    made.transactions.operate([Append(UPDATED % SHARDS, UPDATE, UPDATED, 36, b"", subject=7, tx=9)])
    return made


def taken(operations: Sequence[AnyOperation]) -> tuple[list[Sent], int, int] | None:
    """The frames of these, and what the group counts; None: refused. What is there is as it was, then."""
    accepting = acceptance()
    try:
        group: Group = ConsumedGroups(SHARDS, LIMITS, threading.Lock()).group(accepting, operations, CONSUMED, ())
    except JournalError:
        assert len(accepting.live) == len(LIVE)
        assert all(each in accepting for each in LIVE)
        return None
    group.seal(FrameOrigin(b"j" * 16, 3, "node"), FrameNumbers((0,) * SHARDS, 0))
    return group.records("wal"), group.operations, group.bytes


@given(st.lists(st.one_of(some_new, some_deleted, some_plain), max_size=6))
def test_records_in_columns_are_operations_one_by_one(operations: list[AnyOperation]) -> None:
    assert taken(operations) == taken(one_by_one(operations))


@given(st.lists(st.one_of(some_new, some_deleted, some_plain), min_size=1, max_size=6))
def test_records_in_columns_in_a_transaction_are_operations_one_by_one(operations: list[AnyOperation]) -> None:
    told: list[object] = []
    for each in (operations, one_by_one(operations)):
        core = active_core(Committing(SHARDS), LIMITS, LIVE, shards=SHARDS)
        core.update(UPDATED, 36, b"", subject=7, tx=9)
        try:
            core.append_all(each, 8)
        except JournalError as error:
            told.append(type(error))
        else:
            core.transactions.commit(8)
            core.step(0.0)
            told.append([core.is_taken(record_id) for record_id in (*LIVE, *(make_id(n, 4) for n in range(1, 50)))])
    assert told[0] == told[1]


def test_a_run_that_fills_frames_is_in_those_of_its_operations_one_by_one() -> None:
    ids = [make_id(number, 4) for number in range(5, 1000)]
    run: list[AnyOperation] = [
        NewRecords(1, ids, [b"x" * (number % 90) for number in range(len(ids))], 2, 7),
        (UPDATE, ids[0], 5, b"x" * 9_000, False, 0),
        DeletedRecords(ids, 36, b"holder", 7),
    ]
    found = taken(run)
    assert found is not None
    assert len(found[0]) > 3
    assert found == taken(one_by_one(run))


def test_records_in_columns_are_accepted_and_refused() -> None:
    fits = NewRecords(1, [make_id(5, 4), make_id(6, 4)], [b"a", _LONG[0]], 2, 7)
    assert taken([fits]) is not None
    assert taken([fits, fits]) is None
    for refused in ([LIVE[0]], [IN_TRANSACTION], [make_id(5, 0)] * 2):
        assert taken([fits, NewRecords(1, refused, [b""] * len(refused), 2, 7)]) is None
    assert taken([NewRecords(1, [make_id(5, 4)], [_LONG[-1]], 2, 7)]) is None
    gone = DeletedRecords(fits.ids, 36, b"", 7)
    assert taken([fits, gone]) is not None
    assert taken([fits, gone, gone]) is None
    for kept in ([make_id(9, 4)], [IN_TRANSACTION], [UPDATED], [LIVE[0]] * 2, [LIVE[0], LIVE[1]]):
        assert taken([fits, DeletedRecords(kept, 36, b"", 7)]) is None
    assert taken([fits, DeletedRecords(fits.ids, 36, _LONG[-2], 7)]) is not None
    assert taken([fits, DeletedRecords(fits.ids, 36, _LONG[-1], 7)]) is None
