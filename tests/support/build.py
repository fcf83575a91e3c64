"""One line makes an operation, a frame, or a shard's WAL; a dictionary stands in for a table."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

from journal.v1.journal_pb2 import (
    ADD,
    COMMIT,
    DELETE,
    MARKER,
    PREPARE,
    ROLLBACK,
    UPDATE,
    FrameColumns,
    Mark,
    Operation,
    Skipped,
)
from journal.v1.journal_pb2 import Frame as FrameMessage
from journal.wire.frames import FORMAT, MAGIC, Frame

JOURNAL = bytes(range(16))
"""The uuid of every journal in tests that do not care."""

NONCE = bytes(range(0x10, 0x20))
START_MS = 1_700_000_000_000


def add(id: int, data: bytes = b"", *, kind: int = 1, tx: int = 0) -> Operation:
    return Operation(type=ADD, id=id, kind=kind, data=data, tx=tx)


def update(
    id: int, data: bytes = b"", *, kind: int = 2, subject: int = 0, replaceable: bool = False, tx: int = 0
) -> Operation:
    return Operation(type=UPDATE, id=id, kind=kind, data=data, replaceable=replaceable, subject=subject, tx=tx)


def replace(id: int, data: bytes = b"", *, kind: int = 2, subject: int = 0, tx: int = 0) -> Operation:
    """A replaceable update."""
    return update(id, data, kind=kind, subject=subject, replaceable=True, tx=tx)


def delete(id: int, *, tx: int = 0) -> Operation:
    return Operation(type=DELETE, id=id, tx=tx)


def prepare(tx: int, covers: int = 0, data: bytes = b"", *, shards: int = 1) -> Operation:
    return Operation(type=PREPARE, tx=tx, covers=covers, data=data, shards=shards)


def commit(tx: int, covers: int = 0) -> Operation:
    return Operation(type=COMMIT, tx=tx, covers=covers)


def rollback(tx: int, covers: int = 0) -> Operation:
    return Operation(type=ROLLBACK, tx=tx, covers=covers)


def marker(nonce: bytes = NONCE) -> Operation:
    return Operation(type=MARKER, data=nonce)


class BuiltFrame(Frame):
    """A frame with anything in it."""

    __slots__ = ("message",)

    def __init__(self, message: FrameColumns) -> None:
        super().__init__(message)
        self.message = message

    def SerializeToString(self) -> bytes:
        return self.message.SerializeToString()


def frame(
    number: int,
    *operations: Operation,
    epoch: int = 1,
    node: str = "node-1",
    group: int | None = None,
    previous: int | None = None,
    last: bool = True,
    issued: int = 0,
    journal: bytes = JOURNAL,
) -> BuiltFrame:
    """A frame with its operations in this order; its group is its number and it follows `number - 1` unless said
    otherwise."""
    return BuiltFrame(
        FrameColumns(
            magic=MAGIC,
            format=FORMAT,
            journal=journal,
            epoch=epoch,
            node=node,
            group=number if group is None else group,
            number=number,
            previous=number - 1 if previous is None else previous,
            last=last,
            issued=issued,
            count=len(operations),
            types=bytes(op.type for op in operations),
            ids=_numbers("q", [op.id for op in operations]),
            kinds=bytes(op.kind for op in operations),
            lengths=_numbers("I", [len(op.data) for op in operations]),
            subjects=_numbers("q", [op.subject for op in operations]),
            replaceable=bytes(op.replaceable for op in operations),
            txs=_numbers("q", [op.tx for op in operations]),
            covers=_numbers("I", [op.covers for op in operations]),
            shards=_numbers("I", [op.shards for op in operations]),
            data=b"".join(op.data for op in operations),
        )
    )


def rebuilt(head: FrameMessage, operations: Iterable[Operation]) -> BuiltFrame:
    """A frame with the header of another one, and these operations."""
    return frame(
        head.number,
        *operations,
        epoch=head.epoch,
        node=head.node,
        group=head.group,
        previous=head.previous,
        last=head.last,
        issued=head.issued,
        journal=head.journal,
    )


def _numbers(form: str, numbers: list[int]) -> bytes:
    return struct.pack(f"<{len(numbers)}{form}", *numbers)


def wal(*groups: Iterable[Operation], epoch: int = 1, first: int = 1) -> list[tuple[int, int, BuiltFrame]]:
    """One shard's (offset, timestamp, frame), one frame a group; each group's commit marker takes an offset too."""
    return [
        (2 * (number - 1), START_MS + number, frame(number, *operations, epoch=epoch))
        for number, operations in enumerate(groups, first)
    ]


def skipped(offset: int, *, shard: int = 0, raw: bytes = b"") -> Skipped:
    return Skipped(shard=shard, offset=offset, raw=raw, reason="not a frame", operator="someone", timestamp=START_MS)


class DictBase:
    """Rows in memory: a base for `Fold`, and where its changes go."""

    def __init__(self, rows: dict[bytes, bytes] | None = None) -> None:
        self.rows: dict[bytes, bytes] = dict(rows or {})

    def get(self, key: bytes) -> bytes | None:
        return self.rows.get(key)

    def scan(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        return sorted(row for row in self.rows.items() if row[0].startswith(prefix))

    def write(self, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        for key, value in changes:
            if value is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = value


def unchained(rows: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Rows of a table, whatever checkpoints there were: marks without the names of those before them."""
    plain = dict(rows)
    for key in [key for key in plain if key[:1] == b"m"]:
        mark = Mark.FromString(plain[key])
        mark.ClearField("previous")
        plain[key] = mark.SerializeToString()
    return plain
