"""Broker nodes as processes that can be killed: each writes down what it submits and what it was told of it.

`python -m tests.support.nodes HISTORY SEED OPERATIONS` activates the journal of its environment, runs a seeded workload
(endless if OPERATIONS is 0) and is idle behind it; it closes cleanly when its standard input ends. A line of the
history is one write to the file, so it outlives a SIGKILL; a submission's precedes the call, an outcome's follows it.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from journal.append.completion import Completion
from journal.cli.script import apply_operation, prepared_line, record_line
from journal.config import load_settings
from journal.errors import CallerError, FencedError, JournalError
from journal.journal import BlockingJournal
from journal.load.loading import LoadCounts, LoadedUpdate
from journal.v1.journal_pb2 import Mark, Operation
from tests.support.history_files import open_history
from tests.support.node_history import Activation, parse_history
from tests.support.node_workload import Workload
from tests.support.processes import command_env
from tests.support.script_model import Line

IN_FLIGHT_MAX = 300
OPERATIONS_PER_S = 2000
"""So many that there is always something in flight, and what a test waits for still has a machine to run on."""
START_TIMEOUT_S = 60.0
_LOOK_EVERY_S = 0.005


class CollectingLoader:
    """A loader that keeps what it is told, in `dump`'s form."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.marks: dict[int, Mark] = {}

    @property
    def epoch(self) -> int:
        return max(mark.epoch for mark in self.marks.values())

    def begin(self, marks: Mapping[int, Mark]) -> None:
        self.marks = dict(marks)
        self.lines.clear()

    def record(
        self, record_id: int, kind: int, data: bytes, updates: Sequence[LoadedUpdate], position: tuple[int, int, int]
    ) -> None:
        self.lines.append(record_line(record_id, kind, data, updates))

    def prepared(self, tx: int, data: bytes, operations: Sequence[Operation]) -> None:
        self.lines.append(prepared_line(tx, data, operations))

    def complete(self, counts: LoadCounts) -> None: ...

    def activation(self) -> Activation:
        """What this loaded, as the first line of an activation's history."""
        return Activation(self.epoch, self.lines)


# ---- in the parent -------------------------------------------------------------------------------------------


class NodeProcess:
    """A node in a process of its own, which does not outlive a `with`. Everything of its is under `directory`."""

    def __init__(
        self,
        bootstrap: str,
        journal: str,
        directory: Path,
        seed: int,
        *,
        operations: int = 0,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._command = [sys.executable, "-m", "tests.support.nodes"]
        self._arguments = [str(seed), str(operations)]
        self._env = command_env(bootstrap, journal, directory, env)
        self._process: subprocess.Popen[bytes] | None = None
        self._directory = directory
        self.history_file = directory / "node.history"
        self.log_file = directory / "node.log"

    def start(self) -> NodeProcess:
        """Start it, or start it again; it goes on in the same history."""
        assert self._process is None or self._process.poll() is not None, "it runs already"
        self._directory.mkdir(parents=True, exist_ok=True)
        command = [*self._command, str(self.history_file), *self._arguments]
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=self._env)
        return self

    def history(self) -> str:
        """What it has written down so far."""
        return self.history_file.read_text() if self.history_file.exists() else ""

    def activations(self) -> list[Activation]:
        return parse_history(self.history())

    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def written(self) -> int:
        """How long its history is so far, in bytes."""
        return self.history_file.stat().st_size if self.history_file.exists() else 0

    def wait_for(self, text: str, *, count: int = 1, after: int = 0, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until so many lines of its history begin with `text`, of those behind the first `after` bytes."""
        until = time.monotonic() + timeout_s
        found, place = 0, after
        while True:
            for line in self._lines(place):
                place += len(line)
                found += line.startswith(text.encode())
            if found >= count:
                return
            assert self._started().poll() is None, f"the node ended:\n{self.log()}"
            assert time.monotonic() < until, f"no {text!r} within {timeout_s} s:\n{self.history()[-500:]}\n{self.log()}"
            time.sleep(_LOOK_EVERY_S)

    def wait_for_more(self, text: str, count: int) -> None:
        """Wait until so many more lines of its history begin with `text`."""
        self.wait_for(text, count=count, after=self.written())

    def _lines(self, place: int) -> list[bytes]:
        """The whole lines behind the first `place` bytes."""
        if self.written() <= place:
            return []
        with self.history_file.open("rb") as history:
            history.seek(place)
            return [line for line in history if line.endswith(b"\n")]

    def wait_until_active(self) -> NodeProcess:
        """Of a node that was started once."""
        self.wait_for('{"active":')
        return self

    def kill(self) -> None:
        self._started().kill()
        self._started().wait()

    def pause(self) -> None:
        """SIGSTOP."""
        self._started().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._started().send_signal(signal.SIGCONT)

    def stop(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Let it end its workload and close; it must end well."""
        process = self._started()
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(timeout_s) == 0, self.log()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _started(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "it was not started"
        return self._process

    def __enter__(self) -> NodeProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self.kill()


# ---- in the child --------------------------------------------------------------------------------------------


class History:
    """Lines appended to a file, each in one write, from any thread."""

    def __init__(self, path: Path) -> None:
        self._file = open_history(path)

    def write(self, **line: Any) -> None:
        self._file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")

    def told(self, number: int, error: JournalError | None) -> None:
        """What a completion said."""
        if error is None:
            self.write(done=number)
        else:
            self.write(failed=number, error=type(error).__name__)


class NotingLoader(CollectingLoader):
    """Writes down what it was told, once it was told all."""

    def __init__(self, history: History) -> None:
        super().__init__()
        self._history = history

    def complete(self, counts: LoadCounts) -> None:
        self._history.write(loaded=self.lines, epoch=self.epoch)


class Node:
    """One activation, and its workload."""

    def __init__(self, history: History, seed: int) -> None:
        self._history = history
        self._seed = seed
        self._over = threading.Event()
        self._in_flight: deque[Completion] = deque()
        self._journal = BlockingJournal(load_settings(None), on_critical=self._critical)

    def run(self, operations: int) -> None:
        """Until standard input ends, or the journal is lost."""
        threading.Thread(target=self._wait_for_end, daemon=True).start()
        with self._journal as journal:
            loader = NotingLoader(self._history)
            journal.activate(loader)
            self._history.write(active=loader.epoch)
            workload = Workload(self._seed, loader.epoch, loader.lines, journal.new_id)
            try:
                self._append(workload, operations)
            except FencedError as error:
                self._history.write(refusal=type(error).__name__, state=journal.state.value)
            self._over.wait()

    def _append(self, workload: Workload, operations: int) -> None:
        appended = 0
        while not self._over.is_set() and (not operations or appended < operations):
            began, before = time.monotonic(), appended
            for line in workload.burst():
                self._submit(workload, line)
                appended += 1
            if appended % 4 == 0:
                self._journal.flush().wait()
            self._over.wait(max(0.0, began + (appended - before) / OPERATIONS_PER_S - time.monotonic()))
        while self._in_flight:
            self._in_flight.popleft().wait()
        if operations:
            self._history.write(ended=appended)
            self._over.wait()
        # whoever was fenced while idle hears of it now
        self._journal.new_id()

    def _submit(self, workload: Workload, line: Line) -> None:
        self._history.write(**line)
        try:
            operation = line | {"data": base64.b64decode(line.get("data", ""))}
            completion = apply_operation(self._journal, operation, line["n"])
        except CallerError:
            self._history.write(refused=line["n"])
            workload.refused(line)
            return
        number: int = line["n"]
        completion.add_callback(lambda error: self._history.told(number, error))
        if "tx" not in line:
            self._in_flight.append(completion)
        while len(self._in_flight) > IN_FLIGHT_MAX:
            self._in_flight.popleft().wait()

    def _critical(self, error: JournalError) -> None:
        self._history.write(critical=type(error).__name__)

    def _wait_for_end(self) -> None:
        while os.read(sys.stdin.fileno(), 1):
            pass
        self._over.set()


def main() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    history, seed, operations = sys.argv[1:]
    Node(History(Path(history)), int(seed)).run(int(operations))


if __name__ == "__main__":
    main()
