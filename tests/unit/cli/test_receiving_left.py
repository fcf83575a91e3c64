"""What a receiver says is left: messages that the next one would be handed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from journal.cli.operations.acting import StoreReceiving
from tests.support.sockets import NodeUnderTest
from tests.support.stores import declare, send

FAR_MS = 10**14
"""Later than any clock says."""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeUnderTest]:
    found = NodeUnderTest(tmp_path)
    declare(found.store_node.store, "q", "r")
    yield found
    found.store_node.close()


def receiving(node: NodeUnderTest) -> StoreReceiving:
    served = node.served()
    assert served is not None
    return StoreReceiving(served, "q", "me")


def test_what_has_expired_is_not_left(node: NodeUnderTest) -> None:
    store, now_ms = node.store_node.store, node.store_node.clock()
    send(store, b"expired", "q", "r", expires=now_ms + 5)
    send(store, b"expired, behind what is taken", expires=now_ms + 5)
    send(store, b"expired, and not ready anyway", expires=now_ms + 5, due=FAR_MS)
    send(store, b"expired, in another queue", "r", expires=now_ms + 5)
    receiver = receiving(node)
    assert receiver.finish() == 2
    send(store, b"stays")
    send(store, b"expires later", expires=now_ms + 6)
    node.store_node.clock.now_ms += 5
    assert receiver.finish() == 2
    assert [line is not None for line in (receiver.take(), receiver.take(), receiver.take())] == [True, True, False]
    assert receiver.finish() == 0


def test_what_has_expired_while_another_has_it_is_not_subtracted(node: NodeUnderTest) -> None:
    store, now_ms = node.store_node.store, node.store_node.clock()
    send(store, b"held", expires=now_ms + 5)
    assert store.take("q", "another") is not None
    send(store, b"stays")
    node.store_node.clock.now_ms += 5
    assert receiving(node).finish() == 1
