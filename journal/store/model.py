"""The values that a broker gives to the message store and gets from it: queues, messages, and the state of references.

`journal.store.records` and `message_records` turn them into a journal's bytes and back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from typing import NamedTuple, NoReturn

PRIORITY_MAX = 9
PRIORITY_DEFAULT = 4

DELIVERIES_MAX = 2**31 - 1
"""The highest delivery count that can be set. It leaves room in 32 bits for all counts that follow."""

DUPLICATE_ID_BYTES_MAX = 1024
"""The longest duplicate-detection id. It bounds the bytes that an address remembers, as its window bounds the number of
ids."""

Value = bool | int | float | str | bytes
"""The value of a header or a property."""


class _NoValues(dict[str, Value]):
    """The class of the empty dictionary that all messages without headers or properties share. Nothing can be put into
    it.

    Making two dictionaries for each message would take a third of the time that making the message takes.
    """

    __slots__ = ()
    __hash__ = object.__hash__  # type: ignore[assignment]  # a dataclass refuses a default without a hash

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("a message made without headers or properties gets none later: make it with them")

    __setitem__ = setdefault = update = __ior__ = _refuse


_NO_VALUES = _NoValues()


class Routing(Enum):
    """How messages of an address are routed to its queues: to one of them (anycast), or to all (multicast)."""

    ANYCAST = 0
    MULTICAST = 1


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """A queue as its broker declares it. A queue with a client id and a subscription name is a durable subscription."""

    name: str
    address: str
    routing: Routing = Routing.ANYCAST
    client_id: str = ""
    subscription: str = ""
    filter: str = ""
    """The filter as text, which the store only keeps; the broker evaluates it."""
    exclusive: bool = False
    deliveries_max: int = 0
    """The number of deliveries after which a message is dead; 0 for no limit."""
    dead_letter_address: str = ""
    expiry_address: str = ""
    durable: bool = True
    journaled_acquisition: bool = False
    """Whether the journal holds who has acquired a message. If not, taking a message writes nothing, and a load finds
    it ready again."""
    paused: bool = False
    """Whether the queue takes messages in and hands out none."""


CHANGEABLE = ("filter", "exclusive", "deliveries_max", "dead_letter_address", "expiry_address", "paused")
"""The fields of `QueueConfig` that can change while the queue exists. The others say which queue it is, and how its
messages are kept."""


def fixed_differences(old: QueueConfig, new: QueueConfig) -> list[str]:
    """The names of the fields that differ and cannot change while the queue exists."""
    fixed = [field.name for field in fields(QueueConfig) if field.name not in CHANGEABLE]
    return [name for name in fixed if getattr(old, name) != getattr(new, name)]


class Origin(NamedTuple):
    """The queue that a moved, expired or dead message came from."""

    message: int
    address: str
    queue: str
    reason: str
    expires: int = 0
    """When the message would have expired there, in ms since 1970; 0 means never.

    If the message was moved before and does not expire any more, this is the time in its own origin.
    """


@dataclass(slots=True)
class Message:
    """A message as its broker stores it. Times are milliseconds since 1970. `expires` 0 means never, `due` 0 at once. A
    store that is sent a message with `timestamp` 0 sets it to the time of then.

    Do not change a message once a store has it. (The class is not frozen, because making an object would then take 1.2
    microseconds instead of 0.2.)
    """

    address: str
    body: bytes = b""
    headers: Mapping[str, Value] = _NO_VALUES
    properties: Mapping[str, Value] = _NO_VALUES
    priority: int = PRIORITY_DEFAULT
    timestamp: int = 0
    expires: int = 0
    due: int = 0
    durable: bool = True
    duplicate_id: bytes = b""
    origin: Origin | None = None
    amqp: bytes = b""
    """The bytes before the body's content, of a message that came by AMQP (`journal.store.amqp_head`). Its headers and
    properties are what these say, whatever else is given."""


class ReferenceState(Enum):
    """The state of a reference in its queue."""

    READY = "ready"
    SCHEDULED = "scheduled"  # its due time is in the future
    HELD = "held"  # a holder has acquired it
    LOCKED = "locked"  # a transaction that is not settled yet acknowledges or changes the reference
    SETTLING = "settling"  # the reference is acknowledged, but the acknowledgement may not be durable yet


class ReferenceInfo(NamedTuple):
    """A message's place in one queue, for browsing and `explain`."""

    message: int
    queue: str
    state: ReferenceState
    priority: int
    deliveries: int
    holder: str
    tx: int
    due: int


class Held(NamedTuple):
    """Messages of one queue that one holder has. Without a holder they are messages that nobody has."""

    queue: str
    messages: Sequence[int]
    holder: str = ""


def ids_of(held: Sequence[Held]) -> tuple[int, ...]:
    """The ids of all these messages, in order."""
    return tuple(message_id for each in held for message_id in each.messages)


class Delivery(NamedTuple):
    """The result of `take` and `take_all`: a message of a queue, acquired by a holder."""

    message: int
    deliveries: int
    """How many times the message came back before, counted."""
    redelivered: bool = False
    """Whether the message was delivered before, or may have been before the last load."""
    large: bool = False
    """Whether the body is large: `content` is without it, and `body_stream` gives it in pieces."""
    content: Message | None = None
    """The message, if it was asked for and is in memory; `bodies` reads all others."""
