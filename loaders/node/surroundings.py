"""What surrounds a node's life: its group, the rows that it reports, the journals that it activates, and time.

A process uses threads and its machine's clocks for these; a simulation has its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from google.protobuf.message import Message

from journal.activate.copy import TableCopy
from journal.config import Settings
from journal.errors import JournalError
from journal.journal import BlockingJournal
from journal.kafka.clients import KafkaClients
from journal.kafka.membership import Membership
from journal.kafka.ports import Kafka
from journal.process.clocks import Clock, wall_ms
from journal.process.progress import Progress
from journal.topics.names import control_topic, node_group
from loaders.node.members import Roll
from loaders.node.outlook import Present
from loaders.node.reporting import NodeReporter


class Roster(Present, Protocol):
    """Tells who is in the nodes' group, until `close`."""

    def close(self) -> None: ...


class RowPoster(Protocol):
    """Writes control rows soon. Nobody waits for them."""

    def post(self, key: bytes, row: Message | None) -> None: ...

    def close(self, timeout_s: float) -> None: ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The surroundings of one node."""

    kafka: Kafka
    roll: Roster
    reporter: RowPoster
    join: Callable[[], Membership]
    """Become a member of the nodes' group."""
    journal: Callable[[Callable[[JournalError], None], Progress], BlockingJournal]
    """A journal over the node's copy. The first argument is called with the error that ends the journal."""
    clock: Clock
    wall_ms: Clock
    pause: Callable[[float], None]
    turn_s: float = 0.05
    """How long each turn of a node's life waits for control rows."""


def surroundings_of(settings: Settings, kafka: KafkaClients, copy: TableCopy) -> Surroundings:
    """The surroundings that a process gives its node."""

    def join() -> Membership:
        return kafka.membership(
            node_group(settings.journal),
            control_topic(settings.journal),
            settings.node,
            session_timeout_ms=settings.node_session_timeout_ms,
            heartbeat_ms=settings.node_heartbeat_ms,
        )

    def journal(on_critical: Callable[[JournalError], None], progress: Progress) -> BlockingJournal:
        return BlockingJournal(settings, copy=copy, on_critical=on_critical, progress=progress)

    roll, reporter = Roll(kafka, node_group(settings.journal)), NodeReporter(kafka, settings.journal)
    return Surroundings(kafka, roll, reporter, join, journal, time.monotonic, wall_ms, time.sleep)
