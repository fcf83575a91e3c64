"""The state of one shard for `verify`: dictionaries of small packed values, the same for a fold and for tables.

A record or update is one `bytes` value with its position, its kind and a fingerprint of its data. So a state of a
million records of 1 KiB takes about 150 MB, and two states are equal when their bytes are.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

VIRTUAL_SHARDS = 1024
DATA_KEPT_BYTES = 32
"""Data up to this size are kept as they are. Of longer data, the length and a digest of 16 bytes are kept."""

_WHOLE, _DIGEST = b"\x00", b"\x01"
_RECORD = struct.Struct(">BqII")
_UPDATE = struct.Struct(">B?qqII")
_SLOT = struct.Struct(">B?q")


Position = tuple[int, int, int]
"""A position: WAL offset, index in the frame, ordinal in the transaction (0 outside a transaction)."""


class RecordView(NamedTuple):
    """The fields of a packed record."""

    kind: int
    data: bytes
    position: Position


class UpdateView(NamedTuple):
    """The fields of a packed update."""

    kind: int
    data: bytes
    replaceable: bool
    subject: int
    position: Position


class StagedOperation(NamedTuple):
    """An operation that waits for its transaction's outcome; `data` is a fingerprint."""

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
    """The fields of a `Mark` that follow from the WAL. The defaults are those before the first frame."""

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
    """The offset at which a shard's fold stopped, and why."""

    topic: str
    partition: int
    offset: int
    reason: str


@dataclass(slots=True)
class VerifiedShard:
    """The state of one shard. `records` has a packed value for each record id; `updates` has, for each id of a record
    with updates, their packed values in order of position."""

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
    """Short data as they are; for longer data their length and digest. The two forms never collide."""
    if len(data) <= DATA_KEPT_BYTES:
        return _WHOLE + data
    return _DIGEST + len(data).to_bytes(4, "big") + blake2b(data, digest_size=16).digest()


def describe_data(printed: bytes) -> str:
    """A fingerprint as a text for people."""
    if printed[:1] == _WHOLE:
        return printed[1:].hex() or "empty"
    return f"{int.from_bytes(printed[1:5], 'big')} bytes, digest {printed[5:].hex()}"


def pack_record(kind: int, printed: bytes, offset: int, index: int, ordinal: int) -> bytes:
    """A record as one value; `printed` is the fingerprint of its data."""
    return _RECORD.pack(kind, offset, index, ordinal) + printed


def unpack_record(packed: bytes) -> RecordView:
    """The fields that `pack_record` packed; data are still a fingerprint."""
    kind, offset, index, ordinal = _RECORD.unpack_from(packed)
    return RecordView(kind, packed[_RECORD.size :], (offset, index, ordinal))


def pack_update(
    kind: int, replaceable: bool, subject: int, printed: bytes, offset: int, index: int, ordinal: int
) -> bytes:
    """An update as one value, which begins with its `slot`."""
    return _UPDATE.pack(kind, replaceable, subject, offset, index, ordinal) + printed


def unpack_update(packed: bytes) -> UpdateView:
    """The fields that `pack_update` packed; data are still a fingerprint."""
    kind, replaceable, subject, offset, index, ordinal = _UPDATE.unpack_from(packed)
    return UpdateView(kind, packed[_UPDATE.size :], replaceable, subject, (offset, index, ordinal))


def slot(kind: int, subject: int) -> bytes:
    """The first bytes of the packed form of every replaceable update of this kind and subject."""
    return _SLOT.pack(kind, True, subject)
