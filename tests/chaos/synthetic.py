"""A small history without a fault, made up: what nodes would write down, and the WAL and tables that would go with it.

The product's fold makes the tables, and its load the loads: the checker's own fold has to agree with both.
"""

from __future__ import annotations

from journal.load.loading import load
from journal.v1.journal_pb2 import ADD, COMMIT, DELETE, PREPARE, ROLLBACK, UPDATE, Mark, Operation
from journal.wire.keys import mark_key
from tests.chaos.checker import Evidence
from tests.chaos.fold import shard_of
from tests.chaos.history import EPOCH_BITS, Activation, Submitted, digest
from tests.chaos.loading import DigestLoader
from tests.support.build import JOURNAL, DictBase, frame, marker
from tests.support.fold import fold_entries
from tests.support.golden import WalEntry

SHARDS = 2
_TYPES = {"add": ADD, "update": UPDATE, "delete": DELETE, "prepare": PREPARE, "commit": COMMIT, "rollback": ROLLBACK}


class MadeUp:
    """Two shards; every operation is a group of its own, and every one that is written is acknowledged."""

    def __init__(self) -> None:
        self.activations: dict[int, Activation] = {}
        self._wal: list[list[WalEntry]] = [[] for _ in range(SHARDS)]
        self._epoch = 0
        self._group = 0
        self._open: dict[int, list[Operation]] = {}
        self._prepared: dict[int, list[Operation]] = {}

    def begin(self) -> None:
        """A new epoch, and its load."""
        self._epoch += 1
        self._open.clear()
        for shard in range(SHARDS):
            self._write(shard, [marker()])
        self._group += 1
        loader, rows = DigestLoader(), DictBase()
        for shard in range(SHARDS):
            rows.write(self._rows(shard).items())
        load(rows, {shard: Mark.FromString(rows.rows[mark_key(shard)]) for shard in range(SHARDS)}, loader)
        self.activations[self._epoch] = Activation(self._epoch, loader.lines, loaded=True)

    def submit(self, op: str, id: int = 0, *, tx: int = 0, written: bool = True) -> int:
        """One operation; its number."""
        activation = self.activations[self._epoch]
        n = (self._epoch << EPOCH_BITS) + len(activation.submitted) + 1
        carries = op in ("add", "update")
        data = b"%d-" % n if carries else b"xid-%d" % tx if op == "prepare" else b""
        text = digest(data) if data else ""
        activation.submitted.append(Submitted(n, op, id, 7 if carries else 0, text, tx=tx))
        if written:
            activation.done.add(n)
            if op == "rollback":
                activation.done -= {one.n for one in activation.submitted if one.tx == tx and one.n < n}
            self._take(Operation(type=_TYPES[op], id=id, kind=7 if carries else 0, data=data, tx=tx))
            self._group += 1
        return n

    def evidence(self) -> Evidence:
        wal: list[list[tuple[int, bytes | None]]] = [[(each.offset, each.value) for each in its] for its in self._wal]
        return Evidence(JOURNAL, wal, [self._table(shard) for shard in range(SHARDS)])

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
        written = frame(number + 1, *operations, epoch=self._epoch, node="made-up", group=self._group + 1)
        wal.append(WalEntry(number * 2, 0, written.SerializeToString(), False))

    # ---- tables --------------------------------------------------------------------------------------------------

    def _rows(self, shard: int) -> dict[bytes, bytes]:
        return fold_entries(self._wal[shard], JOURNAL, shard, SHARDS).rows

    def _table(self, shard: int) -> list[tuple[bytes, bytes | None]]:
        """The mark comes last, as in a checkpoint."""
        rows = self._rows(shard)
        mark = rows.pop(mark_key(shard))
        return [*rows.items(), (mark_key(shard), mark)]


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
