"""Rows of the one layout are the messages that docs/FORMAT.md says they are, and any other layout reads the same."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import example, given
from hypothesis import strategies as st

from journal.errors import RowError
from journal.fold.updates import UpdateTable
from journal.limits import ID_MAX, KIND_MAX, SUBJECT_MAX
from journal.v1.journal_pb2 import ADD, UPDATE, Operation, Position, Record, Update, Updates
from journal.wire.rows import LoadedUpdate, record_of, row_of, update_of, updates_of
from tests.support.rows import decode_row

ids = st.integers(1, ID_MAX)
kinds = st.integers(0, KIND_MAX)
subjects = st.integers(0, SUBJECT_MAX)
sizes = st.one_of(st.integers(0, 300), st.sampled_from([127, 128, 129, 16_383, 16_384, 16_385, 70_000]))
places = st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))


def position(place: tuple[int, int, int]) -> Position:
    offset, index, ordinal = place
    return Position(offset=offset, index=index, ordinal=ordinal)


@given(ids, kinds, sizes, places)
@example(1, 0, 0, (0, 0, 0))
def test_the_row_of_a_record_is_its_message(record_id: int, kind: int, size: int, place: tuple[int, int, int]) -> None:
    data = b"d" * size
    row = row_of(Operation(type=ADD, id=record_id, kind=kind, data=data), *place)
    message = Record(type=ADD, id=record_id, kind=kind, data=data, position=position(place))
    assert Record.FromString(row) == message
    assert record_of(row) == record_of(message.SerializeToString()) == (record_id, kind, data, place)


@given(ids, kinds, sizes, st.booleans(), subjects, places)
@example(1, 0, 0, False, 0, (0, 0, 0))
def test_the_row_of_an_update_is_its_message(
    record_id: int, kind: int, size: int, replaceable: bool, subject: int, place: tuple[int, int, int]
) -> None:
    data = b"u" * size
    op = Operation(type=UPDATE, id=record_id, kind=kind, data=data, replaceable=replaceable, subject=subject)
    row = row_of(op, *place)
    message = Update.FromString(op.SerializeToString())
    message.position.CopyFrom(position(place))
    assert Update.FromString(row) == message
    expected = LoadedUpdate(kind, data, replaceable, subject, place)
    assert update_of(row) == update_of(message.SerializeToString()) == expected


@given(
    st.lists(st.tuples(kinds, sizes, st.booleans(), subjects), min_size=1, max_size=3, unique_by=lambda one: one[0]),
    ids,
    st.integers(0, 2**63 - 1),
)
@example([(1, 1, False, 0)], 1, 0)
def test_an_updates_row_is_read_alike_in_both_layouts(
    updates: list[tuple[int, int, bool, int]], record_id: int, offset: int
) -> None:
    table = UpdateTable({}, 1 << 20)
    expected: list[LoadedUpdate] = []
    for index, (kind, size, replaceable, subject) in enumerate(updates):
        op = Operation(type=UPDATE, id=record_id, kind=kind, data=b"u" * size, replaceable=replaceable, subject=subject)
        table.put(record_id, row_of(op, offset, index, 0), index == 0, (kind, subject) if replaceable else None)
        expected.append(LoadedUpdate(kind, op.data, replaceable, subject, (offset, index, 0)))
    ((_, row),) = table.changes()
    assert row is not None
    assert updates_of(row) == updates_of(Updates.FromString(row).SerializeToString()) == expected


@given(st.lists(st.tuples(st.booleans(), st.sampled_from([0, 5, 90, 110, 111, 112, 130, 16_300, 16_400])), max_size=6))
def test_a_row_that_grows_over_checkpoints_is_that_of_one_checkpoint(updates: list[tuple[bool, int]]):
    base: dict[bytes, bytes] = {}
    stepwise, at_once = UpdateTable(base, 40_000), UpdateTable({}, 40_000)
    for index, (replaceable, size) in enumerate(updates):
        op = Operation(type=UPDATE, id=1024, kind=7, data=b"u" * size, replaceable=replaceable, subject=replaceable * 3)
        for table, fresh in ((stepwise, index == 0), (at_once, True)):
            value = row_of(op, index, 0, 0)
            table.put(1024, value, fresh, (7, 3) if replaceable else None)
        base.update((key, value) for key, value in stepwise.changes() if value is not None)
        stepwise = UpdateTable(base, 40_000)  # nothing is kept in memory: the row is read back
    expected = dict(at_once.changes())
    assert base.keys() == expected.keys()
    for key, row in base.items():
        assert decode_row(key, row) == decode_row(key, expected[key] or b"")


@given(st.binary(max_size=80))
def test_bytes_that_are_no_row_are_told_as_such_or_read_as_the_message_reads_them(raw: bytes) -> None:
    for read in (record_of, update_of, updates_of):
        with suppress(RowError):
            read(raw)
