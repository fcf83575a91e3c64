"""Which queues take a message: a queue's filter is a selector over its headers, properties and fields."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from journal.routing.selector import Selector
from journal.routing.selector_tokens import SelectorError
from journal.routing.view import field_of
from journal.store.model import Message, QueueConfig, Value
from journal.store.store import MessageStore

_FILTERS_KEPT = 65_536


class Filters:
    """The filters of a store's queues, compiled once each."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._selectors: dict[str, Selector] = {}

    def takes(self, message: Message, queue: QueueConfig) -> bool:
        """For `MessageStore.take_in`. Raises SelectorError for a filter that is none."""
        return self._selector(queue.filter).selects(partial(_value_of, message))

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
            if len(self._selectors) >= _FILTERS_KEPT:
                self._selectors.clear()
            selector = self._selectors[text] = Selector(text)
        return selector


def _value_of(message: Message, name: str) -> Value | None:
    """As of a `MessageView`; the message has no id yet."""
    for values in (message.headers, message.properties):
        if name in values:
            return values[name]
    return field_of(message, name)
