"""Scripts: operations as JSON lines, which `apply` reads and `dump` writes. Pure.

{"op":"add","id":1,"kind":45,"data":"<base64>"}
{"op":"update","id":1,"kind":32,"data":"<base64>","replaceable":false,"subject":0}
{"op":"delete","id":1}                                 each also with "tx":7
{"op":"prepare","tx":7,"data":"<base64>"}   {"op":"commit","tx":7}   {"op":"rollback","tx":7}
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, BinaryIO

from journal.append.completion import Completion
from journal.errors import CallerError, FullError, QueueFullError, ScriptError
from journal.journal import BlockingJournal
from journal.load.loading import LoadedUpdate
from journal.v1.journal_pb2 import ADD, DELETE, Operation

_FIELDS: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "add": (frozenset({"id"}), frozenset({"kind", "data", "tx"})),
    "update": (frozenset({"id"}), frozenset({"kind", "data", "replaceable", "subject", "tx"})),
    "delete": (frozenset({"id"}), frozenset({"tx"})),
    "prepare": (frozenset({"tx"}), frozenset({"data"})),
    "commit": (frozenset({"tx"}), frozenset()),
    "rollback": (frozenset({"tx"}), frozenset()),
}


def parse_line(text: bytes | str, line: int) -> dict[str, Any]:
    """The operation of a line, its data decoded. Raises ScriptError."""
    try:
        op = json.loads(text, object_pairs_hook=_once)
    except _GivenTwiceError as error:
        raise ScriptError(line, f'"{error}" is given twice') from None
    # this error comes also for bytes that are not UTF-8, and for huge numbers
    except (ValueError, RecursionError) as error:
        raise ScriptError(line, f"not JSON: {error}") from None
    if not isinstance(op, dict) or not isinstance(op.get("op"), str) or op["op"] not in _FIELDS:
        raise ScriptError(line, f'"op" must be one of {", ".join(_FIELDS)}')
    required, optional = _FIELDS[op["op"]]
    given = set(op) - {"op"}
    if missing := required - given:
        raise ScriptError(line, f"{op['op']} needs {', '.join(sorted(missing))}")
    if unknown := given - required - optional:
        raise ScriptError(line, f"{op['op']} does not take {', '.join(sorted(unknown))}")
    for name in ("id", "kind", "subject", "tx"):
        if name in op and (not isinstance(op[name], int) or isinstance(op[name], bool)):
            raise ScriptError(line, f"{name} must be a whole number")
    if "tx" in op and not 0 < op["tx"] < 2**63:
        raise ScriptError(line, f"tx {op['tx']} is not in 1 to 2^63 - 1")
    if not isinstance(op.get("replaceable", False), bool):
        raise ScriptError(line, "replaceable must be true or false")
    op["data"] = _decode(op.get("data", ""), line)
    return op


def checked_lines(script: BinaryIO) -> Iterable[bytes]:
    """The lines of a script, once it is known that they are operations: all of a file, and the first one of what can be
    read only once. Raises ScriptError."""
    if not script.seekable():
        first = script.readline()
        if first.strip():
            parse_line(first, 1)
        return chain([first], script)
    place = script.tell()
    for number, text in enumerate(script, start=1):
        if text.strip():
            parse_line(text, number)
    script.seek(place)
    return script


class _GivenTwiceError(ValueError):
    """Raised for a JSON object that has a name twice. Otherwise the second value would silently be used."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _GivenTwiceError(key)
        found[key] = value
    return found


def _decode(data: object, line: int) -> bytes:
    if not isinstance(data, str):
        raise ScriptError(line, "data must be base64 text")
    try:
        return base64.b64decode(data, validate=True)
    except ValueError as error:
        raise ScriptError(line, f"data is not base64: {error}") from None


def apply_operation(journal: BlockingJournal, op: dict[str, Any], line: int) -> Completion:
    """Append a parsed operation. Raises ScriptError for an operation that is refused.

    It waits for room in a full queue: the writer makes room or fails, and its error is raised.
    """
    while True:
        try:
            return _append(journal, op)
        except QueueFullError:
            journal.room().wait()
        except (CallerError, FullError) as error:
            raise ScriptError(line, str(error)) from error


def _append(journal: BlockingJournal, op: dict[str, Any]) -> Completion:
    tx = op.get("tx", 0)
    match op["op"]:
        case "add":
            return journal.add(op["id"], op.get("kind", 0), op["data"], tx=tx)
        case "update":
            replaceable, subject = op.get("replaceable", False), op.get("subject", 0)
            kind = op.get("kind", 0)
            return journal.update(op["id"], kind, op["data"], replaceable=replaceable, subject=subject, tx=tx)
        case "delete":
            return journal.delete(op["id"], tx=tx)
        case "prepare":
            return journal.prepare(tx, op["data"])
        case "commit":
            return journal.commit(tx)
        case _:
            return journal.rollback(tx)


# ---- what dump writes ------------------------------------------------------------------------------------------------


def record_line(record_id: int, kind: int, data: bytes, updates: Sequence[LoadedUpdate]) -> dict[str, Any]:
    return {
        "type": "record",
        "id": record_id,
        "kind": kind,
        "data": encode_data(data),
        "updates": [
            {"kind": update.kind, "data": encode_data(update.data), "subject": update.subject} for update in updates
        ],
    }


def prepared_line(tx: int, data: bytes, operations: Sequence[Operation]) -> dict[str, Any]:
    return {
        "type": "prepared",
        "tx": tx,
        "data": encode_data(data),
        "operations": [operation_line(op) for op in operations],
    }


def operation_line(op: Operation) -> dict[str, Any]:
    """An operation as the JSON object of a script's line, without the operation's transaction."""
    if op.type == DELETE:
        return {"op": "delete", "id": op.id}
    line: dict[str, Any] = {
        "op": "add" if op.type == ADD else "update",
        "id": op.id,
        "kind": op.kind,
        "data": encode_data(op.data),
    }
    if op.type != ADD:
        line |= {"replaceable": op.replaceable, "subject": op.subject}
    return line


def encode_data(data: bytes) -> str:
    return base64.b64encode(data).decode()
