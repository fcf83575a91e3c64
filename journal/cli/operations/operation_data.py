"""The data of a message store's operations as text, for `tx show`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from journal.cli.text import printable
from journal.errors import RowError
from journal.store.message_records import decode_message
from journal.store.records import (
    decode_acknowledgement,
    decode_address,
    decode_address_settings,
    decode_binding,
    decode_queue,
    decode_reference,
)
from journal.v1.store_pb2 import (
    ACKNOWLEDGE,
    ADDRESS,
    ADDRESS_SETTINGS,
    BINDING,
    MESSAGE,
    QUEUE,
    REFERENCE,
    Acknowledgement,
)


def _message(data: bytes) -> str:
    message = decode_message(data)
    return f"message for {message.address}: {printable(message.body)}"


def _queue(data: bytes) -> str:
    queue = decode_queue(data)
    return f"queue {queue.name} of {queue.address}"


def _binding(data: bytes) -> str:
    _, key, filter = decode_binding(data)
    return f"binding, key {key or 'none'}, filter {filter or 'none'}"


def _reference(data: bytes) -> str:
    holder, deliveries, due = decode_reference(data)
    return f"reference, holder {holder or 'none'}, deliveries {deliveries}, due {due or 'at once'}"


def _acknowledgement(data: bytes) -> str:
    reason, holder = decode_acknowledgement(data)
    return f"acknowledged ({Acknowledgement.Reason.Name(reason).lower()}), holder {holder or 'none'}"


_TEXTS: Mapping[tuple[str, int], Callable[[bytes], str]] = {
    ("add", ADDRESS): lambda data: f"address {decode_address(data)[0]}",
    ("add", ADDRESS_SETTINGS): lambda data: f"settings of addresses {decode_address_settings(data).pattern}",
    ("add", QUEUE): _queue,
    ("add", BINDING): _binding,
    ("add", MESSAGE): _message,
    ("update", REFERENCE): _reference,
    ("update", ACKNOWLEDGE): _acknowledgement,
}


def data_text(op: str, kind: int, data: bytes) -> str:
    """The data of an operation. Another broker may use the store's kinds for something else: its data is shown as it
    is."""
    try:
        return _TEXTS.get((op, kind), printable)(data)
    except (RowError, ValueError):
        return printable(data)
