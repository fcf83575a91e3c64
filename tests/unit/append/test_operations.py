"""Operations packed without a message are what protobuf makes of them."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from journal.limits import ID_MAX, KIND_MAX, SUBJECT_MAX
from journal.v1.journal_pb2 import ADD, DELETE, MARKER, UPDATE, Frame, Operation, OperationType
from journal.wire.operations import message_element, operation_parts, update_head


def operation_bytes(
    type_: OperationType.ValueType,
    record_id: int,
    kind: int,
    data: bytes,
    replaceable: bool = False,
    subject: int = 0,
) -> bytes:
    return b"".join(operation_parts(type_, record_id, kind, data, replaceable, subject))


lengths = st.one_of(
    st.integers(0, 300), st.sampled_from([16_300, 16_350, 16_354, 16_355, 16_356, 16_383, 16_384, 70_000])
)


@given(
    st.sampled_from([ADD, UPDATE, MARKER]),
    st.integers(0, ID_MAX),
    st.integers(0, KIND_MAX),
    lengths,
    st.booleans(),
    st.integers(0, SUBJECT_MAX),
)
@example(ADD, ID_MAX, KIND_MAX, 127, False, 0)
@example(UPDATE, 1, 128, 128, True, SUBJECT_MAX)
def test_a_packed_operation_reads_as_the_message_it_stands_for(
    type_: OperationType.ValueType, record_id: int, kind: int, length: int, replaceable: bool, subject: int
):
    data = b"x" * length
    packed = operation_bytes(type_, record_id, kind, data, replaceable, subject)
    assert list(Frame.FromString(packed).operations) == [
        Operation(type=type_, id=record_id, kind=kind, data=data, replaceable=replaceable, subject=subject)
    ]


@given(st.integers(1, ID_MAX))
def test_a_packed_delete_has_an_id_and_nothing_else(record_id: int):
    packed = operation_bytes(DELETE, record_id, 0, b"")
    assert list(Frame.FromString(packed).operations) == [Operation(type=DELETE, id=record_id)]
    assert len(packed) == 13


@given(st.integers(1, ID_MAX), st.integers(0, KIND_MAX), st.integers(0, SUBJECT_MAX))
def test_a_packed_update_without_data_reads_as_the_message_it_stands_for(record_id: int, kind: int, subject: int):
    packed = update_head(record_id, kind, subject)
    assert list(Frame.FromString(packed).operations) == [
        Operation(type=UPDATE, id=record_id, kind=kind, subject=subject)
    ]
    if subject:
        assert packed == operation_bytes(UPDATE, record_id, kind, b"", False, subject)


@given(st.integers(1, ID_MAX), st.integers(0, 1000), lengths)
def test_elements_follow_each_other_in_a_frame(record_id: int, covers: int, length: int):
    settling = Operation(type=ADD, id=record_id, tx=7, covers=covers, data=b"y" * length)
    packed = message_element(settling) + operation_bytes(DELETE, record_id, 0, b"")
    assert list(Frame.FromString(packed).operations) == [settling, Operation(type=DELETE, id=record_id)]
