"""Sorts frames from their bytes if all their operations have the layout that the writer uses most
(`journal.wire.operations`).

    62 LL LL  08 TT  11 ID*8  18 KK 00  22 DD DD  DATA                          an add, or a plain update
    62 LL LL  08 02  11 ID*8  18 KK 00  28 00  31 SUBJECT*8  22 DD DD  DATA     an update with a subject
    62 0B     08 03  11 ID*8                                                    a delete

Each add and update becomes a row, laid out as its message would be serialised, with the position behind it:

    08 TT  11 ID*8  18 KK  22 DD [DD]  DATA  [31 SUBJECT*8]  POSITION

Hot path: an operation costs two or three calls. By its message it takes twice the time, to be parsed, checked and
serialised. A frame with anything else in it, or with anything wrong, is left to the message.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache

from journal.fold.sorted_frame import SortedRun, empty_run
from journal.v1.journal_pb2 import ADD, DELETE, UPDATE
from journal.wire.ids import SHARD_MASK
from journal.wire.operations import two_byte_varint, varint

_ELEMENT, _ID, _KIND, _DATA, _REPLACEABLE, _SUBJECT = 0x62, 0x11, 0x18, 0x22, 0x28, 0x31
_HEAD = struct.Struct("<BHHBqBHBH")
_HEAD_BYTES = _HEAD.size
_ABOUT = struct.Struct("<HBqBH")
_ABOUT_AT = struct.calcsize("<BHHBqBH")
_ABOUT_BYTES = _ABOUT_AT + _ABOUT.size
_UP_TO_LENGTH_BYTES = struct.calcsize("<BH")
_DELETE = struct.Struct("<5sq")
_DELETE_BYTES = _DELETE.size
_DELETE_LENGTH = 11
_DELETE_HEAD = bytes((_ELEMENT, _DELETE_LENGTH, 8, DELETE, _ID))
_OPENS_ADD, _OPENS_UPDATE = 8 | ADD << 8, 8 | UPDATE << 8
_KIND_MIN, _KIND_MAX = two_byte_varint(1), two_byte_varint(127)
"""The kinds for which this layout holds: a message has no field for kind 0, and two bytes for a kind above 127."""
_subject_of_row = struct.Struct("<Bq").pack
_LAYOUTS_MAX = 4096

_Layout = tuple[int, int, int, Callable[..., bytes], bytes]


class _Otherwise(Exception):
    """Raised inside this file: an operation has another layout."""


@lru_cache(_LAYOUTS_MAX)
def _layout(data_length: int) -> _Layout:
    """The layout of operations whose data have this length, which is given as its varint of two bytes: the data's
    length; the lengths of an operation without and with a subject; the functions that pack a row without and with its
    data; the bytes before the data in a row."""
    if data_length & 0x8080 != 0x0080:
        raise _Otherwise
    size = data_length & 0x7F | data_length >> 8 << 7
    before = bytes((_DATA,)) + varint(size) if size else b""
    length, length_about = (end - _UP_TO_LENGTH_BYTES + size for end in (_HEAD_BYTES, _ABOUT_BYTES))
    pack = struct.Struct(f"<HBqBB{len(before)}s{size}s").pack
    return size, two_byte_varint(length), two_byte_varint(length_about), pack, before


def plain_runs(
    raw: bytes, at: int, position: Callable[[int], bytes], shard: int, shards: int
) -> tuple[list[SortedRun], int] | None:
    """The runs of the operations in `raw` from `at` on, and the number of operations. `position` gives a row's last
    bytes, its position, by the operation's index. None if an operation has another layout or cannot be in this
    shard."""
    try:
        return _plain_runs(raw, at, position, shard, shards)
    except (_Otherwise, struct.error, IndexError):
        return None


def _plain_runs(
    raw: bytes, at: int, position: Callable[[int], bytes], shard: int, shards: int
) -> tuple[list[SortedRun], int]:
    head_of, delete_of, layout_of, mask = _HEAD.unpack_from, _DELETE.unpack_from, _layout, SHARD_MASK
    runs: list[SortedRun] = []
    added, added_rows, updated, updated_rows, deleted, _ = run = empty_run()
    seen: set[int] = set()
    index, end = 0, len(raw)
    while at < end:
        row = b""
        if raw[at + 1] == _DELETE_LENGTH:
            opens = 0
            head, record_id = delete_of(raw, at)
            if head != _DELETE_HEAD:
                raise _Otherwise
            at += _DELETE_BYTES
        else:
            element, length, opens, id_tag, record_id, kind_tag, kind, tag, data_length = head_of(raw, at)
            if (
                element != _ELEMENT
                or (opens != _OPENS_ADD and opens != _OPENS_UPDATE)
                or id_tag != _ID
                or kind_tag != _KIND
                or not _KIND_MIN <= kind <= _KIND_MAX
            ):
                raise _Otherwise
            start, behind = at + _HEAD_BYTES, b""
            if tag != _DATA:
                start = at + _ABOUT_BYTES
                data_length, behind = _about(raw, at, opens, tag)
            size, plain_length, length_about, pack, before = layout_of(data_length)
            if length != (length_about if behind else plain_length):
                raise _Otherwise
            at = start + size
            row = (
                pack(opens, id_tag, record_id, kind_tag, kind & 0x7F, before, raw[start:at]) + behind + position(index)
            )
        if record_id <= 0 or (record_id & mask) % shards != shard:
            raise _Otherwise
        if record_id in seen:
            runs.append(SortedRun(*run))
            added, added_rows, updated, updated_rows, deleted, _ = run = empty_run()
            seen.clear()
        seen.add(record_id)
        if opens == _OPENS_ADD:
            added.append(record_id)
            added_rows.append(row)
        elif opens == _OPENS_UPDATE:
            updated.append(record_id)
            updated_rows.append(row)
        else:
            deleted.append(record_id)
        index += 1
    if at != end:
        raise _Otherwise
    runs.append(SortedRun(*run))
    return runs, index


def _about(raw: bytes, at: int, opens: int, tag: int) -> tuple[int, bytes]:
    """The length of the data of an update with a subject, read from the frame, and the bytes that follow the data in
    its row."""
    not_replaceable, subject_tag, subject, data_tag, data_length = _ABOUT.unpack_from(raw, at + _ABOUT_AT)
    tags = (tag, not_replaceable, subject_tag, data_tag)
    if opens != _OPENS_UPDATE or tags != (_REPLACEABLE, _REPLACEABLE, _SUBJECT, _DATA) or subject <= 0:
        raise _Otherwise
    return data_length, _subject_of_row(_SUBJECT, subject)
