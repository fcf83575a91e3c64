"""A message on its way to its targets."""

from __future__ import annotations

import struct
from collections.abc import Callable, Container, Mapping, Sequence
from typing import NamedTuple

from google.protobuf.message import DecodeError

from journal.errors import RowError
from journal.routing import headers as convention
from journal.routing.config import RoutingConfig
from journal.routing.headers import HeaderNames
from journal.routing.outcomes import Header, Reason, UnfitError
from journal.routing.quick import Quick, QuickHeaders
from journal.routing.view import MessageFields
from journal.v1 import store_pb2 as pb

_COUNT_MAX = 2**31 - 2

Body = Callable[[Sequence[int]], bytes | None]
"""A large message's body by the ids of its chunks; None if it is not to be had."""


class Context(NamedTuple):
    """What all routes and messages of a journal share."""

    config: RoutingConfig
    journal: str
    own_topics: Container[str]
    bytes_max: Mapping[str, int]
    """Topics' max.message.bytes."""
    body: Body | None
    replayed: bool
    names: HeaderNames
    quick: QuickHeaders
    trail: list[Header]
    """The trail of a message that has none yet."""


class MessageSending:
    """A message on its way to its targets: what they share is made once."""

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
    """The headers of the message, but its trail."""
    small_body: bytes | None
    """The body; None: the message is a large one."""
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
        """Before it is shown to a target: what all of them need. `destination` is its address, which ends there in its
        data; `quick` what was found without parsing it, if that was tried. Raises RowError."""
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
            raise RowError(f"a field of the message is no number of its size: {error}") from None

    @property
    def view(self) -> MessageFields:
        """The message, parsed. Raises RowError."""
        if self._view is None:
            self._view = MessageFields(self.message_id, parsed(self._data))
        return self._view

    def body(self, bytes_max: int) -> bytes:
        """The message's body. Raises UnfitError for a large one that is too large for the target, or cannot be read."""
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
    """The trail of a message, and how often it was sent out, this time included."""
    own, counts, origin = convention.hops_name(journal), {}, journal
    values = message.headers
    for name in values:
        if name == convention.ORIGIN:
            origin = values[name].text or journal
        elif convention.is_hops(name):
            counts[name] = min(max(values[name].integer, 0), _COUNT_MAX)  # any client could have set it
    counts[own] = counts.get(own, 0) + 1
    trail: list[Header] = [(convention.ORIGIN, origin.encode())]
    trail += [(name, convention.pack_hops(count)) for name, count in sorted(counts.items())]
    return trail, sum(counts.values())


def parsed(data: bytes) -> pb.Message:
    """The parsed message. Raises RowError."""
    try:
        return pb.Message.FromString(data)
    except DecodeError as error:
        raise RowError(f"{len(data)} bytes are not a message: {error}") from None
