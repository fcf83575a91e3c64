"""Receiving from a store: an empty queue is told from one that is not, for the moment."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from journal.cli.operations.acting import StoreReceiving
from journal.errors import StateError
from journal.store.model import Delivery, Message, Value
from journal.store.queues.tables import PASSED_MAX
from journal.store.store import MessageStore
from tests.support.sockets import NodeUnderTest
from tests.support.stores import declare, send


class Uncertain:
    """The part of a journal that a node asks before it hands out anything."""

    current = False


def test_nothing_handed_out_is_not_taken_for_an_empty_queue(tmp_path: Path) -> None:
    node = NodeUnderTest(tmp_path)
    store = node.store_node.store
    declare(store, "q")
    served = node.served()
    assert served is not None
    certain = StoreReceiving(served, "q", "me")
    uncertain = StoreReceiving(served._replace(journal=Uncertain()), "q", "me", patience_s=0)
    assert certain.take() is None
    for ask in (uncertain.take, uncertain.finish):
        with pytest.raises(StateError, match="call again"):
            ask()
    send(store, b"1")
    assert certain.take() is not None
    node.store_node.close()


def test_a_message_has_the_same_values_received_as_looked_at(tmp_path: Path) -> None:
    node = NodeUnderTest(tmp_path)
    store = node.store_node.store
    declare(store, "q")
    values: dict[str, Value] = {"kafka.key": b"k4", "count": 7, "bulk": True, "weight": 0.5, "none": math.nan, "a": "b"}
    send(store, b"body", headers=values, properties=values)
    with node.client() as client:
        (seen,) = client.messages("q", 1).lines
    served = node.served()
    assert served is not None
    received = StoreReceiving(served, "q", "me").take()
    assert received is not None
    shown = {"kafka.key": "azQ=", "count": 7, "bulk": True, "weight": 0.5, "none": "nan", "a": "b"}
    assert (received["properties"], received["headers"]) == (seen["properties"], seen["headers"]) == (shown, shown)
    node.store_node.close()


class Continued:
    """Has been suspended, and commits again before long."""

    def __init__(self, looks: int) -> None:
        self._looks = looks

    @property
    def current(self) -> bool:
        self._looks -= 1
        return self._looks < 0


class Withholding:
    """A store that hands out nothing the first time."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._asked = False

    def take(self, queue: str, holder: str) -> Delivery | None:
        asked, self._asked = self._asked, True
        return self._store.take(queue, holder) if asked else None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@pytest.mark.parametrize("looks", [1, 2, 5])
def test_a_node_that_knows_again_before_long_is_waited_for(tmp_path: Path, looks: int) -> None:
    node = NodeUnderTest(tmp_path)
    store = node.store_node.store
    declare(store, "q")
    send(store, b"1")
    served = node.served()
    assert served is not None
    withholding = served._replace(store=Withholding(store), journal=Continued(looks))
    assert StoreReceiving(withholding, "q", "me").take() is not None
    assert StoreReceiving(served._replace(journal=Continued(looks)), "q", "me").finish() == 0
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
