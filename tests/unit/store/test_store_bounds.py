"""What clients send is bounded in bytes wherever it is kept, and what is refused is not kept."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable

import pytest

from journal.errors import InvalidOperationError, JournalError
from journal.patterns import NamePatterns
from journal.routing.headers import own_name
from journal.store.model import DUPLICATE_ID_BYTES_MAX, Message, QueueConfig
from journal.store.store import MessageStore
from tests.support.stores import declare, refuse, send

MANY, LONG = 60, 20_000
"""Together 1.2 megabytes of names."""
LEFT_BYTES_MAX = 200_000


def left_bytes(act: Callable[[str], object], many: int = MANY) -> int:
    """What is left in memory after so many calls, each with a long name of its own."""
    for number in range(3):
        act(f"{number}")
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(many):
            act(f"{number}".ljust(LONG, "x"))
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def refused(act: Callable[[], object]) -> None:
    with pytest.raises(JournalError):
        act()


REFUSED: dict[str, Callable[[MessageStore, str], object]] = {
    "an-address": lambda store, name: store.send(Message(name, b"1"), ["q"]),
    "an-address-of-many": lambda store, name: store.send_all([Message(name, b"1")] * 2, ["q"]),
    "a-queue": lambda store, name: store.send(Message("orders", b"1"), [name]),
    "a-property": lambda store, name: store.send(Message("no", b"1", properties={name: "text"}), ["q"]),
    "a-header": lambda store, name: store.send(Message("no", b"1", headers={name: 1}), ["q"]),
    "a-duplicate-id": lambda store, name: store.send(Message("no", b"1", duplicate_id=name.encode()), ["q"]),
    "not-durable": lambda store, name: store.send(Message(name, b"1", durable=False), ["q"]),
    "a-holder": lambda store, name: store.acquire(1 << 50, "q", name),
    "a-subscription": lambda store, name: store.create_queue(QueueConfig("q", "orders", client_id=name)),
    "in-a-transaction": lambda store, name: store.send(Message("orders", b"1"), [name], 1 << 40),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused_input_leaves_nothing(store: MessageStore, what: str) -> None:
    assert left_bytes(lambda name: refused(lambda: REFUSED[what](store, name))) < LEFT_BYTES_MAX


def test_names_and_keys_of_routes_leave_no_more_than_a_bound() -> None:
    patterns = NamePatterns(["a*", "!b*"])

    def route(name: str) -> None:
        assert own_name("jms.string." + name) == name
        assert name not in patterns

    assert left_bytes(route, 8) < LEFT_BYTES_MAX / 4


def test_a_window_is_bounded_in_bytes_as_no_duplicate_id_is_long(store: MessageStore) -> None:
    declare(store, "w", address="watched", window=10)
    send(store, b"one", "w", address="watched", duplicate_id=bytes(DUPLICATE_ID_BYTES_MAX))
    long = Message("watched", b"two", duplicate_id=bytes(DUPLICATE_ID_BYTES_MAX + 1))
    refuse(
        InvalidOperationError,
        lambda: store.send(long, ["w"]),
        lambda: store.send_all([long], ["w"]),
        lambda: store.store(long),
        lambda: store.incoming(long),
    )
    assert store.queue("w").ready == 1
