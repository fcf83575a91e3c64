"""What one shard's state is to `verify`: plain dicts of small packed values, the same for a fold and for tables.

A record or update is one `bytes` (its position, kind and a fingerprint of its data), so that a shard of a million
records of 1 KiB takes about 150 MB a state, and two states are equal when their bytes are.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

VIRTUAL_SHARDS = 1024
DATA_KEPT_BYTES = 32
"""Data up to this size is kept as it is; of longer data, its length and a 16-byte digest."""

_WHOLE, _DIGEST = b"\x00", b"\x01"
_RECORD = struct.Struct(">BqII")
_UPDATE = struct.Struct(">B?qqII")
_SLOT = struct.Struct(">B?q")


Position = tuple[int, int, int]
"""Where something became effective: WAL offset, index in its frame, ordinal in its transaction (0 outside one)."""


class RecordView(NamedTuple):
    """A packed record, readable."""

    kind: int
    data: bytes
    position: Position


class UpdateView(NamedTuple):
    """A packed update, readable."""

    kind: int
    data: bytes
    replaceable: bool
    subject: int
    position: Position


class StagedOperation(NamedTuple):
    """An operation that waits for its transaction; `data` is a fingerprint."""

    type: int
    id: int
    kind: int
    data: bytes
    replaceable: bool
    subject: int
    position: Position


@dataclass(slots=True)
class Part:
    """A transaction's part in one shard."""

    epoch: int
    prepared: bool = False
    data: bytes = _WHOLE
    shards: int = 0
    timestamp: int = 0
    bytes: int = 0
    staged: list[StagedOperation] = field(default_factory=list)


@dataclass(slots=True)
class MarkState:
    """The fields of a `Mark` that follow from the WAL, as before the first frame."""

    shard: int = 0
    offset: int = -1
    number: int = 0
    group: int = 0
    epoch: int = 0
    node: str = ""
    nonce: bytes = b""
    issued: int = 0
    timestamp: int = 0
    records: int = 0
    staged: int = 0
    prepared: int = 0
    applied: int = 0
    rejected: int = 0
    stale: int = 0
    skipped: int = 0
    dropped: int = 0
    updates: int = 0


class Finding(NamedTuple):
    """What stopped a shard's fold, and where."""

    topic: str
    partition: int
    offset: int
    reason: str


@dataclass(slots=True)
class ShardState:
    """A shard's logical state. `updates` has only records that have some; packed values in order of position."""

    mark: MarkState
    records: dict[int, bytes] = field(default_factory=dict)
    updates: dict[int, list[bytes]] = field(default_factory=dict)
    transactions: dict[int, Part] = field(default_factory=dict)
    whole_group: bool = True
    findings: list[Finding] = field(default_factory=list)


def shard_of(number: int, shards: int) -> int:
    """The shard of a record id, or the home shard of a transaction."""
    return number % VIRTUAL_SHARDS % shards


def fingerprint(data: bytes) -> bytes:
    """Short data itself, longer data's length and digest; the two never collide."""
    if len(data) <= DATA_KEPT_BYTES:
        return _WHOLE + data
    return _DIGEST + len(data).to_bytes(4, "big") + blake2b(data, digest_size=16).digest()


def describe_data(printed: bytes) -> str:
    """A fingerprint for people."""
    if printed[:1] == _WHOLE:
        return printed[1:].hex() or "empty"
    return f"{int.from_bytes(printed[1:5], 'big')} bytes, digest {printed[5:].hex()}"


def pack_record(kind: int, printed: bytes, offset: int, index: int, ordinal: int) -> bytes:
    """A record in one value; `printed` is its data's fingerprint."""
    return _RECORD.pack(kind, offset, index, ordinal) + printed


def unpack_record(packed: bytes) -> RecordView:
    """What `pack_record` packed, data still a fingerprint."""
    kind, offset, index, ordinal = _RECORD.unpack_from(packed)
    return RecordView(kind, packed[_RECORD.size :], (offset, index, ordinal))


def pack_update(
    kind: int, replaceable: bool, subject: int, printed: bytes, offset: int, index: int, ordinal: int
) -> bytes:
    """An update in one value, beginning with its `slot`."""
    return _UPDATE.pack(kind, replaceable, subject, offset, index, ordinal) + printed


def unpack_update(packed: bytes) -> UpdateView:
    """What `pack_update` packed, data still a fingerprint."""
    kind, replaceable, subject, offset, index, ordinal = _UPDATE.unpack_from(packed)
    return UpdateView(kind, packed[_UPDATE.size :], replaceable, subject, (offset, index, ordinal))


def slot(kind: int, subject: int) -> bytes:
    """How the packed form of every replaceable update of this kind and subject begins."""
    return _SLOT.pack(kind, True, subject)
