"""A message while its routes make records from it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Container, Mapping, Sequence
from typing import NamedTuple

from google.protobuf.message import DecodeError

from journal.errors import AmqpPeerError, RowError
from journal.routing import headers as convention
from journal.routing.config import RoutingConfig
from journal.routing.headers import HeaderNames
from journal.routing.outcomes import Header, Reason, UnfitError
from journal.routing.quick import Quick, QuickHeaders
from journal.routing.view import MessageFields
from journal.store.message_records import parse_message
from journal.v1 import store_pb2 as pb
from journal.words import counted_are

_COUNT_MAX = 2**31 - 2

Body = Callable[[Sequence[int]], bytes | None]
"""A function that reads a large message's body from the ids of its chunks; None if the body cannot be read."""


class Context(NamedTuple):
    """The data that all routes and messages of a journal share."""

    config: RoutingConfig
    journal: str
    own_topics: Container[str]
    bytes_max: Mapping[str, int]
    """The max.message.bytes of each topic."""
    body: Body | None
    replayed: bool
    names: HeaderNames
    quick: QuickHeaders
    trail: list[Header]
    """The hop count header of a message that has none yet."""


class MessageSending:
    """A message while its routes make records from it. Parts that several targets need are made once."""

    __slots__ = (
        "_context",
        "_data",
        "_large_body",
        "_view",
        "came_from",
        "headers",
        "hops",
        "message_id",
        "size",
        "small_body",
        "trail",
    )

    headers: list[Header]
    """The headers of the message, without its hop counts."""
    small_body: bytes | None
    """The body; None if the message is a large one."""
    came_from: str
    trail: list[Header]
    hops: int

    def __init__(self, message_id: int, data: bytes, context: Context) -> None:
        self.message_id = message_id
        self.size = len(data)
        self._data = data
        self._context = context
        self._view: MessageFields | None = None
        self._large_body: bytes | None = None

    def make(self, destination: Header, address_end: int, quick: Quick | None = None) -> None:
        """Prepare what all targets need. It is called before the message is shown to a target. `destination` is the
        header of its address, which ends at index `at` of the message's data; `quick` is the result of `QuickHeaders`,
        if that was tried. Raises RowError."""
        context = self._context
        if quick is None and self._view is None:
            quick = context.quick.encoded(destination, self.message_id, self._data, address_end)
        if quick is not None:
            self.small_body, self.headers = quick
            self.came_from, self.trail, self.hops = "", context.trail, 1
        else:
            view = self.view
            message = view.message
            self.small_body = None if message.body_bytes else message.body
            self.headers = self._encoded(destination, message)
            self.came_from = view.came_from()
            self.trail, self.hops = trail_of(message, context.journal)
        if context.replayed:
            self.trail = [*self.trail, (convention.REPLAYED, b"true")]

    def _encoded(self, destination: Header, message: pb.Message) -> list[Header]:
        try:
            return self._context.names.encoded(self.message_id, destination[1] or b"", message)
        except struct.error as error:
            raise RowError(f"a field of the message is not a number of its size: {error}") from None

    @property
    def view(self) -> MessageFields:
        """The message in parsed form. Raises RowError."""
        if self._view is None:
            self._view = MessageFields(self.message_id, parsed(self._data))
        return self._view

    def body(self, bytes_max: int) -> bytes:
        """The message's body. Raises UnfitError for a large body that is too large for the target, or cannot be
        read."""
        if self.small_body is not None:
            return self.small_body
        message = self.view.message
        size = message.body_bytes
        if size > bytes_max:
            raise UnfitError(Reason.TOO_LARGE, f"a body of {size} bytes, and the topic takes {bytes_max}")
        if self._large_body is None:
            read = self._context.body
            self._large_body = read(message.chunks) if read is not None else None
        if self._large_body is None:
            raise UnfitError(Reason.NO_BODY, f"the large body of {size} bytes cannot be read")
        return self._large_body


def trail_of(message: pb.Message, journal: str) -> tuple[list[Header], int]:
    """The hop count headers of a message, and the number of times that it was sent, this time included."""
    own, counts, origin = convention.hops_name(journal), {}, journal
    values = message.headers
    for name in values:
        if name == convention.ORIGIN:
            origin = values[name].text or journal
        elif convention.is_hops(name):
            # any client could have set the header, so it may be invalid
            counts[name] = min(max(values[name].integer, 0), _COUNT_MAX)
    counts[own] = counts.get(own, 0) + 1
    trail: list[Header] = [(convention.ORIGIN, origin.encode())]
    trail += [(name, convention.pack_hops(count)) for name, count in sorted(counts.items())]
    return trail, sum(counts.values())


def parsed(data: bytes) -> pb.Message:
    """The parsed message. Raises RowError."""
    try:
        return parse_message(data)
    except (DecodeError, AmqpPeerError) as error:
        raise RowError(f"{counted_are(len(data), 'byte')} not a message: {error}") from None
