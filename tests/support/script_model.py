"""What a script should leave behind, in plain Python: dictionaries and lists, none of the product's code.

Also makes scripts: random ones in which every line is allowed.
"""

from __future__ import annotations

import base64
import json
import random
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

Line = dict[str, Any]

VIRTUAL_SHARDS = 1024


def encode(data: bytes) -> str:
    return base64.b64encode(data).decode()


def to_text(lines: list[Line]) -> str:
    return "".join(json.dumps(line) + "\n" for line in lines)


@dataclass
class ScriptModel:
    """Applies the lines of scripts; `dump` is what the command of that name should print."""

    shards: int
    records: dict[int, Line] = field(default_factory=dict)
    open: dict[int, list[Line]] = field(default_factory=dict)
    prepared: dict[int, Line] = field(default_factory=dict)
    replaceable: dict[int, dict[tuple[int, int], Line]] = field(default_factory=dict)

    def apply(self, lines: list[Line]) -> None:
        """All lines of a script, and its end: what is open and not prepared is dropped."""
        for line in lines:
            self.take(line)
        self.open.clear()

    def dump(self) -> list[Line]:
        records = [self.records[id] for id in sorted(self.records)]
        return records + [self.prepared[tx] for tx in sorted(self.prepared)]

    def copy(self) -> ScriptModel:
        """One that what follows here does not touch."""
        return deepcopy(self)

    def shard_of(self, number: int) -> int:
        """The shard of a record id."""
        return number % VIRTUAL_SHARDS % self.shards

    def take(self, line: Line) -> None:
        """One line."""
        op, tx = line["op"], line.get("tx", 0)
        if op == "prepare":
            held = sorted(self.open.pop(tx, []), key=lambda line: self.shard_of(line["id"]))
            operations = [self._as_dumped(line) for line in held]
            data = line.get("data", "")
            self.prepared[tx] = {"type": "prepared", "tx": tx, "data": data, "operations": operations}
        elif op in ("commit", "rollback"):
            waiting = self.prepared.pop(tx)["operations"] if tx in self.prepared else self.open.pop(tx)
            for effective in waiting if op == "commit" else ():
                self._effect(effective)
        elif tx:
            self.open.setdefault(tx, []).append(line)
        else:
            self._effect(line)

    def _effect(self, line: Line) -> None:
        id = line["id"]
        if line["op"] == "add":
            assert id not in self.records
            kind, data = line.get("kind", 0), line.get("data", "")
            self.records[id] = {"type": "record", "id": id, "kind": kind, "data": data, "updates": []}
            self._slots(id).clear()
        elif line["op"] == "delete":
            del self.records[id]
        else:
            update = {"kind": line.get("kind", 0), "data": line.get("data", ""), "subject": line.get("subject", 0)}
            slots = self._slots(id)
            updates = self.records[id]["updates"]
            if line.get("replaceable"):
                slot = update["kind"], update["subject"]
                if slot in slots:
                    updates[:] = [other for other in updates if other is not slots[slot]]
                slots[slot] = update
            updates.append(update)

    def _slots(self, id: int) -> dict[tuple[int, int], Line]:
        """A record's replaceable updates by kind and subject."""
        return self.replaceable.setdefault(id, {})

    def _as_dumped(self, line: Line) -> Line:
        if line["op"] == "delete":
            return {"op": "delete", "id": line["id"]}
        dumped = {"op": line["op"], "id": line["id"], "kind": line.get("kind", 0), "data": line.get("data", "")}
        if line["op"] == "update":
            dumped |= {"replaceable": line.get("replaceable", False), "subject": line.get("subject", 0)}
        return dumped


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
