"""A target of a route: it makes a record of a message, or refuses it."""

from __future__ import annotations

from journal.errors import ConfigError, JournalError
from journal.patterns import NamePatterns
from journal.routing import headers as convention
from journal.routing.dead_letters import record_bytes, refusal
from journal.routing.outcomes import (
    Header,
    OutgoingRecord,
    Reason,
    ReplyRequest,
    RouteRefusal,
    UnfitError,
    unexpected,
)
from journal.routing.partitions import parse_rule
from journal.routing.parts import RouteConfig, TargetConfig, is_internal, is_topic, parse_key
from journal.routing.quick import Quick
from journal.routing.sending import Context, MessageSending
from journal.routing.templates import Template, text_of
from journal.routing.values import EventFacts, converter
from journal.routing.view import FIELDS

_SMALL_FACTOR = 8
"""The most that encoded headers can take, as a multiple of their bytes in the message's data."""
_new = tuple.__new__  # a named tuple's own constructor takes twice as long


class Target:
    """A target with its parsed templates, keys and partition rule."""

    def __init__(self, config: TargetConfig, route: RouteConfig, context: Context) -> None:
        self._config = config
        self._context = context
        self._route = route
        self._name = route.name
        self._topic = Template(config.topic)
        self._fixed = self._topic.fixed
        self._keys = [parse_key(key) for key in config.key]
        self._text_keys = config.key_format == "text"
        kind, of = self._keys[0]
        names = context.names if kind == "header" and of not in FIELDS else None
        self._key_names = names.kafka_names(of) if names is not None else frozenset[str]()
        """Kafka headers that may hold the record's key. The first one counts, because a message's headers come before
        its properties."""
        self._key_as_is = names.kafka_names(of, text=True) if names is not None and self._text_keys else self._key_names
        """Those of these Kafka headers that hold the key as plain bytes."""
        self._kept = NamePatterns(config.headers)
        self._rule = parse_rule(config.partitioner)
        source = config.event_source or f"/kafka-journal/{context.journal}"
        self._convert = converter(config.value, self._kept, EventFacts(source, config.event_type, config.content_type))
        self._dead_letter_topic = route.dead_letter_topic or context.config.dead_letter_topic
        for topic in (self._fixed, self._dead_letter_topic, config.reply_topic):
            if topic and is_internal(topic, context.own_topics):
                raise ConfigError(f"route {route.name}: {topic} is a topic of the journal's or Kafka's own")

    @property
    def is_plain(self) -> bool:
        """Whether a record for this target needs only a message's body and headers, with a header as key, and goes to
        one fixed topic."""
        return bool(
            self._fixed
            and self._key_names
            and self._kept.all
            and self._convert is None
            and not self._config.reply_topic
            and not self._context.replayed
        )

    def plain(self, message_id: int, data: bytes, quick: Quick) -> OutgoingRecord | None:
        """The result of `outcome` for most messages; None if `outcome` must be called. Only for a target that
        `is_plain`.

        Hot path: it only uses the parts of a message that are in `quick`.
        """
        context, topic = self._context, self._fixed or ""
        if context.names.may_be_cut:
            return None
        value, headers = quick
        names = self._key_names
        key = None
        for name, content in headers:
            if name in names:
                key = content if name in self._key_as_is else None
                break
        if key is None:
            return None
        bytes_max = context.bytes_max.get(topic, context.config.record_bytes_max)
        if len(value) + _SMALL_FACTOR * len(data) + 4096 > bytes_max:
            return None
        trailed = headers + context.trail
        return _new(OutgoingRecord, (self._name, topic, key, value, trailed, self._rule, message_id, None))

    def outcome(self, sending: MessageSending) -> OutgoingRecord | RouteRefusal:
        topic = self._fixed or ""
        try:
            topic = topic or self._filled(sending)
            return self._record(topic, sending)
        except UnfitError as error:
            return self.refusal(error, topic, sending)
        except JournalError:
            raise  # a large body cannot be read, or the message is damaged
        except Exception as error:  # noqa: BLE001  # one message of one target, whatever it is
            return self.refusal(unexpected(error), topic, sending)

    def _record(self, topic: str, sending: MessageSending) -> OutgoingRecord:
        config = self._context.config
        if topic == sending.came_from:
            raise UnfitError(Reason.RETURNED, f"it came from topic {topic}")
        if sending.hops > config.hops_max:
            raise UnfitError(Reason.HOPS, f"it has gone out {sending.hops - 1} times: hops_max is {config.hops_max}")
        bytes_max = self._bytes_max(topic)
        value = sending.body(bytes_max)
        key = None
        if names := self._key_names:
            for name, content in sending.headers:
                if name in names:
                    key = content if name in self._key_as_is else None
                    break
        if key is None:
            key = self._key(sending)
        headers = sending.headers if self._kept.all else convention.kept(sending.headers, self._kept)
        headers = headers + sending.trail
        if self._context.names.may_be_cut:
            for name, _ in headers:
                if "\0" in name:
                    raise UnfitError(Reason.BAD_HEADER, f"header {name!r} has a NUL in its name, where Kafka ends it")
        request = self._request(sending, headers) if self._config.reply_topic else None
        if self._convert is not None:
            value, further = self._convert(sending.message_id, sending.view.message, value)
            headers += further
        if len(value) + _SMALL_FACTOR * sending.size + 4096 > bytes_max:
            size = record_bytes(key, value, headers)
            if size > bytes_max:
                raise UnfitError(Reason.TOO_LARGE, f"a record of {size} bytes, and topic {topic} takes {bytes_max}")
        return _new(OutgoingRecord, (self._name, topic, key, value, headers, self._rule, sending.message_id, request))

    def _filled(self, sending: MessageSending) -> str:
        topic = self._topic.fill(sending.view.value)
        if not is_topic(topic) or is_internal(topic, self._context.own_topics):
            raise UnfitError(Reason.BAD_TOPIC, f"{topic!r}, of template {self._topic.text!r}, is not a topic for it")
        return topic

    def _key(self, sending: MessageSending) -> bytes | None:
        for kind, of in self._keys:
            if kind == "message-id":
                number = sending.message_id
                return str(number).encode() if self._text_keys else convention.pack_long(number)
            if kind == "none":
                return None
            if kind == "constant":
                return of.encode()
            value = sending.view.value(of)
            if type(value) is str:
                return value.encode()
            if value is not None:
                text = text_of(value) if self._text_keys else None
                return text.encode() if text is not None else convention.encoded_value(value)
        names = " or ".join(of for kind, of in self._keys)
        raise UnfitError(Reason.NO_KEY, f"the message has no header {names} for the key")

    def _request(self, sending: MessageSending, headers: list[Header]) -> ReplyRequest | None:
        """The headers with those that a reply needs; None for a message that asks for no reply."""
        view = sending.view
        address = view.value(convention.REPLY_TO)
        if not isinstance(address, str) or not address:
            return None
        value = view.value(convention.CORRELATION_ID)
        correlation_id = str(view.id) if value is None else text_of(value)
        if correlation_id is None:
            raise UnfitError(Reason.BAD_HEADER, f"{convention.CORRELATION_ID} is bytes that are not text")
        asked = {
            f"jms.string.{convention.CORRELATION_ID}": correlation_id,
            f"jms.string.{convention.REPLY_TO}": address,
            convention.REPLY_TOPIC: self._config.reply_topic,
        }
        headers[:] = [each for each in headers if each[0] not in asked]
        headers += [(name, text.encode()) for name, text in asked.items()]
        return ReplyRequest(correlation_id, address)

    def _bytes_max(self, topic: str) -> int:
        return self._context.bytes_max.get(topic, self._context.config.record_bytes_max)

    def refusal(self, error: UnfitError, topic: str, sending: MessageSending) -> RouteRefusal:
        """The refusal of a message by this target."""
        headers = sending.headers + sending.trail
        return refusal(
            error,
            route=self._name,
            topic=topic,
            message=sending.message_id,
            on_error=self._route.on_error,
            dead_letter_topic=self._dead_letter_topic,
            key=convention.pack_long(sending.message_id),
            value=sending.small_body,
            headers=convention.whole(headers) if self._context.names.may_be_cut else headers,
            bytes_max=self._bytes_max(self._dead_letter_topic),
        )
