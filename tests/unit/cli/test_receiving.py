"""Receiving from a store whose node does not know for a moment whether it is still the active one."""

from __future__ import annotations

from pathlib import Path

import pytest

from journal.cli.operations.acting import StoreReceiving
from journal.errors import StateError
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
