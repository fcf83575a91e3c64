"""Commands that read: a read-only load of the tables, disturbing nobody."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from journal.config import Settings
from journal.kafka.control import ControlRows
from journal.kafka.ports import Kafka
from journal.kafka.topics import open_journal
from journal.local.rocks import RocksStore
from journal.runtime import kafka_of, open_replica
from loaders.snapshot import SnapshotState, read_snapshot

LOAD_TIMEOUT_S = 600.0


@contextmanager
def opened_journal(settings: Settings) -> Iterator[tuple[Kafka, ControlRows]]:
    """The Kafka clients and control rows of a journal that is there and sound."""
    kafka = kafka_of(settings)
    yield kafka, open_journal(kafka, settings, clock=time.monotonic, timeout_s=settings.request_timeout_ms / 1000)


@contextmanager
def loaded_snapshot(settings: Settings, kafka: Kafka, rows: ControlRows, *, now: bool) -> Iterator[SnapshotState]:
    """A read-only load, in a local copy that goes with it."""
    identity = rows.require_identity(settings.journal)
    with tempfile.TemporaryDirectory(prefix="kafka-journal-") as directory:
        store = RocksStore(Path(directory) / "copy")
        replica = open_replica(kafka, settings, identity, store)
        try:
            yield read_snapshot(kafka, settings, identity, replica, store, now=now, timeout_s=LOAD_TIMEOUT_S)
        finally:
            replica.close()
            store.close()
