"""A batch: the messages, dead letters and offsets that consumed records become, under the policy of each source.

Pure, except that it asks the store which queues exist and lets it encode.

Hot path: plain records, which `Sources.encode` turns into messages in runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from journal.errors import InvalidOperationError, MessageMissingError, MessageTooLargeError
from journal.kafka.ports import Sent
from journal.limits import Limits
from journal.routing.config import RoutingConfig
from journal.routing.outcomes import OnError, OutgoingRecord, Reason, RouteRefusal, UnfitError
from journal.routing.parts import SourceConfig
from journal.routing.record_in import Sources, dead_letter_topic_of
from journal.routing.source_record import SourceRecord
from journal.sources.filters import Filters
from journal.sources.letters import Letter, LetterTopics, letter_bytes
from journal.sources.requests import Waiting, unanswered
from journal.sources.stops import RecordPlace
from journal.store.incoming import Incoming, PlainRun
from journal.store.model import Message
from journal.store.operations.take_in import Settles
from journal.store.store import MessageStore

Partition = tuple[str, int]

_OVERDUE_MAX = 100
"""The most requests that one batch gives up."""


@dataclass(slots=True)
class SourceCounts:
    """The numbers that one batch adds to the status of one source."""

    records: int = 0
    messages: int = 0
    refused: Counter[Reason] = field(default_factory=Counter)
    dead_letters: int = 0
    oldest_ms: int = 0
    """The earliest timestamp of the batch's records in ms since 1970; 0 if they have none."""

    def has_one_of(self, timestamp: int) -> None:
        """Count a record with this timestamp in ms since 1970; 0 or less means that it has none."""
        if 0 < timestamp < self.oldest_ms or not self.oldest_ms:
            self.oldest_ms = max(0, timestamp)


@dataclass(slots=True)
class SourceBatch:
    """The result of converting records of several sources, up to the record at which a source stops."""

    messages: list[Incoming | PlainRun] = field(default_factory=list)
    beside: list[Sent] = field(default_factory=list)
    letters: list[Letter] = field(default_factory=list)
    """The dead letters; their records are in `beside`."""
    letter_bytes: Counter[Partition] = field(default_factory=Counter)
    """The bytes of these letters by partition. Kafka limits them, because the letters of one partition are one record
    batch."""
    settles: list[Settles] = field(default_factory=list)
    """Requests that this batch settles: it has their replies, or gives them up."""
    offsets: dict[Partition, int] = field(default_factory=dict)
    counts: dict[str, SourceCounts] = field(default_factory=dict)
    stopped: dict[str, str] = field(default_factory=dict)
    """The reason by source, for each source that a record stops. This record and those after it are not in the
    batch."""
    stopped_at: dict[str, RecordPlace] = field(default_factory=dict)
    """The place of the stopping record, by source."""
    left: Sequence[SourceRecord] = ()
    """Records that are left for the next batch, because this one is large enough."""


class Converter:
    """Makes batches for one activation."""

    def __init__(
        self,
        sources: Sources,
        routing: RoutingConfig,
        store: MessageStore,
        filters: Filters,
        waiting: Waiting,
        letters: LetterTopics,
        limits: Limits,
        *,
        batch_bytes: int,
        request_s: float,
    ) -> None:
        self.letters = letters
        self._sources = sources
        self._routing = routing
        self._store = store
        self._filters = filters
        self._waiting = waiting
        self._request_s = request_s
        self._data_bytes_max = limits.data_bytes_max
        self._plain_bytes_max = store.inline_bytes_max
        self._batch_bytes = min(batch_bytes, limits.queue_bytes_max // 2)
        self._overdue_max = min(_OVERDUE_MAX, limits.queue_operations_max)
        self._source_by_topic: dict[str, SourceConfig] = {}
        self._bad_addresses: dict[str, str] = {}

    def has_replies(self, records: Sequence[SourceRecord]) -> bool:
        """Whether requests may wait for these records. Then the batch before them must be in the journal before they
        are converted."""
        return bool(self._waiting) and any(self._source_of(record.topic).replies for record in records)

    def batch(self, records: Sequence[SourceRecord], records_max: int, letters_max: int) -> SourceBatch:
        """The batch that these records become; records that would make it too large are in its `left`. Raises
        DeadlineError."""
        batch, size = SourceBatch(), 0
        replies = self.has_replies(records)
        if replies:
            batch.stopped |= self._waiting.look(self._request_s)
        self._bad_addresses = {}
        converted: list[tuple[int, PlainRun | Message | RouteRefusal]] = []
        answered: dict[int, Settles] = {}
        place, end = 0, min(len(records), records_max)
        while place < end and size <= self._batch_bytes:
            run = self._sources.encode(records, place, end, self._plain_bytes_max, self._batch_bytes - size)
            if run is not None:
                converted.append((place, run))
                place += len(run.data)
                size += sum(map(len, run.data))
                continue
            record = records[place]
            one = self._sources.convert(record)
            if replies and isinstance(one, Message) and self._source_of(record.topic).replies:
                settles = self._waiting.settles(self._source_of(record.topic).name, one)
                if settles is not None:
                    if settles in answered.values():
                        break  # a second reply must not find the request that the first one has settled
                    answered[place] = settles
            converted.append((place, one))
            place += 1
            size += len(record.value or b"")
        self._bad_addresses = self._filters.unreachable(
            {each.address for _, each in converted if not isinstance(each, RouteRefusal)}
        )
        batch.left = records[place:]
        for start, each in converted:
            if isinstance(each, PlainRun):
                wanted = len(each.data)
                added = self._add_run(batch, records[start : start + wanted], each, letters_max)
            else:
                wanted = 1
                added = int(self._add(batch, records[start], each, answered.get(start), letters_max))
            if added < wanted:
                batch.left = records[start + added :]
                break
        return batch

    def refused(self, records: Sequence[SourceRecord], error: UnfitError) -> SourceBatch:
        """A batch that refuses the first of these records under its source's policy, although the record could be
        converted. The journal cannot take its message."""
        batch = SourceBatch(left=records[1:])
        self._add(batch, records[0], self._sources.refuse(records[0], error), None, 1)
        return batch

    def late_since(self) -> dict[str, float]:
        """Sources with requests that have waited too long, and the time of that look, in ms since 1970. Raises
        DeadlineError."""
        if not self._waiting:
            return {}
        self._waiting.look(self._request_s)
        return self._waiting.late_since()

    def overdue(
        self, name: str, now_ms: float, offsets: Mapping[Partition, int], letters_max: int
    ) -> SourceBatch | None:
        """A batch that gives up a source's requests that had waited too long at a given time; None if there are none.

        `offsets` are committed again with it, because every batch needs some. Raises DeadlineError.
        """
        self._waiting.look(self._request_s)
        batch, size = SourceBatch(offsets=dict(offsets)), 0
        for requests, request in self._waiting.overdue(name, self._overdue_max, now_ms):
            if size > self._batch_bytes:
                break
            source, topic = requests.source, dead_letter_topic_of(self._routing, requests.source)
            try:
                message = self._store.message(request.message)
            except MessageMissingError:
                continue
            bytes_max = self.letters.bytes_max.get(topic, self._routing.record_bytes_max)
            given_up = unanswered(source, request.message, message, topic, bytes_max)
            assert given_up.dead_letter is not None, "requests have a dead-letter topic"
            size_of_letter = letter_bytes(given_up.dead_letter)
            if fault := self.letters.fault_of(given_up.dead_letter, size_of_letter):
                batch.stopped[name] = f"request {request.message}: {fault}"
                break
            if not self._put_aside(batch, source, given_up.dead_letter, size_of_letter, None, letters_max):
                break
            size += len(message.body)
            batch.settles.append(requests.settles(request, expired=True))
            counts = batch.counts.setdefault(name, SourceCounts())
            counts.refused[given_up.reason] += 1
            counts.dead_letters += 1
        return batch if batch.settles or batch.stopped else None

    def _add_run(self, batch: SourceBatch, records: Sequence[SourceRecord], run: PlainRun, letters_max: int) -> int:
        """Add a run of messages; returns how many of its records are done."""
        last = records[-1]
        source = self._source_of(last.topic)
        if source.name in batch.stopped:
            return len(records)
        if run.address in self._bad_addresses or max(map(len, run.data)) > self._data_bytes_max:
            for place, (record, each) in enumerate(zip(records, run.each(), strict=True)):
                if not self._add(batch, record, each, None, letters_max):
                    return place
            return len(records)
        before = batch.messages[-1] if batch.messages else None
        if isinstance(before, PlainRun) and before.address == run.address:
            before.data.extend(run.data)
            before.timestamps.extend(run.timestamps)
        else:
            batch.messages.append(run)
        counts = batch.counts.setdefault(source.name, SourceCounts())
        counts.messages += len(records)
        counts.records += len(records)
        counts.has_one_of(min(run.timestamps) or min(filter(None, run.timestamps), default=0))
        batch.offsets[last.topic, last.partition] = last.offset + 1
        return len(records)

    def _add(
        self,
        batch: SourceBatch,
        record: SourceRecord,
        one: Incoming | Message | RouteRefusal,
        settles: Settles | None,
        letters_max: int,
    ) -> bool:
        """Refuse a record; False if there was no room for its dead letter."""
        source = self._source_of(record.topic)
        if source.name in batch.stopped:
            return True
        incoming = None
        if not isinstance(one, RouteRefusal):
            try:
                incoming = self._incoming(one)
            except UnfitError as error:
                one = self._sources.refuse(record, error)
        refused = one if isinstance(one, RouteRefusal) else None
        if refused is not None:
            where = RecordPlace(record.topic, record.partition, record.offset)
            letter, fault = refused.dead_letter, ""
            if refused.on_error is OnError.FAIL:
                fault = "on_error is fail"
            elif letter is not None:
                size = letter_bytes(letter)
                fault = self.letters.fault_of(letter, size) or self.letters.refused.get(where, "")
                if not fault and not self._put_aside(batch, source, letter, size, where, letters_max):
                    return False
            if fault:
                batch.stopped[source.name] = f"{where}: {refused.detail} ({refused.reason.value}): {fault}"
                batch.stopped_at[source.name] = where
                return True
        counts = batch.counts.setdefault(source.name, SourceCounts())
        if incoming is not None:
            batch.messages.append(incoming)
            counts.messages += 1
            if settles is not None:
                batch.settles.append(settles)
        elif refused is not None:
            counts.refused[refused.reason] += 1
            counts.dead_letters += refused.dead_letter is not None
        counts.records += 1
        counts.has_one_of(record.timestamp)
        batch.offsets[record.topic, record.partition] = record.offset + 1
        return True

    def _source_of(self, topic: str) -> SourceConfig:
        source = self._source_by_topic.get(topic)
        if source is None:
            source = self._sources.source_of(topic)
            assert source is not None, f"{topic} is consumed, and no source's"
            self._source_by_topic[topic] = source
        return source

    def _incoming(self, one: Incoming | Message) -> Incoming:
        """The message in the form that the store takes. Raises UnfitError for a message that the store would refuse."""
        bad = self._bad_addresses.get(one.address)
        if bad is not None:
            raise UnfitError(Reason.BAD_ADDRESS, bad)
        if isinstance(one, Message):
            try:
                one = self._store.incoming(one)
            except (MessageTooLargeError, InvalidOperationError) as error:
                raise UnfitError(Reason.TOO_LARGE, str(error)) from error
        if len(one.data) > self._data_bytes_max:
            size, most = len(one.data), self._data_bytes_max
            raise UnfitError(Reason.TOO_LARGE, f"headers and properties of {size} bytes, and one record takes {most}")
        return one

    def _put_aside(
        self,
        batch: SourceBatch,
        source: SourceConfig,
        letter: OutgoingRecord,
        size: int,
        place: RecordPlace | None,
        letters_max: int,
    ) -> bool:
        """Add a dead letter to the batch; False if the batch has no room for it."""
        sent = self.letters.sent(letter)
        where = (sent.topic, sent.partition)
        if batch.letters:
            too_many = len(batch.letters) >= letters_max
            if too_many or batch.letter_bytes[where] + size > self.letters.bytes_max[letter.topic]:
                return False
        batch.letter_bytes[where] += size
        batch.beside.append(sent)
        what = f"request {letter.message}" if place is None else str(place)
        batch.letters.append(Letter(source.name, letter.topic, what, place))
        return True
