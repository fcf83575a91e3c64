"""Values of table rows that are made of an operation: its bytes with a position appended.

Hot path: protobuf messages may be concatenated, and Record, Update and Staged share Operation's field numbers, so a row
costs one serialisation and one struct.pack (0.2 microseconds against 1.3 for building the row's own message).
"""

from __future__ import annotations

import struct

from google.protobuf.message import DecodeError, Message

from journal.errors import RowError
from journal.v1.journal_pb2 import (
    ADD,
    UPDATE,
    Mark,
    Operation,
    Record,
    Skipped,
    Staged,
    Transaction,
    Update,
    Updates,
)
from journal.wire.keys import RowType, row_type
from journal.wire.operations import two_byte_varint

_POSITION_TAG = 16 << 3 | 2
_OFFSET_TAG = 1 << 3 | 1
_INDEX_TAG = 2 << 3 | 5
_ORDINAL_TAG = 3 << 3 | 5


_PLAIN = struct.Struct("<HBBQBI")
_SETTLED = struct.Struct("<HBBQBIBI")
_TAG = two_byte_varint(_POSITION_TAG)
_PLAIN_BYTES = 14
_SETTLED_BYTES = 19
_PLAIN_SIZE = _PLAIN.size
_PLAIN_HEAD = _TAG | _PLAIN_BYTES << 16 | _OFFSET_TAG << 24
_unpack_end = struct.Struct("<IQBI").unpack_from

_ID_TAG, _KIND_TAG, _DATA_TAG = 2 << 3 | 1, 3 << 3, 4 << 3 | 2
_RECORD_TYPE, _UPDATE_TYPE = 1 << 3 | ADD << 8, 1 << 3 | UPDATE << 8
_ROW_ID_TAG, _ELEMENT_TAG = 1 << 3 | 1, 2 << 3 | 2
_record_head = struct.Struct("<HBqBBBB").unpack_from
_RECORD_HEAD_BYTES = struct.calcsize("<HBqBBBB")
_ELEMENT_AT = struct.calcsize("<Bq")
_UPDATE_HEAD_BYTES = _ELEMENT_AT + 3 + _RECORD_HEAD_BYTES

_MESSAGES: dict[RowType, type[Message]] = {
    RowType.RECORD: Record,
    RowType.UPDATES: Updates,
    RowType.SPILLED: Update,
    RowType.TRANSACTION: Transaction,
    RowType.STAGED: Staged,
    RowType.MARK: Mark,
    RowType.SKIPPED: Skipped,
}


def position_bytes(offset: int, index: int, ordinal: int) -> bytes:
    """Field 16 (position) of Record, Update and Staged, serialised."""
    if ordinal:
        return _SETTLED.pack(_TAG, _SETTLED_BYTES, _OFFSET_TAG, offset, _INDEX_TAG, index, _ORDINAL_TAG, ordinal)
    return _PLAIN.pack(_TAG, _PLAIN_BYTES, _OFFSET_TAG, offset, _INDEX_TAG, index)


def plain_record(
    value: bytes, start: int = 0, head: int = _RECORD_TYPE
) -> tuple[int, int, bytes, tuple[int, int, int]] | None:
    """Id, kind, data and position of a Record row as the engine writes most; None if it is laid out otherwise.

        08 01  11 ID*8  18 KK  22 DD [DD]  DATA  POSITION

    A third of the time that the message takes with its fields. With `start` and `head`: of another operation that a row
    ends with.
    """
    end = start + _RECORD_HEAD_BYTES
    if len(value) <= end:
        return None
    type_, id_tag, record_id, kind_tag, kind, data_tag, size = _record_head(value, start)
    start = end
    if size > 0x7F:
        size = size & 0x7F | value[start] << 7
        start += 1
    end = start + size
    if (
        type_ != head
        or id_tag != _ID_TAG
        or kind_tag != _KIND_TAG
        or data_tag != _DATA_TAG
        or kind > 0x7F
        or len(value) != end + _PLAIN_SIZE
    ):
        return None
    tag, offset, index_tag, index = _unpack_end(value, end)
    if tag != _PLAIN_HEAD or index_tag != _INDEX_TAG:
        return None
    return record_id, kind, value[start:end], (offset, index, 0)


def only_update(value: bytes) -> tuple[int, bytes, tuple[int, int, int]] | None:
    """Kind, data and position of the one update, neither replaceable nor with a subject, that an Updates row has.

        09 ID*8  12 LL [LL]  08 02  11 ID*8  18 KK  22 DD [DD]  DATA  POSITION

    None if the row is laid out otherwise: longer, or with more in it.
    """
    if len(value) <= _UPDATE_HEAD_BYTES or value[0] != _ROW_ID_TAG or value[_ELEMENT_AT] != _ELEMENT_TAG:
        return None
    length, start = value[_ELEMENT_AT + 1], _ELEMENT_AT + 2
    if length > 0x7F:
        length = length & 0x7F | value[start] << 7
        start += 1
    if len(value) != start + length:
        return None
    found = plain_record(value, start, _UPDATE_TYPE)
    return None if found is None else found[1:]


def unstaged(op: Operation | Staged) -> Operation:
    """The plain operation that a staged one becomes when its transaction commits."""
    return Operation(type=op.type, id=op.id, kind=op.kind, data=op.data, replaceable=op.replaceable, subject=op.subject)


def decode_row(key: bytes, value: bytes) -> Message:
    """The message of a row, by its key. Raises RowError for bytes that are not what the key says."""
    try:
        return _MESSAGES[row_type(key)].FromString(value)
    except DecodeError as error:
        raise RowError(f"row {key.hex()} does not parse: {error}") from None
