"""One shard's routes: what was added since its last checkpoint, to records for that checkpoint's transaction.

A function of what took effect alone, whatever the checkpoints: each message that was added is routed once, in WAL
order, also one that was deleted before the checkpoint. What no route can send, and whose policy is `fail`, stops the
shard before the frame that added it.

Hot path: a look at each message, and what the router takes for one of a route.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from confluent_kafka import murmur2

from journal.errors import OperatingError, RouteStopError, RowError
from journal.fold.rows import Added
from journal.kafka.ports import Sent
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
"""Kinds of records that routes want to know of."""

SKIPPED_BY_OPERATOR = "skipped-by-operator"


GetRow = Callable[[bytes], bytes | None]

StopWords = Callable[[int, int, str, bool], str]
"""Makes the text of a stop from the WAL offset, the message, the reason, and whether the worker tries again itself."""


class OutgrownError(Exception):
    """Raised when the targets take other sizes now than the producer was made for: make another producer."""


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
        """`make_router` takes what reads large bodies; `routes` are their names. Without `words` a stop says how the
        worker goes on."""
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
        """Topics that something was sent to since the last checkpoint."""
        self._sizes: Sizes | None = None

    def prepare(self) -> Sizes:
        """The sizes that a producer, which is made now, may send."""
        self._sizes = self.targets.sizes()
        return self._sizes

    def look(self) -> None:
        """Look at the targets before a checkpoint, if the last one failed. Raises OutgrownError, OperatingError."""
        self.targets.refresh_suspected()
        self._keep_to_sizes()

    def _keep_to_sizes(self) -> None:
        """Raises OutgrownError if a target takes smaller batches, or larger records, than the producer sends."""
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
        """The records, in order and one by one: a list of them would take much memory. `done` counts them.

        `get` reads the shard's rows as of its last checkpoint; at the WAL offsets in `passed` an operator has what
        cannot be sent left out. Raises RouteStopError, OutgrownError, and OperatingError if the cluster cannot be
        asked.
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
        """Send what a message's routes send; False if nothing was done, as a topic had to be asked for first."""
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
        """Send a record; False if its topic cannot have it and an operator has it left out."""
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
        # what a topic takes that is not there, or not as it should be, shows when it is mended
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
        """Why a dead letter, shortened as far as it can be, does not fit its topic; empty: it fits."""
        topic, size = letter.topic, record_bytes(letter.key, letter.value, letter.headers)
        fault = self.targets.unfit(topic)
        if not fault and size > (bytes_max := self.targets.bytes_max[topic]):
            fault = f"its dead letter takes {size} bytes at least, and dead-letter topic {topic} {bytes_max}"
        return fault

    def _leave_out(
        self, route: str, message: int, fault: str, offset: int, done: Checkpointed, passed: Collection[int]
    ) -> None:
        """Leave out a record that its topic cannot have now, if an operator says so; else raise RouteStopError."""
        what = f"route {route}: {fault}"
        if offset not in passed:
            raise self._stop(offset, message, what, retried=True)
        done.refused.append(Refused(route, SKIPPED_BY_OPERATOR, what, False))

    def blame(self, topic: str, reason: str) -> bool:
        """The broker refused a record for a topic. If the last `routes` had one: nothing goes there until it is looked
        at. Whether it had."""
        if topic not in self._reached:
            return False
        self.targets.refuse(topic, reason)
        return True

    def too_much(
        self, added: Sequence[Added], offset: int, rows: int, times: int, error: OperatingError
    ) -> RouteStopError:
        """The error of a group, ending at that WAL offset, whose checkpoint alone fails time after time."""
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
        again = "mend that, and it goes on by itself" if retried else "change the route, and restart the worker"
        return (
            f"shard {self._shard} stops before WAL offset {offset}, message {message}: {what}. Either {again}; or "
            f"leave out what cannot be sent: "
            f"kafka-journal routes resume -j {self._journal} {self._shard} --skip {offset}"
        )

    def _body(self, chunks: Sequence[int]) -> bytes | None:
        """A large message's body: its chunks are among what was added, or in the local copy."""
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
