"""WAL frames of 500 operations for the worker, made by the writer's own group, in a fixed random order.

Every frame is a group of its own. Every twentieth frame of a shard has staged adds of a transaction, which is prepared
and committed ten frames later (5 % of all operations).
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

from confluent_kafka import KafkaError, Producer
from confluent_kafka import Message as Delivered

from bench.scene import JOURNAL_UUID, RUN_TIMEOUT_S, TIMEOUT_S
from journal.append.completion import Completion
from journal.append.group import FrameNumbers, FrameOrigin, Group
from journal.append.operations import Append
from journal.config import Settings
from journal.errors import FullError
from journal.journal import BlockingJournal
from journal.limits import VIRTUAL_SHARDS, Limits
from journal.store.message_records import encode_message
from journal.store.model import Message
from journal.topics.names import wal_topic, writer_id
from journal.v1.journal_pb2 import ADD, COMMIT, DELETE, MARKER, PREPARE, UPDATE, OperationType
from journal.wire.ids import make_id

BODY_BYTES = 200
FRAME_OPERATIONS = 500
FLEETING_FRAMES = 10
"""In the fleeting workload, nine of ten added records are deleted after this number of frames of their shard, or after
a few more."""

RECORD_KIND = 45
_UPDATE_KIND = 32
_STAGED_EVERY = 20
_SETTLED_AFTER = 10
_FIRST_PART = (ADD, ADD, UPDATE)
_STEADY = (ADD, DELETE, ADD, UPDATE, DELETE, ADD, DELETE, ADD, UPDATE)
_STEADY_AFTER = 0.25


def bodies(count: int = 1000) -> list[bytes]:
    """Returns bodies that compress to about half, as JSON or text would."""
    source = random.Random(7)
    return [source.randbytes(BODY_BYTES // 2).hex().encode() for _ in range(count)]


def message_bodies(count: int = 1000) -> list[bytes]:
    """Returns encoded messages with bodies as `bodies` makes them, all of one address, each with a header."""
    return [
        encode_message(Message("flights.landed.EWR", body, properties={"tail": f"N{number}"}, timestamp=1))
        for number, body in enumerate(bodies(count))
    ]


class PrefilledFrame(NamedTuple):
    shard: int
    value: bytes


class _ShardOperations:
    """The operations of one shard's frames, frame by frame."""

    def __init__(self, shard: int, shards: int, seed: int, kind: int, data: list[bytes] | None) -> None:
        self._shard = shard
        self._shards = shards
        self._random = random.Random(seed)
        self._bodies = bodies()
        self._kind = kind
        self._added_data = data or self._bodies
        self._frame = 0
        self._sequence = 0
        self._transactions = 0
        self._staged: tuple[int, list[int]] | None = None
        self._live: list[int] = []
        self._oldest = 0
        self._fleeting: deque[tuple[int, int]] = deque()
        self._turn = 0

    def next_frame(self, *, fleeting: bool, deletes: bool) -> Iterator[Append]:
        self._frame += 1
        if self._frame % _STAGED_EVERY == _STAGED_EVERY - _SETTLED_AFTER:
            yield from self._stage()
            return
        left = FRAME_OPERATIONS
        if self._staged is not None and self._frame % _STAGED_EVERY == 0:
            yield from self._settle(fleeting)
            left -= 2
        yield from self._fleet(left) if fleeting else self._steady(left, deletes)

    def _append(self, kind_of: OperationType.ValueType, record_id: int, tx: int = 0) -> Append:
        data = b"" if kind_of == DELETE else (self._added_data if kind_of == ADD else self._bodies)[record_id % 997]
        kind = {ADD: self._kind, UPDATE: _UPDATE_KIND, DELETE: 0}[kind_of]
        return Append(self._shard, kind_of, record_id, kind, data, tx=tx)

    def _new_id(self) -> int:
        self._sequence += 1
        return make_id(self._sequence, self._shard)

    def _stage(self) -> Iterator[Append]:
        self._transactions += 1
        tx = self._transactions << 10 | self._shard
        ids = [self._new_id() for _ in range(FRAME_OPERATIONS)]
        self._staged = (tx, ids)
        for record_id in ids:
            yield self._append(ADD, record_id, tx)

    def _settle(self, fleeting: bool) -> Iterator[Append]:
        assert self._staged is not None
        (tx, ids), self._staged = self._staged, None
        yield Append(self._shard, PREPARE, data=b"xid", tx=tx, covers=len(ids), shards=1)
        yield Append(self._shard, COMMIT, tx=tx, covers=len(ids))
        for record_id in ids:
            self._added(record_id, fleeting)

    def _added(self, record_id: int, fleeting: bool) -> None:
        if fleeting and (record_id >> 10) % 10:
            self._fleeting.append((self._frame, record_id))
        else:
            self._live.append(record_id)

    def _steady(self, count: int, deletes: bool) -> Iterator[Append]:
        """Gives adds (one half), updates (a quarter) and, if `deletes` is set, deletes of the oldest records (a
        quarter)."""
        cycle = _STEADY if deletes else _FIRST_PART
        for _ in range(count):
            kind_of = cycle[self._turn % len(cycle)]
            self._turn += 1
            if kind_of == ADD or self._oldest >= len(self._live):
                record_id = self._new_id()
                self._live.append(record_id)
                yield self._append(ADD, record_id)
            elif kind_of == UPDATE:
                yield self._append(UPDATE, self._live[self._random.randrange(self._oldest, len(self._live))])
            else:
                record_id = self._live[self._oldest]
                self._oldest += 1
                yield self._append(DELETE, record_id)

    def _fleet(self, count: int) -> Iterator[Append]:
        """Gives a delete whenever an added record is old enough, and otherwise five adds and three updates in turn."""
        pending = self._fleeting
        for _ in range(count):
            if pending and pending[0][0] <= self._frame - FLEETING_FRAMES:
                yield self._append(DELETE, pending.popleft()[1])
                continue
            self._turn += 1
            if self._turn % 8 < 5 or not pending:
                record_id = self._new_id()
                self._added(record_id, True)
                yield self._append(ADD, record_id)
            else:
                yield self._append(UPDATE, pending[self._random.randrange(len(pending))][1])


def markers(shards: int) -> tuple[list[PrefilledFrame], FrameNumbers]:
    """Returns the markers of epoch 1, one for each shard."""
    group = Group(shards, Limits().frame_bytes_max)
    for shard in range(shards):
        group.put(shard, MARKER, 0, 0, bytes(16))
    return _sealed(group, FrameNumbers((0,) * shards, 0))


def operation_frames(
    shards: int, operations: int, *, fleeting: bool, kind: int = RECORD_KIND, data: list[bytes] | None = None
) -> list[PrefilledFrame]:
    """Returns frames that follow `markers`, shard after shard in turn. `kind` and `data` are those of adds."""
    made: list[PrefilledFrame] = []
    numbers = FrameNumbers((1,) * shards, 1)
    sources = [_ShardOperations(shard, shards, shard, kind, data) for shard in range(shards)]
    count = operations // FRAME_OPERATIONS
    for number in range(count):
        group = Group(shards, Limits().frame_bytes_max)
        for op in sources[number % shards].next_frame(fleeting=fleeting, deletes=number >= count * _STEADY_AFTER):
            group.put_append(op)
        group.issued = number * FRAME_OPERATIONS + FRAME_OPERATIONS
        frames, numbers = _sealed(group, numbers)
        made += frames
    return made


def append_live(journal: BlockingJournal, records: int) -> None:
    """Appends records through an active journal, every second one with an update, and waits until all are committed."""
    data = bodies()
    for sequence in range(1, records + 1):
        record_id = make_id(sequence, sequence % VIRTUAL_SHARDS)
        append_patiently(journal, partial(journal.add, record_id, RECORD_KIND, data[sequence % 997]))
        if sequence % 2:
            append_patiently(journal, partial(journal.update, record_id, _UPDATE_KIND, data[sequence % 991]))
    journal.flush().wait(RUN_TIMEOUT_S)


def append_patiently(journal: BlockingJournal, append: Callable[[], Completion]) -> Completion:
    """Appends, and waits for room in the queue if need be."""
    while True:
        try:
            return append()
        except FullError:
            journal.room().wait(TIMEOUT_S)


def _sealed(group: Group, numbers: FrameNumbers) -> tuple[list[PrefilledFrame], FrameNumbers]:
    numbers = group.seal(FrameOrigin(JOURNAL_UUID, 1, "bench"), numbers)
    return [PrefilledFrame(sent.partition, sent.value or b"") for sent in group.records("")], numbers


class Prefill:
    """Writes frames in one transaction of the journal's id, so that nobody sees any of them before `commit`."""

    def __init__(self, settings: Settings) -> None:
        self._topic = wal_topic(settings.journal)
        self._producer = Producer(
            {
                "bootstrap.servers": settings.bootstrap_servers,
                "transactional.id": writer_id(settings.journal),
                "transaction.timeout.ms": 300_000,
                "linger.ms": 5,
                "compression.type": "lz4",
                "queue.buffering.max.kbytes": 1_000_000,
                "message.max.bytes": Limits().message_bytes_max,
            }
        )
        self._producer.init_transactions(TIMEOUT_S)
        self.last: dict[int, int] = {}
        """WAL offset of the last frame of each shard."""

    def write(self, frames: Iterable[PrefilledFrame]) -> None:
        """Writes frames; when it returns they are at the broker, and invisible."""
        self._producer.begin_transaction()
        for frame in frames:
            produce_patiently(
                self._producer,
                lambda frame=frame: self._producer.produce(  # type: ignore[misc]
                    self._topic, frame.value, partition=frame.shard, on_delivery=self._delivered
                ),
            )
        self._producer.flush(TIMEOUT_S)

    def commit(self) -> float:
        """Commits the transaction; returns the time of the call."""
        began = time.perf_counter()
        self._producer.commit_transaction(TIMEOUT_S)
        return began

    def _delivered(self, error: KafkaError | None, message: Delivered) -> None:
        if error is not None:
            raise RuntimeError(f"a frame was not delivered: {error}")
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        self.last[partition] = offset


def produce_patiently(producer: Producer, produce: Callable[[], None]) -> None:
    """Produces, and waits for room in librdkafka's queue if need be."""
    while True:
        try:
            produce()
        except BufferError:
            producer.poll(0.1)
        else:
            return
