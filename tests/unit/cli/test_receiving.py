"""Receiving from a store: an empty queue is told from one that is not, for the moment."""

from __future__ import annotations

from pathlib import Path

import pytest

from journal.cli.operations.acting import StoreReceiving
from journal.errors import StateError
from journal.store.model import Message
from journal.store.queue_tables import PASSED_MAX
from tests.support.sockets import NodeUnderTest
from tests.support.stores import declare, send


class Uncertain:
    """Of a journal, what a node asks before it hands out anything."""

    current = False


def test_nothing_handed_out_is_not_taken_for_an_empty_queue(tmp_path: Path) -> None:
    node = NodeUnderTest(tmp_path)
    store = node.store_node.store
    declare(store, "q")
    served = node.served()
    assert served is not None
    certain = StoreReceiving(served, "q", "me")
    uncertain = StoreReceiving(served._replace(journal=Uncertain()), "q", "me")
    assert certain.take() is None
    for ask in (uncertain.take, uncertain.finish):
        with pytest.raises(StateError, match="call again"):
            ask()
    send(store, b"1")
    assert certain.take() is not None
    node.store_node.close()


def test_a_message_behind_much_that_has_expired_is_received(tmp_path: Path) -> None:
    node = NodeUnderTest(tmp_path)
    store = node.store_node.store
    declare(store, "q")
    served = node.served()
    assert served is not None
    for _ in range(PASSED_MAX + 1):
        store.send(Message("orders", b"old", expires=node.store_node.clock()), ["q"])
    sent = send(store, b"new")
    receiving = StoreReceiving(served, "q", "me")
    line = receiving.take()
    assert line is not None
    assert line["id"] == sent
    assert receiving.take() is None
    node.store_node.close()
