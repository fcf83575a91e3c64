"""Control rows: the journal's identity, its epoch counter, releases and skip requests, in `<name>.control`.

The partition is compacted and small, so it is read from its start each time, up to its high watermark. The high
watermark is asked for without read_committed and waited for with it: a transaction that is open in the partition (even
another writer's) is waited out, and the newest committed epoch is seen whoever holds the last stable offset back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from journal.errors import DeadlineError, RowError, TopicError
from journal.kafka.ports import Clock, Kafka, LogRecord, Sent
from journal.v1.journal_pb2 import Epoch, Identity, Released, SkipRequest
from journal.wire.frames import FORMAT, MAGIC

IDENTITY_KEY = b"journal"
EPOCH_KEY = b"epoch"
RELEASED_KEY = b"released"
_SKIP_PREFIX = b"skip/"

_Message = TypeVar("_Message", bound=Message)


def wal_topic(journal: str) -> str:
    return f"{journal}.wal"


def table_topic(journal: str) -> str:
    return f"{journal}.table"


def control_topic(journal: str) -> str:
    return f"{journal}.control"


def writer_id(journal: str) -> str:
    """Transactional id of the active node: the only writer of the WAL."""
    return f"kafka-journal.{journal}.writer"


def worker_id(journal: str, shard: int) -> str:
    """Transactional id of a shard's worker: the only writer of its table partition."""
    return f"kafka-journal.{journal}.worker.{shard}"


def worker_group(journal: str) -> str:
    """Consumer group of the workers; also the Faust app's id."""
    return f"kafka-journal.{journal}.worker"


def skip_key(shard: int, offset: int) -> bytes:
    return b"skip/%d/%d" % (shard, offset)


@dataclass(frozen=True, slots=True)
class ControlRows:
    """The control partition's state."""

    identity: Identity | None = None
    epoch: Epoch = field(default_factory=Epoch)
    released: Released | None = None
    skips: dict[tuple[int, int], SkipRequest] = field(default_factory=dict)

    def require_identity(self, journal: str) -> Identity:
        """Raises TopicError for a journal that `init` has not made."""
        if self.identity is None:
            raise TopicError(f"journal {journal} is not initialised: run `kafka-journal init -j {journal}`")
        return self.identity


def read_control(kafka: Kafka, journal: str, clock: Clock, timeout_s: float) -> ControlRows:
    """The control rows up to the high watermark as of now. Raises DeadlineError when that takes longer."""
    topic = control_topic(journal)
    until = clock() + timeout_s
    unfiltered = kafka.reader(topic, committed=False)
    try:
        start, high_watermark = unfiltered.start_and_end(0, timeout_s)
    finally:
        unfiltered.close()
    reader = kafka.reader(topic)
    rows: dict[bytes, LogRecord] = {}
    try:
        reader.seek({0: start})
        while reader.position(0) < high_watermark:
            left = until - clock()
            if left <= 0:
                raise DeadlineError(
                    f"{topic}: an open transaction hides what lies before offset {high_watermark}, or Kafka is slow"
                )
            for record in reader.poll(left):
                if record.key is not None:
                    rows[record.key] = record
    finally:
        reader.close()
    return _decode(topic, rows.values())


def _decode(topic: str, records: Iterable[LogRecord]) -> ControlRows:
    identity, epoch, released = None, Epoch(), None
    skips: dict[tuple[int, int], SkipRequest] = {}
    for record in records:
        if record.value is None:
            continue
        if record.key == IDENTITY_KEY:
            identity = _parse(topic, record, Identity)
            if identity.magic != MAGIC or identity.format != FORMAT:
                raise RowError("the identity is of another format", topic=topic, partition=0, offset=record.offset)
        elif record.key == EPOCH_KEY:
            epoch = _parse(topic, record, Epoch)
        elif record.key == RELEASED_KEY:
            released = _parse(topic, record, Released)
        elif record.key is not None and record.key.startswith(_SKIP_PREFIX):
            skip = _parse(topic, record, SkipRequest)
            skips[skip.shard, skip.offset] = skip
    return ControlRows(identity, epoch, released, skips)


def _parse(topic: str, record: LogRecord, message: type[_Message]) -> _Message:
    try:
        return message.FromString(record.value or b"")
    except DecodeError as error:
        raise RowError(str(error), topic=topic, partition=0, offset=record.offset) from None


def control_row(journal: str, key: bytes, message: Message) -> Sent:
    return Sent(control_topic(journal), 0, key, message.SerializeToString())
