"""A small history without a fault, made up: what nodes would write down, and the WAL and tables that would go with it.

Loads and tables are made with the checker's own fold, so they agree with the WAL by construction; that the fold is
right is shown by the histories of real runs, whose loads and tables the product made.
"""

from __future__ import annotations

from typing import Any

from journal.v1.journal_pb2 import (
    ADD,
    COMMIT,
    DELETE,
    MARKER,
    PREPARE,
    ROLLBACK,
    UPDATE,
    Frame,
    Mark,
    Operation,
    Position,
    Record,
    Staged,
    Transaction,
    Update,
    Updates,
)
from tests.chaos.checker import Evidence
from tests.chaos.fold import MAGIC, Effect, ShardState, WalFold, shard_of
from tests.chaos.history import EPOCH_BITS, Activation, Submitted, digest

JOURNAL = bytes(range(16))
SHARDS = 2
_TYPES = {"add": ADD, "update": UPDATE, "delete": DELETE, "prepare": PREPARE, "commit": COMMIT, "rollback": ROLLBACK}


class MadeUp:
    """Two shards; every operation is a group of its own, and every one that is written is acknowledged."""

    def __init__(self) -> None:
        self.activations: dict[int, Activation] = {}
        self._wal: list[list[tuple[int, bytes | None]]] = [[] for _ in range(SHARDS)]
        self._epoch = 0
        self._group = 0
        self._open: dict[int, list[Operation]] = {}
        self._prepared: dict[int, list[Operation]] = {}
        self._data: dict[str, bytes] = {}

    def begin(self) -> None:
        """A new epoch, and its load."""
        self._epoch += 1
        self._open.clear()
        for shard in range(SHARDS):
            self._write(shard, [Operation(type=MARKER, data=b"n" * 16)])
        self._group += 1
        activation = Activation(self._epoch, loaded=True)
        for shard in range(SHARDS):
            activation.load += _load(self._fold(shard).state, shard, self._names())
        activation.load = _merged(activation.load)
        activation.load.append(_completed(activation.load))
        self.activations[self._epoch] = activation

    def submit(self, op: str, id: int = 0, *, tx: int = 0, written: bool = True) -> int:
        """One operation; its number."""
        activation = self.activations[self._epoch]
        n = (self._epoch << EPOCH_BITS) + len(activation.submitted) + 1
        carries = op in ("add", "update")
        data = b"%d-" % n if carries else b"xid-%d" % tx if op == "prepare" else b""
        text = digest(data) if data else ""
        self._data[text] = data
        activation.submitted.append(Submitted(n, op, id, 7 if carries else 0, text, tx=tx))
        if written:
            activation.done.add(n)
            if op == "rollback":
                activation.done -= {one.n for one in activation.submitted if one.tx == tx and one.n < n}
            self._take(Operation(type=_TYPES[op], id=id, kind=7 if carries else 0, data=data, tx=tx))
            self._group += 1
        return n

    def evidence(self) -> Evidence:
        return Evidence(JOURNAL, [list(wal) for wal in self._wal], [self._table(shard) for shard in range(SHARDS)])

    # ---- the WAL -------------------------------------------------------------------------------------------------

    def _take(self, op: Operation) -> None:
        if op.type in (ADD, UPDATE, DELETE):
            if op.tx:
                self._open.setdefault(op.tx, []).append(op)
            else:
                self._write(shard_of(op.id, SHARDS), [op])
            return
        held = self._prepared.pop(op.tx, None)
        if held is None and op.type == COMMIT:
            for one in (held := self._open.pop(op.tx)):
                one.ClearField("tx")
            self._spread(held)
        elif held is None and op.type == PREPARE:
            held = self._prepared[op.tx] = self._open.pop(op.tx)
            self._spread(held)
            self._settle(op, held)
        elif held is not None:
            self._settle(op, held)

    def _spread(self, operations: list[Operation]) -> None:
        for shard in range(SHARDS):
            if own := [op for op in operations if shard_of(op.id, SHARDS) == shard]:
                self._write(shard, own)

    def _settle(self, op: Operation, held: list[Operation]) -> None:
        for shard in range(SHARDS):
            covers = sum(shard_of(one.id, SHARDS) == shard for one in held)
            home = shard_of(op.tx, SHARDS) == shard
            if covers or home:
                own = Operation(type=op.type, tx=op.tx, covers=covers, data=op.data if home else b"", shards=SHARDS)
                self._write(shard, [own])

    def _write(self, shard: int, operations: list[Operation]) -> None:
        wal = self._wal[shard]
        number = len(wal)
        frame = Frame(
            magic=MAGIC, format=1, journal=JOURNAL, epoch=self._epoch, node="made-up", group=self._group + 1,
            number=number + 1, previous=number, last=True, count=len(operations), operations=operations,
        )  # fmt: skip
        wal.append((number * 2, frame.SerializeToString()))

    # ---- loads and tables ----------------------------------------------------------------------------------------

    def _fold(self, shard: int) -> WalFold:
        fold = WalFold(JOURNAL)
        for offset, value in self._wal[shard]:
            fold.take(offset, value)
        assert not fold.faults
        return fold

    def _names(self) -> dict[int, str]:
        return {tx: digest(b"xid-%d" % tx) for tx in self._prepared}

    def _table(self, shard: int) -> list[tuple[bytes, bytes | None]]:
        fold = self._fold(shard)
        rows: list[tuple[bytes, bytes | None]] = []
        for record_id in sorted(fold.deleted - fold.state.records.keys()):
            rows.append((b"r" + record_id.to_bytes(8, "big"), None))
        for record_id, record in fold.state.records.items():
            key = b"r" + record_id.to_bytes(8, "big")
            at = Position(offset=record.at[0], index=record.at[1], ordinal=record.at[2])
            row = Record(type=ADD, id=record_id, kind=record.kind, data=self._data[record.data], position=at)
            rows.append((key, row.SerializeToString()))
            updates = [
                Update(
                    type=UPDATE, id=record_id, kind=one.kind, data=self._data[one.data], position=Position(offset=at)
                )
                for at, one in enumerate(record.updates)
            ]
            if updates:
                rows.append((key + b"\x01", Updates(id=record_id, updates=updates).SerializeToString()))
        for tx, part in fold.state.parts.items():
            rows += self._part_rows(shard, tx, part.staged, self._data.get(part.name, b""))
        mark = Mark(shard=shard, offset=fold.offset, epoch=fold.epoch, records=len(fold.state.records))
        return [*rows, (b"m" + shard.to_bytes(2, "big"), mark.SerializeToString())]

    def _part_rows(self, shard: int, tx: int, staged: list[Effect], name: bytes) -> list[tuple[bytes, bytes | None]]:
        key = tx.to_bytes(8, "big") + shard.to_bytes(2, "big")
        part = Transaction(tx=tx, shard=shard, staged=len(staged), prepared=True, data=name, shards=SHARDS)
        rows: list[tuple[bytes, bytes | None]] = [(b"t" + key, part.SerializeToString())]
        for place, one in enumerate(staged):
            row = Staged(
                type=_TYPES[one.op], id=one.id, kind=one.kind, data=self._data.get(one.data, b""), tx=tx, shard=shard,
                position=Position(offset=place),
            )  # fmt: skip
            rows.append((b"x" + key + place.to_bytes(8, "big") + bytes(4), row.SerializeToString()))
        return rows


def _load(state: ShardState, shard: int, names: dict[int, str]) -> list[dict[str, Any]]:
    """What a loader would be told of the shard."""
    lines: list[dict[str, Any]] = [
        {"type": "record", "id": record_id, **record.line()} for record_id, record in state.records.items()
    ]
    for tx, part in state.parts.items():
        operations = [one._asdict() for one in part.staged]
        lines.append({"type": "prepared", "tx": tx, "data": names[tx], "operations": operations})
    return lines


def _merged(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One line for a transaction that has parts in several shards."""
    merged: dict[tuple[str, int], dict[str, Any]] = {}
    for line in lines:
        key = line["type"], line.get("id") or line["tx"]
        if key in merged:
            line = {**line, "operations": merged[key]["operations"] + line["operations"]}
        merged[key] = line
    return list(merged.values())


def _completed(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """What a loader would be told last."""
    counts = {"type": "complete", "records": 0, "updates": 0, "prepared": 0, "operations": 0}
    for line in lines:
        counts["records"] += line["type"] == "record"
        counts["prepared"] += line["type"] == "prepared"
        counts["updates"] += len(line.get("updates", ()))
        counts["operations"] += len(line.get("operations", ()))
    return counts


def made_up() -> MadeUp:
    """Three epochs with everything in it that a fault may be planted in."""
    story = MadeUp()
    story.begin()
    for record_id in range(1, 9):
        story.submit("add", record_id)
    story.submit("update", 1)
    story.submit("update", 1)
    story.submit("delete", 2)
    story.submit("add", 2)
    story.submit("delete", 3)
    story.submit("delete", 4)
    _transaction(story, 11, (21, 22, 23), "commit")
    _transaction(story, 12, (31, 32), "rollback")
    _transaction(story, 13, (41, 42), "prepare")
    _transaction(story, 14, (51, 52), "prepare")
    story.submit("delete", 5)
    story.submit("add", 5, written=False)
    story.begin()
    story.submit("commit", tx=13)
    _transaction(story, 15, (61, 62), "commit")
    for record_id in range(71, 77):
        story.submit("add", record_id)
    story.submit("delete", 71)
    story.submit("delete", 72)
    story.begin()
    return story


def _transaction(story: MadeUp, tx: int, records: tuple[int, ...], end: str) -> None:
    for record_id in records:
        story.submit("add", record_id, tx=tx)
    if end == "prepare":
        story.submit("delete", 6 + tx % 2, tx=tx)
    story.submit(end, tx=tx)
