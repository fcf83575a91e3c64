"""Fixture `node`: a node in this process that listens on its control socket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.sockets import NodeUnderTest
from tests.support.stores import declare


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeUnderTest]:
    """With the queue `q`, empty."""
    made = NodeUnderTest(tmp_path)
    declare(made.store_node.store, "q")
    yield made
    made.store_node.close()
