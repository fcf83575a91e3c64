"""The outcomes of routing: records to send, and refusals, each with its policy."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from journal.words import shortened

DETAIL_CHARACTERS_MAX = 1000
"""The largest number of characters in a refusal's text, which goes to logs, statuses, control rows and dead letters."""

Header = tuple[str, bytes | None]
"""A Kafka record's header."""


class Reason(Enum):
    """Why a message or record was refused. Metrics, dead letters and `routes test` show the value."""

    NO_KEY = "no-key"
    NO_HEADER = "no-header"  # a template names this header, and the message does not have it
    BAD_TOPIC = "bad-topic"  # a template gave a text that is no topic name, or the name of an internal topic
    BAD_ADDRESS = "bad-address"
    BAD_HEADER = "bad-header"  # the value does not fit the type in the header's name
    NOT_TEXT = "not-text"  # the bytes are invalid UTF-8
    NOT_JSON = "not-json"
    NOT_ENVELOPE = "not-envelope"
    NOT_CLOUDEVENT = "not-cloudevent"
    NO_BODY = "no-body"  # the body of a large message cannot be read now
    TOO_LARGE = "too-large"
    HOPS = "hops"
    RETURNED = "returned"  # the message would go back to the topic that it came from
    NO_REQUEST = "no-request"  # no request waits for this reply
    NO_REPLY = "no-reply"  # a request has waited for its reply too long
    UNEXPECTED = "unexpected"  # a filter, template or conversion has failed in an unexpected way


class OnError(Enum):
    """The policy for a message or record that is refused."""

    FAIL = "fail"
    SKIP = "skip"
    DEAD_LETTER = "dead-letter"


class PartitionRule(NamedTuple):
    """The rule that chooses a record's partition; `partition_of` applies it."""

    name: str
    fixed: int = -1


class ReplyRequest(NamedTuple):
    """The mark of a message that was sent to Kafka and asks for a reply."""

    correlation_id: str
    address: str
    """The address to which the reply must be sent."""


class OutgoingRecord(NamedTuple):
    """A record to send."""

    route: str
    topic: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]
    rule: PartitionRule
    message: int
    """The id of the message; for a record of a source, its offset."""
    request: ReplyRequest | None = None


class RouteRefusal(NamedTuple):
    """The refusal of a record that is not sent, or of a message that is not added."""

    route: str
    """The name of the route, or of the source."""
    topic: str
    """The target's topic, or the topic of the source's record; empty if it is not known."""
    message: int
    """The id of the message; for a record of a source, its offset."""
    reason: Reason
    detail: str
    on_error: OnError
    dead_letter: OutgoingRecord | None = None
    """The record to send instead. It is set only if `on_error` is DEAD_LETTER."""

    def __str__(self) -> str:
        return f"{self.route}: {self.detail} ({self.reason.value})"


class UnfitError(Exception):
    """Raised inside routing when a value cannot be converted, or a key not made. It always becomes a RouteRefusal."""

    def __init__(self, reason: Reason, detail: str) -> None:
        self.detail = shortened(detail, DETAIL_CHARACTERS_MAX)
        super().__init__(self.detail)
        self.reason = reason


def unexpected(error: Exception) -> UnfitError:
    """The UnfitError for any other error that a filter, template or conversion raises."""
    return UnfitError(Reason.UNEXPECTED, f"{type(error).__name__}: {error}")
