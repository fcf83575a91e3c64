"""The checker's own fold of a shard's WAL, after docs/FORMAT.md: it shares nothing with the product but the messages.

It keeps what the product's fold keeps (records, updates, transactions), and what only a judge wants to know: everything
that came up to take effect, in order, with its epoch and place, whether or not the state allowed it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from journal.v1.journal_pb2 import ADD, COMMIT, DELETE, PREPARE, ROLLBACK, UPDATE, Operation
from tests.chaos.history import digest
from tests.support.frames import ReadFrame, read_frame

MAGIC = 0x314C4A4B
_SETTLING = {PREPARE: "prepare", COMMIT: "commit", ROLLBACK: "rollback"}
_NAMES = {ADD: "add", UPDATE: "update", DELETE: "delete"}

Place = tuple[int, int, int]
"""WAL offset, index of the operation in its frame, and ordinal in its transaction."""


def shard_of(number: int, shards: int) -> int:
    """The shard of a record or transaction."""
    return number % 1024 % shards


class Effect(NamedTuple):
    """Something that took effect: `add`, `update` or `delete` of a record; or, of a prepared transaction, `prepare`,
    `commit` or `rollback`, of which `id` is the transaction and `data` what it holds in the shard."""

    op: str
    id: int
    kind: int = 0
    data: str = ""
    replaceable: bool = False
    subject: int = 0


def prepare_effect(tx: int, name: str, staged: list[Effect]) -> Effect:
    """`name` is the digest of what the prepare carried, in the transaction's home shard; empty elsewhere."""
    return Effect("prepare", tx, data=f"{name} {[tuple(one) for one in staged]}")


def plain_effect(type_: int, id_: int, kind: int, data: bytes, replaceable: bool, subject: int) -> Effect:
    """An add, update or delete, by its fields."""
    name = _NAMES[type_]
    return Effect(name, id_) if name == "delete" else Effect(name, id_, kind, digest(data), replaceable, subject)


def effect_of_operation(op: Operation) -> Effect:
    return plain_effect(op.type, op.id, op.kind, op.data, op.replaceable, op.subject)


def stale_key(effect: Effect) -> tuple[str, int, str]:
    """Enough of an effect to find its operation again where it took none."""
    return effect.op, effect.id, effect.data if effect.op in ("add", "update") else ""


@dataclass
class RecordState:
    kind: int
    data: str
    at: Place
    updates: list[Effect] = field(default_factory=list)

    def line(self) -> dict[str, Any]:
        """The record as a line of a load has it."""
        updates = [[one.kind, one.data, one.replaceable, one.subject] for one in self.updates]
        return {"kind": self.kind, "data": self.data, "at": list(self.at), "updates": updates}


@dataclass
class Part:
    """A transaction's part in the shard."""

    staged: list[Effect] = field(default_factory=list)
    prepared: bool = False
    name: str = ""


Told = tuple[dict[int, dict[str, Any]], dict[int, Any]]
"""Records by id and transactions by number, as plain values that can be compared."""


@dataclass
class ShardState:
    records: dict[int, RecordState] = field(default_factory=dict)
    parts: dict[int, Part] = field(default_factory=dict)

    def told(self) -> Told:
        return {record_id: record.line() for record_id, record in self.records.items()}, {
            tx: (part.prepared, part.name, part.staged) for tx, part in self.parts.items()
        }

    @property
    def prepared(self) -> dict[int, Part]:
        return {tx: part for tx, part in self.parts.items() if part.prepared}


class WalFold:
    """Folds the frames of one shard, given in order."""

    def __init__(self, journal: bytes, on_marker: Callable[[int, ShardState], None] | None = None) -> None:
        """`on_marker` is told the state in which each epoch began."""
        self.state = ShardState()
        self.effects: dict[int, list[Effect]] = defaultdict(list)
        """Everything that came up to take effect, in order, by epoch."""
        self.seen: set[Effect] = set()
        """Everything of records that ever took effect."""
        self.staged: set[tuple[int, Effect]] = set()
        """Everything ever staged, with its transaction."""
        self.stale: dict[int, set[tuple[str, int, str]]] = defaultdict(set)
        """Keys (`stale_key`) of operations that lie behind a newer marker, and so must have no effect, by epoch."""
        self.deleted: set[int] = set()
        """Ids that were there once."""
        self.faults: list[str] = []
        """Frames and operations that should not be there at all."""
        self.offset = -1
        self.epoch = 0
        self._journal = journal
        self._number = 0
        self._group = 0
        self._on_marker = on_marker

    def take(self, offset: int, value: bytes | None) -> None:
        """One record of the WAL."""
        frame = read_frame(value)
        head = frame.message
        self.offset = offset
        if head.magic != MAGIC or head.journal != self._journal or head.count != len(frame.operations):
            self._fault("is not a frame of this journal")
        elif frame.epoch < self.epoch:
            self.stale[frame.epoch] |= {self._stale_key(op) for op in frame.operations}
        else:
            self._check_header(frame)
            self._number, self._group = frame.number, frame.group
            for index, op in enumerate(frame.operations):
                self._apply(frame.epoch, op, (offset, index, 0))

    def _check_header(self, frame: ReadFrame) -> None:
        marks_epoch = frame.is_marker
        if frame.previous != self._number or frame.number != self._number + 1:
            self._fault(f"is frame {frame.number} after {frame.previous}, and follows frame {self._number}")
        if frame.group < self._group:
            self._fault(f"is of group {frame.group}, and follows group {self._group}")
        if marks_epoch != (frame.epoch > self.epoch):
            self._fault(f"is of epoch {frame.epoch} in epoch {self.epoch}, and has a marker: {marks_epoch}")
        if frame.epoch > self.epoch:
            self.epoch = frame.epoch
            self.state.parts = self.state.prepared
            if self._on_marker:
                self._on_marker(frame.epoch, self.state)

    def _apply(self, epoch: int, op: Operation, at: Place) -> None:
        if op.type in _NAMES:
            effect = effect_of_operation(op)
            if op.tx:
                self._stage(op.tx, effect)
            else:
                self._take_effect(epoch, effect, at)
        elif op.type == PREPARE:
            part = self.state.parts.setdefault(op.tx, Part())
            self._check_covers(op, part)
            part.prepared, part.name = True, digest(op.data) if op.data else ""
            self.effects[epoch].append(prepare_effect(op.tx, part.name, part.staged))
        elif op.type in (COMMIT, ROLLBACK):
            self._settle(epoch, op, at)

    def _stage(self, tx: int, effect: Effect) -> None:
        part = self.state.parts.setdefault(tx, Part())
        if part.prepared:
            self._fault(f"stages {effect} for transaction {tx}, which is prepared")
        part.staged.append(effect)
        self.staged.add((tx, effect))

    def _settle(self, epoch: int, op: Operation, at: Place) -> None:
        part = self.state.parts.pop(op.tx, None)
        if part is None:
            self._fault(f"settles transaction {op.tx}, of which nothing is here")
            return
        self._check_covers(op, part)
        if part.prepared:
            self.effects[epoch].append(Effect("commit" if op.type == COMMIT else "rollback", op.tx))
        if op.type == COMMIT:
            for ordinal, effect in enumerate(part.staged, start=1):
                self._take_effect(epoch, effect, (at[0], at[1], ordinal))

    def _check_covers(self, op: Operation, part: Part) -> None:
        if op.covers != len(part.staged):
            self._fault(f"covers {op.covers} operations of transaction {op.tx}, of which {len(part.staged)} are here")

    def _take_effect(self, epoch: int, effect: Effect, at: Place) -> None:
        self.effects[epoch].append(effect)
        self.seen.add(effect)
        records = self.state.records
        if (effect.id in records) == (effect.op == "add"):
            self._fault(f"has {effect}, which the state does not allow")
        elif effect.op == "add":
            records[effect.id] = RecordState(effect.kind, effect.data, at)
        elif effect.op == "delete":
            del records[effect.id]
            self.deleted.add(effect.id)
        else:
            updates = records[effect.id].updates
            slot = True, effect.kind, effect.subject
            if effect.replaceable:
                updates[:] = [one for one in updates if (one.replaceable, one.kind, one.subject) != slot]
            updates.append(effect)

    def _stale_key(self, op: Operation) -> tuple[str, int, str]:
        return stale_key(
            effect_of_operation(op) if op.type in _NAMES else Effect(_SETTLING.get(op.type, "marker"), op.tx)
        )

    def _fault(self, what: str) -> None:
        self.faults.append(f"WAL offset {self.offset} {what}")
