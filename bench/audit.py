"""`python -m bench audit`: `verify --with-spark` of 0.5 and of 5 million operations; how time and memory grow.

The bench runs the command as a user does, Spark's start included. Memory and processor time are those of all processes
of the command together: the JVM, and Python's workers. A worker has made the tables.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from typing import NamedTuple

import psutil

from bench.rounds import Figures, Outcome, say
from bench.scene import RUN_TIMEOUT_S, Marks, Scene, rss_mb, worker
from bench.workload import Prefill, markers, operation_frames
from journal.config import Settings

OPERATIONS = (500_000, 5_000_000)
SHARDS = 8

_COMMAND = "from journal.cli.main import main; main()"
_SAMPLE_S = 0.2


def run(scene: Scene) -> Outcome:
    """Audits both journals; with `quick` the smaller one alone, without figures of growth."""
    outcome = Outcome()
    took: list[float] = []
    memory: list[float] = []
    for operations in OPERATIONS[:1] if scene.quick else OPERATIONS:
        with scene.journal(SHARDS) as settings:
            _fill(settings, operations)
            say(f"audit of {operations:,} operations")
            audited = _audited(settings)
        took.append(audited.seconds)
        memory.append(audited.peak_mb)
        outcome.figures |= _figures(operations, audited)
    if len(took) > 1:
        outcome.figures["audit_time_growth"] = round(took[1] / took[0], 2)
        outcome.figures["audit_memory_growth"] = round(memory[1] / memory[0], 2)
    return outcome


class _Audited(NamedTuple):
    """The time and memory of an audit."""

    seconds: float
    processor_s: float
    peak_mb: float


def _figures(operations: int, audited: _Audited) -> Figures:
    name = f"audit_{operations // 1000}k"
    return {
        f"{name}_s": round(audited.seconds, 1),
        f"{name}_operations_per_s": round(operations / audited.seconds),
        f"{name}_processor_s": round(audited.processor_s, 1),
        f"{name}_rss_peak_mb": round(audited.peak_mb),
    }


def _fill(settings: Settings, operations: int) -> None:
    """Writes operations to the WAL, and waits until the tables have them."""
    marking, _ = markers(SHARDS)
    prefill = Prefill(settings)
    prefill.write([*marking, *operation_frames(SHARDS, operations, fleeting=True)])
    prefill.commit()
    marks = Marks(settings)
    try:
        with worker(settings):
            marks.wait_for(prefill.last, RUN_TIMEOUT_S)
    finally:
        marks.close()


def _audited(settings: Settings) -> _Audited:
    """Runs the audit."""
    arguments = ["verify", "--with-spark", "--json", "-b", settings.bootstrap_servers, "-j", settings.journal]
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", _COMMAND, *arguments], stdout=subprocess.PIPE, text=True)
    family = _Family(psutil.Process(process.pid))
    output, _ = process.communicate(timeout=RUN_TIMEOUT_S * 3)
    took = time.perf_counter() - began
    report = json.loads(output)
    assert report["agrees"], report
    family.stop()
    return _Audited(took, family.processor_s, family.peak_mb)


class _Family:
    """A process and its children, sampled until `stop`."""

    def __init__(self, process: psutil.Process) -> None:
        self._process = process
        self._processor_s: dict[int, float] = {}
        self.peak_mb = 0.0
        """Peak resident memory of all of them together."""
        self._stopped = threading.Event()
        self._sampler = threading.Thread(target=self._sample, name="bench-memory", daemon=True)
        self._sampler.start()

    @property
    def processor_s(self) -> float:
        """Processor time of all of them, as each one had used it when it was last seen."""
        return sum(self._processor_s.values())

    def stop(self) -> None:
        self._stopped.set()
        self._sampler.join()

    def _sample(self) -> None:
        while not self._stopped.wait(_SAMPLE_S):
            self.peak_mb = max(self.peak_mb, sum(map(self._seen, self._members())))

    def _members(self) -> list[psutil.Process]:
        try:
            return [self._process, *self._process.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def _seen(self, process: psutil.Process) -> float:
        """Note what a process has used; returns its resident memory in MB."""
        try:
            used = process.cpu_times()
            self._processor_s[process.pid] = used.user + used.system
            return rss_mb(process)
        except psutil.NoSuchProcess:
            return 0.0
