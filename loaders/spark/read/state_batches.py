"""The state of a shard as Arrow batches: rows of one of the tables of `schemas.STATE_TABLES`."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

import pyarrow as pa
from google.protobuf.message import DecodeError

from journal.store.message_records import parse_message
from journal.v1.store_pb2 import Message, Property, Queue, RecordKind, Reference, UpdateKind, Xid
from loaders.spark.read.row_decoding import MARK_FIELDS, UpdateRow, moment_us, row_column
from loaders.spark.read.shard_state import NewestRows, StateRecord

_ROWS = 4096
"""Rows of a batch."""
_XID_PART_BYTES_MAX = 64
_FORMAT_ID_MAX = 2**31 - 1

Values = dict[str, Any]


def state_batches(table: str, state: NewestRows, shard: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a table, with the wanted columns."""
    rows = _TABLES[table](state)
    while some := list(islice(rows, _ROWS)):
        arrays = [
            pa.repeat(pa.scalar(shard, pa.int32()), len(some))
            if field.name == "shard"
            else row_column(field.name, [row[field.name] for row in some], field.type)
            for field in schema
        ]
        yield pa.record_batch(arrays, schema=schema)


def _records(state: NewestRows) -> Iterator[Values]:
    for row, offset, written_ms, updates in state.records():
        yield {
            "id": row.id,
            "kind": row.kind,
            "data": row.data,
            "position": row.position,
            "updates": updates,
            "offset": offset,
            "written": written_ms * 1000,
        }


def _marks(state: NewestRows) -> Iterator[Values]:
    for row, offset, written_ms in state.rows(b"m"):
        mark = row.mark or {}
        yield {name: mark[name] for name in MARK_FIELDS} | {"row_offset": offset, "written": written_ms * 1000}


def _skipped(state: NewestRows) -> Iterator[Values]:
    for found in state.rows(b"s"):
        yield dict(found.row.skipped or {})


def _transactions(state: NewestRows) -> Iterator[Values]:
    for found in state.rows(b"t"):
        part = found.row.transaction or {}
        yield {
            "tx": found.row.tx,
            "prepared": part["prepared"],
            "epoch": part["epoch"],
            "operations": part["staged"],
            "bytes": part["bytes"],
            "shards_prepared": part["shards"],
            "prepared_at": part["prepared_at"],
            "data": part["data"],
            "xid": _xid(part["data"]),
        }


def _staged(state: NewestRows) -> Iterator[Values]:
    for found in state.rows(b"x"):
        yield found.row._asdict()


def _xid(data: Any) -> Values | None:
    """The xid that a PREPARE carried; None if its data is no xid, because somebody prepared without XA."""
    try:
        xid = Xid.FromString(data or b"")
    except DecodeError:
        return None
    good = 0 < len(xid.gtrid) <= _XID_PART_BYTES_MAX and len(xid.bqual) <= _XID_PART_BYTES_MAX
    if not good or not 0 <= xid.format_id <= _FORMAT_ID_MAX:
        return None
    return {"format_id": xid.format_id, "gtrid": xid.gtrid, "bqual": xid.bqual}


# ---- the message store -------------------------------------------------------------------------------------


def _messages(state: NewestRows) -> Iterator[Values]:
    """A row for each message and queue that it waits in: it has a ROUTE without a later ACKNOWLEDGE, and its queue
    exists (docs/STORE.md). A message and its queues are in one shard."""
    queues = {
        record.row.id: Queue.FromString(record.row.data or b"").name
        for record in state.records()
        if record.row.kind == RecordKind.QUEUE
    }
    for record in state.records():
        if record.row.kind != RecordKind.MESSAGE:
            continue
        waiting = [(route, found) for route, found in _references(record) if route[4] in queues]
        if not waiting:
            continue
        message = parse_message(record.row.data or b"")
        columns = _message(record, message)
        for route, reference in waiting:
            due = moment_us(reference.due) if reference is not None else moment_us(message.due)
            yield columns | {
                "queue_id": route[4],
                "queue": queues[route[4]],
                "position": route[0],
                "deliveries": reference.deliveries if reference is not None else 0,
                "holder": (reference.holder or None) if reference is not None else None,
                "due_at": due,
            }


def _references(record: StateRecord) -> Iterator[tuple[UpdateRow, Reference | None]]:
    """The routes of a message that have not ended, each with the newest state of its reference; None if nothing has
    changed it since the route."""
    latest: dict[int, tuple[UpdateRow, UpdateRow | None] | None] = {}
    for update in record.updates:  # in the order of their positions
        kind, subject = update[1], update[4]
        if kind == UpdateKind.ROUTE:
            latest[subject] = (update, None)
        elif kind == UpdateKind.ACKNOWLEDGE:
            latest[subject] = None
        elif kind == UpdateKind.REFERENCE and (found := latest.get(subject)) is not None:
            latest[subject] = (found[0], update)
    for found in latest.values():
        if found is not None:
            route, state = found
            yield route, None if state is None else Reference.FromString(state[2])


def _message(record: StateRecord, message: Message) -> Values:
    is_large = len(message.chunks) > 0
    return {
        "message": record.row.id,
        "address": message.address or None,
        "priority": message.priority,
        "sent_at": moment_us(message.timestamp),
        "expires_at": moment_us(message.expires),
        "body": None if is_large else message.body,
        "body_bytes": message.body_bytes if is_large else len(message.body),
        "headers": _texts(message.headers),
        "properties": _texts(message.properties),
        "duplicate_id": message.duplicate_id or None,
    }


def _texts(properties: Mapping[str, Property]) -> list[tuple[str, str | None]] | None:
    """Names and values, the values as text; bytes are in base64."""
    return [(name, _text(value)) for name, value in properties.items()] or None


def _text(value: Property) -> str | None:
    match value.WhichOneof("value"):
        case None:
            return None
        case "binary":
            return base64.b64encode(value.binary).decode()
        case "boolean":
            return "true" if value.boolean else "false"
        case name:
            return str(getattr(value, name))


_TABLES: Mapping[str, Callable[[NewestRows], Iterator[Values]]] = {
    "records": _records,
    "marks": _marks,
    "skipped": _skipped,
    "transactions": _transactions,
    "staged": _staged,
    "messages": _messages,
}
