"""What a script should leave behind: the simulation's reference, told lines of scripts; none of the product's code.

Also makes scripts: random ones in which every line is allowed.
"""

from __future__ import annotations

import base64
import json
import random
from typing import Any

from tests.simulation.reference import Call, Reference

Line = dict[str, Any]


def encode(data: bytes) -> str:
    return base64.b64encode(data).decode()


def to_text(lines: list[Line]) -> str:
    return "".join(json.dumps(line) + "\n" for line in lines)


def call_of(line: Line) -> Call:
    """A line of a script as the reference takes it."""
    data = base64.b64decode(line.get("data", ""))
    more = line.get("replaceable", False), line.get("subject", 0), line.get("tx", 0)
    return Call(line["op"], line.get("id", 0), line.get("kind", 0), data, *more)


class ScriptModel:
    """Applies the lines of scripts; `dump` is what the command of that name should print."""

    def __init__(self, shards: int, reference: Reference | None = None) -> None:
        self.reference = reference or Reference()
        self._shards = shards

    def apply(self, lines: list[Line]) -> None:
        """All lines of a script, and its end: what is open and not prepared is dropped."""
        for line in lines:
            self.take(line)
        self.reference.new_epoch()

    def take(self, line: Line) -> None:
        """One line."""
        call = call_of(line)
        assert call.verb != "add" or call.tx or call.id not in self.reference.records
        self.reference.apply(call)

    def copy(self) -> ScriptModel:
        """One that what follows here does not touch."""
        return ScriptModel(self._shards, self.reference.copy())

    def dump(self) -> list[Line]:
        seen = self.reference.seen(self._shards)
        lines: list[Line] = []
        for id, (kind, data, updates) in sorted(seen.records.items()):
            shown = [{"kind": of, "data": encode(its), "subject": subject} for of, its, _, subject in updates]
            lines.append({"type": "record", "id": id, "kind": kind, "data": encode(data), "updates": shown})
        for tx, (data, operations) in sorted(seen.prepared.items()):
            staged = [_as_dumped(*operation) for operation in operations]
            lines.append({"type": "prepared", "tx": tx, "data": encode(data), "operations": staged})
        return lines


def _as_dumped(op: str, id: int, kind: int, data: bytes, replaceable: bool, subject: int) -> Line:
    if op == "delete":
        return {"op": op, "id": id}
    of_updates = {"replaceable": replaceable, "subject": subject} if op == "update" else {}
    return {"op": op, "id": id, "kind": kind, "data": encode(data)} | of_updates


def random_script(seed: int, lines: int, transactions: int) -> list[Line]:
    """Allowed lines; transaction n (from 1) touches ids of its own, and every fourth is committed, rolled back,
    prepared and left, or left as it is."""
    chance = random.Random(seed)
    script: list[Line] = []
    live: dict[int, set[int]] = {}
    ended: set[int] = set()
    for _ in range(lines):
        tx = chance.randrange(transactions + 1)
        if tx in ended:
            tx = 0
        script.append(_operation(chance, tx, live.setdefault(tx, set())))
        if tx and chance.random() < 0.05:
            ended.add(tx)
            script += _ending(tx)
    return script


def _operation(chance: random.Random, tx: int, live: set[int]) -> Line:
    id = tx * 100_000 + chance.randrange(1, 200)
    line: Line = {"id": id} | ({"tx": tx} if tx else {})
    if id not in live:
        live.add(id)
        return {"op": "add", "kind": chance.randrange(256), "data": encode(chance.randbytes(20))} | line
    if chance.random() < 0.3:
        live.remove(id)
        return {"op": "delete"} | line
    replaceable = chance.random() < 0.5
    update = {"op": "update", "kind": chance.randrange(3), "data": encode(chance.randbytes(30)), "subject": 0}
    return update | {"replaceable": replaceable, "subject": chance.randrange(3)} | line


def _ending(tx: int) -> list[Line]:
    name = {"op": "prepare", "tx": tx, "data": encode(b"xid-%d" % tx)}
    match tx % 4:
        case 0:
            return [{"op": "commit", "tx": tx}]
        case 1:
            return [{"op": "rollback", "tx": tx}]
        case 2:
            return [name]
        case _:
            return []
