"""A journal and its worker inside the test's process, on a real Kafka."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from journal.config import Settings, load_settings
from journal.disk.slots import take_slot
from journal.kafka.clients import kafka_of
from journal.load.loading import LoadCounts, LoadedUpdate
from journal.process.clocks import wall_ms
from journal.topics.made_and_checked import init_journal, open_journal
from journal.v1.journal_pb2 import Mark, Operation
from streams.reading.group_settings import group_settings
from streams.worker.service import make_worker
from tests.support.background_worker import BackgroundWorker

START_S = 60.0


def made_journal(bootstrap: str, directory: Path, **flags: Any) -> Settings:
    """Settings of a new journal, its topics made."""
    flags = {"journal": f"t-{uuid.uuid4().hex[:12]}", "directory": directory, **flags}
    settings = load_settings(None, bootstrap_servers=bootstrap, **flags)
    init_journal(
        kafka_of(settings),
        settings,
        lambda: uuid.uuid4().bytes,
        clock=time.monotonic,
        wall_ms=wall_ms,
        timeout_s=START_S,
    )
    return settings


@contextmanager
def running_worker(settings: Settings) -> Iterator[BackgroundWorker]:
    """A worker in a thread of this process."""
    kafka = kafka_of(settings)
    identity = open_journal(kafka, settings, clock=time.monotonic, timeout_s=START_S).require_identity(settings.journal)
    slot = take_slot(settings.journal_directory, "worker")
    worker = BackgroundWorker(
        make_worker(kafka, settings, identity, slot), group_settings(settings, slot.path.name, identity.shards)
    )
    worker.start(START_S)
    try:
        yield worker
    finally:
        worker.stop(START_S)
        slot.release()


class Collected:
    """A loader that keeps what it is told."""

    def __init__(self) -> None:
        self.marks: dict[int, Mark] = {}
        self.records: dict[int, tuple[int, bytes]] = {}
        self.updates: dict[int, list[tuple[int, bytes, int]]] = {}
        self.in_doubt: dict[int, tuple[bytes, list[Operation]]] = {}
        self.counts: LoadCounts | None = None

    def begin(self, marks: Mapping[int, Mark]) -> None:
        self.marks = dict(marks)

    def record(
        self, record_id: int, kind: int, data: bytes, updates: Sequence[LoadedUpdate], position: tuple[int, int, int]
    ) -> None:
        self.records[record_id] = (kind, data)
        if updates:
            self.updates[record_id] = [(update.kind, update.data, update.subject) for update in updates]

    def prepared(self, tx: int, data: bytes, operations: Sequence[Operation]) -> None:
        self.in_doubt[tx] = (data, list(operations))

    def complete(self, counts: LoadCounts) -> None:
        self.counts = counts
