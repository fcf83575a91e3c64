"""Records of a table topic become typed rows, as Arrow batches: changes, deletions included.

It is written from docs/FORMAT.md and shares nothing with the engine. A record that is no row has a fault instead.

Hot path: one parse and one tuple for each record; arrays are made of whole columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
from google.protobuf.message import DecodeError, Message

from journal.v1.journal_pb2 import Mark, OperationType, Skipped, Staged, Transaction, Update, Updates

ROW_TYPES: Mapping[tuple[bytes, int], str] = {
    (b"r", 9): "RECORD",
    (b"r", 10): "UPDATES",
    (b"r", 26): "UPDATE",
    (b"r", 19): "UPDATE",
    (b"t", 11): "TRANSACTION",
    (b"x", 23): "STAGED",
    (b"m", 3): "MARK",
    (b"s", 11): "SKIPPED",
}
"""A row's type by the tag and length of its key."""

OWNER_BYTES = 9
"""Length of the part of a key that all rows of one record, or of one transaction, share."""
MOMENTS_END_MS = 253_402_214_400_000
"""The last day of the year 9999 in UTC. Readers in any time zone can show every time before it. A client's "never" is
often a time far later, which no timestamp can hold."""

_ID_MAX = 2**63 - 1
_SPILLED = 2
"""The byte that distinguishes the key of a spilled update from that of a replaceable one."""
_NOTHING = "a value that does not parse as what its key says"
_ANOTHER = "a row whose value is of another record or transaction than its key"
_ELSEWHERE = "a row whose value is of another place than its key"

_OF_RECORD = Struct(">xQ")
_OF_PLACE = Struct(">xQBQII")
_OF_SLOT = Struct(">xQBBQ")
_OF_STAGED = Struct(">xQHQI")
_OF_SKIPPED = Struct(">xHQ")

Place = tuple[int, int, int]
"""A position: offset, index, ordinal."""
UpdateRow = tuple[Place, int, bytes, bool, int]
"""An update: position, kind, data, replaceable, subject."""


class Row(NamedTuple):
    """One record of a table topic. What a row of its type does not have is None."""

    row: str | None = None
    fault: str | None = None
    id: int | None = None
    tx: int | None = None
    type: str | None = None
    kind: int | None = None
    data: bytes | None = None
    replaceable: bool | None = None
    subject: int | None = None
    position: Place | None = None
    updates: Sequence[UpdateRow] | None = None
    spilled: bool | None = None
    transaction: Mapping[str, object] | None = None
    mark: Mapping[str, object] | None = None
    skipped: Mapping[str, object] | None = None


class _FaultError(Exception):
    """A record is no row; the text says why."""


_Message = TypeVar("_Message", bound=Message)


def is_key(key: bytes) -> bool:
    """Whether these bytes are the key of a row."""
    return (key[:1], len(key)) in ROW_TYPES


def decoded_row(key: bytes | None, value: bytes | None) -> Row:
    """The row of a record: its type and what it holds, or its fault."""
    type_ = ROW_TYPES.get((key[:1], len(key))) if key else None
    if key is None or type_ is None:
        return Row(fault=f"not a table key: {key.hex() if key else 'none'}")
    try:
        return _DECODERS[type_](key, value)
    except _FaultError as error:
        return Row(type_, str(error))


def _parsed(class_: type[_Message], value: bytes) -> _Message:
    try:
        return class_.FromString(value)
    except DecodeError:
        raise _FaultError(_NOTHING) from None


def _require(found: int, expected: int) -> None:
    if found != expected:
        raise _FaultError(_ANOTHER if found else _NOTHING)


def _known(number: int) -> int | None:
    """A number of a key, unless it is beyond what Spark's numbers hold."""
    return number if number <= _ID_MAX else None


def _record(key: bytes, value: bytes | None) -> Row:
    (number,) = _OF_RECORD.unpack(key)
    if value is None:
        return Row("RECORD", id=_known(number))
    found = _parsed(Staged, value)
    _require(found.id, number)
    return Row("RECORD", id=number, kind=found.kind, data=found.data, position=_place(found))


def _update(key: bytes, value: bytes | None) -> Row:
    (number,) = _OF_RECORD.unpack_from(key)
    if value is None:
        return Row("UPDATE", id=_known(number))
    found = _parsed(Staged, value)
    _require(found.id, number)
    place = _place(found)
    if len(key) == _OF_PLACE.size:
        _, tag, *at = _OF_PLACE.unpack(key)
        is_its = tag == _SPILLED and not found.replaceable and tuple(at) == place
    else:
        _, tag, kind, subject = _OF_SLOT.unpack(key)
        is_its = tag != _SPILLED and found.replaceable and (kind, subject) == (found.kind, found.subject)
    if not is_its:
        raise _FaultError(_ELSEWHERE)
    return Row(
        "UPDATE",
        id=number,
        kind=found.kind,
        data=found.data,
        replaceable=found.replaceable,
        subject=found.subject,
        position=place,
    )


def _updates(key: bytes, value: bytes | None) -> Row:
    (number,) = _OF_RECORD.unpack_from(key)
    if value is None:
        return Row("UPDATES", id=_known(number))
    found = _parsed(Updates, value)
    _require(found.id, number)
    told = [(_place(each), each.kind, each.data, each.replaceable, each.subject) for each in found.updates]
    return Row("UPDATES", id=number, updates=told, spilled=found.spilled)


def _staged(key: bytes, value: bytes | None) -> Row:
    number, _, offset, index = _OF_STAGED.unpack(key)
    if value is None:
        return Row("STAGED", tx=_known(number))
    found = _parsed(Staged, value)
    _require(found.tx, number)
    place = _place(found)
    if place[:2] != (offset, index):
        raise _FaultError(_ELSEWHERE)
    return Row(
        "STAGED",
        id=found.id,
        tx=number,
        type=OperationType.Name(found.type) if found.type in OperationType.values() else str(found.type),
        kind=found.kind,
        data=found.data,
        replaceable=found.replaceable,
        subject=found.subject,
        position=place,
    )


def _transaction(key: bytes, value: bytes | None) -> Row:
    (number,) = _OF_RECORD.unpack_from(key)
    if value is None:
        return Row("TRANSACTION", tx=_known(number))
    found = _parsed(Transaction, value)
    _require(found.tx, number)
    told = {name: getattr(found, name) for name in ("epoch", "staged", "prepared", "shards", "bytes")}
    return Row(
        "TRANSACTION",
        tx=number,
        transaction=told | {"data": found.data or None, "prepared_at": moment_us(found.timestamp)},
    )


def _mark(_: bytes, value: bytes | None) -> Row:
    if value is None:
        return Row("MARK")
    found = _parsed(Mark, value)
    if not (found.epoch or found.offset or found.timestamp):
        raise _FaultError(_NOTHING)
    told = {name: getattr(found, name) for name in MARK_FIELDS if name != "appended"}
    return Row("MARK", mark=told | {"appended": moment_us(found.timestamp)})


def _skipped(key: bytes, value: bytes | None) -> Row:
    if value is None:
        return Row("SKIPPED")
    found = _parsed(Skipped, value)
    if not (found.offset or found.timestamp):
        raise _FaultError(_NOTHING)
    if found.offset != _OF_SKIPPED.unpack(key)[1]:
        raise _FaultError(_ELSEWHERE)
    told = {name: getattr(found, name) or None for name in ("reason", "operator", "raw")}
    return Row("SKIPPED", skipped=told | {"offset": found.offset, "skipped_at": moment_us(found.timestamp)})


_DECODERS: Mapping[str, Callable[[bytes, bytes | None], Row]] = {
    "RECORD": _record,
    "UPDATES": _updates,
    "UPDATE": _update,
    "STAGED": _staged,
    "TRANSACTION": _transaction,
    "MARK": _mark,
    "SKIPPED": _skipped,
}
MARK_FIELDS = (
    "offset",
    "number",
    "group",
    "epoch",
    "node",
    "issued",
    "appended",
    "records",
    "updates",
    "staged",
    "prepared",
    "applied",
    "rejected",
    "stale",
    "skipped",
    "dropped",
)


def _place(of: Staged | Update) -> Place:
    position = of.position
    return position.offset, position.index, position.ordinal


def moment_us(ms: int) -> int | None:
    """The time for milliseconds since 1970, in microseconds; None if there is no time, or if it is `MOMENTS_END_MS` or
    later."""
    return ms * 1000 if 0 < ms < MOMENTS_END_MS else None


# ---- arrays ------------------------------------------------------------------------------------------------


def row_column(name: str, values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """A column of rows as an array: `values` are those of the field `name` of each `Row`."""
    if name == "position":
        return _positions(values, type_)
    if pa.types.is_list(type_):
        return updates_array(values, type_)
    return pa.array(values, type_)


def _positions(places: Sequence[Place | None], type_: pa.StructType) -> pa.Array:
    absent = [place is None for place in places]
    filled = [place or (0, 0, 0) for place in places]
    columns = list(zip(*filled, strict=True)) or [(), (), ()]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, type_, strict=True)]
    return pa.StructArray.from_arrays(arrays, fields=list(type_), mask=pa.array(absent))


def updates_array(lists: Sequence[Sequence[UpdateRow] | None], type_: pa.ListType) -> pa.Array:
    """Lists of updates; None gives null."""
    if not any(lists):
        return pa.array([None if each is None else [] for each in lists], type_)
    of_one = type_.value_type
    flat = [update for each in lists if each for update in each]
    columns = list(zip(*flat, strict=True))
    arrays = [
        _positions(column, field.type) if field.name == "position" else pa.array(column, field.type)
        for column, field in zip(columns, of_one, strict=True)
    ]
    ends, at = [], 0
    for each in lists:
        ends.append(None if each is None else at)
        at += len(each or ())
    offsets = pa.array([*ends, at], pa.int32())
    return pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays(arrays, fields=list(of_one)), type=type_)
