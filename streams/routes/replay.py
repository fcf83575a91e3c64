"""A replay sends the records of a route for the messages of a range again, on demand, and exactly once.

    WAL up to the mark (ShardHistory) -> the route (ShardOutgoing) -> records of some frames
    one Kafka transaction: these records, and the WAL offset behind their frames as the replay's consumer group offset

All runs of a replay share a transactional id and a consumer group, which follow from route and range. A run begins with
init, which fences an older run and ends its open transaction. Then it continues at the committed offsets of the group:
exactly the records before them were sent. The group has no members.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from journal.config import Settings
from journal.errors import FatalProducerError, OperatingError, RouteStopError
from journal.kafka.ports import Consumed, Kafka, Sent, TransactionalProducer
from journal.process.clocks import Clock, wall_ms
from journal.routing.router import Router
from journal.topics.control_rows import ControlRows
from journal.topics.marks import MarkReader
from journal.topics.names import OwnTopics, replay_id, table_topic, wal_topic
from journal.v1.journal_pb2 import Mark
from streams.agents.facts import FrameFacts
from streams.routes.counts import Checkpointed, ShardCounts
from streams.routes.outgoing import OutgrownError, ShardOutgoing
from streams.routes.replay_history import FrameMessages, ShardHistory
from streams.routes.replay_range import ReplayRange
from streams.routes.targets import Sizes, Targets

RECORDS_AT_ONCE = 1000
BYTES_AT_ONCE = 4 * 1024 * 1024
"""The number of records in one Kafka transaction, and their bytes. The records of its last frame may exceed both,
because a frame is not split."""

Progress = Callable[[str, int, int], None]
"""A function that is called with the step, the work done, and the whole work."""


@dataclass(slots=True)
class ShardReplayed:
    """The result of one run in a shard."""

    shard: int
    began_at: int
    """The WAL offset up to which earlier runs had sent."""
    end: int
    """The WAL offset up to which this run has read. Frames behind it had not taken effect yet."""
    messages: int = 0
    """The number of messages of the range, from `began_at` on."""
    sent: int = 0
    dead_letters: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    """The number of messages that were not sent, by reason, including dead letters."""


class RouteReplay:
    """One run of a replay."""

    def __init__(
        self,
        settings: Settings,
        rows: ControlRows,
        kafka: Kafka,
        route: str,
        range_: ReplayRange,
        *,
        sized: Callable[[Sizes], Kafka],
        again: int = 0,
        dry_run: bool = False,
        records_at_once: int = RECORDS_AT_ONCE,
        bytes_at_once: int = BYTES_AT_ONCE,
        clock: Clock = time.monotonic,
        progress: Progress = lambda _step, _done, _total: None,
    ) -> None:
        """`sized` makes Kafka clients whose producers keep to the sizes that it is given. With a number `again`, a
        finished replay is sent once more. Raises ConfigError for a route that does not exist."""
        self._settings = settings
        self._rows = rows
        self._identity = rows.require_identity(settings.journal)
        self._kafka = kafka
        self._route = route
        self._range = range_
        self._sized = sized
        self._dry_run = dry_run
        self._records_at_once = records_at_once
        self._bytes_at_once = bytes_at_once
        self._clock = clock
        self._progress = progress
        self._timeout_s = settings.request_timeout_ms / 1000
        self._name = replay_id(settings.journal, route, range_.digest(again))
        self.replayed: list[ShardReplayed] = []
        """The result of this run for each shard, also after an error."""
        routing = settings.routing
        alone = routing.model_copy(update={"routes": tuple(each for each in routing.routes if each.name == route)})
        self._targets = Targets(kafka, settings.model_copy(update={"routing": alone}))
        self._router = Router(
            routing,
            journal=settings.journal,
            own_topics=OwnTopics(settings.journal),
            bytes_max=self._targets.bytes_max,
            replay_of=route,
        )

    def run(self) -> None:
        """Send the records that earlier runs have not sent, one shard after the other. Records sent before an error
        stay sent, and the next run does not repeat them.

        Raises TopicError, GapError for a range that is not in the WAL any more, RouteStopError for a message that
        cannot be sent, and OperatingError.
        """
        self._targets.check()
        marks = MarkReader(self._kafka, table_topic(self._settings.journal), self._clock)
        try:
            found = [marks.newest(shard, self._timeout_s).mark for shard in range(self._identity.shards)]
        finally:
            marks.close()
        histories = [self._history(mark) for mark in found]
        for history in histories:
            history.require_range()
        for mark, history in zip(found, histories, strict=True):
            try:
                self._replay(mark, history)
            finally:
                history.close()

    def _history(self, mark: Mark) -> ShardHistory:
        return ShardHistory(
            self._kafka,
            self._identity,
            mark,
            self._range,
            skips={offset for shard, offset in self._rows.skips if shard == mark.shard},
            trim=self._rows.trims.get(mark.shard),
            clock=self._clock,
            timeout_s=self._timeout_s,
        )

    def _replay(self, mark: Mark, history: ShardHistory) -> None:
        shard, outgoing = mark.shard, self._outgoing(mark.shard)
        sending = _Sending(shard, self._name, wal_topic(self._settings.journal), self._timeout_s)
        try:
            if self._dry_run:
                sending.begin_at(self._committed().get(shard, 0))
            else:
                self._open(sending, outgoing)
            replayed = ShardReplayed(shard, sending.done, mark.offset + 1)
            self.replayed.append(replayed)
            for frame in history.frames(lambda read, of: self._progress(f"shard {shard}", read, of)):
                self._take(frame, history, outgoing, sending, replayed)
            self._send(sending, outgoing)
        finally:
            sending.close()

    def _take(
        self,
        frame: FrameMessages,
        history: ShardHistory,
        outgoing: ShardOutgoing,
        sending: _Sending,
        replayed: ShardReplayed,
    ) -> None:
        """Add the records of a frame. They are sent together with those added before."""
        if frame.offset < sending.done:
            return
        facts = {frame.offset: FrameFacts(0, "", 0, frame.timestamp)}
        passed = {offset for shard, offset in self._rows.route_skips if shard == replayed.shard}
        while True:
            done = Checkpointed()
            try:
                records = list(outgoing.route(frame.messages, facts, history.row, passed, done))
                break
            except OutgrownError:
                self._send(sending, outgoing)
                self._open(sending, outgoing)
                if frame.offset < sending.done:
                    return
            except RouteStopError:
                self._send(sending, outgoing)
                raise
        replayed.messages += len(frame.messages)
        replayed.sent += done.sent[self._route]
        for each in done.refused:
            replayed.refused[each.reason] += 1
            replayed.dead_letters += each.dead_letter
        sending.add(records, frame.offset + 1)
        if len(sending.records) >= self._records_at_once or sending.bytes >= self._bytes_at_once:
            self._send(sending, outgoing)

    # ---- sending ---------------------------------------------------------------------------------------------------

    def _open(self, sending: _Sending, outgoing: ShardOutgoing) -> None:
        sending.open(self._sized(outgoing.prepare()).transactional_producer(self._name))
        sending.begin_at(self._committed(stable=True).get(sending.shard, 0))

    def _send(self, sending: _Sending, outgoing: ShardOutgoing) -> None:
        if self._dry_run:
            sending.clear()
        elif not sending.send():
            # a repeated request may still arrive, and would change the next transaction
            self._open(sending, outgoing)

    def _committed(self, *, stable: bool = False) -> dict[int, int]:
        """The WAL offset up to which this replay is done, by shard."""
        cluster = self._kafka.cluster()
        topic = wal_topic(self._settings.journal)
        try:
            if not stable:
                return cluster.group_offsets(self._name, topic, self._timeout_s)
            places = [(topic, shard) for shard in range(self._identity.shards)]
            found = cluster.stable_offsets(self._name, places, self._timeout_s)
        finally:
            cluster.close()
        return {shard: offset for (_, shard), offset in found.items()}

    # ---- the route -------------------------------------------------------------------------------------------------

    def _outgoing(self, shard: int) -> ShardOutgoing:
        def words(offset: int, message: int, what: str, retried: bool) -> str:
            mend = "mend that" if retried else "change the route, or its on_error,"
            return (
                f"the replay stops in shard {shard} before WAL offset {offset}, message {message}: {what}. What came "
                f"before {'would be' if self._dry_run else 'was'} sent: {mend} and run it again, it goes on from there"
            )

        counts = ShardCounts([self._route], wall_ms)
        return ShardOutgoing(
            shard, self._settings.journal, self._router.reading, self._targets, counts, [self._route], words=words
        )


class _Sending:
    """Records of one shard that are gathered for transactions, and the WAL offset up to which they are committed."""

    def __init__(self, shard: int, name: str, topic: str, timeout_s: float) -> None:
        self.shard = shard
        self.done = 0
        """The WAL offset up to which all records are sent."""
        self.records: list[Sent] = []
        self.bytes = 0
        """The size of these records, without their headers."""
        self._name = name
        self._topic = topic
        self._timeout_s = timeout_s
        self._next = 0
        self._producer: TransactionalProducer | None = None

    def open(self, producer: TransactionalProducer) -> None:
        """Send with `producer` from now on. Its init has fenced an older run and ended that run's open transaction."""
        self.close()
        self._producer = producer
        producer.init(self._timeout_s)

    def begin_at(self, offset: int) -> None:
        self.done = offset

    def add(self, records: Sequence[Sent], next_offset: int) -> None:
        """Add the records of the frames before a WAL offset."""
        self.records += records
        self.bytes += sum(len(record.key or b"") + len(record.value or b"") for record in records)
        self._next = next_offset

    def clear(self) -> None:
        """Drop the gathered records."""
        self.records.clear()
        self.bytes = 0

    def send(self) -> bool:
        """Commit the gathered records with their WAL offset; False if this producer must not be used again."""
        if not self.records or self._producer is None:
            return True
        producer, timeout_s = self._producer, self._timeout_s
        try:
            producer.send(self.records, timeout_s)
            clean = producer.send_offsets(Consumed(self._name, {(self._topic, self.shard): self._next}), timeout_s)
            clean &= producer.commit_transaction(timeout_s)
        except FatalProducerError as error:
            if not error.fenced:
                raise
            raise OperatingError(
                f"another run of this replay has taken over, or a transaction took too long ({error}): run it again, "
                "it goes on where the last committed transaction ended"
            ) from error
        self.done = self._next
        self.clear()
        return clean

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()
            self._producer = None
