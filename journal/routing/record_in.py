"""How a source's record becomes a message. Pure: consuming and appending are done elsewhere.

Headers that our routes made are decoded into the message's headers. A record that this journal itself sent is ignored,
and a record that passed through too many journals is refused, so that no message goes round for ever.

Hot path: plain records, which are encoded at once (`journal.routing.plain_records_in`).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence

from journal.errors import ConfigError, JournalError, StateError
from journal.patterns import NamePatterns
from journal.process.kept import Kept
from journal.routing import headers as convention
from journal.routing.config import RoutingConfig
from journal.routing.dead_letters import refusal
from journal.routing.headers import TurnedBack, turned_back
from journal.routing.outcomes import OnError, Reason, RouteRefusal, UnfitError, unexpected
from journal.routing.parts import SourceConfig, is_internal
from journal.routing.plain_records_in import PlainRecords
from journal.routing.source_record import SourceRecord
from journal.routing.templates import Template, text_of
from journal.routing.values import Enveloped, of_body, of_cloudevent, of_envelope, of_text
from journal.routing.view import value_of
from journal.store.incoming import PlainRun
from journal.store.model import PRIORITY_DEFAULT, PRIORITY_MAX, Message, Value

_INT64_MAX = 2**63 - 1
_DUPLICATE_ID = "_AMQ_DUPL_ID"
"""The property that holds a message's duplicate-detection id, as Artemis' clients name it."""

_SCHEMES = ("queue://", "topic://", "temp-queue://", "temp-topic://")
"""Prefixes that JMS clients of Artemis write before an address."""

_OF_REPLIES = (f"jms.*{convention.CORRELATION_ID}", f"jms.*{convention.DESTINATION}")
"""Headers that a source of replies takes, even if its `headers` exclude them."""

_CONVERTERS: Mapping[str, Callable[[bytes, Mapping[str, bytes]], Enveloped]] = {
    "body": of_body,
    "text": of_text,
    "json": of_envelope,
    "cloudevents": of_cloudevent,
}

Replies = Callable[[str, str], str | None]
"""A function that gives the address which waits for a reply of this source with this correlation id; None if none
waits."""


def nobody_waits(source: str, correlation_id: str) -> str | None:
    """The `Replies` of a journal without requests: no address waits."""
    return None


def dead_letter_topic_of(routing: RoutingConfig, source: SourceConfig) -> str:
    """The topic of a source's dead letters; empty if it has none."""
    return source.dead_letter_topic or routing.dead_letter_topic


def has_dead_letters(source: SourceConfig) -> bool:
    """Whether a source may send dead letters."""
    return source.on_error is OnError.DEAD_LETTER or bool(source.requests)


def policy_of(source: SourceConfig, reason: Reason) -> OnError:
    """The policy for a record that a source refuses.

    A request without its reply always becomes a dead letter. So does a reply that comes too late, or whose requester's
    address is gone, if the policy would otherwise stop the source: such things happen in normal operation.
    """
    if source.requests:
        late = reason in (Reason.NO_REQUEST, Reason.BAD_ADDRESS) and source.on_error is OnError.FAIL
        if late or reason is Reason.NO_REPLY:
            return OnError.DEAD_LETTER
    return source.on_error


class Sources:
    """The sources of a journal."""

    def __init__(
        self,
        config: RoutingConfig,
        *,
        journal: str,
        own_topics: Container[str],
        replies: Replies = nobody_waits,
        bytes_max: Mapping[str, int] | None = None,
    ) -> None:
        """`own_topics` are the journal's topics, which no source takes even if a pattern matches them. `bytes_max` has
        the largest record that each topic takes, for dead letters; the caller may change it later. Raises
        ConfigError."""
        self._own = own_topics
        sizes = {} if bytes_max is None else bytes_max
        self._sources = [_Source(source, config, journal, replies, sizes) for source in config.sources]
        self._of_topic: Kept[str, _Source | None] = Kept()
        for source in config.sources:
            letters = dead_letter_topic_of(config, source)
            for topic in (*source.topics, letters):
                if topic and is_internal(topic, own_topics):
                    raise ConfigError(f"source {source.name}: {topic} is a topic of the journal's or Kafka's own")
            if source.requests and not letters:
                raise ConfigError(
                    f"source {source.name} has requests, of which those without a reply go to a dead-letter topic: set "
                    "dead_letter_topic"
                )

    def source_of(self, topic: str) -> SourceConfig | None:
        """The first source that takes a topic; None if none does."""
        found = self._source(topic)
        return None if found is None else found.config

    def topics(self, existing: Iterable[str]) -> dict[str, SourceConfig]:
        """Those of the existing topics that sources consume, with their sources."""
        found = ((topic, self.source_of(topic)) for topic in existing)
        return {topic: source for topic, source in found if source is not None}

    def encode(
        self, records: Sequence[SourceRecord], start: int, end: int, bytes_max: int, room: int
    ) -> PlainRun | None:
        """The messages of plain records, as `PlainRecords.encode` gives them. None if the first record must go through
        `convert`, which makes its message or tells that it has none. Hot path."""
        source = self._source(records[start].topic)
        if source is None or source.plain is None:
            return None
        return source.plain.encode(records, start, end, bytes_max, room)

    def convert(self, record: SourceRecord) -> Message | RouteRefusal:
        """The message that a record becomes, or its refusal; None if the record is ignored. Raises StateError for a
        topic of no source."""
        topic = record.topic
        source = self._of_topic.get(topic) or self._source(topic)
        if source is None:
            raise StateError(f"no source takes topic {record.topic}")
        try:
            return source.message(record)
        except UnfitError as error:
            return source.refusal(error, record)
        except JournalError:
            raise  # an error of the journal, which was asked who waits for a reply, is no fault of the record
        except Exception as error:  # noqa: BLE001  # one record of one source, whatever it is
            return source.refusal(unexpected(error), record)

    def refuse(self, record: SourceRecord, error: UnfitError) -> RouteRefusal:
        """The refusal of a record whose message cannot be taken. Raises StateError for a topic of no source."""
        source = self._source(record.topic)
        if source is None:
            raise StateError(f"no source takes topic {record.topic}")
        return source.refusal(error, record)

    def _source(self, topic: str) -> _Source | None:
        if topic not in self._of_topic:
            taking = None if is_internal(topic, self._own) else self._taking(topic)
            return self._of_topic.keep(topic, taking, len(topic))
        return self._of_topic[topic]

    def _taking(self, topic: str) -> _Source | None:
        return next((source for source in self._sources if source.config.takes(topic)), None)


class _Source:
    """A source with its parsed templates and patterns."""

    def __init__(
        self,
        config: SourceConfig,
        routing: RoutingConfig,
        journal: str,
        replies: Replies,
        bytes_max: Mapping[str, int],
    ) -> None:
        self.config = config
        self._routing = routing
        self._own_hops = convention.hops_name(journal)
        self._replies = replies
        self._bytes_max = bytes_max
        self._taken = NamePatterns((*config.headers, *_OF_REPLIES) if config.replies else config.headers)
        self._convert = _CONVERTERS[config.value]
        self._address = Template(config.address)
        self.plain = None if config.replies or config.value != "body" else PlainRecords(self._of_topic, self._property)
        self._dead_letter_topic = dead_letter_topic_of(routing, config)

    def _of_topic(self, topic: str) -> str:
        """The address of all records of a topic; empty if each record has its own address, or none."""
        if set(self._address.names) - {"topic"}:
            return ""
        try:
            return self._address.fill({"topic": topic}.get)
        except UnfitError:
            return ""

    def _property(self, name: str) -> tuple[str, Callable[[bytes], Value]] | None:
        found = convention.plain_property(name) if name in self._taken else None
        return None if found is not None and found[0] == _DUPLICATE_ID else found

    def message(self, record: SourceRecord) -> Message:
        """The message that a record becomes. Raises UnfitError."""
        if record.headers is None:
            raise UnfitError(Reason.BAD_HEADER, "the name of a header is not UTF-8, so none of them can be read")
        back = turned_back(record.headers, self._taken.__contains__)
        self._check_hops(back.hops)
        plain = {name: value for name, value in record.headers if value is not None}
        found = self._convert(record.value or b"", plain)
        properties: dict[str, Value] = {
            **back.properties,
            **{name: value for name, value in found.properties.items() if name in self._taken},
            convention.KAFKA_TOPIC: record.topic,
            convention.KAFKA_PARTITION: record.partition,
            convention.KAFKA_OFFSET: record.offset,
        }
        if record.key is not None:
            properties[convention.KAFKA_KEY] = record.key
        headers = back.headers | {name: each for name, each in found.headers.items() if not _is_trail(name)} | back.hops
        message = Message(
            address=_without_scheme(self._destination(back, found)),
            body=found.body,
            headers=headers,
            properties=properties,
            priority=self._field(back, found, convention.PRIORITY, "priority", PRIORITY_DEFAULT, PRIORITY_MAX),
            timestamp=self._field(back, found, convention.TIMESTAMP, "timestamp", max(0, record.timestamp)),
            expires=self._field(back, found, convention.EXPIRATION, "expires", 0),
            due=self._field(back, found, convention.DELIVERY_TIME, "due", 0),
            duplicate_id=convention.encoded_value(properties.get(_DUPLICATE_ID, b"")),
        )
        message.address = self._addressed(record, message)
        return message

    @staticmethod
    def _destination(back: TurnedBack, found: Enveloped) -> str:
        """The address that a record's headers name; empty if they name none."""
        said = found.address or back.fields.get(convention.DESTINATION)
        return said if isinstance(said, str) else ""

    def _check_hops(self, hops: Mapping[str, int]) -> None:
        if hops.get(self._own_hops, 0):
            raise UnfitError(Reason.RETURNED, "this journal sent it out")
        if (total := sum(hops.values())) > self._routing.hops_max:
            raise UnfitError(Reason.HOPS, f"it went out {total} times: hops_max is {self._routing.hops_max}")

    @staticmethod
    def _field(
        back: TurnedBack, found: Enveloped, header: str, name: str, otherwise: int, highest: int = _INT64_MAX
    ) -> int:
        value = found.fields.get(name, back.fields.get(header, otherwise))
        if type(value) is not int or not 0 <= value <= highest:
            raise UnfitError(Reason.BAD_HEADER, f"{header} is {value!r}, not an integer from 0 to {highest}")
        return value

    def _addressed(self, record: SourceRecord, message: Message) -> str:
        """The message with its final address. Until here it has the address that its record names."""
        if self.config.replies:
            return self._asked_for(message.address, message.headers.get(convention.CORRELATION_ID))

        def lookup(name: str) -> Value | None:
            match name:
                case "topic":
                    return record.topic
                case "key":
                    return record.key
                case convention.ADDRESS | convention.DESTINATION:
                    return message.address or None
            return value_of(message, name)

        address = self._address.fill(lookup)
        if not address:
            raise UnfitError(Reason.BAD_ADDRESS, f"template {self.config.address!r} gives no address")
        return address

    def _asked_for(self, destination: str, correlation_id: Value | None) -> str:
        """The address of a reply: that of the request with its correlation id, else the destination that the record
        names."""
        text = None if correlation_id is None else text_of(correlation_id)
        address = (None if text is None else self._replies(self.config.name, text)) or destination
        if not address:
            raise UnfitError(Reason.NO_REQUEST, f"nobody waits for a reply with correlation id {text!r}")
        return _without_scheme(address)

    def refusal(self, error: UnfitError, record: SourceRecord) -> RouteRefusal:
        topic = self._dead_letter_topic
        return refusal(
            error,
            route=self.config.name,
            topic=record.topic,
            message=record.offset,
            on_error=policy_of(self.config, error.reason),
            dead_letter_topic=topic,
            key=record.key,
            value=record.value,
            headers=record.headers or (),
            bytes_max=self._bytes_max.get(topic, self._routing.record_bytes_max),
        )


def _is_trail(name: str) -> bool:
    return name == convention.ORIGIN or convention.is_hops(name)


def _without_scheme(address: str) -> str:
    for scheme in _SCHEMES:
        if address.startswith(scheme):
            return address[len(scheme) :]
    return address
