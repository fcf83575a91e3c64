"""A broker on a local journal, and proton's blocking client for it: both unmodified, over a real socket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from proton.utils import BlockingConnection

from journal.amqp.settings import AmqpSettings
from journal.broker.server import AmqpServer
from journal.limits import Limits
from journal.store.disposal import Disposal
from tests.support.stores import StoreNode

TIMEOUT_S = 20


class Broker:
    """An active node that serves AMQP."""

    def __init__(self, directory: Path, settings: AmqpSettings, limits: Limits | None = None, **node: Any) -> None:
        self.node = StoreNode(directory, limits=limits, room_timeout_ms=0, **node)
        self._settings = settings
        self._serve()

    def _serve(self) -> None:
        self.store = self.node.store
        self.server = AmqpServer(
            self.store, self._settings, container_id="broker", message_bytes_max=2**20, now_ms=self.node.clock
        )
        self.disposal = Disposal(self.store)
        self.disposal.start()
        host, port = self.server.start()
        self.url = f"amqp://{host}:{port}"

    def connect(self) -> BlockingConnection:
        return BlockingConnection(self.url, timeout=TIMEOUT_S, allowed_mechs="ANONYMOUS")

    def crash(self) -> None:
        """The node dies, and the next one serves what is durable."""
        self.disposal.stop()
        self.server.stop("the node dies")
        self.node.crash()
        self._serve()

    def close(self) -> None:
        self.disposal.stop()
        self.server.stop("the test has ended")
        self.node.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    running = Broker(tmp_path, AmqpSettings(listen="127.0.0.1:0"))
    yield running
    running.close()


@pytest.fixture
def client(broker: Broker) -> Iterator[BlockingConnection]:
    connection = broker.connect()
    yield connection
    connection.close()
