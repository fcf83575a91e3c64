"""Faults planted in a good history, one of each kind: a checker that does not find one of them is none.

Each takes a copy of what a run left, made up or real, and changes one thing in it; it raises LookupError if the history
has no place for it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from journal.v1.journal_pb2 import ADD, COMMIT, DELETE, PREPARE, Operation
from tests.chaos.checker import Evidence, Kind
from tests.chaos.history import Activation, digest
from tests.support.build import rebuilt
from tests.support.frames import ReadFrame, read_frame

STRANGE = b"nobody wrote this"
RECORD_KEY_BYTES = 9

T = TypeVar("T")


@dataclass
class Run:
    """What a run left."""

    evidence: Evidence
    activations: dict[int, Activation]

    def copy(self) -> Run:
        """One that a plant may change."""
        evidence = Evidence(
            self.evidence.journal,
            [list(wal) for wal in self.evidence.wal],
            [list(rows) for rows in self.evidence.table],
        )
        return Run(evidence, copy.deepcopy(self.activations))

    # ---- finding -----------------------------------------------------------------------------------------------------

    def frames(self) -> Iterator[tuple[int, int, ReadFrame]]:
        """Shard, place in its WAL, and frame: the newest first."""
        for shard, wal in enumerate(self.evidence.wal):
            for place in reversed(range(len(wal))):
                yield shard, place, read_frame(wal[place][1])

    def find(self, wanted: Callable[[Operation], bool]) -> tuple[int, int, ReadFrame, int]:
        """The newest plain operation of the kind, in the last frame that has one."""
        for shard, place, frame in self.frames():
            for index in reversed(range(len(frame.operations))):
                if wanted(frame.operations[index]):
                    return shard, place, frame, index
        raise LookupError("no such operation in the WAL")

    def acknowledged_adds(self) -> dict[str, int]:
        """Number of each acknowledged add outside of a transaction, by the digest of its data."""
        return {
            one.data: one.n
            for activation in self.activations.values()
            for one in activation.submitted
            if one.op == "add" and not one.tx and one.n in activation.done
        }

    def last(self) -> Activation:
        return self.activations[max(self.activations)]

    def put(self, shard: int, place: int, frame: ReadFrame, operations: list[Operation]) -> None:
        """A frame in its place, with other operations."""
        value = rebuilt(frame.message, operations).SerializeToString()
        self.evidence.wal[shard][place] = self.evidence.wal[shard][place][0], value


def _first(found: Iterable[T]) -> T:
    for one in found:
        return one
    raise LookupError("the history has nothing of the kind")


def _lost(run: Run) -> None:
    """An acknowledged add is not in its frame."""
    adds = run.acknowledged_adds()
    shard, place, frame, index = run.find(lambda op: op.type == ADD and not op.tx and digest(op.data) in adds)
    operations = list(frame.operations)
    del operations[index]
    run.put(shard, place, frame, operations)


def _partial(run: Run) -> None:
    """One shard lacks what a transaction did there."""
    parts: dict[str, int] = {}
    for activation in run.activations.values():
        committed = {one.tx for one in activation.submitted if one.op == "commit" and one.n in activation.done}
        held = {tx: [one for one in activation.submitted if one.tx == tx and one.op == "add"] for tx in committed}
        parts |= {adds[0].data: tx for tx, adds in held.items() if len(adds) > 1}
    shard, place, frame, index = run.find(lambda op: op.type == ADD and not op.tx and digest(op.data) in parts)
    operations = list(frame.operations)
    del operations[index]
    run.put(shard, place, frame, operations)


def _order(run: Run) -> None:
    """Two frames have changed what they hold."""
    adds = run.acknowledged_adds()
    found: list[tuple[int, int, ReadFrame, int]] = []
    for shard, place, frame in run.frames():
        found = [one for one in found if one[0] == shard and one[2].epoch == frame.epoch]
        for index in reversed(range(len(frame.operations))):
            op = frame.operations[index]
            if op.type == ADD and not op.tx and digest(op.data) in adds:
                found.append((shard, place, frame, index))
                break
        if len(found) == 2:
            break
    if len(found) < 2:
        raise LookupError("no two frames of a shard and epoch have acknowledged adds")
    (_, place, frame, index), (shard, other_place, other, other_index) = found
    operations, others = list(frame.operations), list(other.operations)
    operations[index], others[other_index] = others[other_index], operations[index]
    run.put(shard, place, frame, operations)
    run.put(shard, other_place, other, others)


def _duplicate(run: Run) -> None:
    """An update is there twice."""
    shard, place, frame, index = run.find(lambda op: op.type == ADD and not op.tx)
    operations = list(frame.operations)
    run.put(shard, place, frame, [*operations[: index + 1], *operations[index:]])


def _foreign(run: Run) -> None:
    """A frame has an operation more."""
    shard, place, frame, index = run.find(lambda op: op.type == ADD and not op.tx)
    strange = Operation(type=ADD, id=frame.operations[index].id + (1 << 40), data=STRANGE)
    run.put(shard, place, frame, [*frame.operations, strange])


def _denied(run: Run) -> None:
    """A node was told that an operation is not in the WAL."""
    adds = run.acknowledged_adds()
    _, _, frame, index = run.find(lambda op: op.type == ADD and not op.tx and digest(op.data) in adds)
    activation = run.activations[frame.epoch]
    number = adds[digest(frame.operations[index].data)]
    activation.done.discard(number)
    activation.not_written.add(number)


def _behind_marker(run: Run) -> None:
    """The last acknowledged operations of an epoch stand behind the next one's marker."""
    adds = run.acknowledged_adds()
    for shard, place, frame in run.frames():
        if place and frame.is_marker and frame.epoch > 1:
            wal = run.evidence.wal[shard]
            for earlier in reversed(range(place)):
                before = read_frame(wal[earlier][1])
                if any(op.type == ADD and digest(op.data) in adds for op in before.operations):
                    moved, marker = wal[earlier], wal[place]
                    wal[earlier], wal[place] = (moved[0], marker[1]), (marker[0], moved[1])
                    return
    raise LookupError("no acknowledged add before a marker")


def _resurrected(run: Run) -> None:
    """A record that was deleted before is in the last load."""
    last = run.last()
    live = {line["id"] for line in last.load if line["type"] == "record"}
    earlier = [op for _, _, frame in run.frames() if frame.epoch < last.epoch for op in frame.operations]
    deleted = _first(op.id for op in earlier if op.type == DELETE and not op.tx and op.id not in live)
    line = {"type": "record", "id": deleted, "kind": 1, "data": "0-0", "at": [0, 0, 0], "updates": []}
    last.load.append(line)


def _in_doubt(run: Run) -> None:
    """A prepared transaction is not in the newest load that had one."""
    for _, activation in sorted(run.activations.items(), reverse=True):
        for line in activation.load:
            if line["type"] == "prepared":
                activation.load.remove(line)
                return
    raise LookupError("nothing was ever in doubt")


def _settled_by_nobody(run: Run) -> None:
    """The WAL settles a transaction, and nobody asked for it."""
    settled = {one.tx for its in run.activations.values() for one in its.submitted if one.op in ("commit", "rollback")}
    shard, place, frame, index = run.find(lambda op: op.type == PREPARE and op.tx not in settled)
    prepare = frame.operations[index]
    commit = Operation(type=COMMIT, tx=prepare.tx, covers=prepare.covers)
    run.put(shard, place, frame, [*frame.operations, commit])


def _load(run: Run) -> None:
    """A load shows other data."""
    line = _first(line for line in run.last().load if line["type"] == "record")
    line["data"] = digest(STRANGE)


def _load_order(run: Run) -> None:
    """A load shows a record in another place of its queue."""
    line = _first(line for line in run.last().load if line["type"] == "record")
    line["at"] = [line["at"][0] + 1, *line["at"][1:]]


def _load_twice(run: Run) -> None:
    """A load tells a record twice."""
    load = run.last().load
    load.append(_first(line for line in load if line["type"] == "record"))


def _load_prepared_twice(run: Run) -> None:
    """A load tells a transaction in doubt twice."""
    load = run.last().load
    load.append(_first(line for line in load if line["type"] == "prepared"))


def _load_miscounted(run: Run) -> None:
    """A load ends with other counts than those of what it told."""
    _first(line for line in run.last().load if line["type"] == "complete")["updates"] += 1


def _load_empty(run: Run) -> None:
    """The last activation was given nothing."""
    load = run.last().load
    if not load:
        raise LookupError("nothing was there to be loaded")
    load.clear()


def _table(run: Run) -> None:
    """The tables lack a record."""
    for shard, rows in enumerate(run.evidence.table):
        for key, value in dict(rows).items():
            if key[:1] == b"r" and len(key) == RECORD_KEY_BYTES and value is not None:
                run.evidence.table[shard] = [row for row in rows if row[0] != key]
                return
    raise LookupError("no record in the tables")


def _wal(run: Run) -> None:
    """A frame that changes nothing is gone."""
    for shard, place, frame in run.frames():
        if not frame.operations and place + 1 < len(run.evidence.wal[shard]):
            del run.evidence.wal[shard][place]
            return
    shard, place, frame = next(run.frames())
    frame.message.number += 1
    run.put(shard, place, frame, list(frame.operations))


def _marker(run: Run) -> None:
    """A shard has no marker of the last epoch, nor what follows it."""
    for shard, place, frame in run.frames():
        if frame.epoch == run.last().epoch and frame.is_marker:
            del run.evidence.wal[shard][place:]
            return
    raise LookupError("the last activation has no marker")


PLANTS: dict[str, tuple[Callable[[Run], None], Kind]] = {
    "an acknowledged operation lost": (_lost, Kind.LOST),
    "a transaction torn": (_partial, Kind.PARTIAL),
    "two operations exchanged": (_order, Kind.ORDER),
    "an operation written twice": (_duplicate, Kind.DUPLICATE),
    "an operation of nobody": (_foreign, Kind.FOREIGN),
    "a failure that was none": (_denied, Kind.DENIED),
    "an acknowledgement behind a newer marker": (_behind_marker, Kind.BEHIND_MARKER),
    "a deleted record loaded": (_resurrected, Kind.RESURRECTED),
    "a transaction in doubt forgotten": (_in_doubt, Kind.IN_DOUBT),
    "a transaction settled by nobody": (_settled_by_nobody, Kind.IN_DOUBT),
    "a load of other data": (_load, Kind.LOAD),
    "a load in another order": (_load_order, Kind.LOAD),
    "a load tells a record twice": (_load_twice, Kind.LOAD),
    "a load tells a transaction in doubt twice": (_load_prepared_twice, Kind.LOAD),
    "a load miscounts": (_load_miscounted, Kind.LOAD),
    "the last load is empty": (_load_empty, Kind.LOAD),
    "a row missing in the tables": (_table, Kind.TABLE),
    "a frame missing": (_wal, Kind.WAL),
    "a marker missing": (_marker, Kind.WAL),
}
