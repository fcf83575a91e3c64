"""The outcomes of routing: records to send, and refusals, each with its policy."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from journal.words import shortened

DETAIL_CHARACTERS_MAX = 1000
"""Characters of a refusal's text, which goes to logs, statuses, control rows and dead letters."""

Header = tuple[str, bytes | None]
"""A Kafka record's header."""


class Reason(Enum):
    """Why something was refused. The value is what metrics, dead letters and `routes test` call it."""

    NO_KEY = "no-key"
    NO_HEADER = "no-header"  # that a template names
    BAD_TOPIC = "bad-topic"  # a template made what is no topic's name, or one that is not for messages
    BAD_ADDRESS = "bad-address"
    BAD_HEADER = "bad-header"  # not of the type that its name says
    NOT_TEXT = "not-text"  # invalid UTF-8
    NOT_JSON = "not-json"
    NOT_ENVELOPE = "not-envelope"
    NOT_CLOUDEVENT = "not-cloudevent"
    NO_BODY = "no-body"  # the body of a large message cannot be read now
    TOO_LARGE = "too-large"
    HOPS = "hops"
    RETURNED = "returned"  # it would go where it came from
    NO_REQUEST = "no-request"  # nobody waits for this reply
    NO_REPLY = "no-reply"  # a request that waited for one in vain
    UNEXPECTED = "unexpected"  # what a filter, template or conversion raised that it should not


class OnError(Enum):
    """The policy for a message or record that is refused."""

    FAIL = "fail"
    SKIP = "skip"
    DEAD_LETTER = "dead-letter"


class PartitionRule(NamedTuple):
    """The rule by which a record gets its partition; `partition_of` applies it."""

    name: str
    fixed: int = -1


class ReplyRequest(NamedTuple):
    """A message that went out and asks for a reply."""

    correlation_id: str
    address: str
    """The address of the reply."""


class OutgoingRecord(NamedTuple):
    """A record to send."""

    route: str
    topic: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]
    rule: PartitionRule
    message: int
    """The message's id; of a source's record, its offset."""
    request: ReplyRequest | None = None


class RouteRefusal(NamedTuple):
    """A record that is not sent, or a message that is not added."""

    route: str
    """The name of the route, or of the source."""
    topic: str
    """The target's topic, or the topic of the source's record. Empty: not known."""
    message: int
    """The message's id; of a source's record, its offset."""
    reason: Reason
    detail: str
    on_error: OnError
    dead_letter: OutgoingRecord | None = None
    """What to send instead, exactly if `on_error` is DEAD_LETTER."""

    def __str__(self) -> str:
        return f"{self.route}: {self.detail} ({self.reason.value})"


class UnfitError(Exception):
    """Raised inside routing by what cannot be converted or keyed; ends as a RouteRefusal, never outside."""

    def __init__(self, reason: Reason, detail: str) -> None:
        self.detail = shortened(detail, DETAIL_CHARACTERS_MAX)
        super().__init__(self.detail)
        self.reason = reason


def unexpected(error: Exception) -> UnfitError:
    """The error for anything else that a filter, template or conversion raises."""
    return UnfitError(Reason.UNEXPECTED, f"{type(error).__name__}: {error}")
