"""The surroundings of every bench: a broker, journals with a worker process, and the memory of each process.

Worker and broker are processes of their own, so that neither shares an interpreter's lock with what is measured.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from confluent_kafka.admin import AdminClient

from journal.config import Settings, load_settings
from journal.embedded.cluster import EmbeddedKafka
from journal.errors import DeadlineError
from journal.kafka.clients import kafka_of
from journal.kafka.ports import Reader
from journal.process.clocks import wall_ms
from journal.topics.made_and_checked import init_journal
from journal.topics.names import control_topic, table_topic, wal_topic
from journal.v1.journal_pb2 import Mark

TIMEOUT_S = 60.0
RUN_TIMEOUT_S = 600.0
JOURNAL_UUID = bytes(range(16))
"""The uuid of every journal of a bench, so that frames made once fit all of them."""

_SAMPLE_S = 0.1
_LOOK_S = 0.02
_COMMAND = "from journal.cli.main import main; main()"


@dataclass(frozen=True, slots=True)
class Scene:
    """A broker and a directory for local copies."""

    bootstrap: str
    directory: Path
    broker_pid: int | None
    quick: bool

    def rounds(self) -> int:
        return 2 if self.quick else 5

    def operations(self, full: int) -> int:
        return max(2000, full // 20) if self.quick else full

    @contextmanager
    def journal(self, shards: int, **more: object) -> Iterator[Settings]:
        """Makes a journal, and deletes its topics in the end, so that a long run does not fill the disk."""
        name = f"bench-{uuid.uuid4().hex[:12]}"
        settings = load_settings(
            None,
            bootstrap_servers=self.bootstrap,
            journal=name,
            shards=shards,
            directory=self.directory,
            node="bench",
            **more,
        )
        init_journal(
            kafka_of(settings),
            settings,
            lambda: JOURNAL_UUID,
            clock=time.monotonic,
            wall_ms=wall_ms,
            timeout_s=TIMEOUT_S,
        )
        try:
            yield settings
        finally:
            delete_topics(self.bootstrap, [wal_topic(name), table_topic(name), control_topic(name)])


@contextmanager
def make_scene(bootstrap: str | None, quick: bool) -> Iterator[Scene]:
    """Makes a scene on the brokers at `bootstrap`, or else on an embedded broker."""
    with tempfile.TemporaryDirectory(prefix="kafka-journal-bench-") as directory:
        path = Path(directory)
        if bootstrap is not None:
            yield Scene(bootstrap, path, None, quick)
            return
        with EmbeddedKafka(path / "kafka", attached=True) as kafka:
            pids = [broker.pid for broker in kafka.status().brokers]
            yield Scene(kafka.bootstrap_servers, path, pids[0], quick)


def delete_topics(bootstrap: str, topics: list[str]) -> None:
    client = AdminClient({"bootstrap.servers": bootstrap})
    for deleted in client.delete_topics(topics, operation_timeout=TIMEOUT_S).values():
        deleted.result(TIMEOUT_S)


# ---- the worker ------------------------------------------------------------------------------------------------------


@contextmanager
def worker(settings: Settings) -> Iterator[int]:
    """Runs the worker's command in as many processes as `settings` say, and gives the first process's pid. The worker
    may still be joining its group."""
    environment = {
        **os.environ,
        "KAFKA_JOURNAL_DIRECTORY": str(settings.directory),
        "KAFKA_JOURNAL_CHECKPOINT_INTERVAL_MS": str(settings.checkpoint_interval_ms),
        "KAFKA_JOURNAL_WORKER_PROCESSES": str(settings.worker_processes),
    }
    if settings.routing.routes:
        environment["KAFKA_JOURNAL_ROUTING"] = settings.routing.model_dump_json()
    command = [sys.executable, "-c", _COMMAND, "worker", "-b", settings.bootstrap_servers, "-j", settings.journal]
    process = subprocess.Popen(command, env=environment)
    try:
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(RUN_TIMEOUT_S)


class Marks:
    """The newest marks of a journal's table topic, found without reading its rows."""

    def __init__(self, settings: Settings) -> None:
        self._reader: Reader = kafka_of(settings).reader(table_topic(settings.journal))
        self._ends: dict[int, int] = dict.fromkeys(range(settings.shards), 0)
        self._settings = settings
        self.offsets: dict[int, int] = dict.fromkeys(range(settings.shards), -1)

    def look(self) -> None:
        """Reads the newest mark of each shard whose partition has grown. The mark is the record before the marker that
        ends its transaction."""
        moved: dict[int, int] = {}
        for shard, known in self._ends.items():
            _, end = self._reader.start_and_end(shard, TIMEOUT_S)
            if end > known:
                moved[shard] = end
        if not moved:
            return
        self._ends |= moved
        self._reader.seek({shard: max(0, end - 2) for shard, end in moved.items()})
        while any(self._reader.position(shard) < end for shard, end in moved.items()):
            for record in self._reader.poll(TIMEOUT_S):
                if record.key is not None and record.key.startswith(b"m"):
                    self.offsets[record.partition] = Mark.FromString(record.value or b"").offset

    def wait_for(self, offsets: Mapping[int, int], timeout_s: float) -> None:
        """Waits until the mark of each shard in `offsets` is at or beyond the WAL offset there. Raises
        DeadlineError."""
        until = time.monotonic() + timeout_s
        while not all(self.offsets[shard] >= offset for shard, offset in offsets.items()):
            if time.monotonic() > until:
                raise DeadlineError(f"marks stand at {self.offsets} after {timeout_s:.0f} s, not at {dict(offsets)}")
            time.sleep(_LOOK_S)
            self.look()

    def close(self) -> None:
        self._reader.close()


# ---- memory ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Memory:
    """Peak resident memory of processes in MB, from samples a tenth of a second apart."""

    peaks: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def watch(self, **pids: int | None) -> Iterator[None]:
        """Samples the named processes during the context."""
        watched = {name: psutil.Process(pid) for name, pid in pids.items() if pid is not None}
        stop = threading.Event()

        def sample() -> None:
            while not stop.wait(_SAMPLE_S):
                for name, process in watched.items():
                    self.peaks[name] = max(self.peaks.get(name, 0.0), rss_mb(process))

        sampler = threading.Thread(target=sample, name="bench-memory", daemon=True)
        sampler.start()
        try:
            yield
        finally:
            stop.set()
            sampler.join()

    def figures(self) -> dict[str, float | int | str]:
        return {f"{name}_rss_peak_mb": round(peak) for name, peak in self.peaks.items()}


def rss_mb(process: psutil.Process) -> float:
    rss: int = process.memory_info().rss
    return rss / 2**20
