"""Keys of table rows: bytes that sort, how they are made, and how they are read.

    record               'r' id:8                               its updates follow it in key order
    updates of a record  'r' id:8 01                            one row for the first ones
    spilled update       'r' id:8 02 offset:8 index:4 ordinal:4
    spilled replaceable  'r' id:8 03 kind:1 subject:8
    transaction part     't' tx:8 shard:2
    staged operation     'x' tx:8 shard:2 offset:8 index:4
    mark                 'm' shard:2
    skipped record       's' shard:2 offset:8

Numbers are big-endian and unsigned. All keys of a table partition (a shard) are distinct, and so are all keys of a
local copy, which may hold several shards.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial
from itertools import repeat

from journal.errors import RowError
from journal.wire.ids import shard_of

_RECORD = struct.Struct(">cQ")
_UPDATES = struct.Struct(">cQB")
_SPILLED = struct.Struct(">cQBQII")
_SPILLED_REPLACEABLE = struct.Struct(">cQBBQ")
_TRANSACTION = struct.Struct(">cQH")
_STAGED = struct.Struct(">cQHQI")
_MARK = struct.Struct(">cH")
_SKIPPED = struct.Struct(">cHQ")

RECORD_KEY_BYTES = _RECORD.size
RECORD_TAG = b"r"
BEHIND_RECORDS = b"s"
"""A key that sorts behind the rows of all records and their updates."""

XA_TAGS = b"tx"
"""First bytes of the keys for which `is_xa` is true."""
TRANSACTION_PREFIX = b"t"
STAGED_PREFIX = b"x"
MARK_PREFIX = b"m"
SKIPPED_PREFIX = b"s"


class RowType(Enum):
    """The types of rows. A key says which type its row has."""

    RECORD = "record"
    UPDATES = "updates"
    SPILLED = "spilled"
    TRANSACTION = "transaction"
    STAGED = "staged"
    MARK = "mark"
    SKIPPED = "skipped"


_BY_TAG_AND_LENGTH = {
    (b"r", _RECORD.size): RowType.RECORD,
    (b"r", _UPDATES.size): RowType.UPDATES,
    (b"r", _SPILLED.size): RowType.SPILLED,
    (b"r", _SPILLED_REPLACEABLE.size): RowType.SPILLED,
    (b"t", _TRANSACTION.size): RowType.TRANSACTION,
    (b"x", _STAGED.size): RowType.STAGED,
    (b"m", _MARK.size): RowType.MARK,
    (b"s", _SKIPPED.size): RowType.SKIPPED,
}


record_key: Callable[[int], bytes] = partial(_RECORD.pack, b"r")
"""The key of a record's row. Hot path: a call of it runs no Python code."""


def updates_key(record_id: int) -> bytes:
    return _UPDATES.pack(b"r", record_id, 1)


def updates_keys(record_ids: Iterable[int]) -> Iterable[bytes]:
    """Keys of the rows of updates of many records. Hot path: it runs no Python code for each key."""
    return map(_UPDATES.pack, repeat(b"r"), record_ids, repeat(1))


def spilled_key(record_id: int, offset: int, index: int, ordinal: int) -> bytes:
    return _SPILLED.pack(b"r", record_id, 2, offset, index, ordinal)


def spilled_replaceable_key(record_id: int, kind: int, subject: int) -> bytes:
    return _SPILLED_REPLACEABLE.pack(b"r", record_id, 3, kind, subject)


def transaction_key(tx: int, shard: int) -> bytes:
    return _TRANSACTION.pack(b"t", tx, shard)


def staged_key(tx: int, shard: int, offset: int, index: int) -> bytes:
    return _STAGED.pack(b"x", tx, shard, offset, index)


def staged_prefix(tx: int, shard: int) -> bytes:
    return struct.pack(">cQH", b"x", tx, shard)


def mark_key(shard: int) -> bytes:
    return _MARK.pack(b"m", shard)


def skipped_key(shard: int, offset: int) -> bytes:
    return _SKIPPED.pack(b"s", shard, offset)


def row_type(key: bytes) -> RowType:
    """The type of the row with this key. Raises RowError for bytes that are no key."""
    found = _BY_TAG_AND_LENGTH.get((key[:1], len(key)))
    if found is None:
        raise RowError(f"not a table key: {key.hex()}")
    return found


def record_id_of(key: bytes) -> int:
    """The record that a key belongs to: the key of a record, of its updates, or of a spilled update."""
    return int.from_bytes(key[1:9], "big")


def shard_of_row(key: bytes, shards: int) -> int:
    """The shard that a row belongs to, from its key alone."""
    tag = key[:1]
    if tag == RECORD_TAG:
        return shard_of(record_id_of(key), shards)
    return xa_shard_of(key) if is_xa(key) else int.from_bytes(key[1:3], "big")


def xa_shard_of(key: bytes) -> int:
    """The shard of a row of the XA state table."""
    return int.from_bytes(key[9:11], "big")


def xa_tx_of(key: bytes) -> int:
    """The transaction of a row of the XA state table."""
    return int.from_bytes(key[1:9], "big")


def is_xa(key: bytes) -> bool:
    """Whether the row belongs to the XA state table, which holds parts of transactions and staged operations."""
    return key[:1] in (b"t", b"x")
