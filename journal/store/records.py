"""Encodes addresses, queues, bindings and updates as bytes for the journal (store.proto), and decodes them.

A caller's values are checked when they are encoded (InvalidOperationError); bytes of a journal that do not parse are a
RowError. `journal.store.message_records` does the same for messages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from google.protobuf.message import DecodeError

from journal.errors import InvalidOperationError, RowError
from journal.patterns import parse_pattern
from journal.store.address_settings import AddressSettings, KeptSettings
from journal.store.model import QueueConfig, Routing
from journal.v1 import store_pb2 as pb
from journal.words import counted_are

_INT64_MAX = 2**63 - 1
_UINT32_MAX = 2**32 - 1

_T = TypeVar("_T")


class ReferenceFacts(NamedTuple):
    """The state of a reference in a REFERENCE update."""

    holder: str
    deliveries: int
    due: int


def parse(kind: str, read: Callable[[bytes], _T], data: bytes) -> _T:
    """Parse bytes from a journal. Raises RowError."""
    try:
        return read(data)
    except DecodeError as error:
        raise RowError(f"{counted_are(len(data), 'byte')} not {kind}: {error}") from None


class Checked:
    """A context in which a record is built from a caller's values. If protobuf refuses one, it raises
    InvalidOperationError."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (TypeError, ValueError)):
            raise InvalidOperationError(f"{self._what} cannot hold that: {error}") from None


def require_due(due: int) -> None:
    """Raises InvalidOperationError for a number that is no time."""
    if not 0 <= due <= _INT64_MAX:
        raise InvalidOperationError(f"a time of {due} is not one in milliseconds since 1970")


# ---- addresses, queues, bindings -----------------------------------------------------------------------------------


def encode_address(name: str, duplicate_window: int) -> bytes:
    with Checked("an address"):
        return pb.Address(name=name, duplicate_window=duplicate_window).SerializeToString()


def decode_address(data: bytes) -> tuple[str, int]:
    """The name, and the size of the duplicate window."""
    address = parse("an address", pb.Address.FromString, data)
    return address.name, address.duplicate_window


def encode_queue(config: QueueConfig) -> bytes:
    if not isinstance(config.routing, Routing):
        raise InvalidOperationError(f"a queue's routing is a Routing, not {config.routing!r}")
    with Checked("a queue"):
        return pb.Queue(
            name=config.name,
            address=config.address,
            routing=pb.Routing.ValueType(config.routing.value),
            client_id=config.client_id,
            subscription=config.subscription,
            filter=config.filter,
            exclusive=config.exclusive,
            deliveries_max=config.deliveries_max,
            dead_letter_address=config.dead_letter_address,
            expiry_address=config.expiry_address,
            journaled_acquisition=config.journaled_acquisition,
            paused=config.paused,
        ).SerializeToString()


def decode_queue(data: bytes) -> QueueConfig:
    queue = parse("a queue", pb.Queue.FromString, data)
    try:
        routing = Routing(queue.routing)
    except ValueError:
        raise RowError(f"queue {queue.name!r} has routing {queue.routing}") from None
    return QueueConfig(
        name=queue.name,
        address=queue.address,
        routing=routing,
        client_id=queue.client_id,
        subscription=queue.subscription,
        filter=queue.filter,
        exclusive=queue.exclusive,
        deliveries_max=queue.deliveries_max,
        dead_letter_address=queue.dead_letter_address,
        expiry_address=queue.expiry_address,
        journaled_acquisition=queue.journaled_acquisition,
        paused=queue.paused,
    )


def encode_binding(queue_id: int, key: str, filter: str) -> bytes:
    with Checked("a binding"):
        return pb.Binding(queue=queue_id, key=key, filter=filter).SerializeToString()


def decode_binding(data: bytes) -> tuple[int, str, str]:
    """The queue's record id, key and filter."""
    binding = parse("a binding", pb.Binding.FromString, data)
    return binding.queue, binding.key, binding.filter


def encode_address_settings(pattern: str, settings: AddressSettings) -> bytes:
    with Checked("address settings"):
        named: dict[str, Any] = settings.named
        return pb.AddressSettings(pattern=pattern, **named).SerializeToString()


def decode_address_settings(data: bytes) -> KeptSettings:
    kept = parse("address settings", pb.AddressSettings.FromString, data)
    named = {field.name: value for field, value in kept.ListFields() if field.name != "pattern"}
    try:
        parse_pattern(kept.pattern)
        return KeptSettings(kept.pattern, AddressSettings.model_validate(named))
    except ValueError as error:
        raise RowError(f"the settings of addresses {kept.pattern!r} cannot be read: {error}") from None


# ---- updates -------------------------------------------------------------------------------------------------------


def encode_reference(
    change: pb.Reference.Change.ValueType, holder: str = "", deliveries: int = 0, due: int = 0
) -> bytes:
    """A REFERENCE update: the whole state of a reference, and the change that made it."""
    if not 0 <= deliveries <= _UINT32_MAX:
        raise InvalidOperationError(f"{deliveries} deliveries are more than can be counted")
    with Checked("a reference"):
        return pb.Reference(change=change, holder=holder, deliveries=deliveries, due=due).SerializeToString()


def decode_reference(data: bytes) -> ReferenceFacts:
    reference = parse("a reference", pb.Reference.FromString, data)
    return ReferenceFacts(reference.holder, reference.deliveries, reference.due)


def encode_acknowledgement(
    reason: pb.Acknowledgement.Reason.ValueType = pb.Acknowledgement.CONSUMED,
    holder: str = "",
    delivered: int = 0,
    deliveries: int = 0,
) -> bytes:
    """An ACKNOWLEDGE update. `delivered` is the time of the first delivery, 0 if it is not known; `deliveries` is how
    often the message came back before.

    Hot path: it is empty for a message that is consumed without a holder.
    """
    if not (holder or reason or delivered or deliveries):
        return b""
    with Checked("an acknowledgement"):
        return pb.Acknowledgement(
            reason=reason, holder=holder, delivered=delivered, deliveries=deliveries
        ).SerializeToString()


def decode_acknowledgement(data: bytes) -> tuple[pb.Acknowledgement.Reason.ValueType, str]:
    """The reason and the holder."""
    acknowledgement = parse("an acknowledgement", pb.Acknowledgement.FromString, data)
    return acknowledgement.reason, acknowledgement.holder


def encode_duplicate(duplicate_id: bytes) -> bytes:
    return pb.Duplicate(id=duplicate_id).SerializeToString()


def decode_duplicate(data: bytes) -> bytes:
    return parse("a duplicate-detection id", pb.Duplicate.FromString, data).id
