"""A control socket over a store on a local journal, and peers that do not behave."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from journal.cli.control_socket.client import NodeClient
from journal.cli.control_socket.lines import SocketLimits
from journal.cli.control_socket.server import ControlSocketServer
from journal.cli.control_socket.serving import ServedNode, control_socket
from journal.cli.operations.acting import Served
from journal.config import Settings, load_settings
from journal.disk.rocks import RocksStore
from journal.local.writer import marks_of
from journal.v1.journal_pb2 import Mark
from journal.xa.resource import XaResource
from loaders.node.roles import Role
from tests.support.stores import StoreNode, copy_living

DEADLINE_S = 60.0


@dataclass(frozen=True)
class RowsFound:
    """Rows of a moment, and their marks."""

    base: RocksStore
    marks: Mapping[int, Mark]


class NodeUnderTest:
    """A node whose role a test chooses."""

    def __init__(self, directory: Path, name: str = "one") -> None:
        self.store_node = StoreNode(directory / "store")
        self.settings: Settings = load_settings(directory=directory, journal="orders", node=name)
        self.role = Role.ACTIVE
        self.active_node = name
        self.handed_over: list[str] = []
        self.resource: XaResource | None = None

    def served(self) -> Served | None:
        node = self.store_node
        outcomes = node.loader.loaded.outcomes
        return Served(node.store, node.journal, outcomes, self.resource) if self.role is Role.ACTIVE else None

    @contextmanager
    def rows(self) -> Iterator[RowsFound]:
        self.store_node.store.flush().wait()
        directory = self.store_node.directory.with_name(f"rows-{uuid.uuid4().hex}")
        copy_living(self.store_node.directory, directory)
        with closing(RocksStore(directory)) as store:
            yield RowsFound(store, marks_of(store, self.store_node.journal.shards))

    def hand_over(self, to: str) -> Mapping[str, Any]:
        self.handed_over.append(to)
        return {"to": to}

    def resume_source(self, source: str, /, *, skip: bool, operator: str) -> Mapping[str, Any]:
        return {"source": source, "skipped": "t[0]@1" if skip else "", "operator": operator}

    @contextmanager
    def socket(self, **limits: Any) -> Iterator[ControlSocketServer]:
        node = ServedNode(
            self.served,
            lambda: self.role,
            lambda: {"epoch": 1, "reason": "cut off"},
            self.hand_over,
            lambda: self.active_node,
            self.rows,
            self.resume_source,
        )
        with control_socket(self.settings, node, limits=SocketLimits(**limits)) as server:
            yield server

    @contextmanager
    def client(self, **limits: Any) -> Iterator[NodeClient]:
        with self.socket() as server, NodeClient(server.path, SocketLimits(**limits)) as client:
            yield client


def peer(server: ControlSocketServer) -> socket.socket:
    """A connection that says what a test makes it say."""
    connected = socket.socket(socket.AF_UNIX)
    connected.settimeout(DEADLINE_S)
    connected.connect(str(server.path))
    return connected
