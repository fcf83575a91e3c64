"""What a source's filters select: a selector of JMS over the headers, properties and fields of each message."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from journal.amqp.conditions import INVALID_FIELD
from journal.amqp.filters import SourceFilters
from journal.errors import AmqpPeerError, SelectorError
from journal.routing.headers import MESSAGE_ID
from journal.routing.selector.selector import Selector
from journal.routing.view import value_of
from journal.store.model import Message, Value
from journal.store.operations.cursor import Selects

log = logging.getLogger(__name__)

_AMQP_ID = "amqp.message-id"


def selection(text: str) -> Selects:
    """Whether a selector selects a message. Raises AmqpPeerError for a text that is no selector.

    A message for which it cannot be evaluated is not selected.
    """
    try:
        selector = Selector(text)
    except SelectorError as error:
        raise AmqpPeerError(INVALID_FIELD, str(error)) from None

    def selects(message: Message) -> bool:
        try:
            return selector.selects(partial(_value_of, message))
        except Exception:
            log.exception("the selector %r of a link cannot be evaluated for a message", text)
            return False

    return selects


def in_force(filters: SourceFilters) -> dict[Any, Any] | None:
    """The filters of a queue's receiver for the answer to its attach: the selector alone. No-local means nothing in a
    queue whose messages other links may take."""
    entries = filters.in_force.items()
    selectors = {name: entry for name, entry in entries if getattr(entry, "value", entry) == filters.selector}
    return selectors if filters.selector and selectors else None


def _value_of(message: Message, name: str) -> Value | None:
    return value_of(message, _AMQP_ID if name == MESSAGE_ID else name)
