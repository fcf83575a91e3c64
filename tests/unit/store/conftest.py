"""A message store on a local journal of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from journal.store.settings import StoreSettings
from journal.store.store import MessageStore
from tests.support.stores import StoreNode, declare


@pytest.fixture
def node(tmp_path: Path) -> Iterator[StoreNode]:
    """With address "orders" and queues "q" and "r"."""
    with StoreNode(tmp_path / "node") as running:
        declare(running.store, "q", "r")
        yield running


@pytest.fixture
def store(node: StoreNode) -> MessageStore:
    return node.store


@pytest.fixture
def small_node(tmp_path: Path) -> Iterator[StoreNode]:
    """The same, on which 100 bytes are a large message and 2560 the largest."""
    settings = StoreSettings(inline_bytes_max=100, chunk_bytes=100, message_bytes_max=2560)
    with StoreNode(tmp_path / "small", settings) as running:
        declare(running.store, "q", "r")
        yield running
