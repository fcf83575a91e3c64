"""`python -m bench load`: a load from a warm copy, against iterating its files; the build of a copy, against consuming.

A worker has made the rows: records of 200 bytes, every second one with an update. The loader keeps nothing, so the
memory shown is what the load itself takes.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping, Sequence

import psutil
from rocksdict import AccessType, Options, Rdict

from bench import limits
from bench.rounds import Comparison, Figures, Outcome, alternate, say
from bench.scene import RUN_TIMEOUT_S, TIMEOUT_S, Marks, Memory, Scene, rss_mb, worker
from bench.workload import append_live
from journal.config import Settings
from journal.disk.rocks import RocksStore
from journal.journal import BlockingJournal
from journal.kafka.clients import kafka_of
from journal.load.loading import LoadCounts, LoadedUpdate, load
from journal.table.opening import open_replica
from journal.table.replica import Replica
from journal.topics.made_and_checked import open_journal
from journal.topics.names import table_topic, wal_topic
from journal.v1.journal_pb2 import Mark, Operation

RECORDS = 1_000_000
SHARDS = 8

_TABLE = "table"
_MARKER_OFFSETS = 2
"""Offsets from the last frame of a WAL to its end: the frame and its transaction's marker."""


def _families() -> dict[str, Options]:
    return {name: Options(raw_mode=True) for name in (_TABLE, "xa", "named")}


def run(scene: Scene) -> Outcome:
    outcome = Outcome()
    memory = Memory()
    with memory.watch(bench=os.getpid(), broker=scene.broker_pid), scene.journal(SHARDS) as settings:
        with worker(settings) as pid, memory.watch(worker=pid), BlockingJournal(settings) as journal:
            journal.activate()
            say(f"{scene.operations(RECORDS):,} records through the journal")
            append_live(journal, scene.operations(RECORDS))
            _wait_until_applied(settings)
        copies = _Copies(scene, settings)
        cold, consumed = alternate(scene.rounds(), copies.build_rate, copies.consume_rate, what="cold copy")
        outcome.comparisons.append(Comparison("load_cold_copy", "rows_per_s", cold, consumed, 0.5))
        copies.keep_one()
        warm, iterated = alternate(scene.rounds(), copies.load_rate, copies.iterate_rate, what="warm copy")
        outcome.comparisons.append(Comparison("load_warm_copy", "rows_per_s", warm, iterated, 0.35))
        outcome.figures |= copies.load_memory()
        copies.close()
    outcome.figures |= memory.figures()
    return outcome


def _wait_until_applied(settings: Settings) -> None:
    """Waits until the table has everything: every shard's mark stands at the WAL's last frame."""
    wal, marks = kafka_of(settings).reader(wal_topic(settings.journal)), Marks(settings)
    try:
        ends = {shard: wal.start_and_end(shard, TIMEOUT_S)[1] for shard in range(settings.shards)}
        marks.wait_for({shard: end - _MARKER_OFFSETS for shard, end in ends.items()}, RUN_TIMEOUT_S)
    finally:
        wal.close()
        marks.close()


class CountingLoader:
    """A loader that takes everything and keeps nothing."""

    def __init__(self) -> None:
        self.counts: LoadCounts | None = None
        self.bytes = 0

    def begin(self, marks: Mapping[int, Mark]) -> None: ...

    def record(
        self, record_id: int, kind: int, data: bytes, updates: Sequence[LoadedUpdate], position: tuple[int, int, int]
    ) -> None:
        self.bytes += len(data)

    def prepared(self, tx: int, data: bytes, operations: Sequence[Operation]) -> None: ...

    def complete(self, counts: LoadCounts) -> None:
        self.counts = counts


class _Copies:
    """Copies of the table topic, each in a directory of its own."""

    def __init__(self, scene: Scene, settings: Settings) -> None:
        self._scene = scene
        self._settings = settings
        self._kafka = kafka_of(settings)
        rows = open_journal(self._kafka, settings, clock=time.monotonic, timeout_s=TIMEOUT_S)
        self._identity = rows.require_identity(settings.journal)
        self._directory = scene.directory / "copy"
        self._store: RocksStore | None = None
        self._replica: Replica | None = None
        self._rows = 0

    # ---- cold ------------------------------------------------------------------------------------------------------

    def build_rate(self) -> float:
        """Builds a new copy of the table topic, until the copy can be read. Returns how many rows of the topic this
        took in per second."""
        self.close()
        shutil.rmtree(self._directory, ignore_errors=True)
        began = time.perf_counter()
        self._open()
        took = time.perf_counter() - began
        return self._topic_rows() / took

    def consume_rate(self) -> float:
        self.close()  # RocksDB would otherwise merge its files during the limit's time.
        rows, took = limits.consume(self._scene.bootstrap, table_topic(self._settings.journal), SHARDS)
        return rows / took

    def _topic_rows(self) -> int:
        if not self._rows:
            self._rows, _ = limits.consume(self._scene.bootstrap, table_topic(self._settings.journal), SHARDS)
        return self._rows

    def _open(self) -> tuple[Replica, RocksStore]:
        self._store = RocksStore(self._directory)
        self._replica = open_replica(self._kafka, self._settings, self._identity, self._store)
        self._replica.catch_up(RUN_TIMEOUT_S)
        return self._replica, self._store

    # ---- warm ------------------------------------------------------------------------------------------------------

    def keep_one(self) -> None:
        """Reopens the last copy, as a restarted node does, without merging its files.

        Otherwise the load and the limit would each read other files, and the limit a file that is about to be deleted.
        """
        self.close()
        database = Rdict(str(self._directory), Options(raw_mode=True), column_families=_families())
        table = database.get_column_family(_TABLE)
        table.compact_range(None, None)
        table.close()
        database.close()
        self._open()

    def load_rate(self) -> float:
        """Loads the copy into a loader; returns rows a second."""
        loader = CountingLoader()
        began = time.perf_counter()
        self._load(loader)
        took = time.perf_counter() - began
        assert loader.counts is not None
        return (loader.counts.records + loader.counts.updates) / took

    def _load(self, loader: CountingLoader) -> None:
        assert self._store is not None
        assert self._replica is not None
        snapshot = self._store.snapshot()
        load(snapshot, self._replica.marks(), loader)
        snapshot.close()

    def iterate_rate(self) -> float:
        """Iterates over the files of the same copy; returns rows a second."""
        access = AccessType.read_only()
        database = Rdict(str(self._directory), Options(raw_mode=True), column_families=_families(), access_type=access)
        table = database.get_column_family(_TABLE)
        rows, took = limits.iterate(table)
        table.close()
        database.close()
        return rows / took

    def load_memory(self) -> Figures:
        """Returns the resident memory of this process before a load, and the most that the load added."""
        process = psutil.Process()
        before = rss_mb(process)
        memory = Memory()
        with memory.watch(load=os.getpid()):
            self._load(CountingLoader())
        return {
            "load_records": self._scene.operations(RECORDS),
            "load_rss_before_mb": round(before),
            "load_rss_growth_mb": round(max(memory.peaks.get("load", before), rss_mb(process)) - before),
        }

    def close(self) -> None:
        if self._replica is not None:
            self._replica.close()
        if self._store is not None:
            self._store.close()
        self._replica = self._store = None
