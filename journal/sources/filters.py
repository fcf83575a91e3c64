"""The queues that take a message: a queue's filter is a selector over its headers, properties and fields."""

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
"""Bytes of all compiled filters: some 50,000 short ones, or 100 as long as they may be."""
_CHARACTER_BYTES = 128
_SELECTOR_BYTES = 2048
"""Bytes that a compiled filter takes at most: so many, and as many more for each of its characters."""


class Filters:
    """The filters of a store's queues, compiled once each as far as there is room."""

    def __init__(self, store: MessageStore, *, bytes_max: int = FILTERS_BYTES_MAX) -> None:
        self._store = store
        self._selectors: Kept[str, Selector | SelectorError] = Kept(bytes_max, entry_bytes_max=bytes_max)
        self._failed: Kept[str, None] = Kept()
        """Queues whose filters do not compile or have raised, which is logged once."""

    def takes(self, message: Message, queue: QueueConfig) -> bool:
        """Whether a queue takes a message, for `MessageStore.take_in`.

        A filter that is no selector, or that raises, is unknown for the message, which its queue therefore does not
        take: no other queue is to suffer from what somebody stored for this one.
        """
        selector = self._selector(queue.filter)
        if isinstance(selector, SelectorError):
            if self._is_news(queue):
                log.error(
                    "the filter of queue %s is no selector: the queue takes no messages: %s", queue.name, selector
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
        """Whether a queue's filter has not failed before."""
        if queue.name in self._failed:
            return False
        self._failed.keep(queue.name, None, len(queue.name))
        return True

    def unreachable(self, addresses: Collection[str]) -> dict[str, str]:
        """The addresses to which nothing can be sent, with the reason of each."""
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
        """A filter compiled, or why it cannot be: that is kept too, as each message asks for it."""
        selector = self._selectors.get(text)
        if selector is None:
            try:
                selector = Selector(text)
            except SelectorError as error:
                selector = error.with_traceback(None)
            self._selectors.keep(text, selector, _SELECTOR_BYTES + _CHARACTER_BYTES * len(text))
        return selector
