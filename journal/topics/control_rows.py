"""Control rows: what `<name>.control` holds, and how its records become rows.

The rows are the journal's identity, its epoch counter, releases, its destruction, hand-overs, skip requests, reports of
nodes, routes and sources, and marks of archives and trims. An activation depends on some of them: one of these that
cannot be read is an error. The others are advice, and one of these that cannot be read counts as absent, so that a bad
report cannot block the rows that fencing needs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError, Message

from journal.errors import NoJournalError, RowError, TopicError
from journal.kafka.ports import LogRecord
from journal.process.commands import command
from journal.v1.journal_pb2 import (
    Archive,
    Destroyed,
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


class NodeRow(NamedTuple):
    """A node's report. `timestamp` is when the broker took it, in ms since 1970."""

    status: NodeStatus
    timestamp: int


@dataclass(frozen=True, slots=True)
class ControlRows:
    """The state of the control partition: a field for each kind of row."""

    identity: Identity | None = None
    epoch: Epoch = field(default_factory=Epoch)
    released: Released | None = None
    destroyed: Destroyed | None = None
    skips: dict[tuple[int, int], SkipRequest] = field(default_factory=dict)
    """Requests to skip a frame, by shard and WAL offset."""
    hand_over: HandOver | None = None
    nodes: dict[str, NodeRow] = field(default_factory=dict)
    archives: dict[int, Archive] = field(default_factory=dict)
    trims: dict[int, Trim] = field(default_factory=dict)
    route_skips: dict[tuple[int, int], SkipRequest] = field(default_factory=dict)
    """Requests to leave out messages that no route can send, by shard and WAL offset."""
    routes: dict[int, RoutesReport] = field(default_factory=dict)
    sources: SourcesReport | None = None
    source_topics: dict[str, SourceTopics | None] = field(default_factory=dict)
    """The topics that each source has begun, by source. None means that the row cannot be read, which stops that
    source."""
    unreadable: dict[bytes, RowError] = field(default_factory=dict)
    """Unreadable rows that an activation depends on, by key. Only `repair control` continues in spite of them."""

    def require_identity(self, journal: str) -> Identity:
        """The identity. Raises NoJournalError for a journal that `init` has not made, and TopicError for one that
        `destroy` has begun to delete."""
        self.require_not_destroyed(journal)
        if self.identity is None:
            raise NoJournalError(f"journal {journal} is not initialised: run `{command('init', journal=journal)}`")
        return self.identity

    def require_not_destroyed(self, journal: str) -> None:
        """Raises TopicError for a journal that `destroy` has begun to delete."""
        if self.destroyed is not None:
            raise destroyed_journal(journal, self.destroyed)


def destroyed_journal(journal: str, row: Destroyed) -> TopicError:
    """The error for a journal that is half deleted. It names the command that deletes the rest."""
    destroy = command("destroy", journal, journal=journal)
    return TopicError(
        f"journal {journal} is being destroyed, which {row.operator} has begun: `{destroy}` deletes what is left of it"
    )


Entry = Callable[[LogRecord, Any], tuple[object, object]]
"""A function that gives the key and the value of a row in the dictionary of its field."""


class _RowKind(NamedTuple):
    """How rows of one kind are read."""

    field: str
    message: type[Message]
    is_needed: bool
    """Whether an activation depends on such a row."""
    entry: Entry | None = None
    """The function for a field with many rows; None for a field with a single row."""


def _of_shard(_: LogRecord, row: Any) -> tuple[object, object]:
    return row.shard, row


def _of_offset(_: LogRecord, row: SkipRequest) -> tuple[object, object]:
    return (row.shard, row.offset), row


def _of_node(record: LogRecord, row: NodeStatus) -> tuple[object, object]:
    return row.name, NodeRow(row, record.timestamp)


def _of_source(record: LogRecord, row: SourceTopics | None) -> tuple[object, object]:
    return (record.key or b"").partition(b"/")[2].decode(errors="replace"), row


_KINDS: dict[bytes, _RowKind] = {
    b"journal": _RowKind("identity", Identity, True),
    b"epoch": _RowKind("epoch", Epoch, True),
    b"released": _RowKind("released", Released, True),
    b"destroyed": _RowKind("destroyed", Destroyed, True),
    b"skip": _RowKind("skips", SkipRequest, True, _of_offset),
    b"hand-over": _RowKind("hand_over", HandOver, False),
    b"node": _RowKind("nodes", NodeStatus, False, _of_node),
    b"archive": _RowKind("archives", Archive, False, _of_shard),
    b"trim": _RowKind("trims", Trim, False, _of_shard),
    b"route-skip": _RowKind("route_skips", SkipRequest, True, _of_offset),
    b"routes": _RowKind("routes", RoutesReport, False, _of_shard),
    b"sources": _RowKind("sources", SourcesReport, False),
    b"source": _RowKind("source_topics", SourceTopics, False, _of_source),
}
"""By the first word of a key. A kind whose field has many rows has keys with a `/` behind that word."""


def decode_rows(topic: str, records: Iterable[LogRecord]) -> ControlRows:
    """The rows made from the newest record of each key. Raises RowError for an identity of another format."""
    rows: dict[str, Any] = {}
    unreadable: dict[bytes, RowError] = {}
    for record in records:
        key = record.key or b""
        word, slash, _ = key.partition(b"/")
        kind = _KINDS.get(word)
        if kind is None or bool(slash) != (kind.entry is not None):
            continue
        row: Message | None = None
        try:
            row = _parsed(topic, record, kind.message)
        except RowError as error:
            if kind.is_needed:
                unreadable[key] = error
            else:
                log.warning("a control row is not what its key says, and counts as absent: %s", error)
        if kind.entry is None:
            rows |= {} if row is None else {kind.field: row}
        elif row is not None or kind.message is SourceTopics:
            name, value = kind.entry(record, row)
            rows.setdefault(kind.field, {})[name] = value
        if isinstance(row, Identity) and row.format != FORMAT:
            reason = f"the journal has format {row.format}, this kafka-journal reads {FORMAT}"
            raise RowError(reason, topic=topic, partition=0, offset=record.offset)
    return ControlRows(**rows, unreadable=unreadable)


def _parsed(topic: str, record: LogRecord, message: type[Message]) -> Message:
    """The row in a record. Raises RowError."""
    try:
        row = message.FromString(record.value or b"")
    except DecodeError as error:
        raise RowError(str(error), topic=topic, partition=0, offset=record.offset) from None
    if isinstance(row, Identity) and row.magic != MAGIC:
        raise RowError("this is not an identity", topic=topic, partition=0, offset=record.offset)
    return row
