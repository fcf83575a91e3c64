"""Control rows: the journal's identity, its epoch counter, releases, skip requests and nodes, in `<name>.control`.

The partition is compacted and small, so it is read from its start each time, up to its high watermark. The high
watermark is asked for without read_committed and waited for with it: a transaction that is open in the partition (even
another writer's) is waited out, and the newest committed epoch is seen whoever holds the last stable offset back.
A `ControlWatcher` goes on from there and tells what is new as it comes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from google.protobuf.message import DecodeError, Message

from journal.errors import ControlLostError, DeadlineError, RowError, TopicError
from journal.kafka.ports import LOOK_MS, READ_MS, Kafka, LogRecord, Reader, Sent
from journal.process.clocks import Clock
from journal.topics.names import control_topic
from journal.v1.journal_pb2 import (
    Archive,
    Epoch,
    HandOver,
    Identity,
    NodeStatus,
    Released,
    RoutesReport,
    SkipRequest,
    SourcesReport,
    SourceTopics,
    Trim,
)
from journal.wire.frames import FORMAT, MAGIC

log = logging.getLogger(__name__)

IDENTITY_KEY = b"journal"
EPOCH_KEY = b"epoch"
RELEASED_KEY = b"released"
HAND_OVER_KEY = b"hand-over"
SOURCES_KEY = b"sources"
CHECK_KEY = b"check"
"""Only tombstones are written under it: a read behind one is no deposed leader's."""
_SKIP_PREFIX = b"skip/"
_NODE_PREFIX = b"node/"
_ARCHIVE_PREFIX = b"archive/"
_TRIM_PREFIX = b"trim/"
_ROUTE_SKIP_PREFIX = b"route-skip/"
_ROUTES_PREFIX = b"routes/"
_SOURCE_PREFIX = b"source/"

_Message = TypeVar("_Message", bound=Message)


def skip_key(shard: int, offset: int) -> bytes:
    return b"skip/%d/%d" % (shard, offset)


def node_key(name: str) -> bytes:
    return _NODE_PREFIX + name.encode()


def archive_key(shard: int) -> bytes:
    return b"archive/%d" % shard


def trim_key(shard: int) -> bytes:
    return b"trim/%d" % shard


def route_skip_key(shard: int, offset: int) -> bytes:
    return b"route-skip/%d/%d" % (shard, offset)


def routes_key(shard: int) -> bytes:
    return b"routes/%d" % shard


def source_key(name: str) -> bytes:
    return _SOURCE_PREFIX + name.encode()


class NodeRow(NamedTuple):
    """What a node reported, and when by the broker's clock, ms since 1970."""

    status: NodeStatus
    timestamp: int


@dataclass(frozen=True, slots=True)
class ControlRows:
    """The control partition's state."""

    identity: Identity | None = None
    epoch: Epoch = field(default_factory=Epoch)
    released: Released | None = None
    skips: dict[tuple[int, int], SkipRequest] = field(default_factory=dict)
    hand_over: HandOver | None = None
    nodes: dict[str, NodeRow] = field(default_factory=dict)
    archives: dict[int, Archive] = field(default_factory=dict)
    trims: dict[int, Trim] = field(default_factory=dict)
    route_skips: dict[tuple[int, int], SkipRequest] = field(default_factory=dict)
    routes: dict[int, RoutesReport] = field(default_factory=dict)
    sources: SourcesReport | None = None
    source_topics: dict[str, SourceTopics | None] = field(default_factory=dict)
    """By source; None: its row cannot be read, which stops that source."""
    unreadable: dict[bytes, RowError] = field(default_factory=dict)
    """By key, rows that an activation depends on and that cannot be read: `repair control` alone goes on with some."""

    def require_identity(self, journal: str) -> Identity:
        """Raises TopicError for a journal that `init` has not made."""
        if self.identity is None:
            raise TopicError(f"journal {journal} is not initialised: run `kafka-journal init -j {journal}`")
        return self.identity


class ControlWatcher:
    """The control rows as they change. Used by one thread; after an error of Kafka's it is closed, and another made."""

    def __init__(
        self, kafka: Kafka, journal: str, clock: Clock, *, wait_ms: int = READ_MS, repairing: bool = False
    ) -> None:
        """`wait_ms` as of `Kafka.reader`. Rows that cannot be read are an error, unless they are to be repaired."""
        self._kafka = kafka
        self._journal = journal
        self._repairing = repairing
        self._topic = control_topic(journal)
        self._clock = clock
        self._wait_ms = wait_ms
        self._reader: Reader | None = None
        self._records: dict[bytes, LogRecord] = {}
        self.rows = ControlRows()
        """As last read."""

    def catch_up(self, timeout_s: float, *, beyond: int = -1) -> ControlRows:
        """The rows up to the high watermark as of now, and `beyond` an offset that is known to be written. Raises
        DeadlineError when that takes longer."""
        until = self._clock() + timeout_s
        unfiltered = self._kafka.reader(self._topic, committed=False, wait_ms=LOOK_MS)
        try:
            start, high_watermark = unfiltered.start_and_end(0, timeout_s)
        finally:
            unfiltered.close()
        end = max(high_watermark, beyond + 1)
        if self._reader is None:
            self._reader = self._kafka.reader(self._topic, wait_ms=self._wait_ms)
            self._reader.seek({0: start})
        while self._reader.position(0) < end:
            left = until - self._clock()
            if left <= 0:
                raise DeadlineError(
                    f"{self._topic}: an open transaction hides what lies before offset {end}, "
                    "a leader that was deposed answers, or Kafka is slow"
                )
            self._take(self._reader.poll(left))
        self.rows = self._decoded()
        return self.rows

    def poll(self, timeout_s: float) -> bool:
        """Take in what has come since, waiting for the first at most `timeout_s`; whether rows changed.

        Only after `catch_up`.
        """
        assert self._reader is not None, "catch_up first"
        if not self._take(self._reader.poll(timeout_s)):
            return False
        self.rows = self._decoded()
        return True

    def _decoded(self) -> ControlRows:
        rows = _decode(self._topic, self._records.values())
        if self._repairing or not rows.unreadable:
            return rows
        error = next(iter(rows.unreadable.values()))
        raise RowError(
            f"{error.reason}: `kafka-journal repair control -j {self._journal}` writes the rows anew",
            topic=error.topic,
            partition=error.partition,
            offset=error.offset,
        )

    def _take(self, records: Iterable[LogRecord]) -> bool:
        changed = False
        for record in records:
            if record.key is None:
                continue
            changed = True
            if record.value is None:
                self._records.pop(record.key, None)
            else:
                self._records[record.key] = record
        return changed

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()


def read_control(kafka: Kafka, journal: str, clock: Clock, timeout_s: float) -> ControlRows:
    """The control rows up to the high watermark as of now. Raises DeadlineError when that takes longer."""
    watcher = ControlWatcher(kafka, journal, clock, wait_ms=LOOK_MS)
    try:
        return watcher.catch_up(timeout_s)
    finally:
        watcher.close()


def prove_control(
    kafka: Kafka, journal: str, clock: Clock, timeout_s: float, *, repairing: bool = False
) -> ControlRows:
    """The control rows as of now, read behind a write that all replicas in sync have acknowledged.

    Whatever was committed before this was called is among them: a leader that was deposed can neither acknowledge the
    write nor give it to a reader. Raises OperatingError: then nothing is proven. `repairing` as of `ControlWatcher`.
    """
    producer = kafka.plain_producer()
    try:
        beyond = producer.send([Sent(control_topic(journal), 0, CHECK_KEY, None)], timeout_s)[0]
    finally:
        producer.close()
    if beyond < 0:
        raise DeadlineError(f"{control_topic(journal)}: where a write went was not said")
    watcher = ControlWatcher(kafka, journal, clock, wait_ms=LOOK_MS, repairing=repairing)
    try:
        return watcher.catch_up(timeout_s, beyond=beyond)
    finally:
        watcher.close()


def control_lost(journal: str, what: str) -> ControlLostError:
    """Names the partition, and the command that mends it."""
    topic = control_topic(journal)
    return ControlLostError(
        f"{what}: the control rows have lost what was acknowledged. `kafka-journal repair control -j {journal}` writes "
        "identity and epoch anew, as the WAL and the tables have them",
        topic=topic,
        partition=0,
    )


def _decode(topic: str, records: Iterable[LogRecord]) -> ControlRows:
    identity, epoch, released, hand_over = None, Epoch(), None, None
    skips: dict[tuple[int, int], SkipRequest] = {}
    nodes: dict[str, NodeRow] = {}
    archives: dict[int, Archive] = {}
    trims: dict[int, Trim] = {}
    route_skips: dict[tuple[int, int], SkipRequest] = {}
    routes: dict[int, RoutesReport] = {}
    sources: SourcesReport | None = None
    source_topics: dict[str, SourceTopics | None] = {}
    unreadable: dict[bytes, RowError] = {}
    for record in records:
        key = record.key or b""
        if key == IDENTITY_KEY:
            identity = _needed(topic, record, Identity, unreadable)
            if identity is not None and identity.magic != MAGIC:
                unreadable[key] = RowError("this is no identity", topic=topic, partition=0, offset=record.offset)
                identity = None
            elif identity is not None and identity.format != FORMAT:
                raise RowError("the identity is of another format", topic=topic, partition=0, offset=record.offset)
        elif key == EPOCH_KEY:
            epoch = _needed(topic, record, Epoch, unreadable) or Epoch()
        elif key == RELEASED_KEY:
            released = _needed(topic, record, Released, unreadable)
        elif key.startswith(_SKIP_PREFIX):
            skip = _needed(topic, record, SkipRequest, unreadable)
            if skip is not None:
                skips[skip.shard, skip.offset] = skip
        elif key == HAND_OVER_KEY:
            hand_over = _advice(topic, record, HandOver)
        elif key.startswith(_NODE_PREFIX):
            status = _advice(topic, record, NodeStatus)
            if status is not None:
                nodes[status.name] = NodeRow(status, record.timestamp)
        elif key.startswith(_ARCHIVE_PREFIX):
            archive = _advice(topic, record, Archive)
            if archive is not None:
                archives[archive.shard] = archive
        elif key.startswith(_TRIM_PREFIX):
            trim = _advice(topic, record, Trim)
            if trim is not None:
                trims[trim.shard] = trim
        elif key.startswith(_ROUTE_SKIP_PREFIX):
            skip = _needed(topic, record, SkipRequest, unreadable)
            if skip is not None:
                route_skips[skip.shard, skip.offset] = skip
        elif key.startswith(_ROUTES_PREFIX):
            report = _advice(topic, record, RoutesReport)
            if report is not None:
                routes[report.shard] = report
        elif key == SOURCES_KEY:
            sources = _advice(topic, record, SourcesReport)
        elif key.startswith(_SOURCE_PREFIX):
            name = key.removeprefix(_SOURCE_PREFIX).decode(errors="replace")
            source_topics[name] = _advice(topic, record, SourceTopics)
    return ControlRows(
        identity,
        epoch,
        released,
        skips,
        hand_over,
        nodes,
        archives,
        trims,
        route_skips,
        routes,
        sources,
        source_topics,
        unreadable,
    )


def _needed(
    topic: str, record: LogRecord, message: type[_Message], unreadable: dict[bytes, RowError]
) -> _Message | None:
    """A row that an activation depends on; None if it is put among the unreadable ones."""
    try:
        return _parse(topic, record, message)
    except RowError as error:
        unreadable[record.key or b""] = error
        return None


def _advice(topic: str, record: LogRecord, message: type[_Message]) -> _Message | None:
    """A row that nothing depends on: who may write must be found out whatever somebody has put there."""
    try:
        return _parse(topic, record, message)
    except RowError as error:
        log.warning("a control row is not what its key says, and counts as absent: %s", error)
        return None


def _parse(topic: str, record: LogRecord, message: type[_Message]) -> _Message:
    try:
        return message.FromString(record.value or b"")
    except DecodeError as error:
        raise RowError(str(error), topic=topic, partition=0, offset=record.offset) from None


def control_row(journal: str, key: bytes, message: Message | None) -> Sent:
    """None: the row is not there any more."""
    return Sent(control_topic(journal), 0, key, None if message is None else message.SerializeToString())
