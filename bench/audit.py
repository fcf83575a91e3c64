"""`python -m bench audit`: `verify --with-spark` of 0.5 and of 5 million operations; how time and memory grow.

The bench runs the command as a user does, Spark's start included. Memory is that of all processes of the command
together; most of it is the JVM's. A worker has made the tables.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time

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
            seconds, peak_mb = _audited(settings)
        took.append(seconds)
        memory.append(peak_mb)
        outcome.figures |= _figures(operations, seconds, peak_mb)
    if len(took) > 1:
        outcome.figures["audit_time_growth"] = round(took[1] / took[0], 2)
        outcome.figures["audit_memory_growth"] = round(memory[1] / memory[0], 2)
    return outcome


def _figures(operations: int, seconds: float, peak_mb: float) -> Figures:
    name = f"audit_{operations // 1000}k"
    return {
        f"{name}_s": round(seconds, 1),
        f"{name}_operations_per_s": round(operations / seconds),
        f"{name}_rss_peak_mb": round(peak_mb),
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


def _audited(settings: Settings) -> tuple[float, float]:
    """Runs the audit; returns its seconds and the peak resident memory of its processes in MB."""
    arguments = ["verify", "--with-spark", "--json", "-b", settings.bootstrap_servers, "-j", settings.journal]
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", _COMMAND, *arguments], stdout=subprocess.PIPE, text=True)
    peak = _Peak(psutil.Process(process.pid))
    output, _ = process.communicate(timeout=RUN_TIMEOUT_S * 3)
    took = time.perf_counter() - began
    report = json.loads(output)
    assert report["agrees"], report
    return took, peak.stop()


class _Peak:
    """Peak resident memory of a process and its children, sampled until `stop`."""

    def __init__(self, process: psutil.Process) -> None:
        self._process = process
        self._mb = 0.0
        self._stopped = threading.Event()
        self._sampler = threading.Thread(target=self._sample, name="bench-memory", daemon=True)
        self._sampler.start()

    def stop(self) -> float:
        self._stopped.set()
        self._sampler.join()
        return self._mb

    def _sample(self) -> None:
        while not self._stopped.wait(_SAMPLE_S):
            self._mb = max(self._mb, sum(map(_resident_mb, _family(self._process))))


def _family(process: psutil.Process) -> list[psutil.Process]:
    try:
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _resident_mb(process: psutil.Process) -> float:
    try:
        return rss_mb(process)
    except psutil.NoSuchProcess:
        return 0.0
