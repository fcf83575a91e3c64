"""Messages and the addresses at which they were stored. Each can be found from the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

_AT_ONCE = 50


class ByAddress:
    """Messages and the record ids of their addresses. Not thread-safe: the store's lock guards it."""

    __slots__ = ("_address_of", "_messages_of")

    def __init__(self) -> None:
        self._address_of: dict[int, int] = {}
        self._messages_of: dict[int, dict[int, None]] = {}

    def __contains__(self, message_id: int) -> bool:
        return message_id in self._address_of

    def add(self, message_ids: Iterable[int], address_id: int) -> None:
        messages = dict.fromkeys(message_ids)
        self._address_of.update(dict.fromkeys(messages, address_id))
        self._messages_of.setdefault(address_id, {}).update(messages)

    def discard(self, message_id: int) -> None:
        address_id = self._address_of.pop(message_id, None)
        if address_id is not None:
            messages = self._messages_of[address_id]
            del messages[message_id]
            if not messages:
                del self._messages_of[address_id]

    def has(self, address_id: int) -> bool:
        """Whether there are messages of an address."""
        return address_id in self._messages_of

    def parts(self, address_id: int) -> Iterator[list[int]]:
        """The messages of an address in parts. Discard each part before asking for the next."""
        while part := [*islice(self._messages_of.get(address_id, ()), _AT_ONCE)]:
            yield part
