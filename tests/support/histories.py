"""Random histories of one shard: WAL records over few ids and transactions, so that operations meet each other."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

from journal.v1.journal_pb2 import (
    ADD,
    COMMIT,
    DELETE,
    PREPARE,
    ROLLBACK,
    UPDATE,
    Operation,
)
from tests.support.build import (
    START_MS,
    BuiltFrame,
    add,
    commit,
    delete,
    frame,
    marker,
    prepare,
    rollback,
    update,
)
from tests.support.golden import WalEntry

IDS = st.sampled_from([1, 1, 1, 2, 2, 3])
TRANSACTIONS = st.sampled_from([0, 0, 0, 7, 7, 8])
DATA = st.sampled_from([b"d", b"", b"x" * 30, b"y" * 90])
KINDS = st.integers(1, 2)
SUBJECTS = st.integers(0, 2)


@dataclass
class _Covers:
    """How many operations each transaction has staged, as a writer knows it."""

    staged: dict[int, int] = field(default_factory=dict)
    prepared: set[int] = field(default_factory=set)

    def right(self, tx: int) -> int:
        return self.staged.get(tx, 0)

    def note(self, op: Operation) -> None:
        if op.type in (COMMIT, ROLLBACK) and op.covers == self.right(op.tx):
            self.staged.pop(op.tx, None)
            self.prepared.discard(op.tx)
        elif op.type == PREPARE and op.covers == self.right(op.tx):
            self.prepared.add(op.tx)
        elif op.type in (ADD, UPDATE, DELETE) and op.tx and op.tx not in self.prepared:
            self.staged[op.tx] = self.right(op.tx) + 1

    def new_epoch(self) -> None:
        self.staged = {tx: count for tx, count in self.staged.items() if tx in self.prepared}


def _operation(draw: st.DrawFn, covers: _Covers) -> Operation:
    tx = draw(TRANSACTIONS)
    match draw(st.sampled_from("auuadauuducpcr")):
        case "a":
            op = add(draw(IDS), draw(DATA), kind=draw(KINDS), tx=tx)
        case "u":
            op = update(
                draw(IDS), draw(DATA), kind=draw(KINDS), subject=draw(SUBJECTS), replaceable=draw(st.booleans()), tx=tx
            )
        case "d":
            op = delete(draw(IDS), tx=tx)
        case settling:
            tx = tx or 7
            count = covers.right(tx) if draw(st.integers(0, 3)) else draw(st.integers(0, 3))
            if settling == "p":
                op = prepare(tx, count, draw(DATA), shards=1)
            else:
                op = (commit if settling == "c" else rollback)(tx, count)
    covers.note(op)
    return op


@st.composite
def histories(draw: st.DrawFn, frames_max: int = 12) -> list[WalEntry]:
    """WAL records that begin with a marker: good frames, new epochs, stale frames, repetitions, skipped records."""
    covers = _Covers()
    entries: list[WalEntry] = []
    epoch, number, offset = 1, 1, draw(st.integers(0, 3))

    def put(value: BuiltFrame | bytes, *, skip: bool = False) -> None:
        nonlocal offset
        raw = value if isinstance(value, bytes) else value.SerializeToString()
        entries.append(WalEntry(offset, START_MS + offset, raw, skip))
        offset += draw(st.integers(1, 2))

    put(frame(1, marker()))
    for _ in range(draw(st.integers(min(4, frames_max), frames_max))):
        match draw(st.sampled_from("fffffffffemsgk")):
            case "e":
                epoch, number = epoch + draw(st.integers(1, 2)), number + 1
                put(frame(number, marker(bytes([epoch]) * 16), epoch=epoch, node=f"node-{epoch}"))
                covers.new_epoch()
            case "m" if epoch > 1:
                put(frame(number + 1, _operation(draw, _Covers()), epoch=epoch - 1))
            case "s":
                put(draw(st.binary(max_size=8)), skip=True)
            case "k":
                number += 1
                put(frame(number, _operation(draw, _Covers()), epoch=epoch, issued=number), skip=True)
            case "g":
                entries.append(entries[-1])
            case _:
                number += 1
                operations = [_operation(draw, covers) for _ in range(draw(st.integers(0, 8)))]
                put(frame(number, *operations, epoch=epoch, issued=draw(st.integers(0, 50))))
    return entries
