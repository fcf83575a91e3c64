"""`tx show` says what an operation's data means, and shows data of other brokers as it is."""

from __future__ import annotations

import pytest

from journal.cli.operations.operation_data import data_text
from journal.store.address_settings import AddressSettings
from journal.store.message_records import encode_message
from journal.store.model import Message, QueueConfig
from journal.store.records import (
    encode_acknowledgement,
    encode_address,
    encode_address_settings,
    encode_binding,
    encode_queue,
    encode_reference,
)
from journal.v1.store_pb2 import ACKNOWLEDGE, ADDRESS, ADDRESS_SETTINGS, BINDING, MESSAGE, QUEUE, REFERENCE, Reference


@pytest.mark.parametrize(
    ("op", "kind", "data", "shown"),
    [
        ("add", ADDRESS, encode_address("orders", 0), "address orders"),
        ("add", ADDRESS_SETTINGS, encode_address_settings("a.#", AddressSettings()), "settings of addresses a.#"),
        ("add", QUEUE, encode_queue(QueueConfig("eu", "orders")), "queue eu of orders"),
        ("add", BINDING, encode_binding(7, "k", ""), "binding, key k, filter none"),
        ("add", MESSAGE, encode_message(Message("orders", b"two apples")), "message for orders: two apples"),
        (
            "update",
            REFERENCE,
            encode_reference(Reference.ACQUIRED, "h", 2),
            "reference, holder h, deliveries 2, due at once",
        ),
        ("update", ACKNOWLEDGE, encode_acknowledgement(holder="h"), "acknowledged (consumed), holder h"),
        ("add", 45, b"hello", "hello"),
        ("add", MESSAGE, b"hello", "hello"),
    ],
)
def test_data_is_shown_as_what_it_means(op: str, kind: int, data: bytes, shown: str) -> None:
    assert data_text(op, kind, data) == shown
