"""A frame is sorted alike however it is laid out, and what is wrong with it is found alike."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from journal.errors import FrameError
from journal.fold.sorted_frame import SortedFrame
from journal.fold.sorting import sort_frame
from journal.v1.journal_pb2 import Frame
from journal.wire.frames import decode_frame
from tests.support.as_written import as_written
from tests.support.build import JOURNAL, add, commit, delete, frame, marker, replace, update

OFFSET = 2**40 + 7
LENGTHS = [0, 1, 39, 127, 128, 129, 16_382, 16_383, 16_384, 16_385]
"""Around these the number that says it takes one more byte, of the data or of all the operation."""

ids = st.one_of(st.integers(1, 5), st.sampled_from([2**62, 2**63 - 1, 0, -1]))
kinds = st.one_of(st.integers(1, 5), st.sampled_from([0, 127, 128, 255]))
subjects = st.sampled_from([0, 1, 2**63 - 1, -1])
data = st.one_of(
    st.binary(max_size=40),
    st.builds(lambda length, less: b"x" * max(0, length - less), st.sampled_from(LENGTHS), st.integers(0, 40)),
)
plain = st.one_of(
    st.builds(lambda id, data, kind: add(id, data, kind=kind), ids, data, kinds),
    st.builds(lambda id, data, kind: update(id, data, kind=kind), ids, data, kinds),
    st.builds(lambda id, data, kind, subject: update(id, data, kind=kind, subject=subject), ids, data, kinds, subjects),
    st.builds(delete, ids),
)
others = st.one_of(
    st.builds(lambda id, data, subject: replace(id, data, subject=subject), ids, data, subjects),
    st.builds(lambda id, data: add(id, data, tx=7), ids, data),
    st.builds(lambda id, subject: update(id, subject=subject, tx=7), ids, subjects),
    st.just(commit(7, 1)),
    st.just(marker()),
)
operations = st.one_of(st.lists(plain, max_size=6), st.lists(st.one_of(plain, plain, others), max_size=6))
frames = st.builds(
    lambda operations, issued, node, last: frame(3, *operations, issued=issued, node=node, last=last),
    operations,
    st.sampled_from([0, 1, 2**40, -1]),
    st.sampled_from(["", "node-1", "x" * 200]),
    st.booleans(),
)


def found(raw: bytes) -> SortedFrame | str:
    try:
        return sort_frame(raw, OFFSET, JOURNAL, 0, 1)
    except FrameError as error:
        return error.reason


def found_by_message(raw: bytes) -> SortedFrame | str:
    """What it is by its message, laid out as no writer does: what there is of a header stands behind its operations."""
    try:
        value = decode_frame(raw, JOURNAL, 0, 1)
    except FrameError as error:
        return error.reason
    head, body = Frame(), Frame()
    head.CopyFrom(value)
    head.ClearField("operations")
    body.operations.extend(value.operations)
    sorted_frame = sort_frame(body.SerializeToString() + head.SerializeToString(), OFFSET, JOURNAL, 0, 1)
    return sorted_frame._replace(bytes_in_wal=len(raw))


@given(frames)
def test_the_writers_layout_is_as_good_as_a_messages(value: Frame) -> None:
    written, serialised = as_written(value), value.SerializeToString()
    assert Frame.FromString(written) == value
    by_message = found_by_message(written)
    assert found(written) == by_message
    if isinstance(by_message, SortedFrame):
        assert found(serialised) == by_message._replace(bytes_in_wal=len(serialised))
    else:
        assert found(serialised) == by_message


@given(frames, st.data())
def test_a_damaged_frame_is_what_its_message_is(value: Frame, draw: st.DataObject) -> None:
    raw = bytearray(as_written(value))
    for _ in range(draw.draw(st.integers(1, 3))):
        at = draw.draw(st.integers(0, len(raw) - 1))
        match draw.draw(st.sampled_from(["changed", "changed", "cut", "gone", "twice"])):
            case "changed":
                raw[at] = draw.draw(st.one_of(st.integers(0, 255), st.sampled_from(sorted(set(raw)))))
            case "cut" if at:
                del raw[at:]
            case "gone" if len(raw) > 1:
                del raw[at]
            case _:
                raw[at:at] = raw[at : at + draw.draw(st.integers(1, 30))]
    assert found(bytes(raw)) == found_by_message(bytes(raw))


def test_a_frame_with_any_byte_changed_or_missing_is_what_its_message_is() -> None:
    value = frame(3, add(5, b"data"), update(4, b"x" * 130, subject=1), delete(3), update(2), add(1, b"a"))
    raw = as_written(value)
    assert isinstance(found(raw), SortedFrame)
    for at in range(len(raw)):
        for bit in range(8):
            other = raw[:at] + bytes([raw[at] ^ 1 << bit]) + raw[at + 1 :]
            assert found(other) == found_by_message(other), (at, bit)
        for other in (raw[:at], raw[:at] + raw[at + 1 :]):
            assert found(other) == found_by_message(other), at


def test_what_only_looks_like_the_writers_layout_is_what_its_message_is() -> None:
    """The data's length in one byte, and all that would be data by the first two of them: five, and a field unknown."""
    data = b"\x01abcd" + b"\x7a\x7f" + b"y" * 127
    add_of_it = b"\x08\x01\x11" + (9).to_bytes(8, "little") + b"\x18\x81\x00\x22\x05" + data
    head = as_written(frame(3)) + b"\x58\x01"
    raw = head + b"\x62" + bytes((len(add_of_it) & 0x7F | 0x80, len(add_of_it) >> 7)) + add_of_it
    (op,) = decode_frame(raw, JOURNAL, 0, 1).operations
    assert op.data == b"\x01abcd"
    assert found(raw) == found_by_message(raw)


@given(frames, st.sampled_from([1, -1]))
def test_a_frame_with_another_count_than_it_says_is_none(value: Frame, more: int) -> None:
    value.count = max(0, value.count + more)
    assert found(as_written(value)) == found_by_message(as_written(value))
