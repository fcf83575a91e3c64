"""Values of table rows that are made of an operation: the operation's bytes with a position appended.

Hot path: protobuf messages may be concatenated, and Record, Update and Staged share Operation's field numbers. So a row
costs one serialisation and one `struct.pack`: 0.2 microseconds, against 1.3 for building the row's own message.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from typing import Any

from journal.v1.journal_pb2 import ADD, UPDATE, Operation, Update
from journal.wire.operations import two_byte_varint, varint

_POSITION_TAG = 16 << 3 | 2
_OFFSET_TAG = 1 << 3 | 1
_INDEX_TAG = 2 << 3 | 5
_ORDINAL_TAG = 3 << 3 | 5


_PLAIN = struct.Struct("<HBBQBI")
_SETTLED = struct.Struct("<HBBQBIBI")
_TAG = two_byte_varint(_POSITION_TAG)
_PLAIN_BYTES = 14
_SETTLED_BYTES = 19
_PLAIN_HEAD = _TAG | _PLAIN_BYTES << 16 | _OFFSET_TAG << 24

_ID_TAG, _KIND_TAG, _DATA_TAG = 2 << 3 | 1, 3 << 3, 4 << 3 | 2
_RECORD_HEAD, _UPDATE_HEAD = (bytes((1 << 3, type_, _ID_TAG)) for type_ in (ADD, UPDATE))
_ROW_ID_TAG, _ELEMENT_TAG = 1 << 3 | 1, 2 << 3 | 2
_BEFORE_DATA_BYTES = struct.calcsize("<3sqBB")
_BEFORE_ELEMENT_BYTES = struct.calcsize("<Bq")
_NAME_BYTES = 8
_LAYOUTS_MAX = 4096
"""Number of row lengths whose layout is remembered, for each of the two tables."""

_Layout = tuple[Callable[[bytes], tuple[Any, ...]], bytes, bytes]
"""The layout of rows of one length: a function that takes a row apart, the bytes that stand before the element, and
those before the data."""


def mark_name(row: bytes) -> int:
    """A mark's name, made from its row: the next mark in the table refers to it by this name."""
    return int.from_bytes(blake2b(row, digest_size=_NAME_BYTES).digest(), "big")


def position_bytes(offset: int, index: int, ordinal: int) -> bytes:
    """A position as the bytes of field 16 of Record, Update and Staged."""
    if ordinal:
        return _SETTLED.pack(_TAG, _SETTLED_BYTES, _OFFSET_TAG, offset, _INDEX_TAG, index, _ORDINAL_TAG, ordinal)
    return _PLAIN.pack(_TAG, _PLAIN_BYTES, _OFFSET_TAG, offset, _INDEX_TAG, index)


def position_of(value: bytes) -> tuple[int, int, int]:
    """The position (offset, index, ordinal) in the row of an operation."""
    position = Update.FromString(value).position
    return position.offset, position.index, position.ordinal


def position_in_frame(offset: int) -> Callable[[int], bytes]:
    """A function that gives `position_bytes` of a frame's operations by their index. Hot path."""
    return partial(_PLAIN.pack, _TAG, _PLAIN_BYTES, _OFFSET_TAG, offset, _INDEX_TAG)


def plain_record(value: bytes) -> tuple[int, int, bytes, tuple[int, int, int]] | None:
    """Id, kind, data and position of a Record row in the layout that the engine writes most; None for any other layout.

        08 01  11 ID*8  18 KK  22 DD [DD]  DATA  POSITION

    In this layout a row's length tells the length of its data. So one `struct.unpack` takes the row apart, in a fifth
    of the time that the message with its fields takes.
    """
    layout = _records.get(len(value)) or _note(_records, len(value), _record_layout)
    if layout is None:
        return None
    unpack, _, before = layout
    head, record_id, kind_tag, kind, before_data, data, tag, offset, index_tag, index = unpack(value)
    if (
        head != _RECORD_HEAD
        or kind_tag != _KIND_TAG
        or kind > 0x7F
        or before_data != before
        or tag != _PLAIN_HEAD
        or index_tag != _INDEX_TAG
    ):
        return None
    return record_id, kind, data, (offset, index, 0)


def only_update(value: bytes) -> tuple[int, bytes, tuple[int, int, int]] | None:
    """The kind, data and position of the update in an Updates row that has one update, which is not replaceable and has
    no subject. Such a row has this layout:

        09 ID*8  12 LL [LL]  08 02  11 ID*8  18 KK  22 DD [DD]  DATA  POSITION

    The result is None for a row of any other layout.
    """
    layout = _updates.get(len(value)) or _note(_updates, len(value), _update_layout)
    if layout is None:
        return None
    unpack, before_it, before = layout
    row_tag, element, head, kind_tag, kind, before_data, data, tag, offset, index_tag, index = unpack(value)
    if (
        row_tag != _ROW_ID_TAG
        or element != before_it
        or head != _UPDATE_HEAD
        or kind_tag != _KIND_TAG
        or kind > 0x7F
        or before_data != before
        or tag != _PLAIN_HEAD
        or index_tag != _INDEX_TAG
    ):
        return None
    return kind, data, (offset, index, 0)


def _record_layout(row_bytes: int) -> _Layout | None:
    data = _delimited(row_bytes - _BEFORE_DATA_BYTES - _PLAIN.size, _DATA_TAG)
    if data is None:
        return None
    before, size = data
    return struct.Struct(f"<3sqBB{len(before)}s{size}sIQBI").unpack, b"", before


def _update_layout(row_bytes: int) -> _Layout | None:
    element = _delimited(row_bytes - _BEFORE_ELEMENT_BYTES, _ELEMENT_TAG)
    data = None if element is None else _delimited(element[1] - _BEFORE_DATA_BYTES - _PLAIN.size, _DATA_TAG)
    if element is None or data is None:
        return None
    before, size = data
    unpack = struct.Struct(f"<B8x{len(element[0])}s3s8xBB{len(before)}s{size}sIQBI").unpack
    return unpack, element[0], before


def _delimited(size: int, tag: int) -> tuple[bytes, int] | None:
    """The first bytes (tag and length) and the content's length of a field that has this many bytes in all; None if no
    field can have them."""
    for length_bytes in (1, 2):
        length = size - 1 - length_bytes
        if length >= 0 and len(varint(length)) == length_bytes:
            return bytes((tag,)) + varint(length), length
    return None


_records: dict[int, _Layout] = {}
_updates: dict[int, _Layout] = {}


def _note(layouts: dict[int, _Layout], row_bytes: int, layout_of: Callable[[int], _Layout | None]) -> _Layout | None:
    """The layout of rows of this length, which is remembered; None if no row of this length has it."""
    layout = layout_of(row_bytes)
    if layout is not None:
        if len(layouts) == _LAYOUTS_MAX:
            layouts.clear()
        layouts[row_bytes] = layout
    return layout


def unstaged(op: Operation) -> Operation:
    """The plain operation that takes effect when the transaction of a staged one commits."""
    plain = Operation()
    plain.CopyFrom(op)
    plain.ClearField("tx")
    return plain


def unstaged_row(value: bytes) -> Operation:
    """The plain operation in the row of a staged one, which has the operation's fields and a few more. Raises
    DecodeError."""
    plain = Operation.FromString(value)
    plain.DiscardUnknownFields()
    plain.ClearField("tx")
    return plain
