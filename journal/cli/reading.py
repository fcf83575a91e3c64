"""Read-only loads for commands that read; they disturb nobody.

Each journal's copy of the tables stays in the user's cache directory, so that the next command reads only what is new.
Commands that run at the same time have a copy each. The copy of a killed command is completed or built anew; a copy of
another cluster or topic is dropped. All copies may be deleted while no command runs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from journal.cli.common import PROGRESS_AFTER_S, StepProgress
from journal.cli.first_contact import first_contact
from journal.config import Settings
from journal.disk.ports import LocalStore
from journal.disk.rocks import open_copy
from journal.disk.slots import take_slot
from journal.errors import DeadlineError, LocalStorageError
from journal.kafka.clients import kafka_of
from journal.kafka.ports import Kafka
from journal.load.loading import LoadedUpdate, Loader
from journal.process.directories import CACHE, user_directory
from journal.process.progress import Progress, no_progress
from journal.table.opening import open_replica
from journal.table.replica import Replica
from journal.topics.control_rows import ControlRows
from journal.topics.made_and_checked import open_journal
from journal.v1.journal_pb2 import Mark
from loaders.snapshot import SnapshotState, read_snapshot

LOAD_TIMEOUT_S = 600.0
_SHOW_EVERY_S = 0.5
_SHOW_EVERY_RECORDS = 4096


def copies_directory() -> Path:
    """Where commands keep their copies of tables: kafka-journal/copies in the XDG cache directory."""
    return user_directory(CACHE) / "copies"


@contextmanager
def opened_journal(settings: Settings) -> Iterator[tuple[Kafka, ControlRows]]:
    """The Kafka clients and the control rows of a journal that exists and is sound."""
    kafka = kafka_of(settings)
    with first_contact(settings):
        rows = open_journal(kafka, settings, clock=time.monotonic, timeout_s=settings.request_timeout_ms / 1000)
    yield kafka, rows


@contextmanager
def loaded_state(settings: Settings, *, now: bool = True) -> Iterator[tuple[SnapshotState, StepProgress]]:
    """A journal's state, and the progress bars for reading it."""
    with (
        opened_journal(settings) as (kafka, rows),
        StepProgress(after_s=PROGRESS_AFTER_S) as progress,
        loaded_snapshot(settings, kafka, rows, now=now, progress=progress) as state,
    ):
        yield state, progress


@contextmanager
def loaded_snapshot(
    settings: Settings,
    kafka: Kafka,
    rows: ControlRows,
    *,
    now: bool,
    progress: Progress = no_progress,
    copies: Path | None = None,
) -> Iterator[SnapshotState]:
    """A read-only load, from a copy of the tables below `copies` (by default in the user's cache)."""
    identity = rows.require_identity(settings.journal)
    with (
        caught_up_copy(settings, kafka, rows, progress=progress, copies=copies, counts_rows=True) as (replica, store),
        closing(read_snapshot(kafka, settings, identity, replica, store, now=now, timeout_s=LOAD_TIMEOUT_S)) as state,
    ):
        yield state


# ---- the copy ----------------------------------------------------------------------------------------------


@contextmanager
def caught_up_copy(
    settings: Settings,
    kafka: Kafka,
    rows: ControlRows,
    *,
    progress: Progress = no_progress,
    copies: Path | None = None,
    timeout_s: float = LOAD_TIMEOUT_S,
    counts_rows: bool = False,
) -> Iterator[tuple[Replica, LocalStore]]:
    """The command's copy of the tables, caught up with their present end: the state of its marks. Raises
    DeadlineError."""
    identity = rows.require_identity(settings.journal)
    parent = (copies or copies_directory()) / settings.journal
    with (
        cached_directory(parent, "read") as directory,
        closing(open_copy(directory)) as store,
        closing(open_replica(kafka, settings, identity, store, counts_rows=counts_rows)) as replica,
    ):
        _catch_up(replica, identity.shards, progress, timeout_s)
        yield replica, store


@contextmanager
def cached_directory(parent: Path, prefix: str) -> Iterator[Path]:
    """A directory that is this command's own until it ends, with what an earlier command left in it."""
    try:
        slot = take_slot(parent, prefix)
    except LocalStorageError as error:
        raise LocalStorageError(f"{error}; {CACHE} can name another place") from error
    try:
        yield slot.path
    finally:
        slot.release()


def _catch_up(replica: Replica, shards: int, progress: Progress, timeout_s: float) -> None:
    """Follow the tables up to their present end. Raises DeadlineError."""
    until = time.monotonic() + timeout_s
    total = 0
    while True:
        behind = sum(max(0, replica.lag(shard)) for shard in range(shards))
        total = max(total, behind)
        progress("tables", total - behind, total)
        try:
            replica.catch_up(_SHOW_EVERY_S)
            return
        except DeadlineError as error:
            if time.monotonic() >= until:
                raise DeadlineError(f"{error}; the copy stays as it is: call again") from error


# ---- progress ----------------------------------------------------------------------------------------------


class ShownLoader:
    """A loader that passes everything to another loader and shows its progress."""

    def __init__(self, inner: Loader, progress: Progress) -> None:
        self.prepared = inner.prepared
        self.complete = inner.complete
        self._inner = inner
        self._tell = inner.record
        self._progress = progress
        self._done = self._total = 0

    def begin(self, marks: Mapping[int, Mark]) -> None:
        self._total = sum(mark.records for mark in marks.values())
        self._inner.begin(marks)

    def record(
        self, record_id: int, kind: int, data: bytes, updates: Sequence[LoadedUpdate], position: tuple[int, int, int]
    ) -> None:
        self._tell(record_id, kind, data, updates, position)
        self._done += 1
        if self._done % _SHOW_EVERY_RECORDS == 0:
            self._progress("load", self._done, self._total)
