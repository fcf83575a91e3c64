"""`python -m bench process`: a worker from WAL to committed tables, against a bare loop and stock Faust.

Each round has a new journal and an idle worker that already serves it. One open Kafka transaction fills the WAL; the
clock runs from its commit, which shows the worker everything at once, until the last mark can be read committed. The
bare loop then reads the same WAL. A worker of several shards runs in as many processes as there are cores.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack, closing

import psutil

from bench import limits
from bench.baseline_faust import measure_faust
from bench.rounds import Comparison, Outcome, alternate, say
from bench.scene import RUN_TIMEOUT_S, TIMEOUT_S, Marks, Memory, Scene, delete_topics, worker
from bench.workload import Prefill, PrefilledFrame, markers, operation_frames
from journal.config import Settings
from journal.embedded.process import wait_until
from journal.kafka.clients import kafka_of
from journal.topics.names import wal_topic, worker_group

OPERATIONS = 2_000_000
FAUST_OPERATIONS = 10_000


def run(scene: Scene) -> Outcome:
    outcome = Outcome()
    memory = Memory()
    with memory.watch(bench=os.getpid(), broker=scene.broker_pid):
        for shards in (1, 8):
            _measure(scene, shards, outcome, memory)
    outcome.figures |= memory.figures()
    return outcome


def _measure(scene: Scene, shards: int, outcome: Outcome, memory: Memory) -> None:
    name = f"process_{shards}_shard{'s' if shards > 1 else ''}"
    outcome.figures[f"{name}_worker_processes"] = _processes(shards)
    operations = scene.operations(OPERATIONS)
    with closing(Workload(scene, shards, operations, memory, fleeting=False)) as steady:
        ours, limit = alternate(scene.rounds(), steady.worker_rate, steady.bare_rate, what=name)
        outcome.comparisons.append(Comparison(name, "operations_per_s", ours, limit, 0.6))
        if shards == 1:
            outcome.comparisons.append(_against_faust(scene, ours))
        with closing(Workload(scene, shards, operations, memory, fleeting=True)) as fleeting:
            fast, slow = alternate(scene.rounds(), fleeting.worker_rate, steady.worker_rate, what=f"{name}, fleeting")
    outcome.comparisons.append(Comparison(f"{name}_fleeting_over_steady", "operations_per_s", fast, slow, 2.0))


def _against_faust(scene: Scene, ours: list[float]) -> Comparison:
    """Compares with stock Faust's GlobalTable, whose rounds come last, because each starts a worker process of its
    own."""
    figure = measure_faust(scene.bootstrap, "table", scene.operations(FAUST_OPERATIONS), len(ours))
    say(f"stock Faust: {figure.median:,.0f} operations a second")
    return Comparison("process_1_shard_over_faust_table", "operations_per_s", ours, list(figure.rounds), 50.0)


class Workload:
    """The frames of all rounds: each round of the worker has a new journal, and the bare loop reads the newest one."""

    def __init__(self, scene: Scene, shards: int, operations: int, memory: Memory, *, fleeting: bool) -> None:
        self._scene = scene
        self._shards = shards
        self._operations = operations
        self._memory = memory
        say(f"making {operations:,} operations for {shards} shards")
        self._frames = operation_frames(shards, operations, fleeting=fleeting)
        self._wal: str | None = None
        self._left = ExitStack()

    def worker_rate(self) -> float:
        """Returns the worker's operations per second, from the commit of the WAL until the last mark is committed."""
        self.close()
        processes = _processes(self._shards)
        settings = self._left.enter_context(self._scene.journal(self._shards, worker_processes=processes))
        self._wal = wal_topic(settings.journal)
        with worker(settings) as pid:
            _wait_until_served(settings)
            with self._memory.watch(**self._named(pid)):
                return self._operations / process_seconds(settings, self._frames)

    def _named(self, pid: int) -> dict[str, int | None]:
        """Names the worker's processes for the figures of memory."""
        pids = [pid, *(child.pid for child in psutil.Process(pid).children())]
        return {f"worker_{self._shards}_shards_process_{number}": each for number, each in enumerate(pids, start=1)}

    def bare_rate(self) -> float:
        """Returns operations a second of the bare loop."""
        if self._wal is None:
            self.worker_rate()
        assert self._wal is not None
        table = limits.new_topic(self._scene.bootstrap, self._shards, **{"cleanup.policy": "compact"})
        took = limits.fold_seconds(self._scene.bootstrap, self._wal, self._shards, table)
        delete_topics(self._scene.bootstrap, [table])
        return self._operations / took

    def close(self) -> None:
        """Deletes the last journal."""
        self._left.close()
        self._wal = None


def _processes(shards: int) -> int:
    return min(shards, os.cpu_count() or 1)


def process_seconds(settings: Settings, frames: list[PrefilledFrame]) -> float:
    """Shows `frames` to the worker of a new journal at once; returns the seconds until their marks."""
    marks = Marks(settings)
    prefill = Prefill(settings)
    first, _ = markers(settings.shards)
    prefill.write(first)
    prefill.commit()
    marks.wait_for(prefill.last, TIMEOUT_S)
    prefill.write(frames)
    began = prefill.commit()
    marks.wait_for(prefill.last, RUN_TIMEOUT_S)
    took = time.perf_counter() - began
    marks.close()
    return took


def _wait_until_served(settings: Settings) -> None:
    """Waits until all processes of the worker serve the journal."""
    with closing(kafka_of(settings).cluster()) as cluster:

        def is_shared() -> bool:
            members = cluster.group_members(worker_group(settings.journal), TIMEOUT_S)
            return sum(bool(each.partitions) for each in members) == settings.worker_processes

        if not wait_until(is_shared, TIMEOUT_S):
            raise TimeoutError(f"the worker's {settings.worker_processes} processes do not share its shards")
