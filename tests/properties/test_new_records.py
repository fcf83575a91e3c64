"""New records in columns are the same adds and updates one by one: accepted or refused alike, in the same frames."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from journal.acceptance import Acceptance, Append, NewRecords, PlainOperation
from journal.errors import JournalError
from journal.group import FrameNumbers, Group, Origin
from journal.kafka.ports import Consumed, Sent
from journal.limits import Limits
from journal.taking_in import TakingIn
from journal.v1.journal_pb2 import ADD, DELETE, UPDATE
from journal.wire.ids import make_id

SHARDS = 3
LIMITS = Limits(frame_bytes_max=40_000, data_bytes_max=20_000)
CONSUMED = Consumed("group", {("orders", 0): 7})
LIVE = [make_id(number, shard) for number in (1, 2) for shard in (0, 4)]
IN_TRANSACTION = make_id(3, 4)
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
some_plain = st.one_of(
    st.builds(lambda each, kind: (UPDATE, each, kind, b"", False, 0), st.sampled_from(LIVE), st.integers(0, 255)),
    st.builds(lambda each: (DELETE, each, 0, b"", False, 0), st.sampled_from(LIVE)),
    st.builds(lambda number, each: (ADD, make_id(number, 1), 1, each, False, 0), st.integers(1, 40), data),
)


def one_by_one(operations: Sequence[PlainOperation | NewRecords]) -> list[PlainOperation]:
    found: list[PlainOperation] = []
    for each in operations:
        if isinstance(each, NewRecords):
            for record_id, record in zip(each.ids, each.data, strict=True):
                found.append((ADD, record_id, each.kind, record, False, 0))
                found.append((UPDATE, record_id, each.update_kind, b"", False, each.subject))
        else:
            found.append(each)
    return found


def acceptance() -> Acceptance:
    made = Acceptance(SHARDS, LIMITS)
    made.load_records(LIVE)
    made.operate(Append(IN_TRANSACTION % SHARDS, ADD, IN_TRANSACTION, 1, b"", tx=9))
    return made


def taken(operations: Sequence[PlainOperation | NewRecords]) -> tuple[list[Sent], int, int] | None:
    """The frames of these, and what the group counts; None: refused. What is there is as it was, then."""
    accepting = acceptance()
    try:
        group: Group = TakingIn(SHARDS, LIMITS, threading.Lock()).group(accepting, operations, CONSUMED, ())
    except JournalError:
        assert accepting.records == len(LIVE)
        assert all(each in accepting for each in LIVE)
        return None
    group.seal(Origin(b"j" * 16, 3, "node"), FrameNumbers((0,) * SHARDS, 0))
    return group.records("wal"), group.operations, group.bytes


@given(st.lists(st.one_of(some_new, some_plain), max_size=6))
def test_new_records_are_adds_and_updates_one_by_one(operations: list[PlainOperation | NewRecords]) -> None:
    assert taken(operations) == taken(one_by_one(operations))


def test_both_ways_are_seen() -> None:
    fits = NewRecords(1, [make_id(5, 4), make_id(6, 4)], [b"a", _LONG[0]], 2, 7)
    assert taken([fits]) is not None
    assert taken([fits, fits]) is None
    for refused in ([LIVE[0]], [IN_TRANSACTION], [make_id(5, 0)] * 2):
        assert taken([fits, NewRecords(1, refused, [b""] * len(refused), 2, 7)]) is None
    assert taken([NewRecords(1, [make_id(5, 4)], [_LONG[-1]], 2, 7)]) is None
