"""Golden cases: reads tests/golden/*.json (tests/golden/README.md has the schema) and gives WAL records and outcomes.

An outcome is plain JSON-like data in one form, made from a case's expectation, from an engine's tables, or from
`verify`'s fold, so that a test compares two of them with `==`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from journal.v1.journal_pb2 import (
    Mark,
    Operation,
    OperationType,
    Record,
    Staged,
    Transaction,
    Update,
    Updates,
)
from journal.v1.journal_pb2 import Position as PositionMessage
from journal.verify.state import MarkState, VerifiedShard, unpack_record, unpack_update
from journal.verify.wal_fold import Happening
from journal.wire.frames import FORMAT, MAGIC
from journal.wire.keys import RowType, row_type
from tests.support.build import BuiltFrame, frame

DIRECTORY = Path(__file__).parents[1] / "golden"

Json = dict[str, Any]
MARK_FIELDS = tuple(field.name for field in fields(MarkState))
_OF_A_PART = ("epoch", "prepared", "data", "shards", "timestamp", "bytes")
Printed = Callable[[bytes], bytes]
"""What becomes of data in an outcome: itself, or the fingerprint that `verify` keeps."""


@dataclass(frozen=True, slots=True)
class WalEntry:
    """One WAL record of one shard; `skip` if an operator has it skipped."""

    offset: int
    timestamp_ms: int
    value: bytes
    skip: bool


@dataclass(frozen=True, slots=True)
class Case:
    """One golden case."""

    name: str
    shards: int
    journal: bytes
    updates_row_bytes_max: int
    wal: Mapping[int, Sequence[WalEntry]]
    expected: Mapping[int, Json]


def cases() -> list[Case]:
    """Every golden case, by name."""
    return [case_of(json.loads(path.read_text())) for path in sorted(DIRECTORY.glob("*.json"))]


def data_of(value: object) -> bytes:
    """Data in a case: base64, or a pattern and how often it repeats."""
    if isinstance(value, Mapping):
        return base64.b64decode(value["repeat"]) * int(value["times"])
    return base64.b64decode(str(value))


def case_of(raw: Json) -> Case:
    """The case that a file's JSON describes."""
    journal = bytes.fromhex(raw["journal"])
    wal: dict[int, list[WalEntry]] = {shard: [] for shard in range(raw["shards"])}
    for entry in raw["wal"]:
        value = bytes.fromhex(entry["raw"]) if "raw" in entry else frame_of(entry["frame"], journal).SerializeToString()
        wal[entry.get("shard", 0)].append(
            WalEntry(entry["offset"], entry["timestamp"], value, entry.get("skip", False))
        )
    expected = dict(enumerate(raw["expected"]))
    return Case(raw["name"], raw["shards"], journal, raw["updates_row_bytes_max"], wal, expected)


def frame_of(raw: Json, journal: bytes) -> BuiltFrame:
    """The frame that a case describes; what it does not say is as a writer would have it."""
    operations = [operation_of(one) for one in raw["operations"]]
    made = frame(
        raw["number"],
        *operations,
        epoch=raw["epoch"],
        node=raw["node"],
        group=raw["group"],
        previous=raw["previous"],
        last=raw["last"],
        issued=raw["issued"],
        journal=bytes.fromhex(raw["journal"]) if "journal" in raw else journal,
    )
    made.message.magic = raw.get("magic", MAGIC)
    made.message.format = raw.get("format", FORMAT)
    made.message.count = raw.get("count", len(operations))
    return made


def operation_of(raw: Json) -> Operation:
    """The operation that a case describes, in `apply`'s words."""
    data = bytes.fromhex(raw["nonce"]) if "nonce" in raw else data_of(raw.get("data", ""))
    return Operation(
        type=OperationType.Value(raw["op"].upper()) if isinstance(raw["op"], str) else raw["op"],
        id=raw.get("id", 0),
        kind=raw.get("kind", 0),
        data=data,
        replaceable=raw.get("replaceable", False),
        subject=raw.get("subject", 0),
        tx=raw.get("tx", 0),
        covers=raw.get("covers", 0),
        shards=raw.get("shards", 0),
    )


# ---- outcomes ----------------------------------------------------------------------------------------------


def expected_outcome(case: Case, shard: int, printed: Printed) -> Json:
    """What a case expects of a shard, defaults filled in."""
    raw = case.expected[shard]
    return {
        "mark": _mark(MarkState(shard=shard)) | raw["mark"],
        "records": {
            one["id"]: {
                "kind": one["kind"],
                "data": printed(data_of(one["data"])),
                "position": tuple(one["position"]),
                "updates": [
                    (
                        update["kind"],
                        printed(data_of(update["data"])),
                        update.get("subject", 0),
                        update.get("replaceable", False),
                        tuple(update["position"]),
                    )
                    for update in one["updates"]
                ],
            }
            for one in raw["records"]
        },
        "transactions": {
            one["tx"]: {
                "epoch": one["epoch"],
                "prepared": one["prepared"],
                "data": printed(data_of(one.get("data", ""))),
                "shards": one.get("shards", 0),
                "timestamp": one.get("timestamp", 0),
                "bytes": one["bytes"],
                "operations": [_effect(operation_of(op), tuple(op["position"]), printed) for op in one["operations"]],
            }
            for one in raw["transactions"]
        },
    }


def expected_happened(case: Case, shard: int, printed: Printed) -> list[tuple[Any, ...]]:
    return [_effect(operation_of(op), tuple(op["position"]), printed) for op in case.expected[shard]["happened"]]


def happened_of_verify(happenings: Iterable[Happening]) -> list[tuple[Any, ...]]:
    return [tuple(happening) for happening in happenings]


def happened_of_engine(happenings: Iterable[tuple[Operation, int, int, int]]) -> list[tuple[Any, ...]]:
    return [_effect(operation, (offset, index, ordinal)) for operation, offset, index, ordinal in happenings]


def outcome_of_verify(state: VerifiedShard) -> Json:
    """A `verify` state, data as fingerprints."""
    records = {}
    for id, packed in state.records.items():
        record = unpack_record(packed)
        updates = [unpack_update(update) for update in state.updates.get(id, [])]
        records[id] = {
            "kind": record.kind,
            "data": record.data,
            "position": record.position,
            "updates": [(one.kind, one.data, one.subject, one.replaceable, one.position) for one in updates],
        }
    transactions = {
        tx: _fields(part, _OF_A_PART) | {"operations": [tuple(staged) for staged in part.staged]}
        for tx, part in state.transactions.items()
    }
    return {"mark": _mark(state.mark), "records": records, "transactions": transactions}


def outcome_of_rows(rows: Mapping[bytes, bytes], shard: int) -> Json:
    """The state in an engine's rows, data as it is."""
    outcome: Json = {"mark": _mark(MarkState(shard=shard)), "records": {}, "transactions": {}}
    updates: dict[int, list[tuple[Any, ...]]] = {}
    staged: dict[int, list[tuple[Any, ...]]] = {}
    for key, value in sorted(rows.items()):
        match row_type(key):
            case RowType.RECORD:
                record = Record.FromString(value)
                outcome["records"][record.id] = {
                    "kind": record.kind,
                    "data": record.data,
                    "position": _place(record.position),
                }
            case RowType.UPDATES:
                head = Updates.FromString(value)
                updates.setdefault(head.id, []).extend(_update(one) for one in head.updates)
            case RowType.SPILLED:
                spilled = Update.FromString(value)
                updates.setdefault(spilled.id, []).append(_update(spilled))
            case RowType.TRANSACTION:
                header = Transaction.FromString(value)
                outcome["transactions"][header.tx] = _fields(header, _OF_A_PART)
            case RowType.STAGED:
                one = Staged.FromString(value)
                staged.setdefault(one.tx, []).append(_effect(one, _place(one.position)))
            case RowType.MARK:
                outcome["mark"] = _mark(Mark.FromString(value))
    for id, record in outcome["records"].items():
        record["updates"] = sorted(updates.pop(id, []), key=lambda one: one[-1])
    for tx, header in outcome["transactions"].items():
        header["operations"] = staged.pop(tx, [])
    return outcome | ({"orphans": [*updates, *staged]} if updates or staged else {})


def _mark(mark: Mark | MarkState) -> Json:
    return _fields(mark, MARK_FIELDS) | {"nonce": mark.nonce.hex()}


def _fields(of: object, names: Iterable[str]) -> Json:
    return {name: getattr(of, name) for name in names}


def _effect(op: Operation | Staged, position: tuple[int, ...], printed: Printed = lambda data: data) -> tuple[Any, ...]:
    return (op.type, op.id, op.kind, printed(op.data), op.replaceable, op.subject, position)


def _update(one: Update) -> tuple[Any, ...]:
    return (one.kind, one.data, one.subject, one.replaceable, _place(one.position))


def _place(position: PositionMessage) -> tuple[int, int, int]:
    return (position.offset, position.index, position.ordinal)
