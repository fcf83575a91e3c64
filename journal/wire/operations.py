"""The operations of a frame as its columns: docs/FORMAT.md, "Frames".

The writer gathers operations by kind, because the fold takes neighbours of one kind at once. So a frame has its adds,
then its updates, then its deletes, and at last what belongs to transactions, each in the order in which it was given.

Hot path: an operation costs one call that extends a list, and a few steps in C when the frame is sealed.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import repeat
from typing import Any, NamedTuple

from journal.v1.journal_pb2 import ADD, DELETE, UPDATE

IN_TRANSACTION = 8
"""The rank of all operations that have a transaction; that of any other is its type."""


class FurtherOperation(NamedTuple):
    """An operation of a transaction, or a marker."""

    type: int
    id: int
    kind: int
    data: bytes
    subject: int
    replaceable: bool
    tx: int
    covers: int
    shards: int


_ADD_VALUES = 3
_UPDATE_VALUES = 5


class FrameOperations:
    """The operations of one frame.

    They have the effect of the given ones if no record is added behind its delete, no update of a record is given
    behind its delete, and nothing outside of transactions follows a COMMIT: `journal.append.group` sees to that.
    """

    __slots__ = ("adds", "deletes", "others", "updates")

    def __init__(self) -> None:
        self.adds: list[Any] = []
        """Id, kind and data of each, in one list."""
        self.updates: list[Any] = []
        """Id, kind, data, subject and whether it is replaceable, of each, in one list."""
        self.deletes: dict[int, None] = {}
        """Ids, in the order in which they were deleted."""
        self.others: list[FurtherOperation] = []

    def __len__(self) -> int:
        return (
            len(self.adds) // _ADD_VALUES + len(self.updates) // _UPDATE_VALUES + len(self.deletes) + len(self.others)
        )

    def columns(self) -> list[bytes]:
        """The columns, as the bytes that stand behind a frame's header."""
        if not len(self):
            return []
        adds, updates, deletes = self.adds, self.updates, self.deletes
        others = zip(*self.others, strict=True) if self.others else repeat((), len(FurtherOperation._fields))
        types, ids, kinds, data, subjects, replaceable, txs, covers, shards = others
        no_add, no_delete = bytes(len(adds) // _ADD_VALUES), bytes(len(deletes))
        no_update = bytes(len(updates) // _UPDATE_VALUES)
        all_data = [*adds[2::3], *updates[2::5], *repeat(b"", len(deletes)), *data]
        plain = bytes((ADD,)) * len(no_add) + bytes((UPDATE,)) * len(no_update) + bytes((DELETE,)) * len(no_delete)
        parts = [
            *_column(13, 1, plain + bytes(types)),
            *_column(14, 8, (*adds[0::3], *updates[0::5], *deletes, *ids)),
            *_column(15, 1, (*adds[1::3], *updates[1::5], *no_delete, *kinds)),
            *_column(16, 4, [*map(len, all_data)]),
            *_column_if_any(17, 8, (*no_add, *updates[3::5], *no_delete, *subjects)),
            *_column_if_any(18, 1, (*no_add, *updates[4::5], *no_delete, *replaceable)),
        ]
        if self.others:
            zeros = bytes(len(plain))
            parts += _column_if_any(19, 8, (*zeros, *txs))
            parts += _column_if_any(20, 4, (*zeros, *covers))
            parts += _column_if_any(21, 4, (*zeros, *shards))
        whole = b"".join(all_data)
        return [*parts, varint(22 << 3 | 2) + varint(len(whole)), whole] if whole else parts


def varint(number: int) -> bytes:
    """A varint of as many bytes as the number needs."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


_FORMS = {4: "I", 8: "q"}


def _column(number: int, width: int, values: Sequence[int]) -> tuple[bytes, bytes]:
    """A field with numbers of so many bytes each: what stands before them, and they."""
    count = len(values)
    laid_out = bytes(values) if width == 1 else struct.pack(f"<{count}{_FORMS[width]}", *values)
    return varint(number << 3 | 2) + varint(count * width), laid_out


def _column_if_any(number: int, width: int, values: Sequence[int]) -> tuple[bytes, ...]:
    """A field of numbers; nothing if all are 0."""
    return _column(number, width, values) if any(values) else ()


def eight_bytes_each(values: bytes) -> tuple[int, ...]:
    """The numbers in a column of eight bytes each. Raises struct.error if its size is no multiple of that."""
    return struct.unpack(f"<{len(values) // 8}q", values)


def four_bytes_each(values: bytes) -> tuple[int, ...]:
    """The numbers in a column of four bytes each. Raises struct.error if its size is no multiple of that."""
    return struct.unpack(f"<{len(values) // 4}I", values)
