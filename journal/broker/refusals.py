"""The AMQP error conditions of what the store refuses."""

from __future__ import annotations

from journal.amqp.conditions import MESSAGE_SIZE_EXCEEDED, NOT_ALLOWED, NOT_FOUND, RESOURCE_LIMIT_EXCEEDED
from journal.errors import (
    AddressMissingError,
    AmqpPeerError,
    FullError,
    JournalError,
    MessageTooLargeError,
    QueueMissingError,
)

_CONDITIONS = (
    (FullError, RESOURCE_LIMIT_EXCEEDED),
    (MessageTooLargeError, MESSAGE_SIZE_EXCEEDED),
    (AddressMissingError | QueueMissingError, NOT_FOUND),
)


def condition_of(error: JournalError) -> str:
    """The condition that a client is told. A FullError here is a bound that waiting does not help against."""
    if isinstance(error, AmqpPeerError):
        return error.condition
    return next((condition for kind, condition in _CONDITIONS if isinstance(error, kind)), NOT_ALLOWED)
