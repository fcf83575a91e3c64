"""A batch: what records become of the store, of other topics and of their sources' offsets, by each source's policy.

Pure but for the store, which encodes and says which queues there are.

Hot path: one call of `Ingress.convert` and one of `MessageStore.incoming` a record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from journal.errors import InvalidOperationError, MessageMissingError, MessageTooLargeError
from journal.ingress.filters import Filters
from journal.ingress.requests import Waiting, unanswered
from journal.ingress.stops import Place
from journal.kafka.ports import Sent
from journal.limits import Limits
from journal.routing.config import RoutingConfig, SourceConfig
from journal.routing.dead_letters import refusal
from journal.routing.ingress import Ingress, SourceRecord
from journal.routing.outcomes import OnError, Reason, Refusal, RefusedError
from journal.routing.partitions import partition_of
from journal.store.model import Message
from journal.store.store import MessageStore
from journal.store.taking_in import Incoming, Settles

Partition = tuple[str, int]

_OVERDUE_MAX = 100
"""Requests that are given up in one batch."""


@dataclass(slots=True)
class Counts:
    """What a batch means for one source."""

    records: int = 0
    messages: int = 0
    refused: Counter[Reason] = field(default_factory=Counter)
    dead_letters: int = 0


@dataclass(slots=True)
class Batch:
    """Records of several sources, up to where one of them stops."""

    messages: list[Incoming] = field(default_factory=list)
    beside: list[Sent] = field(default_factory=list)
    settles: list[Settles] = field(default_factory=list)
    """Requests that its replies answer, or that are given up."""
    offsets: dict[Partition, int] = field(default_factory=dict)
    counts: dict[str, Counts] = field(default_factory=dict)
    stopped: dict[str, str] = field(default_factory=dict)
    """Sources that a record stops, and why: it and what follows is not in the batch."""
    stopped_at: dict[str, Place] = field(default_factory=dict)
    """Those records."""
    left: Sequence[SourceRecord] = ()
    """Records for the next batch: this one is large enough."""


class Converter:
    """Makes batches for one activation."""

    def __init__(
        self,
        ingress: Ingress,
        routing: RoutingConfig,
        store: MessageStore,
        filters: Filters,
        waiting: Waiting,
        limits: Limits,
        *,
        batch_bytes: int,
        request_s: float,
    ) -> None:
        self.partitions: Mapping[str, int] = {}
        """How many partitions each topic has, for dead letters."""
        self._ingress = ingress
        self._routing = routing
        self._store = store
        self._filters = filters
        self._waiting = waiting
        self._request_s = request_s
        self._data_bytes_max = limits.data_bytes_max
        self._body_bytes_max = limits.queue_bytes_max // 2
        self._batch_bytes = min(batch_bytes, limits.queue_bytes_max // 2)
        self._sources: dict[str, SourceConfig] = {}
        self._bad_addresses: dict[str, str] = {}

    def has_replies(self, records: Sequence[SourceRecord]) -> bool:
        """Whether requests may be waiting for these: then the batch before them must have landed."""
        return bool(self._waiting) and any(self._source_of(record.topic).replies for record in records)

    def batch(self, records: Sequence[SourceRecord]) -> Batch:
        """What these become; `left` of them what would make it too large. Raises DeadlineError."""
        batch, size = Batch(), 0
        replies = self.has_replies(records)
        if replies:
            batch.stopped |= self._waiting.look(self._request_s)
        self._bad_addresses = {}
        converted: list[Message | Refusal] = []
        answered: dict[int, Settles] = {}
        for place, record in enumerate(records):
            if size > self._batch_bytes:
                batch.left = records[place:]
                break
            one = self._ingress.convert(record)
            if replies and isinstance(one, Message) and self._source_of(record.topic).replies:
                settles = self._waiting.settles(one)
                if settles is not None:
                    if settles in answered.values():
                        batch.left = records[place:]  # a second reply finds what the first one has left
                        break
                    answered[place] = settles
            converted.append(one)
            size += len(record.value or b"")
        self._bad_addresses = self._filters.unreachable({each.address for each in converted if type(each) is Message})
        for place, one in enumerate(converted):
            self._add(batch, records[place], one, answered.get(place))
        return batch

    def overdue(self, offsets: Mapping[Partition, int]) -> Batch | None:
        """Requests that have waited too long for their replies, given up; None: there are none (left).

        `offsets` are committed once more: a batch has some. Raises DeadlineError.
        """
        if not self._waiting or not offsets:
            return None
        self._waiting.look(self._request_s)
        batch, size = Batch(offsets=dict(offsets)), 0
        for requests, request in self._waiting.overdue(_OVERDUE_MAX)[:_OVERDUE_MAX]:
            if size > self._batch_bytes:
                break
            source = requests.source
            try:
                message = self._store.message(request.message)
            except MessageMissingError:
                continue
            given_up = unanswered(
                source, request.message, message, self._routing.dead_letter_topic, self._routing.record_bytes_max
            )
            if not self._put_aside(batch, given_up):
                batch.stopped[source.name] = "there is no topic for dead letters"
                continue
            size += len(message.body)
            batch.settles.append(requests.settles(request, expired=True))
            counts = batch.counts.setdefault(source.name, Counts())
            counts.refused[given_up.reason] += 1
            counts.dead_letters += given_up.dead_letter is not None
        return batch if batch.settles else None

    def _add(self, batch: Batch, record: SourceRecord, one: Message | Refusal, settles: Settles | None) -> None:
        source = self._source_of(record.topic)
        if source.name in batch.stopped:
            return
        incoming = None
        if isinstance(one, Message):
            try:
                incoming = self._incoming(one)
            except RefusedError as error:
                one = self._refuse(source, record, error)
        counts = batch.counts.get(source.name)
        if counts is None:
            counts = batch.counts[source.name] = Counts()
        if incoming is not None:
            batch.messages.append(incoming)
            counts.messages += 1
            if settles is not None:
                batch.settles.append(settles)
        elif isinstance(one, Refusal):
            if one.on_error is OnError.FAIL or not self._put_aside(batch, one):
                where = Place(record.topic, record.partition, record.offset)
                batch.stopped[source.name] = f"{where}: {one.detail} ({one.reason.value}): see on_error"
                batch.stopped_at[source.name] = where
                return
            counts.refused[one.reason] += 1
            counts.dead_letters += one.dead_letter is not None
        counts.records += 1
        batch.offsets[record.topic, record.partition] = record.offset + 1

    def _source_of(self, topic: str) -> SourceConfig:
        source = self._sources.get(topic)
        if source is None:
            source = self._ingress.source_of(topic)
            assert source is not None, f"{topic} is consumed, and no source's"
            self._sources[topic] = source
        return source

    def _incoming(self, message: Message) -> Incoming:
        """Raises RefusedError for what the store would not take."""
        bad = self._bad_addresses.get(message.address)
        if bad is not None:
            raise RefusedError(Reason.BAD_ADDRESS, bad)
        try:
            incoming = self._store.incoming(message)
        except (MessageTooLargeError, InvalidOperationError) as error:
            raise RefusedError(Reason.TOO_LARGE, str(error)) from error
        if len(incoming.data) > self._data_bytes_max or len(message.body) > self._body_bytes_max:
            size = max(len(incoming.data), len(message.body))
            raise RefusedError(Reason.TOO_LARGE, f"{size} bytes are more than the journal takes at once")
        return incoming

    def _refuse(self, source: SourceConfig, record: SourceRecord, error: RefusedError) -> Refusal:
        return refusal(
            error,
            route=source.name,
            topic=record.topic,
            message=record.offset,
            on_error=source.on_error,
            dead_letter_topic=source.dead_letter_topic or self._routing.dead_letter_topic,
            key=record.key,
            value=record.value,
            headers=record.headers,
            bytes_max=self._routing.record_bytes_max,
        )

    def _put_aside(self, batch: Batch, refused: Refusal) -> bool:
        """Send the dead letter, if there is to be one; False if there is no topic for it."""
        letter = refused.dead_letter
        if letter is None:
            return True
        partitions = self.partitions.get(letter.topic, 0)
        if not partitions:
            return False
        place = partition_of(letter, partitions)
        batch.beside.append(Sent(letter.topic, place, letter.key, letter.value, letter.headers))
        return True
