"""`trim` on a schedule: the worker that serves shard 0 runs it, with the same code as the command.

A thread of its own reads and compares, so that checkpoints go on meanwhile; it needs as much memory and time as the
command. A trim that fails is logged, and tried again when the next one is due. A trim under way is given up before it
deletes anything, if the worker stops or loses shard 0.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing

from journal.config import Settings
from journal.errors import ConfigError, CorruptionError, JournalError
from journal.kafka.ports import Kafka
from journal.process.clocks import Clock, wall_ms
from journal.process.commands import command
from journal.topics.control_reading import read_control
from journal.topics.control_rows import ControlRows
from journal.upkeep.trim import Trimming, archives_of
from journal.words import called, counted
from streams.reading.records import Record
from streams.reading.shell import WorkerShell

log = logging.getLogger(__name__)

TRIMMING_SHARD = 0
"""The worker that serves this shard trims all shards."""


class GivenUp(Exception):
    """Raised inside a trim when this worker must not make it any more."""


Trim = Callable[[threading.Event], int]
"""A function that trims, and returns how many offsets were deleted. Raises GivenUp once the event is set."""


def with_trims(shell: WorkerShell, kafka: Kafka, settings: Settings, rows: ControlRows) -> WorkerShell:
    """The `shell`, with trims every `trim_every_ms` if that is set. Raises ConfigError if a trim would delete records
    that no archive has, unless the settings allow it."""
    if not settings.trim_every_ms:
        return shell
    if not archives_of(rows, settings.journal) and not settings.trim_without_archive:
        raise ConfigError(
            f"trim_every_ms is set, and {called(settings.journal)} has no archive: what a trim deletes would be gone "
            f"for good. `{command('spark archive', '--to', 'PATH', journal=settings.journal)}` makes one, "
            "trim_without_archive does without"
        )
    return TrimmingShell(shell, lambda stop: trim_once(kafka, settings, stop), settings.trim_every_ms / 1000)


def trim_once(kafka: Kafka, settings: Settings, stop: threading.Event) -> int:
    """Trim all shards as far as possible. If an archive was begun meanwhile, the trim waits for it even if the settings
    allow trims without an archive.

    Raises TrimError, OperatingError, CorruptionError, and GivenUp.
    """

    def progress(*_: object) -> None:
        if stop.is_set():
            raise GivenUp

    rows = read_control(kafka, settings.journal, time.monotonic, settings.request_timeout_ms / 1000)
    without_archive = settings.trim_without_archive and not archives_of(rows, settings.journal)
    with closing(Trimming(kafka, settings, rows, progress, without_archive=without_archive)) as trimming:
        plan = trimming.plan(f"worker {settings.node}", wall_ms())
        progress()
        trimming.delete(plan)
    return sum(each.offset - each.start for each in plan)


class TrimmingShell(WorkerShell):
    """A worker's shell that trims every `every_s`, counted from its start, while it serves the trimming shard."""

    def __init__(self, shell: WorkerShell, trim: Trim, every_s: float, clock: Clock = time.monotonic) -> None:
        self._shell = shell
        self._trim = trim
        self._every_s = every_s
        self._clock = clock
        self._due_at = clock() + every_s
        self._serves = False
        self._stop = threading.Event()
        self._running: Future[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="worker-trim")

    def assigned(self, shards: Collection[int]) -> Mapping[int, int]:
        self._serves = TRIMMING_SHARD in shards
        if not self._serves:
            self._stop.set()
        return self._shell.assigned(shards)

    def revoked(self, shards: Collection[int]) -> None:
        """Let a trim that is under way go on until the new owner is known, because the shard may come back."""
        if TRIMMING_SHARD in shards:
            self._serves = False
        self._shell.revoked(shards)

    def frames(self, shard: int, records: Sequence[Record]) -> None:
        self._shell.frames(shard, records)

    def unreadable(self, shard: int, error: CorruptionError) -> None:
        self._shell.unreadable(shard, error)

    def tick(self) -> float:
        wanted_s = self._shell.tick()
        if self._running is not None and self._running.done():
            running, self._running = self._running, None
            running.result()
        if self._serves and self._running is None and self._clock() >= self._due_at:
            self._due_at = self._clock() + self._every_s
            self._stop = threading.Event()
            self._running = self._thread.submit(self._run, self._stop)
        return wanted_s

    def seeks(self) -> Mapping[int, int]:
        return self._shell.seeks()

    def applied(self) -> Mapping[int, int]:
        return self._shell.applied()

    def stop(self) -> None:
        self._stop.set()
        self._shell.stop()
        self._thread.shutdown()

    def abandon(self) -> None:
        self._stop.set()
        self._shell.abandon()
        self._thread.shutdown()

    def _run(self, stop: threading.Event) -> None:
        try:
            count = self._trim(stop)
        except GivenUp:
            log.info("a trim was given up: shard %d or the worker went", TRIMMING_SHARD)
        except JournalError as error:
            log.error("the WAL was not trimmed, which is tried again in %g s: %s", self._every_s, error)
        else:
            log.log(logging.INFO if count else logging.DEBUG, "the WAL was trimmed by %s", counted(count, "offset"))
