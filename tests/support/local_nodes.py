"""A node on a `LocalJournal` as a process that can be killed: writes down what it submits and what it is told of it.

`python -m tests.support.local_nodes DIRECTORY HISTORY SEED SHARDS` appends a seeded workload until it is killed.
"""

from __future__ import annotations

import base64
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

from journal.append.completion import Completion
from journal.cli.script import apply_operation
from journal.errors import CallerError
from journal.local.journal import LocalJournal
from tests.support.node_workload import Workload
from tests.support.nodes import History, NotingLoader
from tests.support.script_model import Line

IN_FLIGHT_MAX = 300
START_TIMEOUT_S = 60.0
_LOOK_EVERY_S = 0.005


def kill_while_appending(directory: Path, history: Path, seed: int, shards: int, *, acknowledged: int) -> None:
    """Run a node until so many more operations were acknowledged, and kill it with others in flight."""
    before = _acknowledged(history)
    command = [sys.executable, "-m", "tests.support.local_nodes", str(directory), str(history), str(seed), str(shards)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        until = time.monotonic() + START_TIMEOUT_S
        while _acknowledged(history) < before + acknowledged:
            assert child.poll() is None, child.stderr.read()
            assert time.monotonic() < until, "the node acknowledges nothing"
            time.sleep(_LOOK_EVERY_S)
        child.kill()


def _acknowledged(history: Path) -> int:
    return history.read_text().count('{"done":') if history.exists() else 0


def run(directory: Path, history: History, seed: int, shards: int) -> None:
    """Append until killed."""
    in_flight: deque[Completion] = deque()
    with LocalJournal(directory, shards=shards) as journal:
        loader = NotingLoader(history)
        journal.activate(loader)
        workload = Workload(seed, loader.epoch, loader.lines, journal.new_id)
        while True:
            for line in workload.burst():
                completion = submit(journal, workload, history, line)
                if completion is not None and "tx" not in line:
                    in_flight.append(completion)
            while len(in_flight) > IN_FLIGHT_MAX:
                in_flight.popleft().wait()


def submit(journal: LocalJournal, workload: Workload, history: History, line: Line) -> Completion | None:
    """Append one line, and write down what becomes of it; None if it was refused."""
    history.write(**line)
    number: int = line["n"]
    try:
        completion = apply_operation(journal, line | {"data": base64.b64decode(line.get("data", ""))}, number)
    except CallerError:
        history.write(refused=number)
        workload.refused(line)
        return None
    completion.add_callback(lambda error: history.told(number, error))
    return completion


if __name__ == "__main__":
    run(Path(sys.argv[1]), History(Path(sys.argv[2])), int(sys.argv[3]), int(sys.argv[4]))
