"""Rows read without a message hold what the message holds, or are left to it."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from journal.fold.updates import UpdateTable
from journal.limits import ID_MAX, KIND_MAX, SUBJECT_MAX
from journal.v1.journal_pb2 import ADD, UPDATE, Operation, Record, Updates
from journal.wire.rows import only_update, plain_record, position_bytes
from tests.support.rows import decode_row

ids = st.integers(1, ID_MAX)
kinds = st.integers(0, KIND_MAX)
sizes = st.one_of(st.integers(0, 300), st.sampled_from([127, 128, 129, 16_383, 16_384, 16_385, 70_000]))
offsets = st.integers(0, 2**63 - 1)


@given(ids, kinds, sizes, offsets, st.integers(0, 2**32 - 1), st.integers(0, 3))
@example(1, 1, 1, 0, 0, 0)
def test_a_record_row_is_read_as_its_message_or_not_at_all(
    record_id: int, kind: int, size: int, offset: int, index: int, ordinal: int
):
    op = Operation(type=ADD, id=record_id, kind=kind, data=b"d" * size)
    row = op.SerializeToString() + position_bytes(offset, index, ordinal)
    message = Record.FromString(row)
    found = plain_record(row)
    if found is not None:
        at = message.position
        assert found == (message.id, message.kind, message.data, (at.offset, at.index, at.ordinal))
    assert (found is not None) == (0 < size < 16_384 and 0 < kind < 128 and not ordinal)


@given(
    st.lists(st.tuples(kinds, sizes, st.booleans(), st.integers(0, SUBJECT_MAX)), min_size=1, max_size=2), ids, offsets
)
@example([(1, 1, False, 0)], 1, 0)
def test_an_updates_row_is_read_as_its_message_or_not_at_all(
    updates: list[tuple[int, int, bool, int]], record_id: int, offset: int
):
    table = UpdateTable({}, 1 << 20)
    for index, (kind, size, replaceable, subject) in enumerate(updates):
        op = Operation(type=UPDATE, id=record_id, kind=kind, data=b"u" * size, replaceable=replaceable, subject=subject)
        value = op.SerializeToString() + position_bytes(offset, index, 0)
        table.put(record_id, value, True, (kind, subject) if replaceable else None)
    ((_, row),) = table.changes()
    assert row is not None
    found = only_update(row)
    if found is not None:
        (only,) = Updates.FromString(row).updates
        assert found == (only.kind, only.data, (only.position.offset, only.position.index, only.position.ordinal))
        assert (only.replaceable, only.subject) == (False, 0)


@given(st.lists(st.tuples(st.booleans(), st.sampled_from([0, 5, 90, 110, 111, 112, 130, 16_300, 16_400])), max_size=6))
def test_a_row_that_grows_over_checkpoints_is_that_of_one_checkpoint(updates: list[tuple[bool, int]]):
    base: dict[bytes, bytes] = {}
    stepwise, at_once = UpdateTable(base, 40_000), UpdateTable({}, 40_000)
    for index, (replaceable, size) in enumerate(updates):
        op = Operation(type=UPDATE, id=1024, kind=7, data=b"u" * size, replaceable=replaceable, subject=replaceable * 3)
        for table, fresh in ((stepwise, index == 0), (at_once, True)):
            value = op.SerializeToString() + position_bytes(index, 0, 0)
            table.put(1024, value, fresh, (7, 3) if replaceable else None)
        base.update((key, value) for key, value in stepwise.changes() if value is not None)
        stepwise = UpdateTable(base, 40_000)  # nothing is kept in memory: the row is read back
    expected = dict(at_once.changes())
    assert base.keys() == expected.keys()
    for key, row in base.items():
        assert decode_row(key, row) == decode_row(key, expected[key] or b"")


@given(st.binary(max_size=80))
def test_bytes_that_are_no_row_are_left_to_the_message(raw: bytes):
    for read in (plain_record, only_update):
        assert read(raw) is None or len(raw) > 25
