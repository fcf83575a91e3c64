"""One shard's routes: the messages added since the last checkpoint become records of that checkpoint's transaction.

The records depend only on the operations that took effect, not on the times of checkpoints: each message that was added
is routed once, in WAL order, even if it was deleted before the checkpoint. If a message cannot be sent, and the policy
is `fail`, the shard stops before the frame that added it.

Hot path: it looks at each message once, and calls the router for messages with a route.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from confluent_kafka import murmur2

from journal.errors import OperatingError, RouteStopError, RowError
from journal.fold.rows import Added
from journal.kafka.ports import Sent
from journal.process.commands import command
from journal.routing.dead_letters import record_bytes
from journal.routing.outcomes import OnError, OutgoingRecord, Reason, RouteRefusal, UnfitError
from journal.routing.partitions import MURMUR2, partition_of
from journal.routing.router import Router
from journal.v1.journal_pb2 import Record
from journal.v1.store_pb2 import CHUNK, MESSAGE
from journal.wire.keys import record_key
from streams.agents.facts import FrameFacts
from streams.routes.counts import Checkpointed, Refused, ShardCounts
from streams.routes.targets import Sizes, Targets, topics_of

ROUTED_KINDS = frozenset((MESSAGE, CHUNK))
"""The kinds of records that routes need."""

SKIPPED_BY_OPERATOR = "skipped-by-operator"


GetRow = Callable[[bytes], bytes | None]

StopWords = Callable[[int, int, str, bool], str]
"""A function that makes the text of a stop from the WAL offset, the message, the reason, and whether the worker tries
again itself."""


class OutgrownError(Exception):
    """Raised when the targets accept other sizes now than the producer was made for. The caller then makes another
    producer."""


class ShardOutgoing:
    """The routes of one shard. Used by the thread that checkpoints the shard."""

    def __init__(
        self,
        shard: int,
        journal: str,
        make_router: Callable[[Callable[[Sequence[int]], bytes | None]], Router],
        targets: Targets,
        counts: ShardCounts,
        routes: Sequence[str],
        words: StopWords | None = None,
    ) -> None:
        """`make_router` makes a router from a function that reads large bodies; `routes` are the routes' names. Without
        `words`, the text of a stop says how the worker goes on."""
        self._routes = routes
        self.counts = counts
        self.targets = targets
        self._shard = shard
        self._journal = journal
        self._words = words or self._of_the_worker
        self._router = make_router(self._body)
        self._added: Sequence[Added] = ()
        self._get: GetRow = _nothing
        self._chunks: dict[int, bytes] | None = None
        self._reached: set[str] = set()
        """Topics to which a record was sent since the last checkpoint."""
        self._sizes: Sizes | None = None

    def prepare(self) -> Sizes:
        """The sizes that a new producer may send."""
        self._sizes = self.targets.sizes()
        return self._sizes

    def look(self) -> None:
        """Look at the targets before a checkpoint, if the last one failed. Raises OutgrownError, OperatingError."""
        self.targets.refresh_suspected()
        self._keep_to_sizes()

    def _keep_to_sizes(self) -> None:
        """Raises OutgrownError if a target takes smaller batches than the producer sends, or larger records."""
        made_for, now = self._sizes, self.targets.sizes()
        if made_for is not None and (
            made_for.batch_bytes_max > now.batch_bytes_max or made_for.record_bytes_max < now.record_bytes_max
        ):
            raise OutgrownError(f"it sends {made_for}, and targets take {now}")

    def route(
        self,
        added: Sequence[Added],
        frames: Mapping[int, FrameFacts],
        get: GetRow,
        passed: Collection[int],
        done: Checkpointed,
    ) -> Iterator[Sent]:
        """Yield the records in order. They are not gathered in a list, because a list would take much memory. `done`
        counts them.

        `get` reads the shard's rows of its last checkpoint. At the WAL offsets in `passed` an operator has asked to
        leave out messages that cannot be sent. Raises RouteStopError, OutgrownError, and OperatingError if the cluster
        does not answer.
        """
        self._added, self._get, self._chunks = added, get, None
        self._reached.clear()
        route, reached, new_sent = self._router.route, self._reached, tuple.__new__
        ready = self.targets.ready()
        counts = dict.fromkeys(self._routes, 0)
        slow: list[Sent] = []
        oldest = -1
        for message_id, kind, data, offset in added:
            if kind != MESSAGE:
                continue
            try:
                outcomes = route(message_id, data)
                if not outcomes:
                    continue
                if oldest < 0:
                    oldest = offset
                if len(outcomes) == 1 and type(outcome := outcomes[0]) is OutgoingRecord:
                    name, topic, key, value, headers, rule, _, _ = outcome
                    if topic in ready and topic in reached and key is not None and rule.name == MURMUR2:
                        counts[name] += 1
                        yield new_sent(Sent, (topic, murmur2(key, ready[topic]), key, value, headers))
                        continue
                while not self._take(outcomes, offset, slow, done, passed):
                    outcomes = route(message_id, data)
            except RowError as error:
                if offset not in passed:
                    raise self._stop(offset, message_id, str(error), retried=False) from None
                what = f"message {message_id}: {error}"
                done.refused += [Refused(name, SKIPPED_BY_OPERATOR, what, False) for name in self._routes]
            yield from slow
            slow.clear()
        self._added, self._chunks = (), None
        done.sent.update({name: count for name, count in counts.items() if count})
        if oldest >= 0:
            done.oldest_ms = frames[oldest].timestamp

    def _take(
        self,
        outcomes: Sequence[OutgoingRecord | RouteRefusal],
        offset: int,
        sent: list[Sent],
        done: Checkpointed,
        passed: Collection[int],
    ) -> bool:
        """Add the records of a message's routes to `sent`. False if nothing was done, because a new topic had to be
        looked up first."""
        targets = self.targets
        for outcome in outcomes:
            if type(outcome) is OutgoingRecord:
                is_known = targets.knows(outcome.topic)
            else:
                is_known = all(map(targets.knows, topics_of((outcome,))))
            if not is_known:
                targets.look_up(topics_of(outcomes))
                self._keep_to_sizes()
                return False
        for outcome in outcomes:
            if type(outcome) is OutgoingRecord:
                if self._send(outcome, offset, sent, done, passed):
                    done.sent[outcome.route] += 1
            elif type(outcome) is RouteRefusal:
                self._refuse(outcome, offset, sent, done, passed)
        return True

    def _send(
        self, record: OutgoingRecord, offset: int, sent: list[Sent], done: Checkpointed, passed: Collection[int]
    ) -> bool:
        """Add a record to `sent`. False if its topic has a fault, and an operator has asked to leave the record out."""
        targets, topic = self.targets, record.topic
        fault = targets.fault(topic, keyless=record.key is None)
        if not fault:
            try:
                partition = partition_of(record, targets.partitions(topic))
            except UnfitError as error:
                fault = str(error)
        if not fault:
            self._reached.add(topic)
            sent.append(Sent(topic, partition, record.key, record.value, record.headers))
            return True
        self._leave_out(record.route, record.message, fault, offset, done, passed)
        return False

    def _refuse(
        self, refused: RouteRefusal, offset: int, sent: list[Sent], done: Checkpointed, passed: Collection[int]
    ) -> None:
        reason, letter = refused.reason.value, refused.dead_letter
        # a topic with a fault shows its size limit only when the fault is mended
        fault = self.targets.unfit(refused.topic) if refused.reason is Reason.TOO_LARGE else ""
        if fault or (letter is not None and (fault := self._misfit(letter))):
            self._leave_out(refused.route, refused.message, fault, offset, done, passed)
            return
        if letter is not None:
            if self._send(letter, offset, sent, done, passed):
                done.refused.append(Refused(refused.route, reason, refused.detail, True))
            return
        if refused.on_error is OnError.FAIL:
            if offset not in passed:
                what = f"route {refused.route} cannot send it ({reason}): {refused.detail}"
                raise self._stop(offset, refused.message, what, retried=False)
            reason = SKIPPED_BY_OPERATOR
        done.refused.append(Refused(refused.route, reason, refused.detail, False))

    def _misfit(self, letter: OutgoingRecord) -> str:
        """Why a dead letter, although shortened as far as possible, does not fit its topic; empty if it fits."""
        topic, size = letter.topic, record_bytes(letter.key, letter.value, letter.headers)
        fault = self.targets.unfit(topic)
        if not fault and size > (bytes_max := self.targets.bytes_max[topic]):
            fault = f"its dead letter takes {size} bytes at least, and dead-letter topic {topic} {bytes_max}"
        return fault

    def _leave_out(
        self, route: str, message: int, fault: str, offset: int, done: Checkpointed, passed: Collection[int]
    ) -> None:
        """Leave out a record that its topic cannot take now, if an operator has asked for that; else raise
        RouteStopError."""
        what = f"route {route}: {fault}"
        if offset not in passed:
            raise self._stop(offset, message, what, retried=True)
        done.refused.append(Refused(route, SKIPPED_BY_OPERATOR, what, False))

    def blame(self, topic: str, reason: str) -> bool:
        """Note that the broker refused a record for a topic. If routes had sent to it, nothing goes there until the
        topic is looked at again. Returns whether routes had sent to the topic."""
        if topic not in self._reached:
            return False
        self.targets.refuse(topic, reason)
        return True

    def too_much(
        self, added: Sequence[Added], offset: int, rows: int, times: int, error: OperatingError
    ) -> RouteStopError:
        """The error of a shard at which the checkpoint of a single group, which ends at that WAL offset, fails again
        and again."""
        messages = sum(kind == MESSAGE for _, kind, _, _ in added)
        return RouteStopError(
            f"shard {self._shard} tries again and again to checkpoint the one group that ends at WAL offset {offset}: "
            f"its {rows} rows, and what routes send of its {messages} messages, did not get through in one "
            f"transaction, {times} times: {error}. If Kafka is well, they need more time (set transaction_timeout_ms "
            f"and request_timeout_ms, and restart the worker) or fewer targets; smaller transactions need neither",
            offset=offset,
            retried=True,
        )

    def _stop(self, offset: int, message: int, what: str, *, retried: bool) -> RouteStopError:
        return RouteStopError(self._words(offset, message, what, retried), offset=offset, retried=retried)

    def _of_the_worker(self, offset: int, message: int, what: str, retried: bool) -> str:
        resume = command("routes resume", self._shard, "--skip", offset, journal=self._journal)
        again = "mend that, and it goes on by itself" if retried else "change the route, and restart the worker"
        return (
            f"shard {self._shard} stops before WAL offset {offset}, message {message}: {what}. Either {again}; or "
            f"leave out what cannot be sent: {resume}"
        )

    def _body(self, chunks: Sequence[int]) -> bytes | None:
        """The body of a large message, from its chunks among the added records or in the local copy; None if a chunk is
        missing."""
        if self._chunks is None:
            self._chunks = {chunk: data for chunk, kind, data, _ in self._added if kind == CHUNK}
        parts: list[bytes] = []
        for chunk in chunks:
            data = self._chunks.get(chunk)
            if data is None:
                row = self._get(record_key(chunk))
                if row is None:
                    return None
                data = Record.FromString(row).data
            parts.append(data)
        return b"".join(parts)


def _nothing(key: bytes) -> bytes | None:
    return None
