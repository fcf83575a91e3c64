"""Which queues take a message: a queue's filter is a selector over its headers, properties and fields."""

from __future__ import annotations

import logging
from collections.abc import Collection
from functools import partial

from journal.routing.selector import Selector
from journal.routing.selector_tokens import SelectorError
from journal.routing.view import value_of
from journal.store.model import Message, QueueConfig
from journal.store.store import MessageStore

log = logging.getLogger(__name__)

CHARACTERS_KEPT = 2**20
"""Of all filters together. One that is compiled takes some seventy bytes a character."""


class Filters:
    """The filters of a store's queues, compiled once each as far as there is room."""

    def __init__(self, store: MessageStore, *, characters_max: int = CHARACTERS_KEPT) -> None:
        self._store = store
        self._characters_max = characters_max
        self._selectors: dict[str, Selector] = {}
        self._characters = 0
        """Of `_selectors`: clients may have made any number of subscriptions, one after the other."""
        self._failed: set[str] = set()
        """Queues whose filters have raised, which is told once."""

    def takes(self, message: Message, queue: QueueConfig) -> bool:
        """For `MessageStore.take_in`. Raises SelectorError for a filter that is none.

        A filter that raises anything else is unknown for the message, which its queue therefore does not take: no other
        queue is to suffer from it.
        """
        selector = self._selector(queue.filter)
        try:
            return selector.selects(partial(value_of, message))
        except Exception:
            if queue.name not in self._failed:
                self._failed.add(queue.name)
                log.exception(
                    "the filter of queue %s cannot be evaluated: the queue takes no such messages", queue.name
                )
            return False

    def unreachable(self, addresses: Collection[str]) -> dict[str, str]:
        """Of these addresses, those to which nothing can be sent, and why."""
        found = self._store.ways_in(addresses)
        bad: dict[str, str] = {}
        for address in addresses:
            queues = found.get(address)
            if queues is None:
                bad[address] = f"there is no address {address}"
            elif not queues:
                bad[address] = f"address {address} has no queue that could take a message"
            elif fault := self._fault_of(queues):
                bad[address] = fault
        return bad

    def _fault_of(self, queues: Collection[QueueConfig]) -> str:
        for queue in queues:
            if queue.filter:
                try:
                    self._selector(queue.filter)
                except SelectorError as error:
                    return f"the filter of queue {queue.name} is no selector: {error}"
        return ""

    def _selector(self, text: str) -> Selector:
        selector = self._selectors.get(text)
        if selector is None:
            selector = Selector(text)
            self._characters += len(text)
            if self._characters > self._characters_max:
                self._selectors.clear()
                self._characters = len(text)
            self._selectors[text] = selector
        return selector
