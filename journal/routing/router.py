"""The way out: a message that was added, to the records that its routes send. Pure; the same message gives the same.

Hot path. Which routes an address has is found once and kept, so that a message of no route costs a look at its first
bytes; of one that has routes, protobuf parses it, and its headers are encoded once for all targets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from google.protobuf.message import DecodeError

from journal.errors import ConfigError, RowError
from journal.routing import headers as convention
from journal.routing.config import RouteConfig, RoutingConfig, TargetConfig, is_internal, is_topic, parse_key
from journal.routing.dead_letters import record_bytes, refusal
from journal.routing.headers import HeaderNames
from journal.routing.outcomes import Header, Outgoing, Reason, Refusal, RefusedError, Request
from journal.routing.partitions import parse_rule
from journal.routing.patterns import NamePatterns, matches, parse_pattern
from journal.routing.selector import Selector
from journal.routing.templates import Template, text_of
from journal.routing.values import EventFacts, converter
from journal.routing.view import MessageView
from journal.v1 import store_pb2 as pb

_ADDRESSES_KEPT = 65_536
_ADDRESS_TAG = 0x0A
_SHORT = 0x80
_COUNT_MAX = 2**31 - 2
_SMALL_FACTOR = 8
"""Headers and their names are at most so much longer than what they are in the message's data."""
_NOTHING: tuple[()] = ()

Body = Callable[[Sequence[int]], bytes | None]
"""A large message's body by the ids of its chunks; None if it is not to be had."""


class Verdict(NamedTuple):
    """What a route says of a message, for `routes test`."""

    route: str
    verdict: str


class Router:
    """The routes of a journal."""

    def __init__(
        self,
        config: RoutingConfig,
        *,
        journal: str,
        own_topics: frozenset[str],
        bytes_max: Mapping[str, int] | None = None,
        body: Body | None = None,
        replay_of: str = "",
    ) -> None:
        """`own_topics` are the journal's: nothing is sent there. `bytes_max` has topics' max.message.bytes and may
        change meanwhile; `body` reads large messages.

        `replay_of` is a route that alone sends, what it sends marked as replayed; what routes before it keep from it is
        kept from it then too. Raises ConfigError, also for a route that is not there.
        """
        trail, _ = _trail(pb.Message(), journal)
        self._context = _Context(config, journal, own_topics, {} if bytes_max is None else bytes_max, trail)
        self._body = body
        self._names = HeaderNames()
        self._routes = [_Route(route, self._context, self._names) for route in config.routes]
        self._replayed = bool(replay_of)
        if replay_of:
            self._routes = _up_to(replay_of, self._routes, journal)
        self._of_address: dict[bytes, tuple[_Route, ...]] = {}

    def route(self, message_id: int, data: bytes) -> Sequence[Outgoing | Refusal]:
        """What a message's routes send, in their order. `data` is its MESSAGE record's. Raises RowError."""
        # protobuf writes fields in order, and the address is the first of them
        if len(data) > 1 and data[0] == _ADDRESS_TAG and data[1] < _SHORT:
            address = data[2 : 2 + data[1]]
        else:
            address = _parsed(data).address.encode()
        routes = self._of_address.get(address)
        if routes is None:
            routes = self._routes_of(address)
        if not routes:
            return _NOTHING
        view = MessageView(message_id, _parsed(data))
        out: list[Outgoing | Refusal] = []
        sending: _Sending | None = None
        for route in routes:
            if route.selector is None or route.selector.selects(view.value):
                if sending is None:
                    names, body, replayed = self._names, self._body, self._replayed
                    sending = _Sending(view, address, len(data), names, body, self._context, replayed)
                for target in route.targets:
                    out.append(target.outcome(sending))
                if route.stop:
                    break
        return out

    def explain(self, message_id: int, data: bytes) -> list[Verdict]:
        """What each route says of a message."""
        view = MessageView(message_id, _parsed(data))
        verdicts: list[Verdict] = []
        stopped = ""
        for route in self._routes:
            if stopped:
                verdict = f"not asked: {stopped} stops"
            elif not matches(route.pattern, view.message.address):
                verdict = "no: another address"
            else:
                value = True if route.selector is None else route.selector.value(view.value)
                verdict = {True: "yes", False: "no: the filter is false", None: "no: the filter is unknown"}[value]
                stopped = route.config.name if value and route.stop else ""
            verdicts.append(Verdict(route.config.name, verdict))
        return verdicts

    def _routes_of(self, address: bytes) -> tuple[_Route, ...]:
        if len(self._of_address) >= _ADDRESSES_KEPT:
            self._of_address.clear()
        name = address.decode()
        found = tuple(route for route in self._routes if matches(route.pattern, name))
        self._of_address[address] = found
        return found


def _parsed(data: bytes) -> pb.Message:
    try:
        return pb.Message.FromString(data)
    except DecodeError as error:
        raise RowError(f"{len(data)} bytes are not a message: {error}") from None


class _Context(NamedTuple):
    config: RoutingConfig
    journal: str
    own_topics: frozenset[str]
    bytes_max: Mapping[str, int]
    trail: list[Header]
    """Of a message that has none yet."""


class _Route:
    """A route, ready."""

    def __init__(self, config: RouteConfig, context: _Context, names: HeaderNames) -> None:
        self.config = config
        self.pattern = parse_pattern(config.address)
        self.selector = Selector(config.filter) if config.filter.strip() else None
        self.stop = config.stop
        self.targets = [_Target(target, config, context, names) for target in config.targets]


def _up_to(name: str, routes: Sequence[_Route], journal: str) -> list[_Route]:
    """A route, and of those before it the ones that stop, without targets: they only keep messages from it."""
    for at, route in enumerate(routes):
        if route.config.name == name:
            before = [each for each in routes[:at] if each.stop]
            for each in before:
                each.targets = []
            return [*before, route]
    there = ", ".join(route.config.name for route in routes) or "none"
    raise ConfigError(f"journal {journal} has no route {name}: its routes are {there}")


class _Sending:
    """A message on its way to its targets: what they share is made once."""

    __slots__ = ("_body", "_read", "came_from", "has_headers", "headers", "hops", "size", "trail", "view")

    def __init__(
        self,
        view: MessageView,
        address: bytes,
        size: int,
        names: HeaderNames,
        body: Body | None,
        context: _Context,
        replayed: bool,
    ) -> None:
        self.view = view
        self.size = size
        self.headers = names.encoded(view.id, address, view.message)
        self.came_from = view.came_from()
        self._read = body
        self._body: bytes | None = None
        self.has_headers = bool(view.message.headers)
        if self.has_headers:
            self.trail, self.hops = _trail(view.message, context.journal)
        else:
            self.trail, self.hops = context.trail, 1
        if replayed:
            self.trail = [*self.trail, (convention.REPLAYED, b"true")]

    def body(self, bytes_max: int) -> bytes:
        """Raises RefusedError for a large one that is too large for the target, or not to be had."""
        message = self.view.message
        size = message.body_bytes
        if not size:
            return message.body
        if size > bytes_max:
            raise RefusedError(Reason.TOO_LARGE, f"a body of {size} bytes, and the topic takes {bytes_max}")
        if self._body is None:
            self._body = self._read(message.chunks) if self._read is not None else None
        if self._body is None:
            raise RefusedError(Reason.NO_BODY, f"the large body of {size} bytes cannot be read")
        return self._body


def _trail(message: pb.Message, journal: str) -> tuple[list[Header], int]:
    """Where it came from and how often it was sent out, this time included."""
    own, counts, origin = convention.hops_name(journal), {}, journal
    values = message.headers
    for name in values:
        if name == convention.ORIGIN:
            origin = values[name].text or journal
        elif convention.is_hops(name):
            counts[name] = min(max(values[name].integer, 0), _COUNT_MAX)  # any client could have set it
    counts[own] = counts.get(own, 0) + 1
    trail: list[Header] = [(convention.ORIGIN, origin.encode())]
    trail += [(name, convention.pack_hops(count)) for name, count in sorted(counts.items())]
    return trail, sum(counts.values())


class _Target:
    """A target, ready."""

    def __init__(self, config: TargetConfig, route: RouteConfig, context: _Context, names: HeaderNames) -> None:
        self._config = config
        self._context = context
        self._route = route
        self._name = route.name
        self._topic = Template(config.topic)
        self._fixed = self._topic.fixed
        self._keys = [parse_key(key) for key in config.key]
        self._text_keys = config.key_format == "text"
        kind, of = self._keys[0]
        self._key_names = frozenset[str]()
        """Kafka headers whose bytes are the key, of a message whose headers are all properties."""
        if kind == "header" and not self._text_keys:
            self._key_names = names.kafka_names(of)
        self._kept = NamePatterns(config.headers)
        self._rule = parse_rule(config.partitioner)
        source = config.event_source or f"/kafka-journal/{context.journal}"
        self._convert = converter(config.value, self._kept, EventFacts(source, config.event_type, config.content_type))
        self._dead_letter_topic = route.dead_letter_topic or context.config.dead_letter_topic
        for topic in (self._fixed, self._dead_letter_topic, config.reply_topic):
            if topic and is_internal(topic, context.own_topics):
                raise ConfigError(f"route {route.name}: {topic} is a topic of the journal's or Kafka's own")

    def outcome(self, sending: _Sending) -> Outgoing | Refusal:
        topic = self._fixed or ""
        try:
            topic = topic or self._filled(sending.view)
            return self._record(topic, sending)
        except RefusedError as error:
            return self._refusal(error, topic, sending)

    def _record(self, topic: str, sending: _Sending) -> Outgoing:
        view, config = sending.view, self._context.config
        if topic == sending.came_from:
            raise RefusedError(Reason.RETURNED, f"it came from topic {topic}")
        if sending.hops > config.hops_max:
            raise RefusedError(Reason.HOPS, f"it has gone out {sending.hops - 1} times: hops_max is {config.hops_max}")
        bytes_max = self._bytes_max(topic)
        value = sending.body(bytes_max)
        key = None
        if self._key_names and not sending.has_headers:
            for name, content in sending.headers:
                if name in self._key_names:
                    key = content
        if key is None:
            key = self._key(view)
        headers = sending.headers if self._kept.all else convention.kept(sending.headers, self._kept)
        headers = headers + sending.trail
        request = self._request(view, headers) if self._config.reply_topic else None
        if self._convert is not None:
            value, further = self._convert(view.id, view.message, value)
            headers += further
        if len(value) + _SMALL_FACTOR * sending.size + 4096 > bytes_max:
            size = record_bytes(key, value, headers)
            if size > bytes_max:
                raise RefusedError(Reason.TOO_LARGE, f"a record of {size} bytes, and topic {topic} takes {bytes_max}")
        return Outgoing(self._name, topic, key, value, headers, self._rule, view.id, request)

    def _filled(self, view: MessageView) -> str:
        topic = self._topic.fill(view.value)
        if not is_topic(topic) or is_internal(topic, self._context.own_topics):
            raise RefusedError(
                Reason.BAD_TOPIC, f"{topic[:300]!r}, of template {self._topic.text!r}, is no topic for it"
            )
        return topic

    def _key(self, view: MessageView) -> bytes | None:
        for kind, of in self._keys:
            if kind == "message-id":
                return str(view.id).encode() if self._text_keys else convention.pack_long(view.id)
            if kind == "none":
                return None
            if kind == "constant":
                return of.encode()
            value = view.value(of)
            if type(value) is str:
                return value.encode()
            if value is not None:
                text = text_of(value) if self._text_keys else None
                return text.encode() if text is not None else convention.encoded_value(value)
        names = " or ".join(of for kind, of in self._keys)
        raise RefusedError(Reason.NO_KEY, f"the message has no header {names} for the key")

    def _request(self, view: MessageView, headers: list[Header]) -> Request | None:
        """With what a reply needs among the headers; None for a message that asks for none."""
        address = view.value(convention.REPLY_TO)
        if not isinstance(address, str) or not address:
            return None
        value = view.value(convention.CORRELATION_ID)
        correlation_id = str(view.id) if value is None else text_of(value)
        if correlation_id is None:
            raise RefusedError(Reason.BAD_HEADER, f"{convention.CORRELATION_ID} is bytes that are no text")
        asked = {
            f"jms.string.{convention.CORRELATION_ID}": correlation_id,
            f"jms.string.{convention.REPLY_TO}": address,
            convention.REPLY_TOPIC: self._config.reply_topic,
        }
        headers[:] = [each for each in headers if each[0] not in asked]
        headers += [(name, text.encode()) for name, text in asked.items()]
        return Request(correlation_id, address)

    def _bytes_max(self, topic: str) -> int:
        return self._context.bytes_max.get(topic, self._context.config.record_bytes_max)

    def _refusal(self, error: RefusedError, topic: str, sending: _Sending) -> Refusal:
        return refusal(
            error,
            route=self._name,
            topic=topic,
            message=sending.view.id,
            on_error=self._route.on_error,
            dead_letter_topic=self._dead_letter_topic,
            key=convention.pack_long(sending.view.id),
            value=None if sending.view.message.body_bytes else sending.view.message.body,
            headers=sending.headers + sending.trail,
            bytes_max=self._bytes_max(self._dead_letter_topic),
        )
