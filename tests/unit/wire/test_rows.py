"""Row values are messages with the fields of an operation and its position."""

from __future__ import annotations

import pytest

from journal.limits import FRAME_OVERHEAD_BYTES
from journal.v1.journal_pb2 import Position, Record, Staged, Update
from journal.wire.keys import staged_key
from journal.wire.rows import position_bytes, row_of, unstaged, unstaged_row
from tests.support.build import add, replace, update

PLACES = [(0, 0, 0), (2**63 - 1, 2**32 - 1, 0), (5, 0, 1), (2**63 - 1, 2**32 - 1, 2**32 - 1)]


@pytest.mark.parametrize("place", PLACES)
def test_the_row_of_an_operation_is_the_message_with_its_fields_and_position(place: tuple[int, int, int]) -> None:
    offset, index, ordinal = place
    position = Position(offset=offset, index=index, ordinal=ordinal)
    added, updated = add(1, b"data", kind=9), replace(1, b"data", subject=3)
    assert Record.FromString(row_of(added, *place)) == Record(
        type=added.type, id=1, kind=9, data=b"data", position=position
    )
    assert Update.FromString(row_of(updated, *place)) == Update(
        type=updated.type, id=1, kind=2, data=b"data", replaceable=True, subject=3, position=position
    )


def test_a_row_adds_less_to_its_operation_than_a_frame_does_so_that_it_fits_a_kafka_record_too() -> None:
    shard = Staged(shard=1023).SerializeToString()
    key = staged_key(2**63 - 1, 1023, 2**63 - 1, 2**32 - 1)
    assert len(position_bytes(2**63 - 1, 2**32 - 1, 2**32 - 1)) + len(shard) + len(key) <= FRAME_OVERHEAD_BYTES


def test_a_staged_row_read_again_is_the_operation_without_its_transaction() -> None:
    op = update(1, b"data", subject=4, tx=7)
    row = op.SerializeToString() + position_bytes(2, 3, 0) + Staged(shard=5).SerializeToString()
    plain = update(1, b"data", subject=4)
    assert Staged.FromString(row).tx == op.tx == 7
    assert unstaged_row(row) == unstaged(op) == plain
    assert unstaged_row(row).SerializeToString() == unstaged(op).SerializeToString() == plain.SerializeToString()
