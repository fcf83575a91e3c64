"""`python -m bench shards`: memory, descriptors and threads of a worker with 256 shards, and of a node.

The node activates the journal and writes records of a kilobyte to all shards as fast as it can; the worker folds them
into the tables and its local copies. Each of the two processes must stay below a bound of memory, however many shards
there are.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psutil

from bench.rounds import Outcome, say
from bench.scene import RUN_TIMEOUT_S, Memory, Scene, worker
from journal.config import Settings, load_settings
from journal.journal import BlockingJournal
from journal.limits import VIRTUAL_SHARDS
from journal.load.loading import NullLoader

SHARDS = 256
QUICK_SHARDS = 64
RECORDS = 100_000
RECORD_BYTES = 1024
RESIDENT_MAX_MB = 2048
KIND = 45


def run(scene: Scene) -> Outcome:
    """Measures both processes. Raises AssertionError if one takes more memory than it may."""
    outcome, memory = Outcome(), Memory()
    shards = QUICK_SHARDS if scene.quick else SHARDS
    with (
        scene.journal(shards, gate_timeout_ms=int(RUN_TIMEOUT_S * 1000)) as settings,
        worker(settings) as pid,
        _node(settings, scene.operations(RECORDS)) as node,
        ExitStack() as watching,
    ):
        assert node.stdout is not None
        for line in node.stdout:
            outcome.figures |= json.loads(line)
            processes = {"worker": psutil.Process(pid), "node": psutil.Process(node.pid)}
            watching.enter_context(memory.watch(**{name: each.pid for name, each in processes.items()}))
            for name, process in processes.items():
                outcome.figures[f"{name}_descriptors"] = process.num_fds()
                outcome.figures[f"{name}_threads"] = process.num_threads()
            say(f"{outcome.figures}")
        assert node.wait(RUN_TIMEOUT_S) == 0, "the node failed"
    outcome.figures |= memory.figures()
    for name, peak in memory.peaks.items():
        assert peak < RESIDENT_MAX_MB, f"the {name} of {shards} shards took {peak:.0f} MB"
    return outcome


@contextmanager
def _node(settings: Settings, records: int) -> Iterator[subprocess.Popen[str]]:
    arguments = [settings.bootstrap_servers, settings.journal, settings.directory, settings.gate_timeout_ms, records]
    command = [sys.executable, "-m", "bench.shards", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _serve(bootstrap: str, journal: str, directory: str, gate_timeout_ms: str, records: str) -> None:
    settings = load_settings(
        bootstrap_servers=bootstrap,
        journal=journal,
        directory=directory,
        gate_timeout_ms=int(gate_timeout_ms),
        room_timeout_ms=int(gate_timeout_ms),
    )
    for turn in ("cold", "warm"):
        with BlockingJournal(settings) as node:
            began = time.monotonic()
            node.activate(NullLoader())
            _tell(**{f"{turn}_activation_s": round(time.monotonic() - began, 2)})
            began = time.monotonic()
            for number in range(int(records)):
                last = node.add(node.new_id(number % VIRTUAL_SHARDS), kind=KIND, data=bytes(RECORD_BYTES))
            last.wait()
            _tell(**{f"{turn}_records_per_s": round(int(records) / (time.monotonic() - began))})


def _tell(**figures: float) -> None:
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
