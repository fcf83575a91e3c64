"""The settings of a route, a target and a source, which are checked when they are read."""

from __future__ import annotations

import re
from collections.abc import Container
from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from journal.errors import SelectorError
from journal.patterns import NamePatterns, parse_pattern
from journal.routing.outcomes import OnError
from journal.routing.partitions import parse_rule
from journal.routing.selector.selector import Selector
from journal.routing.templates import Template

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_NAME = re.compile(r"[a-zA-Z0-9._-]{1,100}")
EARLIEST, LATEST = "earliest", "latest"


def is_topic(name: str) -> bool:
    """Whether Kafka accepts the text as a topic name."""
    return _TOPIC.fullmatch(name) is not None and name not in (".", "..")


def is_internal(topic: str, own: Container[str]) -> bool:
    """Whether a topic belongs to the journal itself, to Kafka or to Faust."""
    return topic in own or topic.startswith("__") or "__assignor-__leader" in topic


def parse_key(text: str) -> tuple[str, str]:
    """The kind of a key setting, and the header's name or the constant that it gives. Raises ValueError."""
    kind, colon, rest = text.partition(":")
    if (text in ("message-id", "none")) or (colon and rest and kind in ("header", "constant")):
        return kind, rest
    raise ValueError(f"{text!r} is none of header:NAME, message-id, constant:VALUE and none")


def start_ms(start: str) -> int | None:
    """The time of a start position in ms since 1970; None for earliest and latest. Raises ValueError."""
    if start in (EARLIEST, LATEST):
        return None
    try:
        moment = datetime.fromisoformat(start)
    except ValueError:
        raise ValueError(f"{start!r} is none of {EARLIEST}, {LATEST} and a moment (2026-01-31T12:00:00Z)") from None
    if moment.tzinfo is None:
        raise ValueError(f"{start!r} has no time zone: append Z for UTC")
    return int(moment.timestamp() * 1000)


# ---- checks of fields ------------------------------------------------------------------------------------------------


def _named(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError("a name is 1 to 100 of letters, digits, dot, _ and -")
    return text


def _filter(text: str) -> str:
    try:
        Selector(text)
    except SelectorError as error:
        raise ValueError(str(error)) from None
    return text


def _template(text: str) -> str:
    Template(text)
    return text


def _topic_template(text: str) -> str:
    fixed = Template(text).fixed
    return text if fixed is None else _topic(fixed)


def _topic(text: str) -> str:
    if not is_topic(text):
        raise ValueError(f"{text!r} is not a topic's name: 1 to 249 of letters, digits, dot, _ and -")
    return text


def _optional_topic(text: str) -> str:
    return text and _topic(text)


def _address(text: str) -> str:
    parse_pattern(text)
    return text


def _keys(text: str) -> str:
    parse_key(text)
    return text


def _rule(text: str) -> str:
    parse_rule(text)
    return text


def _header_patterns(patterns: tuple[str, ...]) -> tuple[str, ...]:
    NamePatterns(patterns)
    return patterns


def _regex(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"no regular expression: {error}") from None
    return text


def _start(text: str) -> str:
    start_ms(text)
    return text


def _one_or_more(value: object) -> object:
    return (value,) if isinstance(value, str) else value


Name = Annotated[str, AfterValidator(_named)]
Headers = Annotated[tuple[str, ...], AfterValidator(_header_patterns)]
Topic = Annotated[str, AfterValidator(_topic)]
OptionalTopic = Annotated[str, AfterValidator(_optional_topic)]
Keys = Annotated[tuple[Annotated[str, AfterValidator(_keys)], ...], BeforeValidator(_one_or_more), Field(min_length=1)]


class RoutingPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


class TargetConfig(RoutingPart):
    """A target of a route: the topic, and how a message becomes a record."""

    topic: Annotated[str, AfterValidator(_topic_template)]
    """A topic, or a template that gives one, as `orders.{region}`."""
    key: Keys = ("message-id",)
    """The record's key: header:NAME, message-id, constant:VALUE or none; or a list, of which the first one that the
    message has is used. A record without a key goes to the partition `message id % partitions`."""
    key_format: Literal["typed", "text"] = "typed"
    """How a key that is not text is written: as the bytes of a header (an integer has 8), or as text."""
    value: Literal["body", "text", "json", "cloudevents-structured", "cloudevents-binary"] = "body"
    """The record's value: the body, an envelope in JSON, or a CloudEvent."""
    headers: Headers = ("*",)
    """The names of headers and properties that are sent with the message, with * for any characters and ! before those
    that are left out; the last pattern that matches decides."""
    partitioner: Annotated[str, AfterValidator(_rule)] = "murmur2"
    """How the partition is chosen: murmur2 (as by Java's clients), crc32 (as by librdkafka), message-id or
    partition:N."""
    reply_topic: OptionalTopic = ""
    """The topic in which the reply to a message with JMSReplyTo is expected; empty means that none is."""
    content_type: str = Field(default="application/octet-stream", min_length=1)
    """The content type of the body, for CloudEvents."""
    event_type: str = Field(default="kafka-journal.message", min_length=1)
    """The type attribute of CloudEvents."""
    event_source: str = ""
    """The source attribute of CloudEvents; empty means /kafka-journal/<journal>."""


class RouteConfig(RoutingPart):
    """A route: which messages are sent to Kafka, and to which targets."""

    name: Name
    """1 to 100 letters, digits, `.`, `_` and `-`; no other route or source has the same name."""
    address: Annotated[str, AfterValidator(_address)] = "#"
    """A pattern of the addresses whose messages are sent: * is one word, # any number of words."""
    filter: Annotated[str, AfterValidator(_filter)] = ""
    """A selector over headers and properties; empty means every message."""
    targets: tuple[TargetConfig, ...] = Field(min_length=1)
    stop: bool = False
    """Whether later routes ignore a message that this route matches."""
    on_error: OnError = OnError.FAIL
    """The policy for a message that cannot be sent: fail stops its shard, skip leaves it out and counts it,
    dead-letter sends it to the dead-letter topic."""
    dead_letter_topic: OptionalTopic = ""
    """The topic of dead letters; empty means the one that is set for all routes."""


class SourceConfig(RoutingPart):
    """A source: the topics whose records become messages, and the address of these messages."""

    name: Name
    """1 to 100 letters, digits, `.`, `_` and `-`; no other route or source has the same name."""
    topics: tuple[Topic, ...] = ()
    """The names of topics. There must be some, or a pattern."""
    pattern: Annotated[str, AfterValidator(_regex)] = ""
    """A regular expression (Python's) that matches whole topic names. The source takes these topics besides
    `topics`."""
    address: Annotated[str, AfterValidator(_template)] = "kafka.{topic}"
    """The address of the messages: a template of topic, key, JMSDestination and headers."""
    value: Literal["body", "text", "json", "cloudevents"] = "body"
    """The content of the record's value: the body, an envelope in JSON, or a CloudEvent."""
    headers: Headers = ("*",)
    """The names of Kafka headers that the message gets, as patterns like those of a target's `headers`."""
    start: Annotated[str, AfterValidator(_start)] = EARLIEST
    """Where to begin in a partition that has no committed offset: earliest, latest, or a moment with its time zone,
    2026-01-31T12:00:00Z."""
    replies: bool = False
    """Whether the records are replies: each goes to the address that its request named."""
    requests: str = ""
    """The durable queue in which requests wait for their replies; it needs a dead-letter topic. Empty means that none
    wait."""
    reply_timeout_ms: int = Field(default=300_000, ge=1000)
    """How long a request waits for its reply."""
    two_way: bool = False
    """Whether routes may write to the source's topics. Records that routes of this journal wrote are then ignored."""
    on_error: OnError = OnError.FAIL
    """The policy for a record that cannot be taken: fail stops the source, skip leaves it out and counts it,
    dead-letter sends it to the dead-letter topic."""
    dead_letter_topic: OptionalTopic = ""
    """The topic of dead letters; empty means the one that is set for all sources."""

    @model_validator(mode="after")
    def _has_topics(self) -> SourceConfig:
        if not self.topics and not self.pattern:
            raise ValueError(f"source {self.name} has neither topics nor a pattern")
        if self.requests and not self.replies:
            raise ValueError(f"source {self.name} has a queue of requests, and takes no replies: set replies = true")
        return self

    def takes(self, topic: str) -> bool:
        """Whether a topic is in this source's `topics` or matches its `pattern`. Callers leave out internal topics."""
        return topic in self.topics or bool(self.pattern and re.fullmatch(self.pattern, topic))
