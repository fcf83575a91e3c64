"""A message of a journal for `routes test --id`, read from the tables and the newer WAL, or from a running node."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from journal.cli.common import PROGRESS_AFTER_S, StepProgress
from journal.cli.control_socket.client import find_node
from journal.cli.operations.message import missing_message
from journal.cli.reading import loaded_snapshot, opened_journal
from journal.config import Settings
from journal.errors import InvalidOperationError, RouteStopError
from journal.fold.rows import Base
from journal.kafka.clients import kafka_of
from journal.kafka.ports import Kafka
from journal.process.clocks import wall_ms
from journal.process.commands import command
from journal.routing.outcomes import OutgoingRecord, RouteRefusal
from journal.routing.router import Router
from journal.routing.sending import Body
from journal.store.message_records import decode_message, encode_message
from journal.v1.journal_pb2 import Record
from journal.v1.store_pb2 import MESSAGE
from journal.wire.keys import record_key
from streams.agents.facts import FrameFacts
from streams.routes.counts import Checkpointed, ShardCounts
from streams.routes.outgoing import ShardOutgoing
from streams.routes.targets import Targets, fixed_topics, topics_of


class LiveMessage(NamedTuple):
    """The data of a MESSAGE record, a function that reads its large body, and the targets' topics as the cluster
    describes them."""

    message_id: int
    data: bytes
    body: Body
    targets: Targets

    def routed(self, router: Router) -> Sequence[OutgoingRecord | RouteRefusal]:
        """The records that a router with the targets' limits makes of the message. Topics of templates are looked up
        first."""
        outcomes = router.route(self.message_id, self.data)
        unknown = [topic for topic in topics_of(outcomes) if not self.targets.knows(topic)]
        if not unknown:
            return outcomes
        self.targets.look_up(unknown)
        return router.route(self.message_id, self.data)

    def stop(self, settings: Settings, router: Router) -> str:
        """Why the message would stop its shard, with the topics as they are now; empty if it would not."""
        routes = [route.name for route in settings.routing.routes]
        outgoing = ShardOutgoing(
            0, settings.journal, lambda _: router, self.targets, ShardCounts(routes, wall_ms), routes, _what
        )
        added = [(self.message_id, MESSAGE, self.data, 0)]
        frames = {0: FrameFacts(epoch=0, node="", group=0, timestamp=0)}
        try:
            deque(outgoing.route(added, frames, lambda key: None, (), Checkpointed()), maxlen=0)
        except RouteStopError as error:
            return str(error)
        return ""


def _what(offset: int, message: int, what: str, retried: bool) -> str:
    return what


@contextmanager
def live_message(settings: Settings, message_id: int, node: str | None) -> Iterator[LiveMessage]:
    """The message at the WAL's committed end, read without a worker and without disturbing anybody, or as the running
    `node` has it. Raises RecordMissingError if there is no record with that id, and InvalidOperationError if it is no
    message."""
    if node is not None:
        yield _of_a_node(settings, message_id, node)
        return
    with (
        opened_journal(settings) as (kafka, rows),
        StepProgress(after_s=PROGRESS_AFTER_S) as progress,
        loaded_snapshot(settings, kafka, rows, now=True, progress=progress) as state,
    ):
        progress.hide()
        record = _record(state.base, message_id)
        if record is None:
            raise missing_message(message_id, settings.journal)
        if record.kind != MESSAGE:
            raise InvalidOperationError(f"record {message_id} is not a message: {command('explain', message_id)}")

        def body(chunks: Sequence[int]) -> bytes | None:
            parts = [_record(state.base, chunk) for chunk in chunks]
            return b"".join(part.data for part in parts if part is not None) if None not in parts else None

        yield LiveMessage(message_id, record.data, body, _targets(kafka, settings))


def _of_a_node(settings: Settings, message_id: int, node: str) -> LiveMessage:
    """The message as a node has it. Routes read only the size and the body of a large message, so its chunks need no
    ids."""
    with find_node(settings, node) as client:
        data, is_large, pieces = client.message(message_id)
        body = b"".join(pieces)
    if is_large:
        data = encode_message(decode_message(data), chunks=(message_id,), body_bytes=len(body))
    return LiveMessage(message_id, data, lambda chunks: body, _targets(kafka_of(settings), settings))


def _targets(kafka: Kafka, settings: Settings) -> Targets:
    targets = Targets(kafka, settings)
    targets.look_up(fixed_topics(settings.routing))
    return targets


def _record(base: Base, record_id: int) -> Record | None:
    row = base.get(record_key(record_id))
    return None if row is None else Record.FromString(row)
