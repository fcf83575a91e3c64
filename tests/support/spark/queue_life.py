"""A made-up life of queues as a WAL, and what it comes to: computed one operation after the other, window by window.

It shares nothing with what Spark does: a dictionary of what is in which queue, and lists that are gone through whole.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from journal.v1.journal_pb2 import ADD, COMMIT, DELETE, MARKER, PREPARE, ROLLBACK, Operation
from journal.v1.store_pb2 import Queue, RecordKind, Reference, UpdateKind
from tests.support.build import (
    START_MS,
    BuiltFrame,
    add,
    commit,
    delete,
    frame,
    marker,
    prepare,
    replace,
    rollback,
    update,
)
from tests.support.frames import ReadFrame, read_frame
from tests.support.spark.frames import TopicRecord

SHARDS = 2
TOPIC = "j.wal"
_STEPS = ("send", "acknowledge", "delete", "refer", "prepare", "commit", "rollback", "idle")
_OFTEN = (30, 26, 6, 16, 5, 8, 4, 2)


# ---- writing -----------------------------------------------------------------------------------------------


class Writer:
    """Frames by chance: what they say need not be allowed."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._now = START_MS
        self._numbers = [0] * SHARDS
        self._epoch = 0
        self._sequence = 1
        self._queues = [900 << 10 | number for number in range(5)]
        self._messages: list[int] = []
        self._staged: dict[int, list[int]] = {}
        """Per transaction, how many operations in each shard."""
        self.records: list[TopicRecord] = []

    def write(self, steps: int) -> list[TopicRecord]:
        self._begin_epoch()
        for queue in self._queues:
            data = Queue(name=f"queue {queue & 1023}", address="a").SerializeToString()
            self._frame(queue, add(queue, data, kind=RecordKind.QUEUE))
        for step in range(steps):
            if step == steps // 2:
                self._begin_epoch()
                late = self._new_message(0)
                fenced = [add(late, kind=RecordKind.MESSAGE), update(late, kind=UpdateKind.ROUTE, subject=900 << 10)]
                self._append(0, frame(99_999, *fenced, epoch=1))
                self._frame(self._queues[4], delete(self._queues[4]))
            what = self._chance.choices(_STEPS, _OFTEN)[0]
            if what in ("prepare", "commit", "rollback"):
                self._turn(what)
            elif what == "idle":
                self._now += 5_000
                self._frame(self._chance.randrange(SHARDS))
            else:
                self._do(what)
        return self.records

    def _do(self, what: str) -> None:
        tx = self._chance.choice((0, 0, 0, *range(1, 7)))
        queue = self._chance.choice(self._queues)
        if what == "send" or not self._messages:
            message = self._new_message(queue)
            targets = [queue, *(each for each in self._queues if (each - queue) % SHARDS == 0 and each > queue)][:2]
            operations = [add(message, b"body", kind=RecordKind.MESSAGE, tx=tx)]
            operations += [update(message, kind=UpdateKind.ROUTE, subject=each, tx=tx) for each in targets]
        else:
            message = self._chance.choice(self._messages[-40:])
            queue = self._chance.choice([each for each in self._queues if (each - message) % SHARDS == 0])
            told = Reference(deliveries=self._chance.randrange(4)).SerializeToString()
            operations = {
                "acknowledge": [update(message, kind=UpdateKind.ACKNOWLEDGE, subject=queue, tx=tx)],
                "delete": [delete(message, tx=tx)],
                "refer": [replace(message, told, kind=UpdateKind.REFERENCE, subject=queue, tx=tx)],
            }[what]
        if tx:
            self._staged.setdefault(tx, [0] * SHARDS)[message % SHARDS] += len(operations)
        self._frame(message, *operations)

    def _turn(self, what: str) -> None:
        """For one transaction, in every shard; at times with a count that is wrong."""
        if not self._staged:
            return
        tx = self._chance.choice(list(self._staged))
        wrong = self._chance.random() < 0.1
        for shard, count in enumerate(self._staged[tx]):
            operation = {"prepare": prepare, "commit": commit, "rollback": rollback}[what]
            self._frame(shard, operation(tx, count + wrong))
        if what != "prepare" and not wrong:
            del self._staged[tx]

    def _new_message(self, of: int) -> int:
        self._sequence += 1
        message = self._sequence << 10 | (of % SHARDS)
        self._messages.append(message)
        return message

    def _begin_epoch(self) -> None:
        self._epoch += 1
        for shard in range(SHARDS):
            self._frame(shard, marker())

    def _frame(self, of: int, *operations: Operation) -> None:
        shard = of % SHARDS
        self._numbers[shard] += 1
        self._append(shard, frame(self._numbers[shard], *operations, epoch=self._epoch, node=f"node-{self._epoch}"))

    def _append(self, shard: int, of: BuiltFrame) -> None:
        self._now += self._chance.randrange(400)
        self.records.append(TopicRecord(TOPIC, shard, len(self.records) * 2, self._now, of.SerializeToString()))


# ---- what it comes to --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Stay:
    """A message in a queue: `returns` has a time for each redelivery."""

    queue: str
    entered: int
    left: int | None = None
    deliveries: int = 0
    returns: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Doubt:
    """A transaction that is prepared, and touches a queue."""

    queue: str
    tx: int
    prepared: int
    settled: int | None = None


@dataclass(slots=True)
class _Part:
    """A transaction in a shard."""

    operations: list[Operation] = field(default_factory=list)
    prepared: int | None = None
    doubts: list[Doubt] = field(default_factory=list)


class Life:
    """What went through queues, according to records in order."""

    def __init__(self, records: Iterable[TopicRecord]) -> None:
        self.stays: list[Stay] = []
        self.doubts: list[Doubt] = []
        self.until = 0
        self._epochs = [0] * SHARDS
        self._queues: dict[int, str] = {}
        self._messages: set[int] = set()
        self._there: dict[tuple[int, int], Stay] = {}
        self._parts: dict[tuple[int, int], _Part] = {}
        for record in records:
            self.until = max(self.until, record.timestamp_ms)
            self._take(record.partition, read_frame(record.value), record.timestamp_ms)

    def _take(self, shard: int, of: ReadFrame, now: int) -> None:
        if of.epoch < self._epochs[shard]:
            return
        self._epochs[shard] = of.epoch
        for operation in of.operations:
            if operation.type == MARKER:
                self._parts = {key: part for key, part in self._parts.items() if key[0] != shard or part.prepared}
            elif operation.type in (PREPARE, COMMIT, ROLLBACK):
                self._turn(shard, operation, now)
            elif operation.tx:
                part = self._parts.setdefault((shard, operation.tx), _Part())
                if part.prepared is None:
                    part.operations.append(operation)
            else:
                self._apply(operation, now)

    def _turn(self, shard: int, of: Operation, now: int) -> None:
        there = self._parts.get((shard, of.tx))
        part = there or _Part()
        if len(part.operations) != of.covers:
            return
        if of.type == PREPARE:
            if part.prepared is None:
                self._parts[shard, of.tx] = part
                part.prepared = now
                touched = {self._name(operation.subject) for operation in part.operations if operation.subject}
                part.doubts = [Doubt(queue, of.tx, now) for queue in touched]
                self.doubts += part.doubts
        elif there is not None:
            del self._parts[shard, of.tx]
            for doubt in part.doubts:
                doubt.settled = now
            for operation in part.operations if of.type == COMMIT else ():
                self._apply(operation, now)

    def _apply(self, of: Operation, now: int) -> None:
        key = (of.subject, of.id)
        if of.type == ADD and of.kind == RecordKind.QUEUE:
            self._queues[of.id] = Queue.FromString(of.data).name
        elif of.type == ADD:
            self._messages.add(of.id)
        elif of.type == DELETE:
            self._messages.discard(of.id)
            for each in [each for each in self._there if of.id in each]:
                self._there.pop(each).left = now
        elif of.id not in self._messages:
            return
        elif of.kind == UpdateKind.REFERENCE:
            if (stay := self._there.get(key)) is not None:
                deliveries = Reference.FromString(of.data).deliveries
                stay.returns += [now] * (deliveries - stay.deliveries)
                stay.deliveries = deliveries
        else:
            if key in self._there:
                self._there.pop(key).left = now
            if of.kind == UpdateKind.ROUTE:
                self._there[key] = stay = Stay(self._name(of.subject), now)
                self.stays.append(stay)

    def _name(self, queue: int) -> str:
        return self._queues[queue]


class Row(NamedTuple):
    """What a queue was like in a window."""

    came_in: int
    went_out: int
    depth: int
    oldest_age_s: float | None
    redeliveries: int
    in_doubt: int
    in_doubt_age_s: float | None
    stayed_ms: tuple[int, ...]


def rows(life: Life, width_ms: int) -> dict[tuple[int, str], Row]:
    """By window's start and queue, all in which something was or happened."""
    found = {}
    for start in range(START_MS // width_ms * width_ms, life.until + 1, width_ms):
        for queue in {stay.queue for stay in life.stays} | {doubt.queue for doubt in life.doubts}:
            row, something = _row(life, queue, start, start + width_ms)
            if something:
                found[start, queue] = row
    return found


def _row(life: Life, queue: str, start: int, end: int) -> tuple[Row, bool]:
    stays = [stay for stay in life.stays if stay.queue == queue]
    doubts = [doubt for doubt in life.doubts if doubt.queue == queue]

    def within(time: int | None) -> bool:
        return time is not None and start <= time < end

    there = [stay.entered for stay in stays if stay.entered < end and (stay.left is None or stay.left >= end)]
    open_ = [doubt.prepared for doubt in doubts if doubt.prepared < end and not (doubt.settled or end) < end]
    row = Row(
        came_in=sum(within(stay.entered) for stay in stays),
        went_out=sum(within(stay.left) for stay in stays),
        depth=len(there),
        oldest_age_s=(end - min(there)) / 1000 if there else None,
        redeliveries=sum(within(time) for stay in stays for time in stay.returns),
        in_doubt=len(open_),
        in_doubt_age_s=(end - min(open_)) / 1000 if open_ else None,
        stayed_ms=tuple(sorted((stay.left or 0) - stay.entered for stay in stays if within(stay.left))),
    )
    turned = any(within(doubt.prepared) or within(doubt.settled) for doubt in doubts)
    return row, turned or any(row[:3]) or bool(row.redeliveries or row.in_doubt)
