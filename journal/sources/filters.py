"""Finds the queues that take a message. A queue's filter is a selector over the message's headers, properties and
fields."""

from __future__ import annotations

import logging
from collections.abc import Collection
from functools import partial

from journal.errors import SelectorError
from journal.process.kept import Kept
from journal.routing.selector.selector import Selector
from journal.routing.view import value_of
from journal.store.model import Message, QueueConfig
from journal.store.store import MessageStore

log = logging.getLogger(__name__)

FILTERS_BYTES_MAX = 128 * 2**20
"""Bytes of all compiled filters together: some 50,000 short filters, or 100 of the greatest length."""
_CHARACTER_BYTES = 128
_SELECTOR_BYTES = 2048
"""An upper bound for the bytes of a compiled filter: this constant, and the same again for each character."""


class Filters:
    """The filters of a store's queues. Each is compiled once, as long as there is room for it."""

    def __init__(self, store: MessageStore, *, bytes_max: int = FILTERS_BYTES_MAX) -> None:
        self._store = store
        self._selectors: Kept[str, Selector | SelectorError] = Kept(bytes_max, entry_bytes_max=bytes_max)
        self._failed: Kept[str, None] = Kept()
        """Queues with filters that do not compile or have failed. Each is logged once."""

    def takes(self, message: Message, queue: QueueConfig) -> bool:
        """Whether a queue takes a message, for `MessageStore.take_in`.

        If a filter is not a selector, or fails for a message, its queue does not take the message. The other queues are
        not affected.
        """
        selector = self._selector(queue.filter)
        if isinstance(selector, SelectorError):
            if self._is_news(queue):
                log.error(
                    "the filter of queue %s is not a selector: the queue takes no messages: %s", queue.name, selector
                )
            return False
        try:
            return selector.selects(partial(value_of, message))
        except Exception:
            if self._is_news(queue):
                log.exception(
                    "the filter of queue %s cannot be evaluated: the queue takes no such messages", queue.name
                )
            return False

    def _is_news(self, queue: QueueConfig) -> bool:
        """Whether this is the first failure of a queue's filter, which is then logged."""
        if queue.name in self._failed:
            return False
        self._failed.keep(queue.name, None, len(queue.name))
        return True

    def unreachable(self, addresses: Collection[str]) -> dict[str, str]:
        """The addresses to which no message can be sent, each with its reason."""
        found = self._store.ways_in(addresses)
        bad: dict[str, str] = {}
        for address in addresses:
            queues = found.get(address)
            if queues is None:
                bad[address] = f"there is no address {address}"
            elif not queues:
                bad[address] = f"address {address} has no queue that could take a message"
        return bad

    def _selector(self, text: str) -> Selector | SelectorError:
        """The compiled filter, or the error of compiling it. The error is kept too, because every message asks for the
        filter."""
        selector = self._selectors.get(text)
        if selector is None:
            try:
                selector = Selector(text)
            except SelectorError as error:
                selector = error.with_traceback(None)
            self._selectors.keep(text, selector, _SELECTOR_BYTES + _CHARACTER_BYTES * len(text))
        return selector
